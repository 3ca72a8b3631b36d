"""``/v1/chat/completions/render`` and ``/v1/completions/render``."""

from __future__ import annotations

from quart import Blueprint, Response, request

from ..body import read_json_body
from ..services import Services

__all__ = ["blueprint"]


def blueprint(services: Services) -> Blueprint:
    """Return the render routes."""
    routes = Blueprint("render", __name__)
    renderer, settings = services.renderer, services.settings

    @routes.post("/v1/chat/completions/render")
    async def chat() -> Response:
        body = await read_json_body(request, settings)
        answer = await renderer.chat_json(body, request.headers.get("X-Request-Id"))
        return Response(answer, content_type="application/json")

    @routes.post("/v1/completions/render")
    async def completion() -> Response:
        body = await read_json_body(request, settings)
        answer = await renderer.completion_json(body, request.headers.get("X-Request-Id"))
        return Response(answer, content_type="application/json")

    return routes
