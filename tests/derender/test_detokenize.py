"""Text of token ids: cut anywhere, nothing is lost and nothing is shown twice."""

import codecs
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_models import NAMES, opened

from trio_render.derender.detokenize import START, Seed, detokenize, incomplete_tail, seed_from_prompt
from trio_render.model.token_table import DecoderRules, TokenTable

MODERATE = settings(deadline=None, max_examples=150)

# A vocabulary of pieces of characters, which real ones hold too, but rarely meet.
PIECES = [
    *("a", " b", " ", "\u00e9", " \u20ac", "<s>"),
    *("", "end"),
]
BYTES = [
    b"\xc3",
    b"\xa9",
    b"\xe2",
    b"\x82",
    b"\xac",
    b"\xe2\x82",
    b"\x82\xac",
    b" \xf0\x9f",
    b"\x91",
    b"\xa8",
    b"\xf0",
]
MIXED = [b"\xac\xe2", b"\xa8 \xe2\x82", b"a\xc3", b"\xa9b", b"\xff", b"\x80\x80", b"\xed\xa0", b"\xc0"]


def table_of(values: list[bytes], *, fallback: bool = False, strips: bool = False) -> TokenTable:
    table = TokenTable([], DecoderRules(True, fallback, (), strips), frozenset({5}), len(values))
    table.byte_values[:] = values
    return table


VALUES = [piece.encode() for piece in PIECES] + BYTES + MIXED
ids = st.lists(st.integers(0, len(VALUES) - 1), max_size=14)
tables = st.builds(
    lambda fallback, strips: table_of(VALUES, fallback=fallback, strips=strips), st.booleans(), st.booleans()
)


@MODERATE
@given(tables, ids, st.booleans())
def test_what_is_shown_of_a_part_is_never_taken_back(
    table: TokenTable, token_ids: list[int], skip: bool
) -> None:
    whole = detokenize(table, token_ids, skip_special_tokens=skip, flush=True)
    shown = ""
    for n in range(len(token_ids) + 1):
        longer = detokenize(table, token_ids[:n], skip_special_tokens=skip)
        assert longer.startswith(shown)
        assert whole.startswith(longer)
        shown = longer


@MODERATE
@given(tables, ids)
def test_only_an_incomplete_end_is_held_back(table: TokenTable, token_ids: list[int]) -> None:
    held = detokenize(table, token_ids, skip_special_tokens=False)
    whole = detokenize(table, token_ids, skip_special_tokens=False, flush=True)
    data = b"".join(VALUES[i] for i in token_ids)
    if not incomplete_tail(data):
        assert held == whole
    else:
        assert held != whole
        rest = whole[len(held) :]
        assert "\ufffd" in rest
        # At most the token that opens the character, and one that it follows into.
        assert len(rest) <= 8


@MODERATE
@given(tables, ids)
def test_no_character_is_lost(table: TokenTable, token_ids: list[int]) -> None:
    shown = detokenize(table, token_ids, skip_special_tokens=False, flush=True)
    data = b"".join(VALUES[i] for i in token_ids)
    if table.rules.strips_first_space:
        data = data.removeprefix(b" ")
    assert shown.replace("\ufffd", "") == data.decode("utf-8", "ignore")


@pytest.mark.parametrize("name", NAMES)
def test_parts_of_a_real_text_are_prefixes(model_folders: Path, name: str) -> None:
    tokenizer = opened(model_folders / name).tokenizer

    @settings(deadline=None, max_examples=60)
    @given(st.text(st.characters(codec="utf-8", min_codepoint=32, max_codepoint=0x3FFFF), max_size=25))
    def check(text: str) -> None:
        token_ids = tokenizer.encode(text)
        whole = detokenize(tokenizer.table, token_ids, skip_special_tokens=False)
        shown = [
            detokenize(tokenizer.table, token_ids[:n], skip_special_tokens=False)
            for n in range(len(token_ids))
        ]
        shown.append(whole)
        assert all(b.startswith(a) for a, b in pairwise(shown))
        assert not any("\ufffd" in part for part in shown if "\ufffd" not in text)

    check()


# ------------------------------------------------------------ after a prompt


@MODERATE
@given(tables, ids, ids)
def test_a_seed_joins_what_prompt_and_output_share(
    table: TokenTable, prompt: list[int], output: list[int]
) -> None:
    """With its seed an output shows at most one character of the prompt: the one it finishes."""
    seed = seed_from_prompt(table, prompt, skip_special_tokens=False)
    shown = detokenize(table, output, skip_special_tokens=False, seed=seed, flush=True)
    bare = detokenize(table, output, skip_special_tokens=False, seed=Seed(seed.at_start, b""), flush=True)
    both = b"".join(VALUES[i] for i in (*prompt, *output))
    assert shown.replace("\ufffd", "") in both.decode("utf-8", "ignore")
    assert len(shown.replace("\ufffd", "")) - len(bare.replace("\ufffd", "")) <= 1


def test_a_character_cut_by_the_end_of_the_prompt_is_shown_whole(model_folders: Path) -> None:
    tokenizer = opened(model_folders / "qwen3").tokenizer
    token_ids = tokenizer.encode("\U00013000")
    assert len(token_ids) > 1
    seed = seed_from_prompt(tokenizer.table, token_ids[:1], skip_special_tokens=True)
    assert detokenize(tokenizer.table, token_ids[1:], skip_special_tokens=True, seed=seed) == "\U00013000"


def test_the_first_space_is_dropped_only_at_the_start(model_folders: Path) -> None:
    tokenizer = opened(model_folders / "mistral-hf").tokenizer
    hello, world = tokenizer.encode("hello"), tokenizer.encode("world")
    show = tokenizer.table
    seed = seed_from_prompt(show, hello, skip_special_tokens=True)
    assert detokenize(show, world, skip_special_tokens=True) == "world"
    assert detokenize(show, world, skip_special_tokens=True, seed=seed) == " world"
    only_bos = seed_from_prompt(show, [1], skip_special_tokens=True)
    assert only_bos == START
    assert detokenize(show, world, skip_special_tokens=True, seed=only_bos) == "world"


# ------------------------------------------------------------ pieces of bytes


@given(st.binary(max_size=6))
def test_the_incomplete_tail_is_what_a_decoder_would_wait_for(data: bytes) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    decoder.decode(data)
    assert incomplete_tail(data) == decoder.getstate()[0]
