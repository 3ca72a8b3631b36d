"""A client in a process of its own, so that what it costs is no part of what it measures."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from typing import Any

__all__ = ["child"]


@contextmanager
def child(what: str, function: Callable[..., None], *args: Any) -> Iterator[Pipe]:
    """Run ``function(*args, pipe)`` in a process for the length of the block, which gets the other end.

    Raises:
        RuntimeError: ``what`` has ended before it sent what the block waits for.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=function, args=(*args, theirs), daemon=True)
    process.start()
    # So that its end is seen here.
    theirs.close()
    try:
        yield ours
    except (EOFError, BrokenPipeError, ConnectionResetError) as error:
        raise RuntimeError(f"{what} failed") from error
    finally:
        ours.close()
        process.join()
