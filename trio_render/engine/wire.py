"""An engine's pieces as a server writes them: one server-sent event each, or one whole answer of them all."""

from __future__ import annotations

from typing import Any, final

import msgspec

from ..errors import EngineError
from ..protocol.generate import GenerateChoice, GenerateRequest, GenerateResponse
from ..protocol.logprobs import GenerateLogprobs, TokenLogprob
from ..protocol.stream import ChunkChoice, GenerateChunk

__all__ = ["DONE", "Collected", "chunk_event", "error_event"]

DONE = b"data: [DONE]\n\n"
"""The event that ends a stream."""

_encoder = msgspec.json.Encoder()

_OTHERS = (
    "prompt_token_ids",
    "prompt_logprobs",
    "kv_transfer_params",
    "ec_transfer_params",
    "weight_version",
    "metrics",
)
"""Fields that an answer and its pieces share, choices aside."""


def chunk_event(chunk: GenerateChunk) -> bytes:
    """Return ``chunk`` as an event.

    Raises:
        EngineError: something in it is nested too deep.
    """
    try:
        return b"data: %b\n\n" % _encoder.encode(chunk)
    except RecursionError:
        raise EngineError("The engine's answer is nested too deep.") from None


def error_event(body: bytes) -> bytes:
    """Return the event of an error in mid-stream. ``body`` is the error as JSON."""
    return b"".join(b"data: %b\n" % line for line in body.splitlines() or [b""]) + b"\n"


class _CollectedChoice:
    __slots__ = ("finish_reason", "logprobs", "routed_experts", "stop_reason", "token_ids")

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprob] | None = None
        self.finish_reason: str | None = None
        self.stop_reason: Any = None
        self.routed_experts: Any = None

    def add(self, piece: ChunkChoice) -> None:
        self.token_ids += piece.token_ids or ()
        if piece.logprobs is not None:
            self.logprobs = self.logprobs or []
            self.logprobs += piece.logprobs.content or ()
        if piece.routed_experts is not None:
            self.routed_experts = piece.routed_experts
        self.finish_reason, self.stop_reason = piece.finish_reason, piece.stop_reason


@final
class Collected:
    """The pieces of the answer to one request, put together as they come. It costs what the pieces cost."""

    def __init__(self, request: GenerateRequest) -> None:
        self._request_id = request.request_id
        self._choices = [_CollectedChoice() for _ in range(request.sampling_params.n)]
        # A later piece's value replaces an earlier one's.
        self._others: dict[str, Any] = {}

    @property
    def n_tokens(self) -> int:
        """How many tokens have come, of all choices."""
        return sum(len(choice.token_ids) for choice in self._choices)

    @property
    def is_finished(self) -> bool:
        """Whether every choice has its ``finish_reason``."""
        return all(choice.finish_reason is not None for choice in self._choices)

    def add(self, chunk: GenerateChunk) -> None:
        """Add the next piece. What comes for a choice behind its ``finish_reason`` is not looked at.

        Raises:
            EngineError: the piece is of a choice that wasn't asked for.
        """
        for piece in chunk.choices:
            if piece.index >= len(self._choices):
                raise EngineError("The engine answered with a choice that wasn't asked for.")
            choice = self._choices[piece.index]
            if choice.finish_reason is None:
                choice.add(piece)
        for name in _OTHERS:
            value = getattr(chunk, name)
            if value is not None:
                self._others[name] = value

    def response(self) -> GenerateResponse:
        """Return the whole answer, its choices by index. It shares the lists that were collected.

        Raises:
            EngineError: a choice has no ``finish_reason`` yet.
        """
        if not self.is_finished:
            raise EngineError("The engine's answer ended before all its choices did.")
        choices = [
            GenerateChoice(
                index=index,
                token_ids=choice.token_ids,
                finish_reason=choice.finish_reason,
                stop_reason=choice.stop_reason,
                logprobs=None if choice.logprobs is None else GenerateLogprobs(content=choice.logprobs),
                routed_experts=choice.routed_experts,
            )
            for index, choice in enumerate(self._choices)
        ]
        return GenerateResponse(request_id=self._request_id, choices=choices, **self._others)
