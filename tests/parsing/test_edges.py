"""What models rarely write, and what then is said: whole, and where it differs, streamed."""

from dataclasses import dataclass
from typing import Any

import pytest
from parsing.literals import value_of
from parsing.reading import SETTINGS, Reading, Setting, in_two, read_streamed, read_whole

from trio_render.parsing.families.reasoning import REASONING
from trio_render.parsing.families.tools import TOOLS
from trio_render.parsing.state import HOLD_CHARS

Calls = list[tuple[str, str]]
HARMONY = "openai after openai_gptoss"
START = "<|start|>assistant"


@dataclass(frozen=True)
class Edge:
    """A text and what it says. ``streamed``: the stream's content and calls, where they are others."""

    setting: str
    text: str
    content: str = ""
    calls: Calls | None = None
    reasoning: str = ""
    streamed: tuple[str, Calls] | None = None


def hermes(body: str) -> str:
    return f"<tool_call>{body}</tool_call>"


EDGES = {
    "arguments before the name": Edge(
        "hermes", hermes('{"arguments": {"name": "x"}, "name": "f"}'), calls=[("f", '{"name": "x"}')]
    ),
    "arguments that are a text": Edge(
        "hermes", hermes('{"name": "f", "arguments": "a"}'), calls=[("f", '"a"')]
    ),
    "arguments that are null": Edge(
        "hermes", hermes('{"name": "f", "arguments": null}'), calls=[("f", "null")]
    ),
    "no arguments": Edge("hermes", hermes('{"name": "f"}'), calls=[("f", "{}")]),
    "keys twice": Edge(
        "hermes",
        hermes('{"name": "f", "name": "g", "arguments": {}, "arguments": {"b": 1}}'),
        calls=[("f", "{}")],
    ),
    "escapes in keys and names": Edge(
        "hermes", hermes('{"n\\u0061me": "\\ud83d\\ude00", "arguments": {},}'), calls=[("😀", "{}")]
    ),
    "half a surrogate in a name": Edge(
        "hermes",
        hermes('{"name": "\\ud83d", "arguments": {}}'),
        hermes('{"name": "\\ud83d", "arguments": {}}'),
    ),
    "lines ended as on Windows": Edge(
        "hermes", hermes('\r\n{"name": "f",\r\n"arguments": {}}\r\n') + "\r\n", calls=[("f", "{}")]
    ),
    "the closing mark in a string": Edge(
        "hermes",
        hermes('{"name": "f", "arguments": {"s": "</tool_call>"}}') + "x",
        "x",
        [("f", '{"s": "</tool_call>"}')],
    ),
    "a list where an object should be": Edge("hermes", hermes('[{"name": "f"}]'), hermes('[{"name": "f"}]')),
    "two open marks": Edge(
        "hermes", "<tool_call>" + hermes('{"name": "f", "arguments": {}}'), "<tool_call>", [("f", "{}")]
    ),
    "NaN": Edge(
        "hermes",
        hermes('{"name": "f", "arguments": {"a": NaN}}'),
        hermes('{"name": "f", "arguments": {"a": NaN}}'),
        streamed=("", [("f", '{"a": NaN}')]),
    ),
    "a long integer": Edge(
        "hermes",
        hermes(f'{{"name": "f", "arguments": {{"a": {"9" * 5000}}}}}'),
        calls=[("f", f'{{"a": {"9" * 5000}}}')],
    ),
    "cut in the second call": Edge(
        "hermes",
        "a" + hermes('{"name": "f", "arguments": {}}') + ' b <tool_call>{"name": "g", "arguments": {"x": ',
        'a b <tool_call>{"name": "g", "arguments": {"x": ',
        [("f", "{}")],
        streamed=("a b ", [("f", "{}"), ("g", '{"x": ')]),
    ),
    "reasoning's end behind a broken call": Edge(
        "hermes after qwen3",
        "</think>" + hermes('{"name": "f", "arguments": [}') + "</think>x",
        hermes('{"name": "f", "arguments": [}') + "x",
        streamed=("x", [("f", "[}")]),
    ),
    "an empty list": Edge("mistral", "[TOOL_CALLS][]", "[TOOL_CALLS][]"),
    "a comma at the end": Edge(
        "mistral", '[TOOL_CALLS][{"name": "f", "arguments": {}},]', calls=[("f", "{}")]
    ),
    "no comma between": Edge(
        "mistral",
        '[TOOL_CALLS][{"name": "f", "arguments": {}} {"name": "g"}]',
        ' {"name": "g"}]',
        [("f", "{}")],
    ),
    "whitespace before a second call that is none": Edge(
        "mistral", '[TOOL_CALLS][{"name": "f", "arguments": {}} , x]', " , x]", [("f", "{}")]
    ),
    "a call id": Edge("mistral", "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{} ok", " ok", [("f", "{}")]),
    "cut in a call id": Edge("mistral", "[TOOL_CALLS]f[CALL_ID]1234", "[TOOL_CALLS]f[CALL_ID]1234"),
    "cut before the arguments": Edge(
        "mistral", "[TOOL_CALLS]f[ARGS]", "[TOOL_CALLS]f[ARGS]", streamed=("", [("f", "")])
    ),
    "content before reasoning": Edge(
        "mistral after mistral", "a\n[THINK]r[/THINK]\n[TOOL_CALLS]f{}", "a\n", [("f", "{}")], "r"
    ),
    "Python's literals": Edge(
        "pythonic",
        """[f(a=-1, b=[(1, 2), {"k": (3,)}], c="a" 'b'\n"c", d=1_000, e=+.5, f=None, g=True,)]""",
        calls=[
            (
                "f",
                '{"a": -1, "b": [[1, 2], {"k": [3]}], "c": "abc", "d": 1000, "e": 0.5, "f": null, "g": true}',
            )
        ],
    ),
    "Python's escapes": Edge(
        "pythonic",
        r"""[f(a="\x41\u00e9\ud83d\ude00\U0001F600\'\n\q")]""",
        calls=[("f", r'{"a": "Aé\ud83d\ude00😀' + r"""'\n\\q"}""")],
    ),
    "a variable": Edge("pythonic", "[f(a=b)]", "[f(a=b)]", streamed=(")]", [("f", '{"a": ')])),
    "a link": Edge("pythonic", "[a](http://b.c)", "[a](http://b.c)"),
    "prose behind several calls": Edge(
        "llama3_json",
        '{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}; thanks',
        "; thanks",
        [("f", "{}"), ("g", "{}")],
    ),
    "garbage between parameters": Edge(
        "qwen3_xml",
        "<function=f>\n<parameter=a>1</parameter>x<parameter=b>2</parameter></function>",
        "<function=f>\n<parameter=a>1</parameter>x<parameter=b>2</parameter></function>",
        streamed=("x<parameter=b>2</parameter></function>", [("f", '{"a": "1"')]),
    ),
    "cut before any parameter": Edge(
        "qwen3_xml", "<function=f>\n", "<function=f>\n", streamed=("", [("f", "")])
    ),
    "no end of a function": Edge(
        "qwen3_xml",
        "<tool_call><function=f><parameter=a>1</parameter></tool_call>x",
        "x",
        [("f", '{"a": "1"}')],
    ),
    "a header that is none": Edge(HARMONY, "Hello <|channel|>analysis<|message|>x", "Hello ", reasoning="x"),
    "no header": Edge(HARMONY, "<|message|>hi<|end|>", "hi"),
    "the recipient first": Edge(
        HARMONY, " to=functions.f<|channel|>commentary json<|message|>{}<|call|>", calls=[("f", "{}")]
    ),
    "a broken call among messages": Edge(
        HARMONY,
        '<|channel|>commentary to=functions.f<|message|>{"a": <|call|>'
        f"{START}<|channel|>analysis<|message|>r<|end|>"
        f"{START}<|channel|>final<|message|>b<|return|>",
        '<|channel|>commentary to=functions.f<|message|>{"a": <|call|>b',
        reasoning="r",
        streamed=("b", [("f", '{"a": ')]),
    ),
    "two reasoning blocks": Edge(
        "qwen3 (reasoning)", "<think>a</think>x<think>b", "x<think>b", reasoning="a"
    ),
}


@pytest.mark.parametrize("edge", EDGES.values(), ids=EDGES.keys())
def test_edges_are_read_whole_and_at_every_cut(edge: Edge) -> None:
    """The stream says the same, or what it must, having sent the name."""
    setting = SETTINGS[edge.setting]
    assert read_whole(setting, edge.text) == Reading(edge.content, edge.reasoning, edge.calls or [])
    content, calls = edge.streamed or (edge.content, edge.calls or [])
    streamed = Reading(content, edge.reasoning, calls)
    assert read_streamed(setting, edge.text) == streamed
    if len(edge.text) < HOLD_CHARS:
        assert all(read_streamed(setting, pieces) == streamed for pieces in in_two(edge.text))


@pytest.mark.parametrize("flood", [HOLD_CHARS // 2, HOLD_CHARS, HOLD_CHARS + 1, 3 * HOLD_CHARS])
@pytest.mark.parametrize("name", [*TOOLS, *(f"{name} (reasoning)" for name in REASONING)])
def test_floods_of_whitespace_are_held_back_no_further_than_the_bound(name: str, flood: int) -> None:
    """Before, within and after whatever begins something, in one piece and in many."""
    setting = SETTINGS[name]
    plan = setting.plan()
    begins = (
        [*plan.tools.opens, *plan.tools.starts] if plan.tools else list(REASONING[setting.reasoning].opens)
    )
    space = " " * flood
    for opener in begins:
        text = f"{space}{opener}{space}x{space}"
        streamed = read_streamed(setting, [text])
        assert read_streamed(setting, [text[at : at + 500] for at in range(0, len(text), 500)]) == streamed
        if plan.tools:
            assert read_whole(setting, text).content == text == streamed.content


TYPES: list[tuple[Any, str, Any]] = [
    ({"type": ["integer", "null"]}, "null", None),
    ({"type": ["integer", "string"]}, "12", 12),
    ({"type": ["integer", "string"]}, "1.5", "1.5"),
    ({"type": "integer"}, "9" * 40, int("9" * 40)),
    ({"type": "integer"}, "x", "x"),
    ({"type": "number"}, "5.0", 5),
    ({"type": "boolean"}, "True", True),
    ({"type": "object"}, ' {"a": [1]} ', {"a": [1]}),
    ({"type": "object"}, "None", "None"),
    ({"type": "object"}, "null", None),
    ({"type": "array"}, "", ""),
    ({"anyOf": [{"type": "object"}, {"type": "null"}]}, '{"a": 1}', {"a": 1}),
    ({"enum": [1, 2, "x"]}, "2", 2),
    ({"type": "string"}, "null", "null"),
    ({}, "1", "1"),
    (True, "1", "1"),
    ({"type": "integer"}, "7" * 5000, "7" * 5000),
]


@pytest.mark.parametrize(("schema", "text", "value"), TYPES)
def test_the_schema_says_what_a_bare_value_is(schema: Any, text: str, value: Any) -> None:
    """Of the types it allows, the first that the text fits."""
    setting = Setting("qwen3_xml", None, {"f": {"properties": {"a": schema}}})
    output = f"<tool_call>\n<function=f>\n<parameter=a>\n{text}\n</parameter>\n</function>\n</tool_call>"
    reading = read_whole(setting, output)
    assert [(name, value_of(arguments)) for name, arguments in reading.calls] == [("f", {"a": value})]
    assert read_streamed(setting, output) == reading
