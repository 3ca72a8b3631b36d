"""An engine that says what a test has recorded, in pieces of the sizes that the test wants."""

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from trio_render import (
    Candidate,
    ChunkChoice,
    GenerateChunk,
    GenerateLogprobs,
    GenerateRequest,
    InvalidRequest,
    TokenLogprob,
)
from trio_render.engine.base import Phase


@dataclass(frozen=True)
class Output:
    """What the engine generates for one choice."""

    token_ids: list[int]
    finish_reason: str = "stop"
    """Empty: the engine ends without one."""
    stop_reason: int | str | None = None


@dataclass
class ReplayedEngine:
    """An `Engine`. Each prompt of a request gets ``outputs``, one for each choice.

    Attributes:
        cut: tokens of a choice in each piece; the last number stays.
        together: a piece holds every choice, not one of them.
        failure: raised from the iterator behind that many pieces.
        dying: raised where the engine is left in the middle of its work.
        pause_s: before each piece.
        open: generations under way.
    """

    outputs: Sequence[Output]
    cut: Sequence[int] = (1,)
    together: bool = False
    failure: tuple[int, Exception] | None = None
    dying: Exception | None = None
    pause_s: float = 0.0
    takes_embeds: bool = False
    in_flight: int = 4
    phase: Phase = "ready"
    open: int = 0
    most_open: int = 0
    requests: list[GenerateRequest] = field(default_factory=list)
    told: int = 0

    @asynccontextmanager
    async def generate(
        self, request: GenerateRequest, embeds: object = None
    ) -> AsyncIterator[AsyncIterator[GenerateChunk]]:
        """See `Engine.generate`."""
        if len(self.outputs) != request.sampling_params.n:
            raise InvalidRequest("Nothing was recorded for so many choices.", "n")
        self.requests.append(request)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        pieces = _Pieces(self, request)
        try:
            yield pieces
        finally:
            self.open -= 1
            if self.dying is not None and not pieces.ended:
                raise self.dying


class _Pieces:
    def __init__(self, engine: ReplayedEngine, request: GenerateRequest) -> None:
        self.ended = False
        self._engine = engine
        self._chunks = iter(list(_chunks(engine, request)))
        self._told = 0

    def __aiter__(self) -> "_Pieces":
        return self

    async def __anext__(self) -> GenerateChunk:
        await (anyio.sleep(self._engine.pause_s) if self._engine.pause_s else checkpoint())
        if self._engine.failure is not None and self._engine.failure[0] == self._told:
            raise self._engine.failure[1]
        chunk = next(self._chunks, None)
        if chunk is None:
            self.ended = True
            raise StopAsyncIteration
        self._told += 1
        self._engine.told += 1
        return chunk


def _chunks(engine: ReplayedEngine, request: GenerateRequest) -> list[GenerateChunk]:
    """The pieces of an answer: step by step, its choices in one piece or one after the other."""
    steps = [
        [_choice(index, piece, output, request) for piece in _cut(output, engine.cut)]
        for index, output in enumerate(engine.outputs)
    ]
    rounds = [
        [pieces[k] for pieces in steps if k < len(pieces)]
        for k in range(max(len(pieces) for pieces in steps))
    ]
    groups = rounds if engine.together else [[choice] for choices in rounds for choice in choices]
    first: dict[str, Any] = {}
    if request.sampling_params.prompt_logprobs is not None:
        first["prompt_logprobs"] = prompt_logprobs(request.token_ids)
    chunks = []
    for choices in groups:
        chunks.append(GenerateChunk(request_id=request.request_id, choices=choices, **first))
        first = {}
    return chunks


def _cut(output: Output, sizes: Sequence[int]) -> list[range]:
    pieces, start = [], 0
    for k in range(len(output.token_ids) + 1):
        end = min(start + sizes[min(k, len(sizes) - 1)], len(output.token_ids))
        pieces.append(range(start, end))
        start = end
        if start == len(output.token_ids):
            break
    return pieces


def _choice(index: int, piece: range, output: Output, request: GenerateRequest) -> ChunkChoice:
    ids = [output.token_ids[k] for k in piece]
    is_last = piece.stop == len(output.token_ids)
    count = request.sampling_params.logprobs
    return ChunkChoice(
        index=index,
        token_ids=ids,
        finish_reason=(output.finish_reason or None) if is_last else None,
        stop_reason=output.stop_reason if is_last else None,
        logprobs=None if count is None else GenerateLogprobs(content=[place(k, count) for k in ids]),
    )


def place(token_id: int, n_candidates: int) -> TokenLogprob:
    """Values that depend on the token alone."""
    candidates = [Candidate(token_id=token_id + k, logprob=-0.5 - k) for k in range(max(n_candidates, 0))]
    return TokenLogprob(token_id=token_id, logprob=-0.5, top_logprobs=candidates)


def prompt_logprobs(token_ids: Sequence[int]) -> list[dict[str, dict[str, Any]] | None]:
    """As vLLM writes them: nothing for the first token."""
    rest = [{str(k): {"logprob": -math.log(k + 2), "rank": 1, "decoded_token": None}} for k in token_ids[1:]]
    return [None, *rest]
