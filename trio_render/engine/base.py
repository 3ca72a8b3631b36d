"""What an engine is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Literal, Protocol

from ..protocol.generate import GenerateRequest
from ..protocol.stream import GenerateChunk

if TYPE_CHECKING:
    import torch

__all__ = ["Engine", "Phase"]

Phase = Literal["loading", "ready", "failed"]
"""``loading``: weights are on their way; ``failed``: they could not be loaded."""


class Engine(Protocol):
    """Generates tokens. Safe to use from many tasks of one event loop."""

    @property
    def takes_embeds(self) -> bool:
        """Whether prompts may be given as embeddings."""

    @property
    def in_flight(self) -> int:
        """How many of one request's prompts are worth having under way at a time."""

    @property
    def phase(self) -> Phase:
        """Whether requests can be answered now."""

    def generate(
        self, request: GenerateRequest, embeds: torch.Tensor | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[GenerateChunk]]:
        """Generate for the length of an ``async with`` block, whose end stops the work.

        Nothing runs before the block is entered. Each choice, 0 to ``sampling_params.n - 1``, comes in
        pieces, in order, choices interleaved as they come; the last piece of each has a ``finish_reason``.
        A token that stopped a choice is its last one; text behind a stop string may follow, and is cut off
        by derendering. Where ``request.stream`` is false, the pieces may be as large as the answer.

        Args:
            embeds: the prompt as (rows, hidden size), instead of ``request.token_ids``.

        Raises, on entering or from the iterator:
            InvalidRequest: the engine can't do what ``request`` asks for.
            Overloaded: it has no room, or is not ready yet.
            EngineError: it failed, or answered nonsense.
        """
