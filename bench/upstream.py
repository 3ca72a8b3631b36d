"""An engine that costs nothing: ``POST /inference/v1/generate`` answers with chunks made beforehand.

``python -m bench.upstream SPEC``, SPEC as JSON: ``ids`` (of a chunk), ``chunks``, and ``interval_s``, 0 being
as fast as they are read. ``GET /sent`` tells when each chunk of each stream was sent, by the clock that all
processes of a machine share.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from .servers import started

__all__ = ["upstream"]

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_TOGETHER = 64
_GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


@contextmanager
def upstream(ids: list[int], chunks: int, interval_s: float) -> Iterator[str]:
    """Yield the URL of such a server, for the length of the block."""
    spec = json.dumps({"ids": ids, "chunks": chunks, "interval_s": interval_s})
    with started([sys.executable, "-m", "bench.upstream", spec]) as server:
        yield server.url


class _Upstream:
    def __init__(self, ids: list[int], chunks: int, interval_s: float) -> None:
        self._chunks = chunks
        self._interval_s = interval_s
        self._piece = _event(ids, None)
        self._last = _event(ids, "length") + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
        self._sent: dict[str, list[float]] = {}

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer the requests of a connection."""
        data = b""
        try:
            while True:
                while b"\r\n\r\n" not in data:
                    data += (more := await stream.receive_some())
                    if not more:
                        return
                head, _, data = data.partition(b"\r\n\r\n")
                length = int((head.lower().partition(b"content-length:")[2] or b"0").split(b"\r\n")[0])
                while len(data) < length:
                    data += (more := await stream.receive_some())
                    if not more:
                        return
                body, data = data[:length], data[length:]
                await self._answer(stream, head, body)
        except _GONE:
            # A client that has seen enough.
            return

    async def _answer(self, stream: trio.SocketStream, head: bytes, body: bytes) -> None:
        if head.startswith(b"GET /sent "):
            told = json.dumps(self._sent).encode()
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told))
            return
        await stream.send_all(_HEAD)
        if self._interval_s:
            await self._paced(stream, json.loads(body)["request_id"])
        else:
            for begin in range(0, self._chunks - 1, _TOGETHER):
                await stream.send_all(self._piece * min(_TOGETHER, self._chunks - 1 - begin))
            await stream.send_all(self._last)

    async def _paced(self, stream: trio.SocketStream, request_id: str) -> None:
        sent = self._sent.setdefault(request_id, [])
        began = trio.current_time()
        for n in range(self._chunks):
            await trio.sleep_until(began + n * self._interval_s)
            sent.append(time.monotonic())
            await stream.send_all(self._piece if n < self._chunks - 1 else self._last)


def _event(ids: list[int], finish: str | None) -> bytes:
    choice = {"index": 0, "token_ids": ids, "finish_reason": finish}
    event = b"data: %b\n\n" % json.dumps({"request_id": "bench", "choices": [choice]}).encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


async def _main(spec: str) -> None:
    server = _Upstream(**json.loads(spec))
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(f"Ready: http://127.0.0.1:{listeners[0].socket.getsockname()[1]}", flush=True)
    await trio.serve_listeners(server.serve, listeners)


if __name__ == "__main__":
    trio.run(_main, sys.argv[1])
