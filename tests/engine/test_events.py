"""Server-sent events, however their bytes are cut."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_render import EngineError
from trio_render.engine.events import EventReader


def read(chunks: list[bytes], limit_bytes: int = 1000) -> list[bytes]:
    reader = EventReader(limit_bytes)
    return [event for chunk in chunks for event in reader.feed(chunk)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize(
    ("lines", "events"),
    [
        ([b"data: a", b""], [b"a"]),
        ([b"data:a", b"", b"data:  b", b""], [b"a", b" b"]),
        ([b"data: a", b"data: b", b"data:", b""], [b"a\nb\n"]),
        ([b": keep-alive", b"", b"data: a", b": c", b""], [b"a"]),
        ([b"event: x", b"id: 1", b"retry: 5", b"data: a: b", b""], [b"a: b"]),
        ([b"event: x", b"", b"data", b"", b"data:", b"", b"", b"database: a", b"", b" data: a", b""], []),
        ([b"\xef\xbb\xbfdata: a", b"", b"\xef\xbb\xbfdata: b", b""], [b"a"]),
        (["data: 日\u2028本 😀".encode(), b""], ["日\u2028本 😀".encode()]),
        ([b"data: a", b"", b"data: [DONE]"], [b"a"]),
    ],
)
def test_events(end: bytes, lines: list[bytes], events: list[bytes]) -> None:
    stream = b"".join(line + end for line in lines)
    assert read([stream]) == events
    for cut in range(len(stream) + 1):
        assert read([stream[:cut], stream[cut:]]) == events
    assert read([bytes([byte]) for byte in stream]) == events
    assert read([part for byte in stream for part in (bytes([byte]), b"")]) == events


PARTS = st.sampled_from(
    [
        *(b"\n", b"\r\n", b"\r", b"data:", b"data: ", b": c", b"event: x", b"\xef\xbb\xbf", b" ", b"{}"),
        "é😀".encode(),
    ]
)


@given(st.lists(PARTS, max_size=40), st.data())
def test_any_cut_gives_the_same_events(parts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    chunks = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(chunks) == read([stream])


@pytest.mark.parametrize("event", [b"data: " + b"x" * 101, b": " + b"x" * 101, b"data: x\n" * 20])
def test_too_large_an_event_is_the_engines_fault(event: bytes) -> None:
    with pytest.raises(EngineError, match="larger than 100 bytes"):
        read([event], 100)
    with pytest.raises(EngineError):
        read([bytes([byte]) for byte in event], 100)


def test_the_bound_is_of_one_event() -> None:
    assert read([b"data: " + b"x" * 90 + b"\n\n"] * 10, 100) == [b"x" * 90] * 10


def test_the_work_is_linear_in_the_length() -> None:
    """A line of a megabyte, byte by byte: copied each time, it would take a minute."""
    reader = EventReader()
    began = time.monotonic()
    for _ in range(1_000_000):
        reader.feed(b"x")
    assert time.monotonic() - began < 8
