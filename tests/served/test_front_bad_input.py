"""What the front end's endpoints refuse: with OpenAI's error object, and never as a failure of the server."""

from typing import Any

import pytest
from served.server import Server
from served.test_front_events import ALL, CHAT, COMPLETION, GENERATE, HI

REFUSED: list[tuple[str, Any, str]] = [
    (CHAT, {}, "body.messages"),
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {"messages": "Hi"}, "body.messages"),
    (CHAT, {"messages": [{"content": "Hi"}]}, "body.messages.0.role"),
    (CHAT, {"messages": HI, "n": 0}, "n"),
    (CHAT, {"messages": HI, "temperature": -1}, "temperature"),
    (CHAT, {"messages": HI, "max_tokens": -1}, "max_tokens"),
    (CHAT, {"messages": HI, "top_logprobs": 2}, "top_logprobs"),
    (CHAT, {"messages": HI, "stream": True, "stop": ["x" * 10_000]}, "stop"),
    (COMPLETION, {}, "prompt"),
    (COMPLETION, {"prompt": ""}, "prompt"),
    (COMPLETION, {"prompt": [[]]}, "prompt"),
    (COMPLETION, {"prompt": [-1]}, "body.prompt"),
    (COMPLETION, {"prompt": [10**6]}, "body.prompt"),
    (COMPLETION, {"prompt": "x", "max_tokens": 0}, "max_tokens"),
    (COMPLETION, {"prompt": "x", "logprobs": 99}, "logprobs"),
    (COMPLETION, {"prompt": "x", "suffix": "y"}, "suffix"),
    (COMPLETION, {"prompt": "x " * 9000}, "input_tokens"),
    (COMPLETION, {"prompt": "x", "prompt_embeds": "AAAA"}, "prompt_embeds"),
    (COMPLETION, {"prompt": "x", "stop": 5}, "body.stop"),
    (COMPLETION, {"prompt": "x", "stream": "maybe"}, "body.stream"),
    (GENERATE, {}, "body.token_ids"),
    (GENERATE, {"token_ids": []}, "prompt"),
    (GENERATE, {"token_ids": [49152]}, "body.token_ids"),
    (GENERATE, {"token_ids": [1] * 8192}, "input_tokens"),
    (GENERATE, {"token_ids": [1], "sampling_params": []}, "body.sampling_params"),
    (GENERATE, {"token_ids": [1], "sampling_params": {"n": 0}}, "n"),
    (GENERATE, {"token_ids": [1], "sampling_params": {"top_p": "x"}}, "body.sampling_params.top_p"),
    (GENERATE, {"token_ids": [1], "sampling_params": {"extra_args": {"a": 1}}}, "extra_args"),
    (GENERATE, {"token_ids": [1], "kv_transfer_params": {"a": 1}}, "kv_transfer_params"),
    (GENERATE, {"token_ids": [1], "priority": 3}, "priority"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "param"), REFUSED)
def test_a_refusal_names_its_parameter(tiny: Server, path: str, body: dict[str, Any], param: str) -> None:
    streams = {"stream": body.get("stream", True)}
    for given in (body, {**body, **streams}):
        if given.get("stop") == ["x" * 10_000] and not given.get("stream"):
            continue
        reply = tiny.post(path, given)
        assert reply.status == 400, reply.body[:300]
        assert reply.headers["content-type"] == "application/json"
        error = reply.json["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert (error["param"], error["code"]) == (param, 400)
        assert len(reply.body) < 1024


@ALL
def test_no_json(tiny: Server, path: str) -> None:
    for body in (b"", b"{", b"[]", b"5", b"\xff", b'{"a": 1' + b"[" * 5000):
        reply = tiny.post(path, body)
        assert (reply.status, reply.json["error"]["code"]) == (400, 400)
    reply = tiny.request("POST", path, b"a=b", {"Content-Type": "text/plain"})
    assert reply.status == 400
    assert tiny.get(path).status == 405


@ALL
def test_an_unknown_model(tiny: Server, path: str) -> None:
    for stream in (True, False):
        body = {"model": "other", "messages": HI, "prompt": "x", "token_ids": [1], "stream": stream}
        reply = tiny.post(path, body)
        assert (reply.status, reply.json["error"]["code"]) == (404, 404)
