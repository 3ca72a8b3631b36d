"""Any junk is read the same however it is cut, loses nothing, and differs whole and streamed by one rule."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing.literals import LITERALS, Literal
from parsing.reading import SETTINGS, Reading, Setting, in_pieces, in_two, read_streamed, read_whole

from trio_render.parsing.grammar import Args, JsonObject, Literally, Name, Params, Skip, Step

SEEDS_PER_FAMILY = 20
DAMAGES_PER_LITERAL = 8
PIECES = [
    '"', '"', "'", "\\", "{", "}", "[", "]", "(", ")", ":", ",", "=", " ", "\n", "\r\n", "a", "é", "😀", "<",
    '"name": ', '"name": "f"', '{"name": "f", ', '"arguments": ', '"parameters": ', '"arguments": {"a": 1}',
    '{"name": "f", "arguments": {"a": [1, "}"]}}', '{"arguments": {"b": "\\u00e9"}, "name": "g"}', "null",
    '"\\ud83d\\ude00"', "f(", "f(a=1", "b='x')", "f(x=[1, (2, {'k': None})])", "to=functions.f", "-1.5",
    "{}", "|", "final", "analysis", "functions.f:0", "f", "json", "1" * 500, " " * 700, "xy" * 400,
    "commentary json",
]  # fmt: skip


def steps_of(setting: Setting) -> Iterator[Step]:
    """All steps of a family's calls."""
    for variant in setting.plan().variants:
        yield from variant.steps


def markers_of(setting: Setting) -> list[str]:
    """All texts that mean something to a setting's families."""
    plan = setting.plan()
    found: list[str] = []
    if plan.reasoning is not None:
        found += [*plan.reasoning.opens, *plan.reasoning.closes, *plan.reasoning.ended_by]
    if plan.channels is not None:
        channels = plan.channels
        found += [channels.start, channels.channel, channels.message, *channels.ends]
    if plan.tools is not None:
        found += [*plan.tools.opens, *plan.tools.starts, *plan.tools.closes]
    for step in steps_of(setting):
        match step:
            case Literally(text):
                found.append(text)
            case Skip(until, begins):
                found += [until, begins]
            case Name(before):
                found += before
            case Args(ends):
                found += ends
            case JsonObject():
                found += step.ends
            case Params():
                found += [step.key_open, step.key_close, step.value_open, step.value_close, *step.close]
    return [marker for marker in found if marker]


def junk_of(setting: Setting, rng: random.Random) -> str:
    """A random mix of a family's markers, parts of them, and what JSON and Python calls are made of."""
    markers = markers_of(setting)
    parts = []
    for _ in range(rng.randint(1, 30)):
        kind = rng.random()
        if kind < 0.5:
            parts.append(rng.choice(PIECES))
        elif kind < 0.9:
            parts.append(rng.choice(markers))
        else:
            marker = rng.choice(markers)
            parts.append(marker[: rng.randint(1, len(marker))])
    return "".join(parts)


def damaged(literal: Literal, rng: random.Random) -> str:
    """A published output with parts cut off, left out, doubled, or others put between."""
    text = literal.output
    for _ in range(rng.randint(1, 3)):
        start, end = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
        end = min(end, start + 30)
        match rng.randint(0, 4):
            case 0:
                text = text[:start]
            case 1:
                text = text[:start] + text[end:]
            case 2:
                text = text[:end] + text[start:]
            case 3:
                text = text[:start] + junk_of(literal.setting, rng) + text[start:]
            case _:
                text = text[:start] + rng.choice(PIECES) + text[start:]
    return text


def is_subsequence(part: str, text: str) -> bool:
    characters = iter(text)
    return all(character in characters for character in part)


def check(setting: Setting, text: str, rng: random.Random) -> None:
    """Check everything that holds for any text."""
    streamed = read_streamed(setting, text)
    for longest in (3, 40, 1000):
        assert read_streamed(setting, in_pieces(text, rng, longest)) == streamed
    assert read_streamed(setting, [text], carried=False) == streamed
    check_whole(setting, text, streamed)


def check_whole(setting: Setting, text: str, streamed: Reading) -> None:
    """A whole answer keeps broken calls as content; that is all the difference."""
    whole = read_whole(setting, text)
    assert whole.reasoning == streamed.reasoning
    assert is_subsequence(streamed.content, whole.content)
    if len(whole.calls) == len(streamed.calls):
        assert whole == streamed
        assert whole.ids == streamed.ids
    rest = iter(streamed.calls)
    assert all(call in rest for call in whole.calls), "the whole answer's calls are some of the stream's"
    if not whole.calls and not whole.reasoning and setting.reasoning is None and setting.tools != "openai":
        assert whole.content == text


@pytest.mark.parametrize("name", SETTINGS)
def test_junk_is_read_the_same_however_it_is_cut(name: str) -> None:
    """Seeded, so that a run repeats: the slow test below looks further."""
    rng = random.Random(name)
    for _ in range(SEEDS_PER_FAMILY):
        check(SETTINGS[name], junk_of(SETTINGS[name], rng), rng)


@pytest.mark.parametrize("name", SETTINGS)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_short_junk_is_read_the_same_at_every_cut(name: str, seed: int) -> None:
    """Every way to cut a text in two, with the state carried over the cut."""
    setting = SETTINGS[name]
    text = junk_of(setting, random.Random(seed))[:120]
    streamed = read_streamed(setting, text)
    for pieces in in_two(text):
        assert read_streamed(setting, pieces) == streamed


@pytest.mark.parametrize("literal", LITERALS, ids=lambda literal: literal.name)
def test_damaged_outputs_are_read_the_same_however_they_are_cut(literal: Literal) -> None:
    """Nearly right is where a reader goes wrong."""
    rng = random.Random(literal.name)
    for _ in range(DAMAGES_PER_LITERAL):
        check(literal.setting, damaged(literal, rng), rng)


@pytest.mark.slow
@pytest.mark.parametrize("literal", LITERALS, ids=lambda literal: literal.name)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**64))
def test_many_damaged_outputs_are_read_the_same_however_they_are_cut(literal: Literal, seed: int) -> None:
    """As above, for as long as one likes."""
    rng = random.Random(seed)
    check(literal.setting, damaged(literal, rng), rng)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**64))
def test_much_junk_is_read_the_same_however_it_is_cut(name: str, seed: int) -> None:
    """As above, for as long as one likes."""
    rng = random.Random(seed)
    check(SETTINGS[name], junk_of(SETTINGS[name], rng), rng)
