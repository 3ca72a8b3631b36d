"""``/v1/chat/completions/derender`` and ``/v1/completions/derender``: POST, and WebSocket for streams."""

from __future__ import annotations

from quart import Quart, Response

from ..answering import answer_json
from ..services import Services
from ..stream_socket import converse

__all__ = ["add_routes"]

_CHAT = "/v1/chat/completions/derender"
_COMPLETION = "/v1/completions/derender"


def add_routes(app: Quart, services: Services) -> None:
    """Add the derender routes."""

    @app.post(_CHAT)
    async def derender_chat() -> Response:
        return await answer_json(services, services.derenderer.chat_json)

    @app.websocket(_CHAT)
    async def derender_chat_stream() -> None:
        await converse(services, _CHAT, services.derenderer.open_chat_stream_json)

    @app.post(_COMPLETION)
    async def derender_completion() -> Response:
        return await answer_json(services, services.derenderer.completion_json)

    @app.websocket(_COMPLETION)
    async def derender_completion_stream() -> None:
        await converse(services, _COMPLETION, services.derenderer.open_completion_stream_json)
