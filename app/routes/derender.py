"""``/v1/chat/completions/derender`` and ``/v1/completions/derender``: POST, and WebSocket for streams."""

from __future__ import annotations

from quart import Quart

from ..answering import Work
from ..services import Services
from ..stream_socket import converse

__all__ = ["add_routes", "works"]

_CHAT = "/v1/chat/completions/derender"
_COMPLETION = "/v1/completions/derender"


def works(services: Services) -> dict[str, Work]:
    """Return what makes an answer of a body, by path."""
    return {
        _CHAT: lambda body, _: services.derenderer.chat_json(body),
        _COMPLETION: lambda body, _: services.derenderer.completion_json(body),
    }


def add_routes(app: Quart, services: Services) -> None:
    """Add the streams."""

    @app.websocket(_CHAT)
    async def derender_chat_stream() -> None:
        await converse(services, _CHAT, services.derenderer.open_chat_stream_json)

    @app.websocket(_COMPLETION)
    async def derender_completion_stream() -> None:
        await converse(services, _COMPLETION, services.derenderer.open_completion_stream_json)
