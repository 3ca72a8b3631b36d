"""A front end in one process, its engine in another: the same answers, and each outlives the other's end."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from served.conftest import OpenServer, wait_ready
from served.events import EventSource, streamed
from served.metrics import running, until, waiting
from served.proc import reads_proc
from served.server import READY, Server, command, first_line, serve, start
from served.test_front_events import ALL, BODIES, COMPLETION, LONG
from served.test_front_hangup import STOPS_WITHIN_S


@pytest.fixture
def front(open_server: OpenServer, tiny: Server) -> Iterator[Server]:
    """A front end without weights before the engine."""
    shared = open_server("smollm2", "--engine", "http", "--upstream", tiny.url)
    yield shared
    shared.assert_quiet()


SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": 11, "n": 2}
EXTRAS: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [SAMPLED, {"logprobs": True, "top_logprobs": 3, "return_token_ids": True}],
    "/v1/completions": [
        SAMPLED,
        {"echo": True, "logprobs": 2},
        {"prompt": ["a", "b c", "d"], "return_token_ids": True},
    ],
    "/inference/v1/generate": [{"return_token_ids": True}],
}


def sameness(answer: dict[str, Any]) -> dict[str, Any]:
    """What two answers to the same request have in common."""
    return {name: value for name, value in answer.items() if name not in ("id", "request_id", "created")}


@ALL
def test_answers_are_those_of_one_process(front: Server, tiny: Server, path: str) -> None:
    for extra in [{}, *EXTRAS[path]]:
        body = {**BODIES[path], **extra}
        expected, answer = tiny.post(path, body), front.post(path, body)
        assert (answer.status, expected.status) == (200, 200)
        assert sameness(answer.json) == sameness(expected.json)
        body["stream_options"] = {"include_usage": True}
        chunks, expected_chunks = ([sameness(c) for c in streamed(s, path, body)] for s in (front, tiny))
        # Prompts of a request take turns as they come.
        assert sorted(map(json.dumps, chunks)) == sorted(map(json.dumps, expected_chunks))
        assert [c.get("usage") for c in chunks] == [c.get("usage") for c in expected_chunks]


def test_a_refusal_of_the_engine_is_passed_on(front: Server) -> None:
    for stream in (True, False):
        body = {**BODIES[COMPLETION], "structured_outputs": {"regex": "(["}, "stream": stream}
        reply = front.post(COMPLETION, body)
        assert (reply.status, reply.headers["content-type"]) == (400, "application/json")


@reads_proc
def test_the_front_end_has_no_pytorch(front: Server, tiny: Server) -> None:
    assert front.post(COMPLETION, BODIES[COMPLETION]).status == 200
    assert "libtorch" in Path(f"/proc/{tiny.process.pid}/maps").read_text()
    assert "libtorch" not in Path(f"/proc/{front.process.pid}/maps").read_text()


@ALL
@pytest.mark.parametrize("stream", [True, False])
def test_a_hang_up_reaches_the_engine(front: Server, tiny: Server, path: str, stream: bool) -> None:
    for k in (0, 1, 5):
        with EventSource(front, path, {**LONG[path], "stream": stream}) as events:
            until(lambda: running(tiny, "engine") == 1, 10)
            for _ in range(k if stream else 0):
                events.next()
        until(lambda: running(tiny, "engine") == 0, STOPS_WITHIN_S)
    assert front.post(path, BODIES[path]).status == 200


def test_prompt_embeds_are_refused(open_server: OpenServer, tiny: Server) -> None:
    options = ("--engine", "http", "--upstream", tiny.url, "--enable-prompt-embeds")
    front = open_server("smollm2", *options)
    for stream in (True, False):
        reply = front.post(COMPLETION, {"prompt_embeds": "AAAA", "stream": stream})
        assert (reply.status, reply.json["error"]["param"]) == (400, "prompt_embeds")
    front.assert_quiet()


@contextmanager
def mortal_engine(model: Path, log: Path, port: int = 0) -> Iterator[Server]:
    """A server that may be killed."""
    options = ("--model", str(model), "--served-model-name", "m", "--port", str(port))
    with start(command("serve", *options), log) as process:
        match = READY.match(first_line(process))
        assert match
        engine = Server(process, int(match[1]), match[0], log)
        wait_ready(engine)
        yield engine


@pytest.mark.slow
def test_an_engine_that_dies_and_comes_back(
    model_folders: Path, tiny_model: Path, tmp_path: Path, log: Path
) -> None:
    with ExitStack() as stack:
        engine = stack.enter_context(mortal_engine(tiny_model, tmp_path / "engine.log"))
        options = ("--engine", "http", "--upstream", engine.url)
        front = stack.enter_context(serve(model_folders / "smollm2", *options, log=log))
        answers = {path: front.post(path, body).json for path, body in BODIES.items()}
        first, *others = ((path, {**body, "stream": True}) for path, body in LONG.items())
        streaming = stack.enter_context(EventSource(front, *first))
        streaming.next()
        queued = [stack.enter_context(EventSource(front, *each)) for each in others]
        until(lambda: waiting(engine, "engine") == 2, 10)
        engine.process.send_signal(signal.SIGKILL)
        engine.process.wait()
        *_, last = streaming.chunks()
        assert last["error"]["code"] == 502
        assert last["error"].keys() == {"message", "type", "param", "code"}
        assert [source.read_head() for source in queued] == [502, 502]
        for path, body in BODIES.items():
            for stream in (True, False):
                reply = front.post(path, {**body, "stream": stream})
                assert (reply.status, reply.json["error"]["code"]) == (502, 502)
        assert front.get("/health").status == 200
        stack.enter_context(mortal_engine(tiny_model, tmp_path / "again.log", engine.port))
        for path, body in BODIES.items():
            assert sameness(front.post(path, body).json) == sameness(answers[path])
