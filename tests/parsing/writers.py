"""A writer for every family: a message in, the output of a model that says it out."""

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from parsing.messages import Message
from parsing.reading import Setting

Call = tuple[str, dict[str, Any]]
Calls = list[Call]

DEEPSEEK = {
    name: f"<\uff5ctool\u2581{text}\uff5c>"
    for name, text in {
        "all": "calls\u2581begin",
        "end_all": "calls\u2581end",
        "call": "call\u2581begin",
        "end": "call\u2581end",
        "sep": "sep",
    }.items()
}


@dataclass(frozen=True)
class Format:
    """How a family's models write.

    Attributes:
        write: calls to text.
        think: marks around reasoning; ``marks_nothing``: and around none.
        avoid: markers that neither prose nor reasoning can have.
        avoid_in_values: markers that strings in arguments can't have.
        first: prose can't begin with these.
        alone: an output has calls or prose, not both.
        typed: values are bare texts, so that the request's schemas matter.
        whole: writes the whole output.
    """

    tools: str
    write: Callable[[Calls, random.Random], str]
    reasoning: str | None = None
    think: tuple[str, str] = ("", "")
    avoid: tuple[str, ...] = ()
    avoid_in_values: tuple[str, ...] = ()
    first: str = ""
    alone: bool = False
    typed: bool = False
    whole: Callable[[Message, random.Random], str] | None = None
    marks_nothing: bool = True

    def setting(self, message: Message) -> Setting:
        """The parsers, and schemas that say what the message's arguments are."""
        schemas: dict[str, Any] = {}
        if self.typed:
            for name, arguments in message.calls:
                properties = schemas.setdefault(name, {"type": "object", "properties": {}})["properties"]
                properties.update({key: {"type": type_of(value)} for key, value in arguments.items()})
        return Setting(self.tools, self.reasoning, schemas)

    def output(self, message: Message, rng: random.Random) -> str:
        """The message as a model writes it."""
        if self.whole is not None:
            return self.whole(message, rng)
        before, after = self.think
        thought = f"{before}{message.reasoning}{after}" if message.reasoning or self.marks_nothing else ""
        calls = self.write(message.calls, rng) if message.calls else ""
        return thought + message.content + calls


def type_of(value: Any) -> str:
    """The JSON Schema type of a value."""
    names = {
        str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object",
    }  # fmt: skip
    return names.get(type(value), "null")


def dumps(value: Any, rng: random.Random) -> str:
    """JSON in one of the ways that models write it."""
    indent, separators = rng.choice([(None, None), (None, None), (None, (",", ":")), (2, None)])
    return json.dumps(value, ensure_ascii=rng.random() < 0.3, indent=indent, separators=separators)


def member(call: Call, rng: random.Random, key: str = "arguments") -> str:
    """A call as a JSON object, in any order."""
    members = [("name", call[0]), (key, call[1])]
    if rng.random() < 0.3:
        members.reverse()
    return dumps(dict(members), rng)


def listed(calls: Calls, rng: random.Random, key: str = "arguments") -> str:
    return "[" + rng.choice([", ", ",\n  ", ","]).join(member(call, rng, key) for call in calls) + "]"


def each(before: str, after: str = "", between: str = "", key: str = "arguments") -> Callable[..., str]:
    return lambda calls, rng: between.join(before + member(call, rng, key) + after for call in calls)


def a_list(before: str, after: str = "", key: str = "arguments") -> Callable[..., str]:
    return lambda calls, rng: before + listed(calls, rng, key) + after


def bare(value: Any, rng: random.Random) -> str:
    return value if isinstance(value, str) else dumps(value, rng)


def qwen_xml(opens: str, closes: str, newline: str) -> Callable[..., str]:
    def write(calls: Calls, rng: random.Random) -> str:
        written = []
        for name, arguments in calls:
            pairs = [
                f"<parameter={key}>{newline}{bare(value, rng)}{newline}</parameter>\n"
                for key, value in arguments.items()
            ]
            written.append(f"{opens}\n<function={name}>\n{''.join(pairs)}</function>\n{closes}")
        return "\n".join(["", *written])

    return write


def glm(newline: str) -> Callable[..., str]:
    def write(calls: Calls, rng: random.Random) -> str:
        written = []
        for name, arguments in calls:
            pairs = [
                f"<arg_key>{key}</arg_key>{newline}<arg_value>{bare(value, rng)}</arg_value>{newline}"
                for key, value in arguments.items()
            ]
            written.append(f"<tool_call>{name}{newline}{''.join(pairs)}</tool_call>")
        return newline.join(written)

    return write


def mistral_v11(calls: Calls, rng: random.Random) -> str:
    between = rng.choice(["", "[ARGS]", "[CALL_ID]123456789[ARGS]"])
    return "".join(f"[TOOL_CALLS]{name}{between}{dumps(arguments, rng)}" for name, arguments in calls)


def deepseek_v3(calls: Calls, rng: random.Random) -> str:
    marks = DEEPSEEK
    written = [
        f"{marks['call']}function{marks['sep']}{name}\n```json\n{dumps(arguments, rng)}\n```{marks['end']}"
        for name, arguments in calls
    ]
    return marks["all"] + rng.choice(["", "\n"]).join(written) + marks["end_all"]


def deepseek_v31(calls: Calls, rng: random.Random) -> str:
    marks = DEEPSEEK
    written = [
        f"{marks['call']}{name}{marks['sep']}{dumps(arguments, rng)}{marks['end']}"
        for name, arguments in calls
    ]
    return marks["all"] + "".join(written) + marks["end_all"]


def kimi(calls: Calls, rng: random.Random) -> str:
    written = [
        f"<|tool_call_begin|>functions.{name}:{index}{rng.choice(['', ' '])}"
        f"<|tool_call_argument_begin|>{dumps(arguments, rng)}<|tool_call_end|>"
        for index, (name, arguments) in enumerate(calls)
    ]
    return "<|tool_calls_section_begin|>" + "".join(written) + "<|tool_calls_section_end|>"


def pythonic(before: str, after: str) -> Callable[..., str]:
    def write(calls: Calls, rng: random.Random) -> str:
        written = [
            f"{name}({', '.join(f'{key}={literal(value, rng)}' for key, value in arguments.items())})"
            for name, arguments in calls
        ]
        return f"{before}[{', '.join(written)}]{after}"

    return write


def literal(value: Any, rng: random.Random) -> str:
    """A Python literal; strings also escaped as JSON does."""
    if isinstance(value, list):
        return "[" + ", ".join(literal(item, rng) for item in value) + "]"
    if isinstance(value, dict):
        items = (f"{literal(key, rng)}: {literal(item, rng)}" for key, item in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, str) and rng.random() < 0.5:
        return json.dumps(value, ensure_ascii=rng.random() < 0.5)
    return repr(value)


def harmony(message: Message, rng: random.Random) -> str:
    parts = []
    if message.reasoning:
        parts.append(f"<|channel|>analysis<|message|>{message.reasoning}<|end|>")
    if message.content:
        channel = "commentary" if message.calls else "final"
        parts.append(f"<|channel|>{channel}<|message|>{message.content}<|end|>")
    for name, arguments in message.calls:
        header = rng.choice(
            [
                "<|channel|>commentary to=functions.{} <|constrain|>json",
                " to=functions.{}<|channel|>commentary json",
            ]
        ).format(name)
        parts.append(f"{header}<|message|>{dumps(arguments, rng)}<|call|>")
    return "<|start|>assistant".join(parts) if parts else "<|channel|>final<|message|><|return|>"


THINK = ("<think>", "</think>")
BRACKETED = ("[THINK]", "[/THINK]")
THINK_MARKS = ("<think>", "</think>")
HERMES_MARKS = ("<tool_call>",)
XML_ENDS = ("</parameter>", "<parameter=", "</function>", "</tool_call>")
SEED_ENDS = (*XML_ENDS[:3], "</seed:tool_call>")
HARMONY_MARKS = ("<|start|>", "<|end|>", "<|call|>", "<|return|>")
PYTHON_MARKS = ("<|python_start|>", "<|python_end|>")
GRANITE_MARKS = ("<|tool_call|>", "<tool_call>")
MISTRAL_MARKS = ("[TOOL_CALLS]", "[THINK]", "[/THINK]")
XLAM_MARKS = ("```json", "```\n", "[TOOL_CALLS]", "<tool_call>", *THINK_MARKS)
KIMI_MARKS = ("<|tool_calls_section_begin|>", *THINK_MARKS)
SEED_MARKS = ("<seed:tool_call>", "<seed:think>", "</seed:think>")
PHRASES = ("Here is my thought process:", "Here is my response:")
OTHER_PHRASES = ("Here's my thought process:", "Here's my response:")

FORMATS = {
    "hermes": Format("hermes", each("<tool_call>", "</tool_call>", "\n"), avoid=HERMES_MARKS),
    "hermes and qwen3": Format(
        "hermes", each("<tool_call>\n", "\n</tool_call>", "\n"), "qwen3", THINK, (*HERMES_MARKS, *THINK_MARKS)
    ),
    "hermes and deepseek_r1": Format(
        "hermes", each("<tool_call>", "</tool_call>"), "deepseek_r1", THINK, (*HERMES_MARKS, *THINK_MARKS)
    ),
    "qwen3_xml": Format(
        "qwen3_xml",
        qwen_xml("<tool_call>", "</tool_call>", "\n"),
        "qwen3",
        THINK,
        (*HERMES_MARKS, "<function=", *THINK_MARKS),
        XML_ENDS,
        typed=True,
    ),
    "seed_oss": Format(
        "seed_oss",
        qwen_xml("<seed:tool_call>", "</seed:tool_call>", ""),
        "seed_oss",
        ("<seed:think>", "</seed:think>"),
        SEED_MARKS,
        (*SEED_ENDS, "\n"),
        typed=True,
    ),
    "llama3_json": Format(
        "llama3_json",
        lambda calls, rng: rng.choice(["; ", ";", ", "]).join(member(c, rng, "parameters") for c in calls),
        avoid=("<|python_tag|>",),
    ),
    "llama3_json with a tag": Format(
        "llama4_json", each("<|python_tag|>", key="parameters"), avoid=("<|python_tag|>",)
    ),
    "pythonic": Format(
        "pythonic", pythonic("", ""), "olmo3", THINK, THINK_MARKS, first="[", alone=True
    ),
    "llama4_pythonic": Format(
        "llama4_pythonic", pythonic("<|python_start|>", "<|python_end|>"), avoid=PYTHON_MARKS, first="["
    ),
    "mistral": Format(
        "mistral", a_list("[TOOL_CALLS]"), "mistral", BRACKETED, MISTRAL_MARKS, marks_nothing=False
    ),
    "mistral v11": Format(
        "mistral", mistral_v11, "mistral", BRACKETED, MISTRAL_MARKS, marks_nothing=False
    ),
    "deepseek_v3": Format(
        "deepseek_v3", deepseek_v3, "deepseek_r1", THINK, (DEEPSEEK["all"], *THINK_MARKS)
    ),
    "deepseek_v31": Format("deepseek_v31", deepseek_v31, avoid=(DEEPSEEK["all"],)),
    "glm45": Format(
        "glm45", glm("\n"), "glm45", THINK, (*HERMES_MARKS, *THINK_MARKS), ("</arg_value>",), typed=True
    ),
    "glm45 of 4.7": Format(
        "glm45", glm(""), "glm45", THINK, (*HERMES_MARKS, *THINK_MARKS), ("</arg_value>",), typed=True
    ),
    "kimi_k2": Format("kimi_k2", kimi, "kimi_k2", THINK, KIMI_MARKS),
    "granite": Format(
        "granite",
        a_list("<|tool_call|>"),
        "granite",
        PHRASES,
        (*GRANITE_MARKS, *PHRASES, *OTHER_PHRASES),
        marks_nothing=False,
    ),
    "granite-20b-fc": Format(
        "granite-20b-fc", each("<function_call> ", between="\n"), avoid=("<function_call>",)
    ),
    "phi4_mini_json": Format("phi4_mini_json", a_list("functools"), avoid=("functools",)),
    "jamba": Format("jamba", a_list("<tool_calls>", "</tool_calls>"), avoid=("<tool_calls>",)),
    "internlm": Format(
        "internlm", each("<|action_start|><|plugin|>\n", "<|action_end|>", key="parameters"),
        avoid=("<|action_start|>",),
    ),
    "xlam": Format("xlam", a_list(""), "qwen3", THINK, XLAM_MARKS, first="[", alone=True),
    "xlam in a fence": Format(
        "xlam", a_list("\n```json\n", "\n```"), "qwen3", THINK, XLAM_MARKS, first="["
    ),
    "harmony": Format(
        "openai", each(""), "openai_gptoss", avoid=HARMONY_MARKS, avoid_in_values=HARMONY_MARKS, whole=harmony
    ),
}  # fmt: skip


def everything_marked(settings: Iterable[Setting], markers_of: Callable[[Setting], list[str]]) -> list[str]:
    """The markers of all families."""
    return sorted({marker for setting in settings for marker in markers_of(setting)})
