"""What the routes work with: the open model and its two faces, owned by one ``async with`` block."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio
import trio

from trio_render import (
    Derenderer,
    Frontend,
    Model,
    Offloader,
    Renderer,
    Stall,
    open_derenderer,
    open_offloader,
    open_renderer,
    open_workspace,
    watch_loop,
)

from .engines import open_engine
from .metrics import Metrics, watched_loop
from .process import settle_memory
from .settings import Settings

__all__ = ["Services", "open_services"]

log = logging.getLogger("trio_render.app")

_CLOSE_MARGIN_S = 0.5
"""So long before the server's grace ends are streams told that they end."""


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that a request needs.

    Attributes:
        created: when the model was opened, in Unix seconds.
        frontend: where there is an engine.
        stopping: set when the server stops: streams have as long as running requests to end.
    """

    settings: Settings
    model: Model
    renderer: Renderer
    derenderer: Derenderer
    offloader: Offloader
    metrics: Metrics
    created: int
    frontend: Frontend | None = None
    stopping: trio.Event = field(default_factory=trio.Event)

    async def wait_end_of_streams(self) -> None:
        """Wait until the server stops, and its grace is nearly over: streams that are left must be told."""
        await self.stopping.wait()
        await trio.sleep(max(self.settings.graceful_timeout_s - _CLOSE_MARGIN_S, 0))


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Open the model (in a worker thread, and in worker processes if so set), renderer and derenderer.

    Raises:
        ModelLoadError: the model can't be opened.
    """
    load = partial(
        open_workspace,
        settings.model,
        settings.policy,
        settings.max_model_len,
        settings.chat_template,
        settings.segment_cache,
    )
    # Abandoned when a signal ends the start: the process ends, too.
    workspace = await anyio.to_thread.run_sync(load, abandon_on_cancel=True)
    settle_memory()
    offloading = open_offloader(
        load,
        workspace,
        backend=settings.offload,
        limits=settings.limits,
        queue_limit=settings.queue_limit,
        processes=settings.processes,
    )
    async with (
        offloading as offloader,
        open_renderer(workspace, offloader=offloader) as renderer,
        open_derenderer(workspace, offloader=offloader) as derenderer,
        open_engine(settings, workspace, offloader) as engine,
    ):
        metrics = Metrics(offloader.statistics, lambda: workspace.model.tokenizer.segment_cache)
        async with watched_loop(metrics), _stalls_reported(settings.debug_loop_stalls_ms / 1000):
            yield Services(
                settings,
                workspace.model,
                renderer,
                derenderer,
                offloader,
                metrics,
                int(time.time()),
                None if engine is None else Frontend(renderer, derenderer, engine),
            )


@asynccontextmanager
async def _stalls_reported(bound_s: float) -> AsyncIterator[None]:
    if not bound_s:
        yield
        return

    def report(stall: Stall) -> None:
        log.warning("The event loop was busy for %.1f ms:\n%s", stall.busy_s * 1000, stall.stack)

    async with watch_loop(bound_s, report):
        yield
