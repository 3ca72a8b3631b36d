"""One HTTP server as an upstream: its connections, exchanges on them, and what can go wrong there.

Built on httpcore, httpx's lower half, since only here can be seen whether a connection that broke had been
used before and whether any byte had come over it: what decides whether a request may be sent once more.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, final
from urllib.parse import urlsplit

import anyio
import httpcore
from anyio import CapacityLimiter

from ..errors import EngineError
from ..offload.limits import limiter_statistics
from ..offload.stats import LimiterStatistics

__all__ = ["Answer", "Upstream", "open_upstream"]

_KEPT_IDLE_S = 4.0
"""Uvicorn closes a connection after five idle seconds. Who lets go first doesn't send into a closed one."""
_BACKOFF_S = 0.05

_Failures = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)


class _Stale(httpcore.ReadError):
    """A connection that had answered before broke, and nothing came of the answer to the last request."""


@final
class _Stream(httpcore.AsyncNetworkStream):
    """A connection that knows whether it is stale."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._has_answered = False
        self._has_asked = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        stale = self._has_answered and self._has_asked
        try:
            data = await self._inner.read(max_bytes, timeout)
        except httpcore.ReadError:
            if stale:
                raise _Stale from None
            raise
        if data:
            self._has_answered, self._has_asked = True, False
        elif stale:
            raise _Stale
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        self._has_asked = True
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        try:
            return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._inner.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


@final
class _Network(httpcore.AsyncNetworkBackend):
    """anyio's connections, watched."""

    def __init__(self) -> None:
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._inner.connect_tcp(host, port, timeout, local_address, socket_options))


@final
class _Body:
    """A request's body. httpcore's own is a generator, which a cancelled request leaves to the collector."""

    def __init__(self, body: bytes) -> None:
        self._parts = iter([body])

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        for part in self._parts:
            return part
        raise StopAsyncIteration


@final
class Answer:
    """An upstream's answer whose head has come. Its body may be read once, by one task at a time."""

    def __init__(self, response: httpcore.Response) -> None:
        self.status = response.status
        self._response = response
        self._parts = aiter(response.stream)  # type: ignore[arg-type]  # asynchronous in an asynchronous pool

    def header(self, name: bytes) -> str | None:
        """Return the first header of that name, in lower case."""
        for key, value in self._response.headers:
            if key.lower() == name:
                return value.decode("latin-1")
        return None

    async def part(self) -> bytes | None:
        """Return the body's next bytes, ``None`` behind the last.

        Raises:
            EngineError: the body breaks off, or its framing is wrong.
        """
        try:
            return await anext(self._parts, None)
        except httpcore.TimeoutException:
            raise EngineError("The engine stopped in the middle of its answer.") from None
        except _Failures:
            raise EngineError("The engine's answer broke off.") from None

    async def close(self) -> None:
        """Let the connection go: kept for reuse if all has been read, else closed at once."""
        with anyio.CancelScope(shield=True):
            await self._response.aclose()
            # Nothing comes any more, but the generators inside come to their end here, rather than when
            # the collector finds them.
            with suppress(*_Failures):
                async for _ in self._parts:
                    pass


@final
class Upstream:
    """A server and the connections to it. Made by `open_upstream`; for many tasks of one event loop.

    httpcore's connections without its pool, which goes through all of them and all who wait whenever a
    request begins or ends, and never frees one whose request is cancelled between taking and using it.
    """

    def __init__(
        self,
        url: str,
        headers: dict[str, str],
        limiter: CapacityLimiter,
        timeouts: dict[str, float | None],
        retries: int,
    ) -> None:
        parts = urlsplit(url)
        self._url = httpcore.URL(url)
        self._headers = [("Host", parts.netloc), ("Accept-Encoding", "identity"), *headers.items()]
        self._limiter = limiter
        self._timeouts = timeouts
        self._retries = retries
        self._network = _Network()
        # httpcore's own would be made anew, of a file, for each connection.
        self._ssl_context = ssl.create_default_context() if parts.scheme == "https" else None
        self._idle: deque[httpcore.AsyncHTTPConnection] = deque()
        """The one used last is the last."""

    def statistics(self) -> LimiterStatistics:
        """Return how many exchanges there are, may be, and wait for a connection."""
        return limiter_statistics(self._limiter)

    @asynccontextmanager
    async def exchange(self, body: bytes) -> AsyncIterator[Answer]:
        """POST ``body`` and have the answer for the length of the block, whose end hangs up.

        Raises:
            EngineError: no connection, or no answer on it. From the block: what `Answer.part` raises.

        Cancellation: waiting for a connection, connecting, sending and reading end at once, and the
        connection with them.
        """
        borrower = object()  # One task may have several exchanges.
        await self._limiter.acquire_on_behalf_of(borrower)
        try:
            connection, response = await self._sent(body)
            answer = Answer(response)
            try:
                yield answer
            finally:
                await answer.close()
                await self._give_back(connection)
        finally:
            self._limiter.release_on_behalf_of(borrower)

    async def close(self) -> None:
        """Close the connections that are kept."""
        while self._idle:
            await _close(self._idle.pop())

    async def _sent(self, body: bytes) -> tuple[httpcore.AsyncHTTPConnection, httpcore.Response]:
        """Return the answer's head. Tries again where the upstream can't have begun to answer."""
        retries = self._retries
        while True:
            try:
                return await self._sent_once(body)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if not retries:
                    raise EngineError("The engine can't be reached.") from None
                await anyio.sleep(_BACKOFF_S)
            except _Stale:
                if not retries:
                    raise EngineError("The engine closed the connection without an answer.") from None
            except httpcore.TimeoutException:
                raise EngineError("The engine didn't answer in time.") from None
            except httpcore.RemoteProtocolError:
                raise EngineError("The engine sent no valid HTTP answer.") from None
            except _Failures:
                raise EngineError("The engine closed the connection without an answer.") from None
            retries -= 1

    async def _sent_once(self, body: bytes) -> tuple[httpcore.AsyncHTTPConnection, httpcore.Response]:
        request = httpcore.Request(
            "POST",
            self._url,
            headers=[*self._headers, ("Content-Length", str(len(body)))],
            content=_Body(body),
            extensions={"timeout": self._timeouts},
        )
        connection = await self._take()
        try:
            return connection, await connection.handle_async_request(request)
        except BaseException:
            await _close(connection)
            raise

    async def _take(self) -> httpcore.AsyncHTTPConnection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_expired():
                return connection
            await _close(connection)
        return httpcore.AsyncHTTPConnection(
            self._url.origin,
            ssl_context=self._ssl_context,
            keepalive_expiry=_KEPT_IDLE_S,
            network_backend=self._network,
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        )

    async def _give_back(self, connection: httpcore.AsyncHTTPConnection) -> None:
        if connection.is_idle():
            self._idle.append(connection)
        while self._idle and self._idle[0].has_expired():
            await _close(self._idle.popleft())


async def _close(connection: httpcore.AsyncHTTPConnection) -> None:
    with anyio.CancelScope(shield=True):
        await connection.aclose()


@asynccontextmanager
async def open_upstream(
    url: str,
    headers: dict[str, str],
    *,
    connections: int,
    connect_timeout_s: float,
    read_timeout_s: float | None,
    retries: int,
) -> AsyncIterator[Upstream]:
    """Open an `Upstream` for the length of the block, whose end closes its connections.

    Neither proxies of the environment nor redirects are followed, and no cookies are kept.

    Args:
        url: where requests are posted to.
        connections: exchanges at a time. Further ones wait for as long as their callers do.
        retries: how often a request may be sent again where the upstream can't have begun to answer: there
            was no connection, or a used one turned out to be closed.

    Raises:
        ValueError: ``url`` is no URL of an HTTP server.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"not the URL of an HTTP server: {url!r}")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("an engine's URL has no user, query or fragment")
    timeouts = {"connect": connect_timeout_s, "read": read_timeout_s, "write": None}
    upstream = Upstream(url, headers, CapacityLimiter(connections), timeouts, retries)
    try:
        yield upstream
    finally:
        await upstream.close()
