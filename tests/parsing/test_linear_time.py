"""Reading takes time in proportion to the output, whatever it holds."""

import time

import pytest
from parsing.reading import SETTINGS, Setting, read_whole
from parsing.test_junk import markers_of

from trio_render.parsing.families.tools import TOOLS
from trio_render.parsing.machine import Machine
from trio_render.parsing.sink import Delta
from trio_render.parsing.state import HOLD_CHARS

KIB = 1024
SIZE = 100 * KIB
PIECE_CHARS = 4
MAX_RATIO = 6.0
"""Twice the text may take twice as long; three times that is for the machine's noise."""
TOO_SHORT_TO_COMPARE = 0.05
MAX_SECONDS_WHOLE = 1.0
MAX_SECONDS_STREAMED = 2.0
"""Far above what it takes (a third of these where it takes longest), for loaded machines."""


FAMILIES = [*sorted({*SETTINGS} & {*TOOLS} - {"qwen3_coder", "llama4_json"}), "openai after openai_gptoss"]
"""Every table of calls; the slow test has them all."""


def filled(unit: str, size: int, begin: str = "") -> str:
    """``unit`` over and over, behind ``begin``."""
    return (begin + unit * (size // len(unit) + 1))[:size]


def openers_of(setting: Setting) -> list[str]:
    """What begins calls, and where there are none, anything that is marked."""
    tools = setting.plan().tools
    begins = [] if tools is None else [*tools.opens, *tools.starts]
    return begins or markers_of(setting)


JUNK = {
    "openers": lambda opener, size: filled(opener, size),
    "spaces within": lambda opener, size: filled(" ", size, opener),
    "brackets within": lambda opener, size: filled("[", size, opener),
    "objects within": lambda opener, size: filled('{"a":', size, opener),
    "quotes within": lambda opener, size: filled('"', size, opener),
    "backslashes within": lambda opener, size: filled(
        "\\", size, opener + '{"name": "f", "arguments": {"a": "'
    ),
    "long bodies": lambda opener, size: filled(opener + "x" * (HOLD_CHARS - 20), size),
    "long objects": lambda opener, size: filled(opener + '{"arguments": "' + "x" * 4000 + '", ', size),
    "almost openers": lambda opener, size: filled(opener[:-1] + "\n", size),
    "calls": lambda opener, size: filled(opener + '{"name": "f", "arguments": {"a": [1]}}', size),
    "open calls": lambda opener, size: filled(opener + '{"name": "f", "arguments": {"a": ', size),
}

ANYWHERE = {
    "spaces": " ",
    "floods of space": " " * HOLD_CHARS + "a",
    "newlines": "\n a",
    "braces": "{",
    "keys": '{"',
    "less-than": "<",
    "bars": "<|",
    "Python arguments": "[search(a0=1, ",
    "Python lists": "[f(a=[1,",
}


def junk_of(setting: Setting, size: int) -> dict[str, str]:
    """Texts that are hard for a reader that looks back."""
    texts = {name: filled(unit, size) for name, unit in ANYWHERE.items()}
    texts["a cut call with many arguments"] = filled(
        ", ".join(f"a{i}=1" for i in range(size // 8)), size, "[search("
    )
    texts["a Python list"] = filled("[1,", size, "[f(a=")
    texts["a Python text"] = filled("\\", size, "[f(a='")
    for opener in openers_of(setting):
        texts.update({f"{opener}: {name}": make(opener, size) for name, make in JUNK.items()})
    for marker in markers_of(setting):
        texts[f"{marker} repeated"] = filled(marker, size)
    return texts


def seconds_whole(setting: Setting, text: str) -> float:
    begun = time.thread_time()
    read_whole(setting, text)
    return time.thread_time() - begun


def seconds_streamed(setting: Setting, text: str) -> float:
    plan, state, delta = setting.plan(), setting.start(), Delta()
    begun = time.thread_time()
    for at in range(0, len(text), PIECE_CHARS):
        Machine(plan, state, delta).feed(text[at : at + PIECE_CHARS])
    Machine(plan, state, delta).feed("", final=True)
    return time.thread_time() - begun


def check_whole(setting: Setting, name: str, half: str, text: str) -> None:
    took = seconds_whole(setting, text)
    if took > TOO_SHORT_TO_COMPARE:
        took = min(took, seconds_whole(setting, text), seconds_whole(setting, text))
        assert took < MAX_RATIO * seconds_whole(setting, half), name
    assert took < MAX_SECONDS_WHOLE, name


@pytest.mark.parametrize("family", FAMILIES)
def test_whole_answers_of_junk_take_linear_time(family: str) -> None:
    """100 KiB against 50 KiB."""
    setting = SETTINGS[family]
    halves = junk_of(setting, SIZE // 2)
    for name, text in junk_of(setting, SIZE).items():
        check_whole(setting, name, halves[name], text)


@pytest.mark.parametrize(
    "family", ["hermes after qwen3", "llama3_json", "pythonic", "openai_gptoss (reasoning)"]
)
def test_streams_of_junk_take_linear_time(family: str) -> None:
    """In pieces of four characters, those that took longest."""
    setting = SETTINGS[family]
    texts = junk_of(setting, SIZE)
    chosen = ["spaces", "floods of space", "keys", "a Python list", f"{openers_of(setting)[0]}: openers"]
    for name in chosen:
        assert seconds_streamed(setting, texts[name]) < MAX_SECONDS_STREAMED, name


@pytest.mark.slow
@pytest.mark.parametrize("family", SETTINGS)
def test_streams_of_any_junk_take_linear_time(family: str) -> None:
    """50 KiB against 25 KiB, for all junk."""
    setting = SETTINGS[family]
    halves = junk_of(setting, SIZE // 4)
    for name, text in junk_of(setting, SIZE // 2).items():
        took = seconds_streamed(setting, text)
        assert took < MAX_SECONDS_STREAMED, name
        if took >= MAX_RATIO * seconds_streamed(setting, halves[name]):
            took = min(seconds_streamed(setting, text) for _ in range(3))
            assert took < MAX_RATIO * seconds_streamed(setting, halves[name]), name
