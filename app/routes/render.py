"""``/v1/chat/completions/render`` and ``/v1/completions/render``."""

from __future__ import annotations

from quart import Blueprint, Response, request

from ..answering import answer_json
from ..services import Services

__all__ = ["blueprint"]


def blueprint(services: Services) -> Blueprint:
    """Return the render routes."""
    routes = Blueprint("render", __name__)
    renderer = services.renderer

    @routes.post("/v1/chat/completions/render")
    async def chat() -> Response:
        request_id = request.headers.get("X-Request-Id")
        return await answer_json(services, lambda body: renderer.chat_json(body, request_id))

    @routes.post("/v1/completions/render")
    async def completion() -> Response:
        request_id = request.headers.get("X-Request-Id")
        return await answer_json(services, lambda body: renderer.completion_json(body, request_id))

    return routes
