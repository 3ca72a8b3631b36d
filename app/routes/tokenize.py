"""``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

from quart import Blueprint, Response, request

from ..body import read_json_body
from ..services import Services

__all__ = ["blueprint"]


def blueprint(services: Services) -> Blueprint:
    """Return the tokenize routes."""
    routes = Blueprint("tokenize", __name__)
    settings = services.settings

    @routes.post("/tokenize")
    async def tokenize() -> Response:
        answer = await services.renderer.tokenize_json(await read_json_body(request, settings))
        return Response(answer, content_type="application/json")

    @routes.post("/detokenize")
    async def detokenize() -> Response:
        answer = await services.derenderer.detokenize_json(await read_json_body(request, settings))
        return Response(answer, content_type="application/json")

    return routes
