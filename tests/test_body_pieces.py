"""A body in pieces is the body, however it arrived, and is given back piece by piece."""

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from app import body
from app.body import Pieces, forget


@settings(max_examples=200, deadline=None)
@given(chunks=st.lists(st.binary(min_size=1, max_size=40), max_size=30), piece=st.integers(1, 50))
def test_pieces_are_the_body(chunks: list[bytes], piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body, "_PIECE_BYTES", piece)
        arrived = Pieces()
        for chunk in chunks:
            arrived.add(chunk)
    assert b"".join(arrived.pieces) == b"".join(chunks)
    assert arrived.size == sum(map(len, chunks))
    assert all(len(one) <= piece for one in arrived.pieces if isinstance(one, memoryview))


def test_a_large_body_does_not_lie_in_the_allocators_memory() -> None:
    arrived = Pieces()
    for _ in range(300):
        arrived.add(bytes(64 * 1024))
    in_chunks = [one for one in arrived.pieces if isinstance(one, bytes)]
    assert sum(map(len, in_chunks)) == 2 * 1024 * 1024
    assert len(arrived.pieces) - len(in_chunks) == 9


def test_a_body_is_forgotten_in_steps() -> None:
    arrived = Pieces()
    for _ in range(300):
        arrived.add(bytes(64 * 1024))
    left = []

    async def watch() -> None:
        while arrived.pieces:
            left.append(len(arrived.pieces))
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await trio.lowlevel.checkpoint()
            await forget(arrived.pieces)

    trio.run(main)
    assert not arrived.pieces
    assert len(left) >= 9
