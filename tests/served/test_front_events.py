"""The front end's answers over a socket: events, usage, statuses, and what refuses a request."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from served.conftest import Demo, OpenServer, wait_ready
from served.events import EventSource, streamed
from served.metrics import figures, running, until, waiting
from served.server import Server, serve

CHAT = "/v1/chat/completions"
COMPLETION = "/v1/completions"
GENERATE = "/inference/v1/generate"
HI = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HI, "max_tokens": 5, "ignore_eos": True, "temperature": 0},
    COMPLETION: {"prompt": "One two", "max_tokens": 5, "ignore_eos": True, "temperature": 0},
    GENERATE: {
        "token_ids": [504],
        "sampling_params": {"max_tokens": 5, "ignore_eos": True, "temperature": 0},
    },
}
LONG: dict[str, dict[str, Any]] = {
    path: (
        {**body, "sampling_params": {**body["sampling_params"], "max_tokens": 8000}}
        if path == GENERATE
        else {**body, "max_tokens": 8000}
    )
    for path, body in BODIES.items()
}
ALL = pytest.mark.parametrize("path", BODIES)


@ALL
def test_the_form_of_a_stream(tiny: Server, path: str) -> None:
    with EventSource(tiny, path, {**BODIES[path], "stream": True}) as events:
        first = json.loads(events.next())
        assert events.status == 200
        assert events.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert events.headers["cache-control"] == "no-cache"
        chunks = [first, *events.chunks()]
    assert len(chunks) == 5, "a chunk a token"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [*[None] * 4, "length"]
    assert all(chunk.get("usage") is None for chunk in chunks)
    if path == CHAT:
        assert [chunk["choices"][0]["delta"].get("role") for chunk in chunks] == ["assistant", *[None] * 4]


@ALL
def test_usage_comes_where_it_is_asked_for(tiny: Server, path: str) -> None:
    """vllm#36379, tt-inference-server#632"""
    body = BODIES[path]
    assert all(chunk.get("usage") is None for chunk in streamed(tiny, path, {**body, "stream_options": {}}))
    *others, last = streamed(tiny, path, {**body, "stream_options": {"include_usage": True}})
    assert all(chunk.get("usage") is None and chunk["choices"] for chunk in others)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 5
    assert last["usage"]["total_tokens"] == last["usage"]["prompt_tokens"] + 5
    for stream in ({}, {"stream": False}):
        reply = tiny.post(path, {**body, **stream, "stream_options": {"include_usage": True}})
        assert (reply.status, reply.json["error"]["param"]) == (400, "stream_options")


@ALL
def test_a_request_id_of_the_clients_own(tiny: Server, path: str) -> None:
    headers = {"Content-Type": "application/json", "X-Request-Id": "mine"}
    answer = tiny.post(path, BODIES[path], headers).json
    assert answer["request_id" if path == GENERATE else "id"].endswith("mine")


@ALL
def test_a_connection_serves_the_next_request(tiny: Server, path: str) -> None:
    body = {**BODIES[path], "stream": True}
    with EventSource(tiny, path, body) as events:
        for _ in range(3):
            assert len(events.chunks()) == 5
            events.send(path, body)
            events.next_answer()
        assert len(events.chunks()) == 5


def test_a_bad_message_keeps_its_status(tiny: Server) -> None:
    """Rapid-MLX#730"""
    for body in (
        b'{"stream": true, "messages": [{"role": "user", "content": "a\\ud83d b"}]}',
        b'{"stream": true, "messages": []}',
        b'{"stream": true, "messages": [{"role": "user"',
        b'{"stream": true, "prompt": "a\\ud83d b"}',
    ):
        for path in (CHAT, COMPLETION):
            reply = tiny.post(path, body)
            assert reply.status == 400
            assert reply.headers["content-type"] == "application/json"
            assert reply.json["error"]["param"]
            assert "Error" not in reply.json["error"]["message"]


def test_a_constraint_that_the_engine_refuses_keeps_its_status(tiny: Server) -> None:
    """Only the engine compiles it, when the stream has begun."""
    body = {**BODIES[COMPLETION], "stream": True, "structured_outputs": {"regex": "(["}}
    reply = tiny.post(COMPLETION, body)
    assert (reply.status, reply.headers["content-type"]) == (400, "application/json")


def test_weights_that_are_being_loaded(started_demo: Demo) -> None:
    assert (started_demo.ready.status, started_demo.ready.json) == (503, {"phase": "loading"})
    refusal = started_demo.refusal
    assert (refusal.status, refusal.json["error"]["code"]) == (503, 503)
    assert int(refusal.headers["retry-after"]) >= 1
    reply = started_demo.server.get("/ready")
    assert (reply.status, reply.json) == (200, {"phase": "ready"})


@ALL
def test_no_room(tiny: Server, path: str) -> None:
    """A full queue refuses streams before they have begun, with a hint when to come again."""
    body = {**LONG[path], "stream": True}
    sources = [EventSource(tiny, path, body)]
    try:
        sources[0].next()
        for k in range(3):
            sources.append(EventSource(tiny, path, body))
            until(lambda k=k: waiting(tiny, "engine") == k + 1, 10)  # type: ignore[misc]
        for stream in (True, False):
            reply = tiny.post(path, {**body, "stream": stream})
            assert (reply.status, reply.headers["content-type"]) == (503, "application/json")
            assert int(reply.headers["retry-after"]) >= 1
    finally:
        for source in sources:
            source.__exit__()
    until(lambda: running(tiny, "engine") == waiting(tiny, "engine") == 0, 2)
    assert tiny.post(path, BODIES[path]).status == 200


@ALL
def test_a_deadline(tiny: Server, path: str) -> None:
    """It bounds a whole answer, and the wait for a stream's first event."""
    late = {"Content-Type": "application/json", "X-Request-Timeout": "0.3"}
    with EventSource(tiny, path, {**LONG[path], "stream": True}) as busy:
        busy.next()
        for stream in (True, False):
            reply = tiny.post(path, {**BODIES[path], "stream": stream}, late)
            assert (reply.status, reply.json["error"]["code"]) == (504, 504)
            assert waiting(tiny, "engine") == 0
    assert tiny.post(path, LONG[path], late).status == 504
    until(lambda: running(tiny, "engine") == 0, 1)


def test_streams_are_counted_once(tiny: Server) -> None:
    def counted(status: int) -> float:
        return sum(
            value
            for series, value in figures(tiny).items()
            if series.startswith("trio_render_requests")
            and f'"{COMPLETION}"' in series
            and f'"{status}"' in series
        )

    before = counted(200), counted(400)
    streamed(tiny, COMPLETION, BODIES[COMPLETION])
    tiny.post(COMPLETION, {**BODIES[COMPLETION], "stream": True, "n": 0})
    assert (counted(200), counted(400)) == (before[0] + 1, before[1] + 1)


@pytest.mark.slow
def test_a_stopping_server_ends_its_streams(tiny_model: Path, log: Path) -> None:
    """hypercorn#308"""
    with serve(tiny_model, "--graceful-timeout", "1.5", log=log, stop_within_s=6) as own:
        wait_ready(own)
        with EventSource(own, CHAT, {**LONG[CHAT], "stream": True}) as cut:
            cut.next()
            own.stop(signal.SIGTERM)
            since = time.monotonic()
            *others, last = cut.chunks()
            assert time.monotonic() - since < 1.5
            assert len(others) > 1
            assert last["error"]["code"] == 503


def test_without_an_engine(open_server: OpenServer) -> None:
    server = open_server("smollm2", "--engine", "none")
    for path, body in BODIES.items():
        assert server.post(path, body).status == 404
    assert (server.get("/ready").status, server.get("/ready").json) == (200, {"phase": "ready"})
    server.assert_quiet()
