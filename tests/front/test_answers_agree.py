"""A stream, joined, is the whole answer: whatever was asked for, and however the engine cuts its pieces."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from front.conftest import OpenFrontend
from front.joining import comparable, joined
from known_faults.test_parsing import FAMILY, SURE_AND_TWO_CALLS, TOOLS
from replayed_engine import Output, ReplayedEngine

from trio_render import Frontend
from trio_render.protocol.decoding import encode

HI = [{"role": "user", "content": "Hi"}]
PARIS = [504, 3575, 314, 7042, 30, 198, 11126, 42, 1867]
"""The capital is Paris.\\nUser: next"""
EMOJI = [10813, 242, 218, 17]
"""😀!, the first in three tokens"""
THINKING = [248068, 198, 3765, 198, 248069, 271, 15666, 248046]
"""<think>\\nfirst\\n</think>\\n\\nAnswer<|im_end|>"""
CUTS: list[Sequence[int]] = [(1,), (2,), (3, 1, 4), (100,), (0, 1)]


@dataclass(frozen=True)
class Case:
    """A request, and what the engine says to it."""

    request: dict[str, Any]
    outputs: list[Output]
    folder: str = "smollm2"
    policy: dict[str, Any] = field(default_factory=dict)


def chat(*outputs: Output, **fields: Any) -> Case:
    return Case({"messages": HI, **fields}, list(outputs))


def completion(*outputs: Output, **fields: Any) -> Case:
    return Case({"prompt": "One two", **fields}, list(outputs))


def parsed(ids: list[int], **fields: Any) -> Case:
    policy = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes", "enable_auto_tool_choice": True}
    return Case({"messages": HI, "tools": TOOLS, **fields}, [Output(ids)], "qwen3", policy)


LENGTH = Output(PARIS, "length")
EOS = Output([*PARIS, 2])
AT_USER = Output(PARIS[:8], "stop", "\nUser:")
IN_PARIS = Output(PARIS[:4], "stop", "Pari")
FACES = Output(EMOJI, "length")

CASES = {
    "chat": chat(LENGTH),
    "chat of several": chat(LENGTH, FACES, EOS, n=3),
    "chat with logprobs": chat(EOS, FACES, n=2, logprobs=True, top_logprobs=2),
    "chat with ids": chat(EOS, FACES, n=2, return_token_ids=True),
    "chat that says nothing": chat(Output([2])),
    "chat stopped by a text": chat(AT_USER, stop=["\nUser:"]),
    "chat that continues": Case(
        {
            "messages": [*HI, {"role": "assistant", "content": "Well, "}],
            "echo": True,
            "add_generation_prompt": False,
            "continue_final_message": True,
            "n": 2,
        },
        [LENGTH, FACES],
    ),
    "completion": completion(LENGTH),
    "completion of several": completion(LENGTH, FACES, n=2),
    "completion of several prompts": completion(LENGTH, FACES, n=2, prompt=["One two", "x"]),
    "completion with logprobs": completion(FACES, EOS, n=2, logprobs=2),
    "completion with its stop text": completion(AT_USER, stop=["\nUser:"], include_stop_str_in_output=True),
    "completion cut in a token": completion(IN_PARIS, stop=["Pari"], logprobs=1, return_token_ids=True),
    "completion with ids": completion(LENGTH, FACES, n=2, return_token_ids=True),
    "completion at a stop token": completion(Output([504, 3575, 30], "stop", 30), stop_token_ids=[30]),
    "echo": completion(LENGTH, FACES, n=2, echo=True),
    "echo of several prompts": completion(LENGTH, echo=True, prompt=["One two", "x y"], logprobs=0),
    "echo with logprobs": completion(FACES, LENGTH, n=2, echo=True, logprobs=1),
    "echo with ids": completion(FACES, LENGTH, n=2, echo=True, return_token_ids=True),
    "echo of ids": completion(LENGTH, echo=True, prompt=[504, 10813, 242, 218], logprobs=1),
    "echo alone": completion(Output([504], "length"), echo=True, max_tokens=0),
    "echo alone with logprobs": completion(Output([504], "length"), echo=True, max_tokens=0, logprobs=1),
    "echo stopped by a text": completion(IN_PARIS, echo=True, stop=["Pari"], logprobs=0),
    "reasoning": parsed(THINKING),
    "reasoning with logprobs and ids": parsed(THINKING, logprobs=True, return_token_ids=True),
    "reasoning that nobody wants": parsed(THINKING, include_reasoning=False),
    "calls": parsed([248069, *SURE_AND_TWO_CALLS]),
    "call behind reasoning": parsed([248068, 198, 3765, 198, 248069, *FAMILY]),
}  # fmt: skip


async def whole(frontend: Frontend, request: dict[str, Any]) -> dict[str, Any]:
    body = [encode(request)]
    if "messages" in request:
        answer = await (await frontend.start_chat(body)).answer_json()
    else:
        answer = await (await frontend.start_completion(body)).answer_json()
    loaded: dict[str, Any] = json.loads(answer)
    return loaded


async def streamed(frontend: Frontend, request: dict[str, Any]) -> list[dict[str, Any]]:
    body = [encode({**request, "stream": True, "stream_options": {"include_usage": True}})]
    start: Any = frontend.start_chat if "messages" in request else frontend.start_completion
    async with (await start(body)).open_stream() as chunks:
        return [json.loads(encode(chunk)) async for chunk in chunks]


@pytest.mark.parametrize("name", CASES)
async def test_a_stream_is_its_whole_answer(name: str, open_frontend: OpenFrontend) -> None:
    case = CASES[name]
    engine = ReplayedEngine(case.outputs)
    async with open_frontend(engine, case.folder, **case.policy) as frontend:
        expected = comparable(await whole(frontend, case.request))
        for cut in CUTS:
            for together in (False, True):
                engine.cut, engine.together = cut, together
                assert comparable(joined(await streamed(frontend, case.request))) == expected
                assert comparable(await whole(frontend, case.request)) == expected
    assert engine.open == 0


async def test_text_behind_a_stop_string_is_cut(open_frontend: OpenFrontend) -> None:
    """The engine has generated it, and a whole answer counts it; a stream doesn't wait for it."""
    engine = ReplayedEngine([EOS])
    async with open_frontend(engine) as frontend:
        for request in ({"messages": HI}, {"prompt": "x"}, {"prompt": "x", "echo": True}):
            stopping = {**request, "stop": ["\nUser:", "next"]}
            [expected] = comparable(await whole(frontend, stopping))["choices"]
            assert expected["stop_reason"] == "\nUser:"
            for engine.cut in CUTS:
                assert comparable(joined(await streamed(frontend, stopping)))["choices"] == [expected]
                assert engine.open == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_what_the_answers_say(open_frontend: OpenFrontend, stream: bool) -> None:
    """So that the two do not agree on something wrong."""

    async def answer(name: str) -> Any:
        case = CASES[name]
        async with open_frontend(ReplayedEngine(case.outputs), case.folder, **case.policy) as frontend:
            if stream:
                return comparable(joined(await streamed(frontend, case.request)))
            return comparable(await whole(frontend, case.request))

    [stopped] = (await answer("chat stopped by a text"))["choices"]
    assert stopped["message"]["content"] == "The capital is Paris."
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", "\nUser:")
    assert (await answer("chat that continues"))["choices"][1]["message"]["content"] == "Well, 😀!"
    [_, echoed] = (await answer("echo of several prompts"))["choices"]
    assert echoed["text"] == "x yThe capital is Paris.\nUser: next"
    assert echoed["logprobs"]["text_offset"][:4] == [0, 1, 3, 6]
    assert echoed["logprobs"]["token_logprobs"][0] is None
    [alone] = (await answer("echo alone with logprobs"))["choices"]
    assert (alone["text"], alone["logprobs"]["tokens"]) == ("One two", ["One", " two"])
    [thought] = (await answer("reasoning"))["choices"]
    assert thought["message"]["reasoning"].strip() == "first"
    assert thought["message"]["content"].strip() == "Answer"
    [called] = (await answer("calls"))["choices"]
    assert called["finish_reason"] == "tool_calls"
    assert [name for name, _ in called["message"]["tool_calls"]] == ["ping", "get_weather"]
    usage = (await answer("completion of several prompts"))["usage"]
    assert usage == {"prompt_tokens": 3, "completion_tokens": 26, "total_tokens": 29}


async def test_usage_is_told_where_it_is_asked_for(open_frontend: OpenFrontend) -> None:
    async with open_frontend(ReplayedEngine([LENGTH])) as frontend:
        for options, expected in [
            (None, [None] * 9),
            ({}, [None] * 9),
            ({"continuous_usage_stats": True}, [None] * 9),
            ({"include_usage": True}, [*[None] * 9, 9]),
            ({"include_usage": True, "continuous_usage_stats": True}, [*range(1, 10), 9]),
        ]:
            body = [encode({"prompt": "x", "stream": True, "stream_options": options})]
            async with (await frontend.start_completion(body)).open_stream() as chunks:
                usages = [chunk.usage async for chunk in chunks]
            assert [usage and usage["completion_tokens"] for usage in usages] == expected
            tokens = [encode({"token_ids": [1], "stream": True, "stream_options": options})]
            async with (await frontend.start_tokens(tokens)).open_stream() as pieces:
                usages = [piece.usage async for piece in pieces]
            assert [usage and usage["completion_tokens"] for usage in usages] == expected
