"""``/health``, ``/ready``, ``/ping``, ``/version``, ``/v1/models``, ``/metrics``, ``/openapi.json``."""

from __future__ import annotations

from http import HTTPStatus
from importlib.metadata import version

import trio
from quart import Quart, Response

from trio_render.protocol.decoding import encode
from trio_render.protocol.tokenize import ModelCard, ModelList

from ..early import ALIVE
from ..metrics import CONTENT_TYPE
from ..openapi import openapi_document
from ..services import Services

__all__ = ["add_routes"]


def add_routes(app: Quart, services: Services) -> None:
    """Add the status routes. Their answers are made once."""
    own_version = version("trio-render")
    with_engine = services.frontend is not None
    models = encode(_models(services))
    document = b""
    about = encode({"version": own_version})

    # GET is answered in app.early; here is HEAD, and what a 405 names.
    @app.get("/health")
    async def health() -> Response:
        return Response(ALIVE.body, ALIVE.status, dict(ALIVE.headers))

    @app.route("/ping", methods=["GET", "POST"])
    async def ping() -> Response:
        return Response(ALIVE.body, ALIVE.status, dict(ALIVE.headers))

    @app.get("/ready")
    async def ready() -> Response:
        phase = "ready" if services.frontend is None else services.frontend.engine.phase
        status = HTTPStatus.OK if phase == "ready" else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(encode({"phase": phase}), status, content_type="application/json")

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(services.metrics.text(), content_type=CONTENT_TYPE)

    @app.get("/version")
    async def version_() -> Response:
        return Response(about, content_type="application/json")

    @app.get("/v1/models")
    async def list_models() -> Response:
        return Response(models, content_type="application/json")

    @app.get("/openapi.json")
    async def openapi() -> Response:
        # Some 25 ms of work that most servers are never asked for.
        nonlocal document
        if not document:
            document = await trio.to_thread.run_sync(
                lambda: encode(openapi_document(own_version, with_engine=with_engine))
            )
        return Response(document, content_type="application/json")


def _models(services: Services) -> ModelList:
    model = services.model
    names = services.settings.policy.served_names
    cards = [
        ModelCard(id=name, created=services.created, root=model.name, max_model_len=model.max_model_len)
        for name in names
    ]
    return ModelList(data=cards)
