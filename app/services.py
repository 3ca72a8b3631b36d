"""What the routes work with: the open model and its two faces, owned by one ``async with`` block."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import anyio

from trio_render import Derenderer, Model, Renderer, open_derenderer, open_model, open_renderer

from .settings import Settings

__all__ = ["Services", "open_services", "tuned_process"]

_SWITCH_INTERVAL_S = 0.0005


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that a request needs. ``created`` is when the model was opened, in Unix seconds."""

    settings: Settings
    model: Model
    renderer: Renderer
    derenderer: Derenderer
    created: int


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Open the model (in a worker thread) and its renderer and derenderer.

    Raises:
        ModelLoadError: the model can't be opened.
    """
    load = partial(
        open_model,
        settings.model,
        max_model_len=settings.max_model_len,
        chat_template=settings.chat_template,
    )
    model = await anyio.to_thread.run_sync(load)
    policy = settings.policy
    async with (
        open_renderer(model, policy=policy, limiter=settings.limit_render) as renderer,
        open_derenderer(model, policy=policy, limiter=settings.limit_derender) as derenderer,
    ):
        _settle_memory()
        yield Services(settings, model, renderer, derenderer, int(time.time()))


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
    """Let the event loop have the GIL back from a busy thread after 0.5 ms instead of 5."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
