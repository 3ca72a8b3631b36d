"""An engine's pieces as events, and put together as one answer."""

import json
from typing import Any

import msgspec
import pytest
from engine_requests import generate_request

from trio_render import ChunkChoice, EngineError, GenerateChunk, GenerateResponse
from trio_render.engine.wire import DONE, Collected, chunk_event, error_event


def chunk(*choices: dict[str, Any], **others: Any) -> GenerateChunk:
    return GenerateChunk(request_id="r", choices=msgspec.convert(choices, list[ChunkChoice]), **others)


def logprobs(*token_ids: int) -> dict[str, Any]:
    return {"content": [{"token_id": i, "logprob": -0.5} for i in token_ids]}


def test_a_chunk_is_one_line_of_json_and_comes_back() -> None:
    sent = chunk({"index": 0, "token_ids": [1, 2], "stop_reason": "a\n\rb\u2028"}, usage={"prompt_tokens": 3})
    event = chunk_event(sent)
    assert event.startswith(b"data: ")
    assert event.endswith(b"}\n\n")
    assert event.count(b"\n") == 2
    assert b"\r" not in event
    assert msgspec.json.decode(event[6:], type=GenerateChunk) == sent


def test_too_deep_a_chunk_is_the_engines_fault() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(EngineError):
        chunk_event(chunk(kv_transfer_params=deep))
    while deep:  # Freed from the outside in: the collector would recurse.
        deep = deep["a"]


@pytest.mark.parametrize(
    ("body", "event"),
    [
        (b'{"error": 1}', b'data: {"error": 1}\n\n'),
        (b'{\n"error": 1\r\n}', b'data: {\ndata: "error": 1\ndata: }\n\n'),
        (b"", b"data: \n\n"),
    ],
)
def test_an_error_is_an_event_of_its_own(body: bytes, event: bytes) -> None:
    assert error_event(body) == event
    assert DONE == b"data: [DONE]\n\n"


def test_pieces_become_one_answer() -> None:
    collected = Collected(generate_request(n=2))
    collected.add(
        chunk({"index": 1, "token_ids": [5], "logprobs": logprobs(5)}, prompt_logprobs=[None, {"3": {}}])
    )
    collected.add(chunk({"index": 0, "token_ids": [7]}, {"index": 1, "token_ids": None}))
    collected.add(
        chunk({"index": 1, "token_ids": [6, 8], "logprobs": logprobs(6, 8), "finish_reason": "stop"})
    )
    assert not collected.is_finished
    collected.add(chunk(kv_transfer_params={"a": 1}, metrics={"m": 1}, usage={"prompt_tokens": 1}))
    collected.add(
        chunk(
            {"index": 0, "token_ids": [], "finish_reason": "length"}, prompt_token_ids=[1], weight_version="w"
        )
    )
    assert collected.is_finished
    assert collected.n_tokens == 4
    expected = {
        "request_id": "r",
        "choices": [
            {"index": 0, "token_ids": [7], "finish_reason": "length"},
            {"index": 1, "token_ids": [5, 6, 8], "finish_reason": "stop", "logprobs": logprobs(5, 6, 8)},
        ],
        "prompt_token_ids": [1],
        "prompt_logprobs": [None, {"3": {}}],
        "kv_transfer_params": {"a": 1},
        "metrics": {"m": 1},
        "weight_version": "w",
    }
    assert collected.response() == msgspec.convert(expected, GenerateResponse)


def test_stop_reasons_and_experts_are_those_of_the_last_piece() -> None:
    collected = Collected(generate_request())
    collected.add(chunk({"index": 0, "token_ids": [1], "routed_experts": [[1]]}))
    collected.add(chunk({"index": 0, "token_ids": [2], "finish_reason": "stop", "stop_reason": 2}))
    collected.add(chunk({"index": 0, "token_ids": [3], "finish_reason": "length"}))
    (choice,) = collected.response().choices
    assert (choice.token_ids, choice.finish_reason, choice.stop_reason) == ([1, 2], "stop", 2)
    assert choice.routed_experts == [[1]]


def test_empty_logprobs_stay_apart_from_none() -> None:
    collected = Collected(generate_request())
    collected.add(
        chunk({"index": 0, "token_ids": [], "logprobs": {"content": []}, "finish_reason": "length"})
    )
    answer = json.loads(msgspec.json.encode(collected.response()))
    assert answer["choices"][0]["logprobs"] == {"content": []}


def test_an_answer_without_all_its_ends_is_an_error() -> None:
    collected = Collected(generate_request(n=2))
    with pytest.raises(EngineError):
        collected.response()
    collected.add(chunk({"index": 1, "token_ids": [1], "finish_reason": "stop"}))
    with pytest.raises(EngineError):
        collected.response()


def test_a_choice_that_was_not_asked_for_is_an_error() -> None:
    with pytest.raises(EngineError):
        Collected(generate_request(n=2)).add(chunk({"index": 2}))
