"""An engine in this process: a causal language model of transformers, in worker threads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, final

import anyio

from ..errors import EngineError, Overloaded
from ..offload.background import background_tasks, in_abandoned_thread
from ..offload.offloader import Offloader
from ..offload.telling import telling
from ..protocol.generate import GenerateRequest
from ..protocol.stream import GenerateChunk
from ..workspace import Workspace
from .base import Phase
from .constraints import Grammars
from .generation import GENERATE
from .requests import check_request
from .weights import Weights, load_weights

if TYPE_CHECKING:
    import torch

__all__ = ["TransformersEngine", "open_transformers_engine"]

_LOADING_RETRY_S = 2.0


@final
class TransformersEngine:
    """An `Engine`, made by `open_transformers_engine`. See there for how many requests run at a time.

    Attributes:
        takes_embeds: prompts may be embeddings.
    """

    takes_embeds = True

    def __init__(self, workspace: Workspace, offloader: Offloader, weights: Weights | None = None) -> None:
        self._workspace = workspace
        self._offloader = offloader
        self._settled = anyio.Event()
        self._failure = ""
        self._loaded: tuple[Weights, Grammars] | None = None
        if weights is not None:
            self.use(weights)

    @property
    def in_flight(self) -> int:
        """As many as may run at a time."""
        return self._offloader.limit("engine")

    @property
    def phase(self) -> Phase:
        """Whether requests can be answered now."""
        if self._loaded is not None:
            return "ready"
        return "failed" if self._settled.is_set() else "loading"

    async def wait_ready(self) -> None:
        """Wait until the weights are loaded.

        Raises:
            EngineError: they could not be loaded.

        Cancellation: nothing else ends.
        """
        await self._settled.wait()
        if self._loaded is None:
            raise EngineError(self._failure)

    def use(self, weights: Weights) -> None:
        """Answer requests with ``weights`` from now on."""
        self._loaded = weights, Grammars(self._workspace.model, weights.vocab_size)
        self._settled.set()

    async def load(self, source: str, device: str | None, dtype: torch.dtype | None) -> None:
        """Load weights, or keep why that failed.

        Cancellation: the caller goes at once; the loading thread runs to its end.
        """
        try:
            self.use(await in_abandoned_thread(partial(load_weights, source, device, dtype)))
        except Exception as error:
            self._failure = str(error) or type(error).__name__
            self._settled.set()

    @asynccontextmanager
    async def generate(
        self, request: GenerateRequest, embeds: torch.Tensor | None = None
    ) -> AsyncIterator[AsyncIterator[GenerateChunk]]:
        """Generate for the length of an ``async with`` block; see `Engine.generate`.

        A piece comes with each step of decoding, and holds the choices that got a token in it.

        Raises:
            InvalidRequest: a parameter that is out of range or not supported; it is named.
            Overloaded: the weights are being loaded, or the queue is full.
            EngineError: the weights could not be loaded, or the model failed.

        Cancellation: the end of the block ends the work within one token, and waits for that.
        """
        if self._loaded is None:
            if self._settled.is_set():
                raise EngineError(self._failure)
            raise Overloaded("The model's weights are being loaded.", _LOADING_RETRY_S)
        weights, grammars = self._loaded
        check_request(request, embeds, self._workspace.model, weights)
        async with telling(self._offloader, GENERATE, (), weights, grammars, request, embeds) as chunks:
            yield chunks


@asynccontextmanager
async def open_transformers_engine(
    workspace: Workspace,
    offloader: Offloader,
    *,
    source: str | None = None,
    device: str | None = None,
    dtype: torch.dtype | None = None,
) -> AsyncIterator[TransformersEngine]:
    """Open an engine for the length of an ``async with`` block, which begins before the weights are loaded.

    Requests wait for ``offloader``'s limiter ``engine``, and each has it for itself as long as it runs.

    Args:
        source: where the weights are, as for `open_model`; by default where the model was opened from.
        device: torch's name of it; by default a GPU if there is one.
        dtype: by default bfloat16 on a GPU and float32 elsewhere.

    Cancellation: weights that are being loaded are left to their thread.
    """
    engine = TransformersEngine(workspace, offloader)
    async with background_tasks() as group:
        group.start_soon(engine.load, source or workspace.model.name, device, dtype)
        yield engine
