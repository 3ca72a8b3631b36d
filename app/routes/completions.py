"""The front end: ``/v1/chat/completions``, ``/v1/completions`` and ``/inference/v1/generate``."""

from __future__ import annotations

from quart import Quart, Response

from trio_render import Frontend

from ..answering import answer_started
from ..services import Services

__all__ = ["add_routes"]


def add_routes(app: Quart, services: Services, frontend: Frontend) -> None:
    """Add the routes that need an engine."""

    @app.post("/v1/chat/completions")
    async def chat() -> Response:
        return await answer_started(services, frontend.start_chat)

    @app.post("/v1/completions")
    async def completion() -> Response:
        return await answer_started(services, frontend.start_completion)

    @app.post("/inference/v1/generate")
    async def generate() -> Response:
        return await answer_started(services, frontend.start_tokens)
