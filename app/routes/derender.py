"""``/v1/chat/completions/derender`` and ``/v1/completions/derender``."""

from __future__ import annotations

from quart import Blueprint, Response

from ..answering import answer_json
from ..services import Services

__all__ = ["blueprint"]


def blueprint(services: Services) -> Blueprint:
    """Return the derender routes."""
    routes = Blueprint("derender", __name__)

    @routes.post("/v1/chat/completions/derender")
    async def chat() -> Response:
        return await answer_json(services, services.derenderer.chat_json)

    @routes.post("/v1/completions/derender")
    async def completion() -> Response:
        return await answer_json(services, services.derenderer.completion_json)

    return routes
