"""``/v1/chat/completions/derender`` and ``/v1/completions/derender``: POST, and WebSocket for streams."""

from __future__ import annotations

from quart import Blueprint, Response

from ..answering import answer_json
from ..services import Services
from ..stream_socket import converse

__all__ = ["blueprint"]

_CHAT = "/v1/chat/completions/derender"
_COMPLETION = "/v1/completions/derender"


def blueprint(services: Services) -> Blueprint:
    """Return the derender routes."""
    routes = Blueprint("derender", __name__)

    @routes.post(_CHAT)
    async def chat() -> Response:
        return await answer_json(services, services.derenderer.chat_json)

    @routes.websocket(_CHAT)
    async def chat_stream() -> None:
        await converse(services, _CHAT, services.derenderer.open_chat_stream_json)

    @routes.post(_COMPLETION)
    async def completion() -> Response:
        return await answer_json(services, services.derenderer.completion_json)

    @routes.websocket(_COMPLETION)
    async def completion_stream() -> None:
        await converse(services, _COMPLETION, services.derenderer.open_completion_stream_json)

    return routes
