"""The end of an output, against an engine that checks token by token."""

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_models import opened

from trio_render import GenerateChoice, Model
from trio_render.derender.choice import choice_text
from trio_render.derender.detokenize import START, detokenize
from trio_render.derender.stop import StopRules, find_stop_string

MODERATE = settings(deadline=None, max_examples=200)
ALPHABET = "ab "


class Stopped(NamedTuple):
    """A text up to its stop string, and that string."""

    text: str
    string: str | None


def naive_stop(texts: list[str], strings: list[str], included: bool, min_tokens: int) -> Stopped:
    """What an engine does that looks for them token by token. `texts`: after 0, 1, 2, ... tokens."""
    for n in range(min_tokens + 1, len(texts)):
        before, now = texts[n - 1], texts[n]
        for string in strings:
            # Only a match that ends in what this token brought.
            place = now.find(string, max(len(before) - len(string) + 1, 0))
            if place >= 0:
                return Stopped(now[: place + len(string) * included], string)
    return Stopped(texts[-1], None)


pieces = st.lists(st.text(ALPHABET, min_size=0, max_size=4), max_size=8)
stops = st.lists(st.text(ALPHABET, min_size=1, max_size=5), min_size=1, max_size=4)


@MODERATE
@given(pieces, stops, st.booleans(), st.integers(0, 10))
def test_the_stop_string_that_an_engine_meets_first_wins(
    parts: list[str], strings: list[str], included: bool, min_tokens: int
) -> None:
    texts = ["".join(parts[:n]) for n in range(len(parts) + 1)]
    found = find_stop_string(
        texts[-1],
        strings,
        included=included,
        start=len(texts[min(min_tokens, len(parts))]) if min_tokens else 0,
        n_tokens=len(parts),
        length_after=lambda n: len(texts[n]),
    )
    got = Stopped(texts[-1], None) if found is None else Stopped(texts[-1][: found.end], found.string)
    assert got == naive_stop(texts, strings, included, min_tokens)


def rules(model: Model, **fields: object) -> StopRules:
    values = StopRules(model.eos_ids, frozenset(), (), False, 0, True)
    return values._replace(**fields)


def test_choices_end_where_an_engine_would_end_them(model_folders: Path) -> None:
    model = opened(model_folders / "smollm2")
    table = model.tokenizer.table
    words = model.tokenizer.encode("a ab aba b \U0001f468 aa bab \u4eca a\n<|im_end|>")
    few = st.lists(st.sampled_from([i for i in words if i not in model.eos_ids]), min_size=1, max_size=10)
    strings = st.lists(
        st.sampled_from(["a", "ab", "b a", "ba", " ", "\U0001f468", "a\n"]), min_size=1, max_size=3
    )

    @settings(deadline=None, max_examples=150)
    @given(few, strings, st.booleans(), st.integers(0, 6))
    def check(ids: list[int], strings: list[str], included: bool, min_tokens: int) -> None:
        given_rules = rules(model, strings=tuple(strings), included=included, min_tokens=min_tokens)
        texts = [detokenize(table, ids[:n], skip_special_tokens=True) for n in range(len(ids) + 1)]
        wanted = naive_stop(texts, strings, included, min_tokens)
        shown = choice_text(model, GenerateChoice(index=0, token_ids=ids), given_rules, START)
        assert (shown.text, shown.stop_reason) == wanted

    check()


# ------------------------------------------------------------ stop tokens


@pytest.mark.parametrize(
    ("finish", "included", "text", "reason"),
    [
        ("stop", False, "hi", None),
        ("stop", True, "hi<|im_end|>", None),
        ("length", False, "hi<|im_end|>", None),
    ],
)
def test_eos_is_shown_only_if_asked_for_or_if_it_did_not_stop(
    model_folders: Path, finish: str, included: bool, text: str, reason: int | None
) -> None:
    model = opened(model_folders / "smollm2")
    ids = model.tokenizer.encode("hi<|im_end|>")
    shown = choice_text(
        model,
        GenerateChoice(index=0, token_ids=ids, finish_reason=finish),
        rules(model, included=included, skip_special_tokens=False),
        START,
    )
    assert shown == (text, reason)


def test_a_stop_token_is_cut_off_and_reported(model_folders: Path) -> None:
    model = opened(model_folders / "smollm2")
    ids = model.tokenizer.encode("hi there")
    shown = choice_text(
        model, GenerateChoice(index=0, token_ids=ids), rules(model, token_ids=frozenset(ids[-1:])), START
    )
    assert shown == ("hi", ids[-1])


def test_a_stop_token_before_the_end_changes_nothing(model_folders: Path) -> None:
    model = opened(model_folders / "smollm2")
    ids = model.tokenizer.encode("hi there you")
    shown = choice_text(
        model, GenerateChoice(index=0, token_ids=ids), rules(model, token_ids=frozenset(ids[1:2])), START
    )
    assert shown == ("hi there you", None)


def test_the_engine_s_reason_counts_though_no_rule_names_it(model_folders: Path) -> None:
    model = opened(model_folders / "smollm2")
    ids = model.tokenizer.encode("hi there")
    by_token = GenerateChoice(index=0, token_ids=ids, stop_reason=ids[-1])
    by_string = GenerateChoice(index=0, token_ids=ids, stop_reason="the")
    assert choice_text(model, by_token, rules(model), START) == ("hi", ids[-1])
    assert choice_text(model, by_string, rules(model, strings=("h",)), START) == ("hi ", "the")


def test_stop_strings_are_not_looked_for_in_a_cut_output(model_folders: Path) -> None:
    model = opened(model_folders / "smollm2")
    ids = model.tokenizer.encode("hi there")
    cut = GenerateChoice(index=0, token_ids=ids, finish_reason="length")
    assert choice_text(model, cut, rules(model, strings=("the",)), START).text == "hi there"
