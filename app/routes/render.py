"""``/v1/chat/completions/render`` and ``/v1/completions/render``."""

from __future__ import annotations

from quart import Quart, Response, request

from ..answering import answer_json
from ..services import Services

__all__ = ["add_routes"]


def add_routes(app: Quart, services: Services) -> None:
    """Add the render routes."""
    renderer = services.renderer

    @app.post("/v1/chat/completions/render")
    async def render_chat() -> Response:
        request_id = request.headers.get("X-Request-Id")
        return await answer_json(services, lambda body: renderer.chat_json(body, request_id))

    @app.post("/v1/completions/render")
    async def render_completion() -> Response:
        request_id = request.headers.get("X-Request-Id")
        return await answer_json(services, lambda body: renderer.completion_json(body, request_id))
