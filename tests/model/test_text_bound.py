"""No encoding has fewer tokens than the floor says; where the floor is used, it is not far below."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_models import NAMES, opened

from trio_render.model.text_bound import TextBound
from trio_render.model.token_table import TokenTable, decoder_rules

UNITS = [
    "a",
    " ",
    "\n",
    "\t",
    "0",
    "-",
    "=",
    "é",
    "e\u0301",
    "\u4eca",
    "\U0001f468",
    "the ",
    "    ",
    "<s>",
    "\u0301",
    "\x1d",
]
runs = st.builds(lambda unit, times: unit * times, st.sampled_from(UNITS), st.integers(0, 3000))
texts = st.text(max_size=60) | st.lists(st.text(max_size=8) | runs, max_size=5).map("".join)


@pytest.mark.parametrize("name", NAMES)
def test_the_floor_is_never_above_the_encoding(model_folders: Path, name: str) -> None:
    tokenizer = opened(model_folders / name).tokenizer

    @settings(deadline=None, max_examples=120)
    @given(texts)
    def check(text: str) -> None:
        assert tokenizer.bound.min_tokens(text) <= len(tokenizer.encode(text))

    check()


@pytest.mark.parametrize("name", NAMES)
def test_the_floor_holds_for_the_vocabulary_itself(model_folders: Path, name: str) -> None:
    """The longest tokens are where a floor would be wrong first."""
    tokenizer = opened(model_folders / name).tokenizer
    values = sorted(tokenizer.table.byte_values, key=len)[-300:]
    for value in values:
        text = value.decode("utf-8", "replace") * 3
        assert tokenizer.bound.min_tokens(text) <= len(tokenizer.encode(text))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unit", ["a", "0", " ", "\u4eca", "\U0001f468"])
def test_a_run_of_six_million_is_known_to_be_too_long(model_folders: Path, name: str, unit: str) -> None:
    model = opened(model_folders / name)
    assert model.tokenizer.bound.min_tokens(unit * 6_000_000) > model.max_model_len


def test_a_normalizer_that_may_shorten_gives_no_floor() -> None:
    table = TokenTable(["a"], decoder_rules({"type": "ByteLevel"}), frozenset(), 1)
    for spec in (
        {"type": "NFKC"},
        {"type": "Lowercase"},
        {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip"}]},
    ):
        assert TextBound.of(table, {"normalizer": spec}, strips_spaces=False).min_tokens("a" * 1000) == 0


def test_letters_and_digits_are_counted_by_the_tokens_that_hold_most_of_them() -> None:
    table = TokenTable(
        [*"abc12-x", "abc", "-----", "12"], decoder_rules({"type": "ByteLevel"}), frozenset(), 10
    )
    bound = TextBound.of(table, {}, strips_spaces=False)
    assert (bound.max_bytes, bound.max_letters, bound.max_digits) == (5, 3, 2)
    assert bound.min_tokens("a" * 30) == 10
    assert bound.min_tokens("1" * 30) == 15
    assert bound.min_tokens("-" * 30) == 6


def test_spaces_that_a_marker_swallows_do_not_count() -> None:
    table = TokenTable(["a", "Ġ", "ĠĠ"], decoder_rules({"type": "ByteLevel"}), frozenset(), 3)
    assert TextBound.of(table, {}, strips_spaces=True).min_tokens(" " * 100) == 0
    assert TextBound.of(table, {}, strips_spaces=False).min_tokens(" " * 100) == 50


def test_bytes_without_a_token_do_not_count() -> None:
    """They are dropped when a text is encoded."""
    table = TokenTable(["a"], decoder_rules({"type": "ByteLevel"}), frozenset(), 1)
    assert TextBound.of(table, {}, strips_spaces=False).min_tokens("a" + "b" * 1000) <= 1


def test_a_replacement_that_deletes_gives_no_floor() -> None:
    table = TokenTable(["a"], decoder_rules({"type": "ByteLevel"}), frozenset(), 1)
    spec = {"type": "Replace", "pattern": {"String": "ab"}, "content": ""}
    assert TextBound.of(table, {"normalizer": spec}, strips_spaces=False).min_tokens("ab" * 1000) == 0


@pytest.mark.parametrize(
    "pre_tokenizer",
    [{"type": "Whitespace"}, {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed"}],
)
def test_a_pre_tokenizer_that_drops_characters_gives_no_floor(pre_tokenizer: dict[str, object]) -> None:
    table = TokenTable(["a", "Ġ"], decoder_rules({"type": "ByteLevel"}), frozenset(), 2)
    spec = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, pre_tokenizer]}}
    assert TextBound.of(table, spec, strips_spaces=False).min_tokens("a " * 1000) == 0


def test_composition_shrinks_no_character_below_a_third() -> None:
    """What the floor for composed text leans on: every character of Unicode is tried."""
    for code in range(0x110000):
        if not 0xD800 <= code < 0xE000:
            character = chr(code)
            composed = len(unicodedata.normalize("NFC", character).encode())
            assert len(character.encode()) <= 3 * composed
            assert len(unicodedata.normalize("NFD", character).encode()) <= 3 * composed
