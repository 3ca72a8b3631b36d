"""Front ends over an engine that replays."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opened_models import opened
from replayed_engine import ReplayedEngine

from trio_render import Frontend, Policy, open_derenderer, open_offloader, open_renderer, workspace_of

OpenFrontend = Callable[..., AbstractAsyncContextManager[Frontend]]


@pytest.fixture
def open_frontend(model_folders: Path) -> OpenFrontend:
    """Opens a front end of a model folder over an engine; ``policy`` as for `Policy`."""

    @asynccontextmanager
    async def open_(
        engine: ReplayedEngine, folder: str = "smollm2", **policy: Any
    ) -> AsyncIterator[Frontend]:
        workspace = workspace_of(opened(model_folders / folder), Policy(**{"served_names": ("m",), **policy}))
        async with (
            open_offloader(lambda: workspace, workspace) as offloader,
            open_renderer(workspace, offloader=offloader) as renderer,
            open_derenderer(workspace, offloader=offloader) as derenderer,
        ):
            yield Frontend(renderer, derenderer, engine)

    return open_
