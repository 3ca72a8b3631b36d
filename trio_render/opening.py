"""What `open_renderer` and `open_derenderer` share: a workspace and an offloader, given or owned."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from anyio import to_thread

from .model.loading import Model
from .offload.limits import Limits
from .offload.offloader import Offloader, open_offloader
from .policy import Policy
from .workspace import Workspace, open_workspace, workspace_of

__all__ = ["opened"]


@asynccontextmanager
async def opened(
    model: Model | Workspace | str | Path,
    policy: Policy | None,
    limits: Limits,
    offloader: Offloader | None,
) -> AsyncIterator[tuple[Workspace, Offloader]]:
    """Open what is not open yet, for the length of the block. Raises `ModelLoadError`."""
    if isinstance(model, Workspace):
        workspace = model
    elif isinstance(model, Model):
        workspace = workspace_of(model, policy)
    else:
        workspace = await to_thread.run_sync(open_workspace, model, policy)
    if offloader is not None:
        yield workspace, offloader
        return
    load = partial(open_workspace, workspace.model.name, workspace.policy)
    async with open_offloader(load, workspace, backend="thread", limits=limits) as own:
        yield workspace, own
