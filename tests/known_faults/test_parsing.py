"""Reasoning and tool calls: read once, whole, the same on every way, and in time.

A fault is a line of a table; `WAYS` are the ways to send its ids.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from in_process import CHAT_DERENDER, InProcessServer
from known_faults.bodies import chat_body
from known_faults.streams import stream
from opened_models import opened

from trio_render import Policy
from trio_render.parsing.selection import TOOL_CALL_PARSERS

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
PING = [248058, 198, 4754, 591, 763, 328, 9694, 487, 328, 15889, 763, 313, 3307, 198, 248059]
WEATHER = [248058, 198, 4754, 591, 763, 328, 447, 67017, 487, 328, 15889, 763, 5046, 8656, 763, 328]
SURE_AND_TWO_CALLS = [38493, 13, *PING, 198, *WEATHER, 55, 29958, 198, 248059, 248046]
ZURICH_CALL = [*WEATHER, 57, 5021, 693, 87209, 487, 328, 77, 763, 220, 18, 3307, 198, 248059, 248046]
FAMILY = [
    248058, 198, 4754, 591, 763, 328, 69, 487, 328, 15889, 763, 5046, 82, 763, 328,
    9008, 239, 101, 373, 235, 9008, 239, 102, 29958, 198, 248059, 248046,
]  # fmt: skip
THINKING_OFF_PROMPT = [74455, 198, 248068, 271, 248069, 271]
JUST_TEXT = [9658, 1414, 248046]


@dataclass(frozen=True)
class Said:
    """An answer: ``calls`` as name and arguments."""

    content: str | None = None
    reasoning: str | None = None
    calls: list[tuple[str, str]] = field(default_factory=list)
    finish_reason: str | None = "stop"


@dataclass(frozen=True)
class Fault:
    """Ids, or a text, that were read wrongly; and what they say."""

    said: Said
    ids: list[int] | None = None
    text: str = ""
    folder: str = "qwen3"
    reasoning: str | None = None
    tools: str | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    prompt: list[int] | None = None
    finish_reason: str = "stop"
    streamed: Said | None = None
    """What a stream says, where that is something else: a call whose name it has sent stands."""

    def token_ids(self, server: InProcessServer) -> list[int]:
        """The ids that the engine sampled."""
        return server.model.tokenizer.encode(self.text) if self.ids is None else self.ids

    def body(self, ids: list[int]) -> dict[str, Any]:
        """A whole answer's body."""
        request = {"messages": [{"role": "user", "content": "x"}], **self.request}
        if self.tools is not None:
            request |= {"tools": TOOLS, "tool_choice": "auto"}
        body = {**chat_body(ids, finish_reason=self.finish_reason), "chat_request": request}
        return body if self.prompt is None else {**body, "prompt_token_ids": self.prompt}


def said_whole(server: InProcessServer, fault: Fault) -> Said:
    """What one whole answer says."""
    (choice,) = server.ok(CHAT_DERENDER, fault.body(fault.token_ids(server)))["choices"]
    message = choice["message"]
    calls = message.get("tool_calls") or []
    assert len({call["id"] for call in calls}) == len(calls)
    return Said(
        message.get("content"),
        message.get("reasoning"),
        [(call["function"]["name"], call["function"]["arguments"]) for call in calls],
        choice["finish_reason"],
    )


def said_streamed(size: int, server: InProcessServer, fault: Fault) -> Said:
    """What the client of a stream has at its end, ``size`` tokens a chunk."""
    body = fault.body(fault.token_ids(server))
    ids = body["generate_response"]["choices"][0]["token_ids"]
    pieces = [ids[start : start + size] for start in range(0, len(ids), size)]
    choices = stream(
        server,
        CHAT_DERENDER,
        pieces,
        request=body["chat_request"],
        prompt_ids=fault.prompt or [1],
        finish_reason=fault.finish_reason,
    )
    texts: dict[str, str] = {}
    calls: dict[int, list[str]] = {}
    for choice in choices:
        delta = choice["delta"]
        assert delta.get("role") == ("assistant" if choice is choices[0] else None)
        for name in ("content", "reasoning"):
            texts[name] = texts.get(name, "") + delta.get(name, "")
            assert "\ufffd" not in texts[name]
        for call in delta.get("tool_calls", []):
            if "id" in call:
                assert call["index"] not in calls
                calls[call["index"]] = [call["function"]["name"], ""]
            calls[call["index"]][1] += call["function"].get("arguments", "")
    assert list(calls) == list(range(len(calls)))
    assert all(choice.get("finish_reason") is None for choice in choices[:-1])
    return Said(
        texts["content"] or None,
        texts["reasoning"] or None,
        [(name, arguments) for name, arguments in calls.values()],
        choices[-1]["finish_reason"],
    )


WAYS: dict[str, Callable[[InProcessServer, Fault], Said]] = {
    "whole": said_whole,
    **{f"stream by {size}": partial(said_streamed, size) for size in (1, 2, 3, 4, 1000)},
}


@cache
def server_of(folder: Path, reasoning: str | None, tools: str | None) -> InProcessServer:
    policy = Policy(
        served_names=("m",),
        reasoning_parser=reasoning,
        tool_call_parser=tools,
        enable_auto_tool_choice=tools is not None,
    )
    return InProcessServer(opened(folder), policy)


def hermes(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def called(*calls: tuple[str, str], **fields: Any) -> Said:
    """An answer that ended in calls."""
    return Said(calls=list(calls), **{"finish_reason": "tool_calls", **fields})


FAULTS = {
    "livekit-agents#5840 turn marks within arguments": Fault(
        called(("f", '{"s": "a<|im_end|>b"}')), text=hermes("f", '{"s": "a<|im_end|>b"}'), tools="hermes"
    ),
    "vllm#28806 no arguments are an empty object": Fault(
        called(("ping", "{}")), [*PING, 248046], tools="hermes"
    ),
    "vllm#10395 arguments are sent once": Fault(
        called(("ping", "{}"), ("get_weather", '{"city": "X"}'), content="Sure."),
        SURE_AND_TWO_CALLS,
        tools="hermes",
    ),
    "vllm#55082 braces, quotes and escapes within arguments": Fault(
        called(("f", '{"s": "a}b{\\"c\\"} \\\\ \\n"}')),
        text=hermes("f", '{"s": "a}b{\\"c\\"} \\\\ \\n"}'),
        tools="hermes",
    ),
    "vllm#19056 characters of several tokens within arguments": Fault(
        called(("f", '{"s": "👨‍👩"}')), FAMILY, tools="hermes"
    ),
    "vllm#9209 a call ends the answer": Fault(
        called(("get_weather", '{"city": "Zürich 😀", "n": 3}')), ZURICH_CALL, tools="hermes"
    ),
    "vllm#9209 length stays length behind a call": Fault(
        called(("get_weather", '{"city": "Zürich 😀", "n": 3}'), finish_reason="length"),
        ZURICH_CALL[:-1],
        tools="hermes",
        finish_reason="length",
    ),
    "vllm#9209 length stays length within a call": Fault(
        Said('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Z', finish_reason="length"),
        ZURICH_CALL[:17],
        tools="hermes",
        finish_reason="length",
        streamed=Said(calls=[("get_weather", '{"city": "Z')], finish_reason="length"),
    ),
    "vllm#55195 marks among other tokens": Fault(
        Said("\n\nAnswer", "\nfirst\n"),
        [248068, 198, 3765, 198, 248069, 271, 15666, 248046],
        reasoning="qwen3",
    ),
    "vllm#42691 reasoning right before a call": Fault(
        called(("ping", "{}"), reasoning="need weather"),
        [248068, 16546, 8831, 248069, 198, *PING, 248046],
        reasoning="qwen3",
        tools="hermes",
    ),
    **{
        f"vllm-mlx#677 marks of ordinary tokens, {name}": Fault(
            Said("Answer.", "weighing it"),
            text="weighing it</think>Answer.",
            folder="smollm2",
            reasoning=name,
        )
        for name in ("deepseek_r1", "qwen3", "glm45", "olmo3", "kimi_k2")
    },
    "litellm#15166 a whole block at once": Fault(
        Said("b", "a"), [248068, 64, 248069, 65, 248046], reasoning="qwen3"
    ),
    "vllm#19222 a prompt that leaves thinking open": Fault(
        Said(None, "Just text"), JUST_TEXT, reasoning="qwen3", prompt=[248045, 74455, 198]
    ),
    "vllm#19222 thinking is off": Fault(
        Said("Just text"),
        JUST_TEXT,
        reasoning="qwen3",
        prompt=THINKING_OFF_PROMPT,
        request={"chat_template_kwargs": {"enable_thinking": False}},
    ),
    "LocalAI#11791 only the prompt says that thinking is off": Fault(
        Said("Just text"), JUST_TEXT, reasoning="qwen3", prompt=THINKING_OFF_PROMPT
    ),
    "vllm#46464 marks in no order": Fault(
        Said("<tool_call><tool_call><think>a"),
        [248069, 248069, 248058, 248058, 248068, 64, 248046],
        reasoning="qwen3",
        tools="hermes",
    ),
    "frontend-crates#69 a call that is none is content": Fault(
        Said("<tool_call>\nnot json\n</tool_call>"),
        [248058, 198, 1856, 2857, 198, 248059, 248046],
        tools="hermes",
    ),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_output_is_read_right(
    fault: Fault, way: Callable[[InProcessServer, Fault], Said], model_folders: Path
) -> None:
    """Each fault on each way."""
    server = server_of(model_folders / fault.folder, fault.reasoning, fault.tools)
    said = fault.said if way is said_whole else fault.streamed or fault.said
    assert way(server, fault) == said


def test_mlx_lm_1375_ids_that_the_template_takes_back(model_folders: Path) -> None:
    """Mistral's templates want nine letters or digits."""
    server = server_of(model_folders / "mistral-hf", None, "mistral")
    fault = Fault(Said(), text='[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]f[ARGS]{"a": 1}', tools="mistral")
    (choice,) = server.ok(CHAT_DERENDER, fault.body(fault.token_ids(server)))["choices"]
    ids = [call["id"] for call in choice["message"]["tool_calls"]]
    assert len(set(ids)) == 2
    assert all(re.fullmatch("[A-Za-z0-9]{9}", call_id) for call_id in ids)


CUT_CALL = "[search(" + ", ".join(f"a{i}=1" for i in range(22))
LONG = {
    "a cut call": CUT_CALL,
    "2000 open marks": "<tool_call>" * 2000,
    "spaces within a call": '<tool_call>{"name": "f", "arguments": {"a": ' + " " * 100 * 1024,
}
MAX_SECONDS = 2.0
"""For what takes a tenth of it at most; the growth is measured where tokens are not."""


def derender_seconds(server: InProcessServer, fault: Fault) -> float:
    body = fault.body(fault.token_ids(server))
    begun = time.thread_time()
    server.ok(CHAT_DERENDER, body)
    return time.thread_time() - begun


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("parser", TOOL_CALL_PARSERS)
def test_sglang_31912_cut_calls_cost_no_more_than_other_text(
    parser: str, name: str, model_folders: Path
) -> None:
    """A pattern tried all ways to split the arguments of a call that was cut."""
    server = server_of(model_folders / "qwen3", None, parser)
    assert derender_seconds(server, Fault(Said(), text=LONG[name], tools=parser)) < MAX_SECONDS


def test_vllm_55473_long_output_of_separators(model_folders: Path) -> None:
    """520 KB of marks that begin something; and reasoning without an end."""
    server = server_of(model_folders / "qwen3", "qwen3", "hermes")
    texts = ("<tool_call>" * 32_000, "<think>" + "word " * 700, "<think>" * 32_000, "-" * 520_000)
    for text in (*texts, "</think><tool_call>" + "=" * 520_000):
        seconds = derender_seconds(server, Fault(Said(), text=text, reasoning="qwen3", tools="hermes"))
        assert seconds < 3 * MAX_SECONDS
