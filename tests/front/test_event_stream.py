"""`EventStream` by itself, on a clock that jumps: what goes over the wire, and when."""

import json
import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from app.sse import EventStream
from trio_render import EngineError, InvalidRequest, Overloaded

Step = Exception | str | float
"""What a stream does next: fails, says something, or is silent for some seconds."""

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


@dataclass
class Client:
    """What a client gets. ``hold``: how long each write takes."""

    hold: float = 0.0
    sent: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    finishing_at: int | None = None
    counted: list[int] = field(default_factory=list)
    closed: bool = False

    async def send(self, event: Any) -> None:
        await trio.sleep(self.hold)
        self.sent.append((trio.current_time(), event))

    def finishing(self) -> None:
        assert self.finishing_at is None
        self.finishing_at = len(self.sent)

    @property
    def status(self) -> int:
        status: int = self.sent[0][1]["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0][1]["headers"]}

    @property
    def bodies(self) -> list[bytes]:
        return [event["body"] for _, event in self.sent[1:]]

    @property
    def error(self) -> dict[str, Any]:
        """The error of the last write: all of it, or the event before the end."""
        last = self.bodies[-1]
        if last.endswith(DONE):
            last = last.removesuffix(DONE).removeprefix(b"data: ")
        error: dict[str, Any] = json.loads(last)["error"]
        return error


def run(
    *steps: Step,
    timeout_s: float = 60,
    keep_alive_s: float = 15,
    hold: float = 0,
    ends_after_s: float = math.inf,
) -> Client:
    """Send a stream of steps to a client. The first event has as long as any other."""
    client = Client(hold)

    @asynccontextmanager
    async def open_stream() -> AsyncIterator[Any]:
        assert client.sent == []
        try:
            yield Steps(steps)
        finally:
            client.closed = True

    async def main() -> None:
        first_by = trio.current_time() + timeout_s
        must_end = partial(trio.sleep, ends_after_s)
        stream = EventStream(open_stream, first_by, timeout_s, client.counted.append, must_end, keep_alive_s)
        await stream.send_to(client.send, client.finishing)

    trio.run(main, clock=MockClock(autojump_threshold=0))
    first, *_, last = client.sent
    assert first[1]["type"] == "http.response.start"
    assert [event["more_body"] for _, event in client.sent[1:]] == [*[True] * (len(client.sent) - 2), False]
    assert last[1]["type"] == "http.response.body"
    assert client.finishing_at == len(client.sent) - 1, "said before the last write, and not earlier"
    assert client.counted == [client.status]
    assert client.closed
    return client


class Steps:
    """An iterator that loses nothing when a wait is cancelled: time that has passed has passed."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self._steps = list(steps)
        self._since: float | None = None

    def __aiter__(self) -> "Steps":
        return self

    async def __anext__(self) -> str:
        await trio.lowlevel.checkpoint()
        while self._steps:
            step = self._steps[0]
            if isinstance(step, float):
                since = self._since = trio.current_time() if self._since is None else self._since
                await trio.sleep_until(since + step)
                self._since = None
            self._steps.pop(0)
            if isinstance(step, Exception):
                raise step
            if isinstance(step, str):
                return step
        raise StopAsyncIteration


def test_events_one_by_one() -> None:
    client = run("a", "b\n\nc", "ü\u2028")
    assert client.status == 200
    assert client.headers == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
    }
    assert client.bodies == [
        b'data: "a"\n\n',
        b'data: "b\\n\\nc"\n\n',
        'data: "ü\u2028"\n\n'.encode(),
        DONE,
    ]


def test_a_stream_of_nothing() -> None:
    client = run()
    assert (client.status, client.bodies) == (200, [DONE])


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        (InvalidRequest("no", "n"), 400, {}),
        (Overloaded("full", 2.4), 503, {"retry-after": "2"}),
        (EngineError("broken"), 502, {}),
        (ValueError("secret"), 500, {}),
    ],
)
@pytest.mark.parametrize("delay", [0.0, 20.0])
def test_what_fails_before_the_first_event_has_its_own_status(
    error: Exception, status: int, headers: dict[str, str], delay: float
) -> None:
    client = run(delay, error)
    assert client.status == client.error["code"] == status
    length = {"content-length": str(len(client.bodies[0]))}
    assert client.headers == {"content-type": "application/json", **headers, **length}
    assert "secret" not in client.bodies[0].decode()


@pytest.mark.parametrize(
    ("error", "status", "param"),
    [
        (InvalidRequest("no", "n"), 400, "n"),
        (EngineError("broken\nin two"), 502, None),
        (ValueError("secret"), 500, None),
    ],
)
def test_what_fails_later_is_an_event(
    error: Exception, status: int, param: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client = run("a", error)
    assert (client.status, client.bodies[0]) == (200, b'data: "a"\n\n')
    assert client.bodies[1].endswith(b"\n\n" + DONE)
    assert client.bodies[1].count(b"\n") == 4
    assert (client.error["code"], client.error["param"]) == (status, param)
    assert client.error.keys() == {"message", "type", "param", "code"}
    assert "secret" not in client.error["message"]
    assert [record.message for record in caplog.records] == (["A stream failed."] if status == 500 else [])


def test_silence_is_filled_with_comments() -> None:
    client = run("a", 31.0, "b", keep_alive_s=10)
    assert client.bodies == [b'data: "a"\n\n', KEEP_ALIVE, KEEP_ALIVE, KEEP_ALIVE, b'data: "b"\n\n', DONE]
    assert [round(at - client.sent[0][0]) for at, _ in client.sent[1:]] == [0, 10, 20, 30, 31, 31]


def test_no_comment_comes_before_the_first_event() -> None:
    """Its status is not known yet."""
    client = run(31.0, "a", keep_alive_s=10)
    assert client.bodies == [b'data: "a"\n\n', DONE]


def test_a_first_event_that_comes_too_late() -> None:
    client = run(61.0, "a")
    assert (client.status, client.error["code"]) == (504, 504)
    assert len(client.bodies) == 1


def test_a_later_event_that_comes_too_late() -> None:
    client = run("a", 50.0, "b", 61.0, "c")
    assert client.bodies[:1] + client.bodies[4:5] == [b'data: "a"\n\n', b'data: "b"\n\n']
    assert (client.status, client.error["code"]) == (200, 504)
    assert client.sent[-1][0] - client.sent[0][0] == pytest.approx(110)
    assert b'"c"' not in b"".join(client.bodies)


def test_a_stream_may_take_any_time_in_all() -> None:
    """hypercorn#322"""
    steps: list[Step] = [step for k in range(100) for step in (50.0, str(k))]
    client = run(*steps, keep_alive_s=100)
    assert len(client.bodies) == 101


def test_a_client_that_reads_slowly_is_not_the_engine_being_late() -> None:
    client = run("a", "b", "c", hold=100.0, timeout_s=60)
    assert client.bodies == [b'data: "a"\n\n', b'data: "b"\n\n', b'data: "c"\n\n', DONE]


@pytest.mark.parametrize("hold", [0.0, 3.0])
def test_a_server_that_stops_says_so(hold: float) -> None:
    """hypercorn#308"""
    client = run("a", 20.0, "b", 20.0, "c", ends_after_s=30 + hold, keep_alive_s=50, hold=hold)
    assert client.bodies[:2] == [b'data: "a"\n\n', b'data: "b"\n\n']
    assert len(client.bodies) == 3
    assert (client.status, client.error["code"]) == (200, 503)
    unbegun = run(20.0, "a", ends_after_s=10)
    assert (unbegun.status, unbegun.headers["retry-after"]) == (503, "1")
    busy = run("a", "b", "c", hold=10, ends_after_s=15)
    assert busy.bodies[:1] == [b'data: "a"\n\n']
    assert busy.error["code"] == 503


@pytest.mark.parametrize("steps", [(), ("a",), ("a", "b")])
def test_a_client_that_goes_ends_the_stream(steps: tuple[str, ...]) -> None:
    client = Client()
    ended: list[bool] = []

    @asynccontextmanager
    async def open_stream() -> AsyncIterator[Any]:
        try:
            yield Steps((*steps, 1000.0))
        finally:
            ended.append(True)

    async def main() -> None:
        send: Callable[..., Any] = client.send
        stream = EventStream(
            open_stream, 500.0 + trio.current_time(), 500, client.counted.append, trio.sleep_forever
        )
        with trio.move_on_after(5) as scope:
            await stream.send_to(send, client.finishing)
        assert scope.cancelled_caught

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert ended == [True]
    assert client.finishing_at is None
    assert len(client.sent) == (len(steps) + 1 if steps else 0)
