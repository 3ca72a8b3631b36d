"""An engine behind HTTP: any server with vLLM's ``POST /inference/v1/generate``.

Source: vLLM 0.33 ``entrypoints/scale_out/token_in_token_out``.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar, final

import anyio
import msgspec
from anyio import CapacityLimiter
from anyio.lowlevel import checkpoint_if_cancelled

from ..errors import EngineError, InvalidRequest, Overloaded
from ..offload.jobs import Checkpoint
from ..offload.stats import LimiterStatistics
from ..offload.threads import ThreadBackend
from ..protocol.decoding import encode
from ..protocol.generate import GenerateRequest, GenerateResponse
from ..protocol.stream import ChunkChoice, GenerateChunk
from .base import Phase
from .events import EventReader
from .upstream import Answer, Upstream, open_upstream

__all__ = ["HttpEngine", "open_http_engine"]

T = TypeVar("T")

_PATH = "/inference/v1/generate"
_INLINE_BELOW_BYTES = 64 * 1024
_ERROR_LIMIT_BYTES = 64 * 1024
_MESSAGE_LIMIT_CHARS = 300
_RETRY_AFTER_LIMIT_S = 3600.0
_ERROR_BODY_S = 1.0
_LAST_BYTES_S = 0.05

_NONSENSE = "The engine's answer is not of the form it should have."


class _Fault(msgspec.Struct, frozen=True):
    message: str
    param: str | None = None


class _FaultBody(msgspec.Struct, frozen=True):
    error: _Fault


@final
class HttpEngine:
    """An `Engine` behind HTTP. Made by `open_http_engine`; safe to use from many tasks of one event loop."""

    takes_embeds = False
    in_flight = 64
    phase: Phase = "ready"
    """Always ``ready``: what the upstream is, its answers say."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        # Decoding keeps the GIL, so a second thread would gain nothing. The limiter is not an offloader's:
        # an engine needs no workspace, and a limit for generating is no limit for decoding.
        self._decoding = CapacityLimiter(1)
        self._threads = ThreadBackend()

    def statistics(self) -> LimiterStatistics:
        """Return how many generations there are, may be at a time, and wait for a connection."""
        return self._upstream.statistics()

    @asynccontextmanager
    async def generate(
        self, request: GenerateRequest, embeds: object = None
    ) -> AsyncIterator[AsyncIterator[GenerateChunk]]:
        """Generate for the length of the block; see `Engine.generate`.

        A stream's block begins with the head of the upstream's answer, and leaving it hangs up. A whole
        answer has come, as one piece, when its block begins.

        Raises, on entering or from the iterator:
            InvalidRequest: the upstream refuses the request as such; prompt embeddings.
            Overloaded: the upstream has no room.
            EngineError: the upstream can't be reached, fails, hangs up too early or answers nonsense.

        Cancellation: at any time, also while waiting for a connection, and the upstream sees it at once.
        """
        if embeds is not None:
            raise InvalidRequest("This engine takes no prompt embeddings.", "prompt_embeds")
        n = request.sampling_params.n
        if not request.stream:
            yield _Pieces([await self._whole(encode(request), n)])
            return
        async with self._upstream.exchange(encode(request)) as answer:
            await _check_status(answer)
            yield _Streamed(answer, n)

    async def _whole(self, body: bytes, n: int) -> GenerateChunk:
        async with self._upstream.exchange(body) as answer:
            await _check_status(answer)
            parts: list[bytes] = []
            while (part := await answer.part()) is not None:
                parts.append(part)
        if sum(map(len, parts)) < _INLINE_BELOW_BYTES:
            return _whole_chunk(parts, n)
        return await self._decoded_in_thread(parts, n)

    async def _decoded_in_thread(self, parts: list[bytes], n: int) -> GenerateChunk:
        def work(_: Checkpoint) -> GenerateChunk:
            return _whole_chunk(parts, n)

        borrower = object()
        await self._decoding.acquire_on_behalf_of(borrower)
        release = partial(self._decoding.release_on_behalf_of, borrower)
        return await self._threads.run(work, release, lambda _: None)


@final
class _Pieces:
    """Pieces that are there already."""

    def __init__(self, chunks: list[GenerateChunk]) -> None:
        self._chunks = deque(chunks)

    def __aiter__(self) -> _Pieces:
        return self

    async def __anext__(self) -> GenerateChunk:
        await checkpoint_if_cancelled()
        if not self._chunks:
            raise StopAsyncIteration
        return self._chunks.popleft()


@final
class _Streamed:
    """Pieces as they come. No generator, so that it may be left at any point."""

    def __init__(self, answer: Answer, n: int) -> None:
        self._answer = answer
        self._reader = EventReader()
        self._events: deque[bytes] = deque()
        self._choices = _Choices(n)
        self._ended = False

    def __aiter__(self) -> _Streamed:
        return self

    async def __anext__(self) -> GenerateChunk:
        await checkpoint_if_cancelled()
        while not self._ended:
            if self._events:
                event = self._events.popleft()
                if event.strip() != b"[DONE]":
                    chunk = _decoded(event, GenerateChunk)
                    self._choices.add(chunk)
                    return chunk
                await self._read_to_the_end()
                self._ended = True
            elif (part := await self._answer.part()) is not None:
                self._events.extend(self._reader.feed(part))
            else:
                self._ended = True
        self._choices.check_finished()
        raise StopAsyncIteration

    async def _read_to_the_end(self) -> None:
        """Read what frames the body, which mostly has come, so that the connection can be used again."""
        with anyio.move_on_after(_LAST_BYTES_S):
            await self._answer.part()


@final
class _Choices:
    """Which choices have ended."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._finished: set[int] = set()

    def add(self, chunk: GenerateChunk) -> None:
        for choice in chunk.choices:
            if choice.index >= self._n:
                raise EngineError("The engine answered with a choice that wasn't asked for.")
            if choice.finish_reason is not None:
                self._finished.add(choice.index)

    def check_finished(self) -> None:
        if len(self._finished) < self._n:
            raise EngineError("The engine's answer ended before all its choices did.")


def _decoded(data: bytes, type_: type[T]) -> T:
    """Return ``data`` as ``type_``. Raises `EngineError`, with the message of an error that it holds."""
    try:
        return msgspec.json.decode(data, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        fault = _fault(data)
    if fault is None:
        raise EngineError(_NONSENSE)
    raise EngineError(f"The engine failed: {fault.message[:_MESSAGE_LIMIT_CHARS]}")


def _fault(body: bytes) -> _Fault | None:
    try:
        return msgspec.json.decode(body, type=_FaultBody).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _whole_chunk(parts: list[bytes], n: int) -> GenerateChunk:
    """Return a whole answer as one piece. Raises `EngineError`."""
    response = _decoded(b"".join(parts), GenerateResponse)
    fields: dict[str, Any] = {
        name: getattr(response, name)
        for name in GenerateChunk.__struct_fields__
        if name not in ("choices", "usage")
    }
    try:
        choices = msgspec.convert(response.choices, list[ChunkChoice], from_attributes=True)
    except msgspec.ValidationError:  # Only an index is bounded in the one and not the other.
        raise EngineError(_NONSENSE) from None
    chunk = GenerateChunk(choices=choices, **fields)
    finished = _Choices(n)
    finished.add(chunk)
    finished.check_finished()
    return chunk


async def _check_status(answer: Answer) -> None:
    status = answer.status
    if status == 200:
        return
    body = await _error_body(answer)
    if status in (429, 503):
        raise Overloaded(f"The engine is overloaded (status {status}).", _retry_after(answer))
    fault = _fault(body) if status in (400, 413, 422) else None
    if fault is None:
        raise EngineError(f"The engine answered with status {status}.")
    raise InvalidRequest(fault.message[:_MESSAGE_LIMIT_CHARS], fault.param)


async def _error_body(answer: Answer) -> bytes:
    """Return the body, or as much of it as an error may have and comes soon.

    Reading it, also where the status says all, keeps the connection for the next request.
    """
    body = bytearray()
    with anyio.move_on_after(_ERROR_BODY_S), suppress(EngineError):
        while len(body) < _ERROR_LIMIT_BYTES and (part := await answer.part()) is not None:
            body += part
    return bytes(body)


def _retry_after(answer: Answer) -> float:
    try:
        seconds = float(answer.header(b"retry-after") or "")
    except ValueError:  # A date, or nothing.
        return 1.0
    if not math.isfinite(seconds) or seconds < 0:
        return 1.0
    return min(seconds, _RETRY_AFTER_LIMIT_S)


@asynccontextmanager
async def open_http_engine(
    url: str,
    *,
    api_key: str | None = None,
    connections: int = 1000,
    connect_timeout_s: float = 5.0,
    read_timeout_s: float | None = None,
    retries: int = 1,
) -> AsyncIterator[HttpEngine]:
    """Open an `HttpEngine` for the length of an ``async with`` block, whose end closes its connections.

    The upstream is not asked for anything before the first request.

    Args:
        url: the upstream's base, such as ``http://127.0.0.1:8001``, before ``/inference/v1/generate``.
        api_key: sent as a bearer token.
        connections: generations at a time; further ones wait for as long as their callers do.
        read_timeout_s: how long the upstream may be silent; as long as the caller waits by default.
        retries: how often a request may be sent again where the upstream can't have begun to work on it:
            there was no connection, or one that is used again turned out to be closed.

    Raises:
        ValueError: ``url`` is no URL of an HTTP server; it has a user, query or fragment.
    """
    headers = {"Content-Type": "application/json"}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    async with open_upstream(
        url.rstrip("/") + _PATH,
        headers,
        connections=connections,
        connect_timeout_s=connect_timeout_s,
        read_timeout_s=read_timeout_s,
        retries=retries,
    ) as upstream:
        yield HttpEngine(upstream)
