"""Base64 in pieces is decoded as the whole text is, or refused as that is."""

import base64
import binascii
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from opened_models import never

from trio_render import InvalidRequest
from trio_render.render.embeds import base64_text
from trio_render.render.embeds.base64_text import decode_base64

TEXTS = st.binary(min_size=1, max_size=60).map(base64.b64encode)
ODD_TEXTS = st.text("AQ=+/-_ \n\u00e9", min_size=1, max_size=24).map(str.encode)


def decoded(text: str | list[bytes] | list[memoryview]) -> bytes | None:
    try:
        return decode_base64(text, never)[:]
    except InvalidRequest:
        return None


def expected(text: bytes) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) or None
    except binascii.Error:
        return None


@settings(max_examples=400, deadline=None)
@given(
    text=TEXTS | ODD_TEXTS,
    cuts=st.lists(st.integers(0, 80), max_size=6),
    slice_chars=st.sampled_from([4, 8, 64]),
)
@example(text=b"QQ==QUJD", cuts=[4], slice_chars=4)
@example(text=b"QUJD", cuts=[1, 2, 3], slice_chars=4)
def test_pieces_are_decoded_as_the_whole_is(text: bytes, cuts: list[int], slice_chars: int) -> None:
    bounds = [0, *sorted(cuts), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(bounds)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base64_text, "_SLICE_CHARS", slice_chars)
        assert decoded(pieces) == expected(text)
        assert decoded([memoryview(piece) for piece in pieces]) == expected(text)
        assert decoded(text.decode()) == expected(text)


@pytest.mark.parametrize("size", [4 * 1024 * 1024 - 1, 4 * 1024 * 1024 + 4097, 6 * 1024 * 1024])
def test_memory_is_touched_to_its_end(size: int) -> None:
    content = bytes(range(256)) * (size // 256) + b"end"[: size % 256]
    assert decode_base64([base64.b64encode(content)], never)[:] == content
