"""One HTTP server as an upstream: a pool of connections, exchanges on them, and what can go wrong there.

Built on httpcore, httpx's lower half, since only here can be seen whether a connection that broke had been
used before and whether any byte had come over it: what decides whether a request may be sent once more.
"""

from __future__ import annotations

import socket
import ssl
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

_KEPT_IDLE = 32
"""More would cost: httpcore looks at each pair of idle connections whenever a request begins or ends."""
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
    """A server and the connections to it. Made by `open_upstream`; for many tasks of one event loop."""

    def __init__(
        self,
        pool: httpcore.AsyncConnectionPool,
        url: str,
        headers: dict[str, str],
        limiter: CapacityLimiter,
        timeouts: dict[str, float | None],
        retries: int,
    ) -> None:
        self._pool = pool
        self._url = httpcore.URL(url)
        self._headers = [("Host", urlsplit(url).netloc), ("Accept-Encoding", "identity"), *headers.items()]
        self._limiter = limiter
        self._timeouts = timeouts
        self._retries = retries

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
            answer = Answer(await self._sent(body))
            try:
                yield answer
            finally:
                await answer.close()
        finally:
            self._limiter.release_on_behalf_of(borrower)

    async def _sent(self, body: bytes) -> httpcore.Response:
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

    async def _sent_once(self, body: bytes) -> httpcore.Response:
        with anyio.CancelScope(shield=True) as scope:

            async def trace(name: str, info: object) -> None:
                # Between taking a connection and working with it httpcore must not be cancelled: the
                # connection would never be free again. None of that waits for anything.
                scope.shield = name in ("connection.connect_tcp.complete", "connection.start_tls.complete")

            request = httpcore.Request(
                "POST",
                self._url,
                headers=[*self._headers, ("Content-Length", str(len(body)))],
                content=_Body(body),
                extensions={"timeout": self._timeouts, "trace": trace},
            )
            return await self._pool.handle_async_request(request)
        raise AssertionError("nobody cancels this scope")


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
    timeouts = {"connect": connect_timeout_s, "read": read_timeout_s, "write": None, "pool": None}
    # Unlimited, since a queue before the pool is cheaper than the pool's own, which is gone through as a
    # whole, times all connections, whenever a request begins or ends.
    async with httpcore.AsyncConnectionPool(
        # httpcore's own would be made anew, of a file, for each connection.
        ssl_context=ssl.create_default_context() if parts.scheme == "https" else None,
        max_connections=None,
        max_keepalive_connections=_KEPT_IDLE,
        keepalive_expiry=_KEPT_IDLE_S,
        network_backend=_Network(),
        socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
    ) as pool:
        yield Upstream(pool, url, headers, CapacityLimiter(connections), timeouts, retries)
