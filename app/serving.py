"""Serve in this process: hypercorn's trio worker in our own nursery, with our own signals."""

from __future__ import annotations

import importlib
import logging
import sys
from functools import partial
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from hypercorn.config import Config

from . import create_app
from .process import tuned_process
from .services import Services, open_services
from .settings import Settings
from .signals import watch_signals

__all__ = ["log_to_stderr", "serve"]

log = logging.getLogger("trio_render.app")

_BACKLOG = 1024
_KEEP_ALIVE_S = 8.0
"""Longer than a client waits that was told to come back in three seconds, give or take."""
_REQUESTS_PER_CONNECTION = 1 << 31
"""hypercorn's own bound, a thousand, ends a probe's connection every ten seconds, and open HTTP/2 streams."""


async def serve(
    settings: Settings, *, listen_fd: int | None = None, also_stop: trio.Event | None = None
) -> None:
    """Open the model, serve until SIGINT or SIGTERM, let running requests finish, and return.

    Args:
        listen_fd: a listening socket to serve on instead of ``host`` and ``port``.
        also_stop: stops the server as a signal does.

    Prints one line to stdout when requests are accepted. A second signal is not special: what is left
    running after ``graceful_timeout_s`` is cancelled.

    Raises:
        ModelLoadError: the model can't be opened.
        OSError: the address can't be bound.
    """
    with tuned_process():
        async with trio.open_nursery() as nursery:
            stop = trio.Event()
            await nursery.start(watch_signals, stop)
            nursery.start_soon(_import_app)
            if also_stop is not None:
                nursery.start_soon(_stop_with, also_stop, stop)
            serving = trio.Event()
            with trio.CancelScope() as opening:
                nursery.start_soon(_cancel_opening, stop, serving, opening)
                async with open_services(settings) as services:
                    serving.set()
                    await _serve_app(services, listen_fd, stop)
            nursery.cancel_scope.cancel()


async def _import_app() -> None:
    """Import Quart while the model loads, which lets go of the GIL most of the time."""
    await trio.to_thread.run_sync(importlib.import_module, "app.application")


async def _cancel_opening(stop: trio.Event, serving: trio.Event, opening: trio.CancelScope) -> None:
    """Let a signal end the loading of the model. Once requests are served, it is a matter of draining."""
    await stop.wait()
    if not serving.is_set():
        opening.cancel()


async def _stop_with(other: trio.Event, stop: trio.Event) -> None:
    await other.wait()
    stop.set()


async def _serve_app(services: Services, listen_fd: int | None, stop: trio.Event) -> None:
    import hypercorn.trio

    from .connections import bounded_connections

    settings = services.settings
    async with bounded_connections(settings.write_timeout_s), trio.open_nursery() as nursery:
        config = _config(settings, listen_fd)
        # Compiling the routes takes some 20 ms.
        app = await trio.to_thread.run_sync(create_app, services)
        start = partial(hypercorn.trio.serve, app, config, shutdown_trigger=stop.wait)
        urls: list[str] = await nursery.start(start)
        nursery.start_soon(_stop_with, stop, services.stopping)
        print(_ready_line(services, urls[0]), flush=True)  # noqa: T201 - the contract with whoever started us
    log.info("Stopped.")


def _config(settings: Settings, listen_fd: int | None) -> Config:
    from hypercorn.config import Config

    config = Config()
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    config.bind = [f"{host}:{settings.port}" if listen_fd is None else f"fd://{listen_fd}"]
    config.backlog = _BACKLOG
    config.keep_alive_timeout = _KEEP_ALIVE_S
    config.keep_alive_max_requests = _REQUESTS_PER_CONNECTION
    config.graceful_timeout = settings.graceful_timeout_s
    config.websocket_max_message_size = settings.max_message
    config.include_server_header = False
    config.errorlog = logging.getLogger("trio_render.hypercorn")
    return config


def _ready_line(services: Services, url: str) -> str:
    settings, model = services.settings, services.model
    names = ", ".join(settings.policy.served_names)
    return (
        f"Ready: {url} serves {names} (vocabulary {model.vocab_size}, context {model.max_model_len},"
        f" encoder {model.tokenizer.encoder}; offload {settings.offload}, limits: {_limits(settings)})"
    )


def _limits(settings: Settings) -> str:
    kinds = f"render {settings.limit_render}, derender {settings.limit_derender}"
    if settings.limit_shared is not None:
        kinds = f"shared {settings.limit_shared}"
    process = settings.offload == "process"
    return f"{kinds}, " + (f"process {settings.processes}" if process else f"gil {settings.limit_gil}")


def log_to_stderr(level: str) -> None:
    """Send this program's log to stderr, one line per entry."""
    logging.basicConfig(
        stream=sys.stderr, level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
