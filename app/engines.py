"""The engine that the settings ask for. Its modules are imported where they are needed only."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from trio_render import Engine, EngineError, Offloader, Workspace
from trio_render.offload.background import background_tasks

from .process import collector_off, trim_memory
from .settings import Settings

if TYPE_CHECKING:
    from trio_render.engine.transformers import TransformersEngine

__all__ = ["open_engine"]

log = logging.getLogger("trio_render.app")


@asynccontextmanager
async def open_engine(
    settings: Settings, workspace: Workspace, offloader: Offloader
) -> AsyncIterator[Engine | None]:
    """Open an engine for the length of the block; ``None``: the server only renders and derenders."""
    match settings.chosen_engine:
        case "http":
            from trio_render.engine.http import open_http_engine

            async with open_http_engine(settings.upstream or "") as upstream:
                yield upstream
        case "transformers":
            from trio_render.engine.transformers import open_transformers_engine

            async with (
                open_transformers_engine(workspace, offloader) as engine,
                background_tasks() as group,
            ):
                group.start_soon(_settle_weights, engine)
                yield engine
        case "none":
            yield None


async def _settle_weights(engine: TransformersEngine) -> None:
    """Keep the event loop calm while weights load beside requests, and memory small afterwards."""
    try:
        with collector_off():
            await engine.wait_ready()
    except EngineError as error:
        log.error("The model's weights could not be loaded: %s", error)
        return
    await anyio.to_thread.run_sync(trim_memory, abandon_on_cancel=True)
    log.info("The model's weights are loaded.")
