"""The Quart-Trio app: error shapes, routes, and where its services come from."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from quart import Response, request
from quart_trio import QuartTrio

from .answering import incoming_of
from .asgi import HTTPConnection, LeanWebsocket, WebsocketConnection
from .cli import settings_from_environment
from .connections import bounded_connections
from .early import EarlyAnswers
from .errors import register_error_handlers
from .routes import completions, derender, render, status, tokenize
from .services import Services, open_services
from .sse import EventStream

__all__ = ["build_app"]


class _App(QuartTrio):
    asgi_http_class = HTTPConnection
    asgi_websocket_class = WebsocketConnection
    websocket_class = LeanWebsocket


def build_app(services: Services | None) -> QuartTrio:
    """Return the app; see `app.create_app`."""
    app = _App(__name__, static_folder=None)
    # Bodies are counted and timed in app.body; a response may take as long as its work does.
    app.config["MAX_CONTENT_LENGTH"] = None
    app.config["BODY_TIMEOUT"] = None
    app.config["RESPONSE_TIMEOUT"] = None
    register_error_handlers(app)
    if services is not None:
        _add_routes(app, services)
    else:
        _open_in_lifespan(app)
    return app


def _add_routes(app: QuartTrio, services: Services) -> None:
    for family in (derender, status):
        family.add_routes(app, services)
    if services.frontend is not None:
        completions.add_routes(app, services, services.frontend)

    @app.after_request
    async def count(response: Response) -> Response:
        rule = request.url_rule
        if not isinstance(response, EventStream):
            services.metrics.count_request("unknown" if rule is None else rule.rule, response.status_code)
        if not await incoming_of(request).is_done():
            response.headers["Connection"] = "close"
        return response

    works = {**render.works(services), **derender.works(services), **tokenize.works(services)}
    app.asgi_app = EarlyAnswers(app.asgi_app, services, works)  # type: ignore[method-assign]


def _open_in_lifespan(app: QuartTrio) -> None:
    settings = settings_from_environment()

    @app.while_serving
    async def services() -> AsyncGenerator[None]:
        async with bounded_connections(settings.write_timeout_s), open_services(settings) as opened:
            _add_routes(app, opened)
            yield
