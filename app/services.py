"""What the routes work with: the open model and its two faces, owned by one ``async with`` block."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import anyio
import trio

from trio_render import (
    Derenderer,
    Engine,
    Frontend,
    Model,
    Offloader,
    Renderer,
    Stall,
    Workspace,
    open_derenderer,
    open_offloader,
    open_renderer,
    open_workspace,
    watch_loop,
)

from .metrics import Metrics, watched_loop
from .settings import Settings

__all__ = ["Services", "open_services", "tuned_process"]

log = logging.getLogger("trio_render.app")

_SWITCH_INTERVAL_S = 0.0005
_OWN_THREADS = ("FASTOKENS_BPE_THREADS", "OMP_NUM_THREADS")


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
        _opened_engine(settings, workspace, offloader) as engine,
    ):
        _settle_memory()
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
async def _opened_engine(
    settings: Settings, workspace: Workspace, offloader: Offloader
) -> AsyncIterator[Engine | None]:
    """Open the engine that the settings ask for. Its modules are imported where they are needed only."""
    match settings.chosen_engine:
        case "http":
            from trio_render.engine.http import open_http_engine

            async with open_http_engine(settings.upstream or "") as upstream:
                yield upstream
        case "transformers":
            from trio_render.engine.transformers import open_transformers_engine

            async with open_transformers_engine(workspace, offloader) as engine:
                yield engine
        case _:
            yield None


@asynccontextmanager
async def _stalls_reported(bound_s: float) -> AsyncIterator[None]:
    if not bound_s:
        yield
        return

    def report(stall: Stall) -> None:
        log.warning("The event loop was busy for %.1f ms:\n%s", stall.busy_s * 1000, stall.stack)

    async with watch_loop(bound_s, report):
        yield


def _settle_memory() -> None:
    """Give back what loading has used, and keep the collector off what stays.

    The model's tables live as long as the process; a full collection over them stops everything.
    """
    gc.collect()
    gc.freeze()
    if sys.platform == "linux":
        # glibc keeps hundreds of MB that parsing a large vocabulary has freed; musl has no such call.
        with suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)


@contextmanager
def tuned_process() -> Iterator[None]:
    """Set what the whole process shares, as a server wants it, for the length of the block.

    The event loop has the GIL back from a busy thread after 0.5 ms instead of 5. fastokens encodes a text in
    the thread that asks for it, and PyTorch reads a tensor there: threads of their own are outside every
    limit. Each of fastokens' keeps a cache of some 50 MB; PyTorch's wait for each other every 0.1 ms, which
    on busy cores takes many times longer than the work. An operator who has set ``FASTOKENS_BPE_THREADS`` or
    ``OMP_NUM_THREADS`` is left alone. PyTorch reads the latter when it is imported.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    unset = [name for name in _OWN_THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(unset, "1"))
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        for name in unset:
            del os.environ[name]
