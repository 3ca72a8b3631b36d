"""``/v1/chat/completions/derender`` and ``/v1/completions/derender``."""

from __future__ import annotations

from quart import Blueprint, Response, request

from ..body import read_json_body
from ..services import Services

__all__ = ["blueprint"]


def blueprint(services: Services) -> Blueprint:
    """Return the derender routes."""
    routes = Blueprint("derender", __name__)
    derenderer, settings = services.derenderer, services.settings

    @routes.post("/v1/chat/completions/derender")
    async def chat() -> Response:
        answer = await derenderer.chat_json(await read_json_body(request, settings))
        return Response(answer, content_type="application/json")

    @routes.post("/v1/completions/derender")
    async def completion() -> Response:
        answer = await derenderer.completion_json(await read_json_body(request, settings))
        return Response(answer, content_type="application/json")

    return routes
