"""``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

from quart import Blueprint, Response

from ..answering import answer_json
from ..services import Services

__all__ = ["blueprint"]


def blueprint(services: Services) -> Blueprint:
    """Return the tokenize routes."""
    routes = Blueprint("tokenize", __name__)

    @routes.post("/tokenize")
    async def tokenize() -> Response:
        return await answer_json(services, services.renderer.tokenize_json)

    @routes.post("/detokenize")
    async def detokenize() -> Response:
        return await answer_json(services, services.derenderer.detokenize_json)

    return routes
