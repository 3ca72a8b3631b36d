"""The table of token bytes against the decoders of the `tokenizers` package."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_models import BYTE_LEVEL, NAMES, opened, reference

from trio_render import ModelLoadError
from trio_render.derender.detokenize import detokenize
from trio_render.model.token_table import DecoderRules, TokenTable, decoder_rules

MODERATE = settings(deadline=None, max_examples=100)


def sequences(size: int) -> st.SearchStrategy[list[int]]:
    """Token ids, with many from the start and the end of a vocabulary, where bytes and markers are."""
    few = st.integers(0, min(400, size - 1)) | st.integers(max(size - 40, 0), size - 1)
    return st.lists(few | st.integers(0, size - 1), max_size=30)


def assert_same_text(folder: Path, token_ids: list[int], skip: bool) -> None:
    table = opened(folder).tokenizer.table
    own = detokenize(table, token_ids, skip_special_tokens=skip, flush=True)
    assert own == reference(folder).decode(token_ids, skip_special_tokens=skip)


@pytest.mark.parametrize("name", BYTE_LEVEL)
@pytest.mark.parametrize("skip", [True, False])
def test_any_ids_decode_as_the_package_decodes_them(model_folders: Path, name: str, skip: bool) -> None:
    folder = model_folders / name
    size = reference(folder).get_vocab_size(with_added_tokens=True)

    @MODERATE
    @given(sequences(size))
    def check(token_ids: list[int]) -> None:
        assert_same_text(folder, token_ids, skip)

    check()


@pytest.mark.parametrize("name", NAMES)
def test_every_single_token_decodes_as_the_package_decodes_it(model_folders: Path, name: str) -> None:
    folder = model_folders / name
    table = opened(folder).tokenizer.table
    ids = [
        i for i in range(reference(folder).get_vocab_size()) if reference(folder).id_to_token(i) is not None
    ]
    # A letter before it: by itself a token may lose its first space.
    letter = opened(folder).tokenizer.encode("a")
    wanted = reference(folder).decode_batch([[*letter, i] for i in ids], skip_special_tokens=False)
    got = [detokenize(table, [*letter, i], skip_special_tokens=False, flush=True) for i in ids]
    different = [i for i, own, their in zip(ids, got, wanted, strict=True) if own != their]
    assert different == []


# Byte-fallback tokens of mistral-hf: <0x00> is 3.
def byte_ids(text: str) -> list[int]:
    return [3 + byte for byte in text.encode()]


@pytest.mark.parametrize("skip", [True, False])
def test_sentencepiece_ids_with_whole_characters_decode_alike(model_folders: Path, skip: bool) -> None:
    folder = model_folders / "mistral-hf"
    ordinary = st.integers(0, 2) | st.integers(259, 31_999)
    pieces = st.one_of(ordinary.map(lambda i: [i]), st.characters(codec="utf-8").map(byte_ids))

    @MODERATE
    @given(st.lists(pieces, max_size=20))
    def check(parts: list[list[int]]) -> None:
        assert_same_text(folder, [i for part in parts for i in part], skip)

    check()


def test_broken_fallback_bytes_are_shown_one_by_one(model_folders: Path) -> None:
    table = opened(model_folders / "mistral-hf").tokenizer.table
    broken = byte_ids("é")[:1] + byte_ids("a") + byte_ids("€")[:2]
    assert detokenize(table, broken, skip_special_tokens=True, flush=True) == "\ufffda\ufffd\ufffd"


@pytest.mark.parametrize("name", NAMES)
def test_the_table_covers_the_embedding_and_pads_with_nothing(model_folders: Path, name: str) -> None:
    model = opened(model_folders / name)
    table = model.tokenizer.table
    assert len(table) == model.vocab_size >= reference(model_folders / name).get_vocab_size()
    unknown = [i for i in range(len(table)) if reference(model_folders / name).id_to_token(i) is None]
    assert all(table.byte_values[i] == b"" for i in unknown)


# ------------------------------------------------------------ rules


def test_rules_of_a_sentencepiece_decoder() -> None:
    spec = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    rules = decoder_rules(spec)
    assert rules == DecoderRules(
        byte_level=False, byte_fallback=True, replacements=(("\u2581", " "),), strips_first_space=True
    )
    assert rules.piece_bytes("\u2581a\u2581") == b" a "
    assert rules.piece_bytes("<0xF0>") == b"\xf0"
    assert rules.piece_bytes("<0xZZ>") == b"<0xZZ>"


@pytest.mark.parametrize(
    ("scheme", "strips"), [("always", True), ("first", True), ("never", False), (None, True)]
)
def test_metaspace_strips_the_space_it_put_there(scheme: str | None, strips: bool) -> None:
    spec = {"type": "Metaspace", "replacement": "\u2581"} | ({"prepend_scheme": scheme} if scheme else {})
    assert decoder_rules(spec).strips_first_space is strips


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "WordPiece", "prefix": "##", "cleanup": True},
        {"type": "CTC"},
        {"type": "BPEDecoder", "suffix": "</w>"},
        {"type": "Replace", "pattern": {"Regex": "x"}, "content": ""},
        {"type": "Strip", "content": "_", "start": 1, "stop": 0},
        {"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "WordPiece"}]},
    ],
)
def test_a_decoder_that_a_table_can_not_be_is_refused(spec: dict[str, object]) -> None:
    with pytest.raises(ModelLoadError):
        decoder_rules(spec)


def test_byte_level_pieces_are_bytes_and_markers_are_texts() -> None:
    table = TokenTable(
        ["\u0120Hi", "\u00c3", "\u00a9", "<|\u4f60|>", None],
        decoder_rules({"type": "ByteLevel"}),
        frozenset({3}),
        6,
    )
    assert table.byte_values == [b" Hi", b"\xc3", b"\xa9", "<|\u4f60|>".encode(), b"", b""]
