"""Ways to read an output: whole, and in pieces with the state written out after each."""

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from trio_render import Policy
from trio_render.model.token_table import TokenTable
from trio_render.parsing.checks import check_state
from trio_render.parsing.machine import Machine
from trio_render.parsing.plan import ParsePlan
from trio_render.parsing.selection import REASONING_PARSERS, TOOL_CALL_PARSERS, parse_plan, start_state
from trio_render.parsing.sink import Delta
from trio_render.parsing.state import ParserState
from trio_render.parsing.whole import parse_whole
from trio_render.protocol.chat import ChatRequest

_NO_PROMPT: tuple[int, ...] = ()
_ANY_TABLE = cast("TokenTable", None)
"""Without a prompt the start of an output needs no table."""

MAX_STATE_BYTES = 3 * 4096 * 4
"""A state holds up to 4 KiB of markup, parts of it twice, in characters of up to four bytes."""


@dataclass(frozen=True)
class Reading:
    """What an output says: ``calls`` as name and arguments, ``ids`` as the output wrote them."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list, compare=False)


@dataclass(frozen=True)
class Setting:
    """Parsers by name, the request's tools (parameter schemas by tool name) and template switches."""

    tools: str | None = None
    reasoning: str | None = None
    schemas: Mapping[str, Any] = field(default_factory=dict)
    switches: Mapping[str, Any] = field(default_factory=dict)

    def request(self) -> ChatRequest:
        """A chat request that an output of this setting answers."""
        schemas: Mapping[str, Any] = self.schemas or {"any": {"type": "object"}}
        body: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
        if self.tools is not None:
            functions = [{"name": name, "parameters": schema} for name, schema in schemas.items()]
            body["tools"] = [{"type": "function", "function": function} for function in functions]
            body["tool_choice"] = "auto"
        if self.switches:
            body["chat_template_kwargs"] = dict(self.switches)
        return msgspec.convert(body, ChatRequest)

    def plan(self) -> ParsePlan:
        """The plan that the server would make."""
        policy = Policy(reasoning_parser=self.reasoning, tool_call_parser=self.tools)
        plan = parse_plan(policy, self.request())
        assert plan is not None
        return plan

    def start(self) -> ParserState:
        """Where an output starts, as far as can be told without the prompt."""
        return start_state(self.plan(), _ANY_TABLE, _NO_PROMPT, self.request())


SETTINGS = {
    **{name: Setting(tools=name) for name in TOOL_CALL_PARSERS},
    **{f"{name} (reasoning)": Setting(reasoning=name) for name in REASONING_PARSERS},
    "hermes after qwen3": Setting("hermes", "qwen3"),
    "hermes after deepseek_r1": Setting("hermes", "deepseek_r1"),
    "qwen3_xml after qwen3": Setting("qwen3_xml", "qwen3"),
    "mistral after mistral": Setting("mistral", "mistral"),
    "granite after granite": Setting("granite", "granite"),
    "glm45 after glm45": Setting("glm45", "glm45"),
    "kimi_k2 after kimi_k2": Setting("kimi_k2", "kimi_k2"),
    "seed_oss after seed_oss": Setting("seed_oss", "seed_oss"),
    "pythonic after olmo3": Setting("pythonic", "olmo3"),
    "xlam after qwen3": Setting("xlam", "qwen3"),
    "openai after openai_gptoss": Setting("openai", "openai_gptoss"),
}
"""Every family by itself, and those that go together."""


def read_whole(setting: Setting, text: str) -> Reading:
    """Read a whole output."""
    message = parse_whole(setting.plan(), setting.start(), text)
    return Reading(
        message.content,
        message.reasoning,
        [(call.name, call.arguments) for call in message.calls],
        [call.written_id for call in message.calls],
    )


def read_streamed(setting: Setting, pieces: Iterable[str], *, carried: bool = True) -> Reading:
    """Read an output in pieces.

    Args:
        carried: after each piece the state is written out, read and checked, as a client carries it.
    """
    plan, state, delta = setting.plan(), setting.start(), Delta()
    for piece in pieces:
        Machine(plan, state, delta).feed(piece)
        if carried:
            written = msgspec.msgpack.encode(state)
            assert len(written) <= MAX_STATE_BYTES
            state = msgspec.msgpack.decode(written, type=ParserState)
            check_state(plan, state)
    Machine(plan, state, delta).feed("", final=True)
    calls = [delta.calls[index] for index in sorted(delta.calls)]
    assert sorted(delta.calls) == list(range(len(calls)))
    return Reading(
        delta.text,
        delta.thought,
        [(str(call.name), call.arguments) for call in calls],
        [call.written_id for call in calls],
    )


def in_two(text: str) -> Iterator[list[str]]:
    """Every way to cut a text in two."""
    return ([text[:cut], text[cut:]] for cut in range(len(text) + 1))


def in_pieces(text: str, rng: random.Random, longest: int) -> list[str]:
    """A text in pieces of random lengths."""
    pieces, at = [], 0
    while at < len(text):
        length = rng.randint(1, longest)
        pieces.append(text[at : at + length])
        at += length
    return pieces
