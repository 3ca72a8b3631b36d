"""Offsets from the tokens' bytes are those of `tokenizers`, and where they can't be, that one stays open."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_models import NAMES, opened, reference
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from trio_render import Model, ModelLoadError, open_model
from trio_render.model.offsets import offsets
from trio_render.model.token_table import ALPHABET
from trio_render.model.tokenizer import Tokenizer

MODERATE = settings(deadline=None, max_examples=150)

LETTERS = st.text(st.characters(max_codepoint=0x7F), max_size=12)
CHINESE = st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), max_size=6)
EMOJI = st.text(st.characters(min_codepoint=0x1F300, max_codepoint=0x1FAFF), max_size=4)
MARKS = st.text(st.characters(min_codepoint=0x300, max_codepoint=0x36F), max_size=3)
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
CONTROLS = st.sampled_from(["\x00", "\x04", "\x1b", "\x7f", "\x85", "\ufeff", "\u2028", "\U000e0001"])
SPACES = st.sampled_from([" ", "   ", "\n", "\r\n\n", " \t ", "\u00a0", "\u3000"])
HARD = [
    "",
    " ",
    "caf\u00e9 cafe\u0301 \u212b \ufb01 \uac00\u1100\u1161",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f",
    "a\x00b\x1b[31m\x7f\x85\u00a0\u2003\u200b\ufeff\u2028x\ufffd\ufffe",
    "\u2581x \u0120y \u010az <0x0A>\r\n\n  end  ",
    "\U0010ffff\U00040000" * 3,
    "".join(map(chr, range(0x250))),
]


def texts(model: Model) -> st.SearchStrategy[str]:
    """Texts of all kinds, with whole and cut markers of a vocabulary inside."""
    added = model.tokenizer.added_tokens
    markers = st.sampled_from([*added[:50], *added[-50:], *(marker[:-1] for marker in added[-10:])])
    kinds = LETTERS | CHINESE | EMOJI | MARKS | ANY | CONTROLS | SPACES | markers
    return st.lists(kinds, max_size=12).map("".join)


def assert_as_in_the_package(model: Model, text: str) -> None:
    wanted = reference(Path(model.name)).encode(text, add_special_tokens=False)
    ids, places = model.tokenizer.encode_with_offsets(text)
    assert ids == wanted.ids == model.tokenizer.encode(text)
    assert places == wanted.offsets


# ------------------------------------------------------------ the test models


@pytest.mark.parametrize("name", NAMES)
def test_a_vocabulary_that_spells_every_text_needs_no_second_tokenizer(
    model_folders: Path, name: str
) -> None:
    """qwen3 composes characters, mistral-hf is not byte-level, and smollm2 lacks some bytes."""
    assert opened(model_folders / name).tokenizer.keeps_exact is (name != "deepseek")


@pytest.mark.parametrize("name", NAMES)
def test_offsets_are_those_of_the_package(model_folders: Path, name: str) -> None:
    model = opened(model_folders / name)

    @MODERATE
    @given(texts(model))
    def check(text: str) -> None:
        assert_as_in_the_package(model, text)

    check()


@pytest.mark.parametrize("text", HARD)
def test_offsets_of_hard_texts(model_folders: Path, text: str) -> None:
    assert_as_in_the_package(opened(model_folders / "deepseek"), text)


@pytest.mark.parametrize("first", ["", "a", "\u4eca", "a\u4eca"])
def test_offsets_of_long_texts(model_folders: Path, first: str) -> None:
    """Whose parts end within a character, or change from ASCII to more."""
    model = opened(model_folders / "deepseek")
    broken = first + "\U0001d518\U000e0001\U00040000" * 1500
    assert len(model.tokenizer.encode(broken)) > 3 * 4096
    assert_as_in_the_package(model, broken)
    assert_as_in_the_package(model, first + "hello world " * 5000 + broken + "hello world " * 5000)


@pytest.mark.parametrize("name", NAMES)
def test_pieces_and_ids_are_those_of_the_package(model_folders: Path, name: str) -> None:
    tokenizer, package = opened(model_folders / name).tokenizer, reference(model_folders / name)
    vocabulary = package.get_vocab(with_added_tokens=True)
    beyond = [tokenizer.vocab_size + 1000, 2**32 - 1]
    assert all(tokenizer.token_to_id(piece) == i for piece, i in vocabulary.items())
    assert all(
        tokenizer.piece(i) == (package.id_to_token(i) or "") for i in [*range(tokenizer.vocab_size), *beyond]
    )
    for piece in ("", "no such piece", "a b", "\x00", " world", "<|no_such_marker|>"):
        assert tokenizer.token_to_id(piece) == package.token_to_id(piece)


def test_ids_of_another_text_have_no_offsets(model_folders: Path) -> None:
    tokenizer = opened(model_folders / "deepseek").tokenizer
    ids = tokenizer.encode("Hello \u4eca\u5929")
    for other in ("", "Hello", "Hello \u4eca\u5929!", "hello \u4eca\u5929"):
        with pytest.raises(ValueError, match="another text"):
            offsets(tokenizer.table, ids, other)
    assert offsets(tokenizer.table, [], "") == []


# ------------------------------------------------------------ small vocabularies


def small(*words: str, without: str = "") -> tokenizers.Tokenizer:
    """A byte-level vocabulary of single bytes and of what two letters of ``words`` join to."""
    pieces = [character for character in map(chr, ALPHABET) if character not in without]
    vocabulary = {piece: i for i, piece in enumerate([*pieces, *words])}
    made = tokenizers.Tokenizer(models.BPE(vocabulary, [(word[0], word[1:]) for word in words]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def with_token(content: str, **fields: Any) -> tokenizers.Tokenizer:
    made = small("ab")
    made.add_tokens([AddedToken(content, **({"normalized": False} | fields))])
    return made


def with_part(name: str, part: Any) -> tokenizers.Tokenizer:
    made = small("ab")
    setattr(made, name, part)
    return made


def truncating() -> tokenizers.Tokenizer:
    made = small("ab")
    made.enable_truncation(4)
    return made


def padding() -> tokenizers.Tokenizer:
    made = small("ab")
    made.enable_padding(length=12)
    return made


PLAIN: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "bytes and a word": lambda: small("ab"),
    "an added token": lambda: with_token("<|x|>"),
    "a special one": lambda: with_token("<|x|>", special=True),
    "one that a normalizer would change": lambda: with_token("<|x|>", normalized=True),
    "one beyond the alphabet": lambda: with_token("<\uff5cx\u2581\uff5c>"),
    "no normalizers": lambda: with_part("normalizer", normalizers.Sequence([])),
    "digits apart": lambda: with_part(
        "pre_tokenizer",
        pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        ),
    ),
    "offsets with their spaces": lambda: with_part(
        "post_processor", processors.ByteLevel(trim_offsets=False)
    ),
}
OTHERS: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "a token that swallows spaces before it": lambda: with_token("<|x|>", lstrip=True),
    "a token that swallows spaces behind it": lambda: with_token("<|x|>", rstrip=True),
    "a token that is a word": lambda: with_token("<|x|>", single_word=True),
    "a token in the spelling of bytes": lambda: with_token("\u0120\u00e9"),
    "a byte that lacks": lambda: small("ab", without="\u0104"),
    "a byte of the hard texts that lacks": lambda: small("ab", without="\u0100"),
    "composition": lambda: with_part("normalizer", normalizers.NFC()),
    "a normalizer and a token for it": lambda: normalized(),
    "small letters": lambda: with_part("normalizer", normalizers.Lowercase()),
    "a first space": lambda: with_part("pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "no spaces": lambda: with_part(
        "pre_tokenizer",
        pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        ),
    ),
    "removed spaces": lambda: with_part(
        "pre_tokenizer",
        pre_tokenizers.Sequence(
            [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        ),
    ),
    "offsets without their spaces": lambda: with_part(
        "post_processor", processors.ByteLevel(trim_offsets=True)
    ),
    "no bytes at all": lambda: with_part("pre_tokenizer", None),
    "truncation": truncating,
    "padding": padding,
}


def normalized() -> tokenizers.Tokenizer:
    made = with_token("<|\u00e9|>", normalized=True)
    made.normalizer = normalizers.NFC()
    return made


def written(tmp_path: Path, made: tokenizers.Tokenizer) -> Path:
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 4096}))
    return tmp_path


def assert_right(folder: Path, keeps_exact: bool) -> None:
    model = open_model(folder)
    package = reference(folder)
    assert model.tokenizer.keeps_exact is keeps_exact
    package.no_truncation()
    package.no_padding()
    for marker in ("<|x|>", "<|e\u0301|>", "\u0120\u00e9", "<\uff5cx\u2581\uff5c>"):
        for text in (*HARD, f"ab 12 {marker} ab{marker}\u00e9ab\n {marker}", f"{marker} ab{marker}"):
            assert_as_in_the_package(model, text)
    for i in range(package.get_vocab_size() + 5):
        assert model.tokenizer.piece(i) == (package.id_to_token(i) or "")
    assert json.loads(model.tokenizer.as_json()) == json.loads(package.to_str())


@pytest.mark.parametrize("kind", PLAIN)
def test_plain_vocabularies_need_no_second_tokenizer(tmp_path: Path, kind: str) -> None:
    assert_right(written(tmp_path, PLAIN[kind]()), keeps_exact=False)


@pytest.mark.parametrize("kind", OTHERS)
def test_others_keep_it_and_are_right(tmp_path: Path, kind: str) -> None:
    assert_right(written(tmp_path, OTHERS[kind]()), keeps_exact=True)


def test_without_a_file_it_stays() -> None:
    assert Tokenizer(small("ab").to_str(), [], 0).keeps_exact


# ------------------------------------------------------------ the file, again


def test_the_vocabulary_is_read_again_from_its_file(tmp_path: Path) -> None:
    made = small("ab")
    tokenizer = open_model(written(tmp_path, made)).tokenizer
    assert json.loads(tokenizer.as_json()) == json.loads(made.to_str())


def test_a_changed_file_is_not_the_model_s(tmp_path: Path) -> None:
    tokenizer = open_model(written(tmp_path, small("ab"))).tokenizer
    written(tmp_path, small("ba"))
    with pytest.raises(ModelLoadError, match="changed"):
        tokenizer.as_json()
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ModelLoadError, match="read again"):
        tokenizer.as_json()
    assert tokenizer.encode_with_offsets("ab")[1] == [(0, 2)]
