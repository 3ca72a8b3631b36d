"""``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

from quart import Quart, Response

from ..answering import answer_json
from ..services import Services

__all__ = ["add_routes"]


def add_routes(app: Quart, services: Services) -> None:
    """Add the tokenize routes."""

    @app.post("/tokenize")
    async def tokenize() -> Response:
        return await answer_json(services, services.renderer.tokenize_json)

    @app.post("/detokenize")
    async def detokenize() -> Response:
        return await answer_json(services, services.derenderer.detokenize_json)
