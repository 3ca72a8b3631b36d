"""The main program of a worker process: load once, then answer jobs until stdin ends.

Messages are a header (two lengths), a pickle, and raw bytes behind it that are never pickled: request
bodies on the way in, answers on the way out.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
import time
import traceback
from typing import Any, BinaryIO

__all__ = ["HEADER", "WorkerFailure", "main"]

HEADER = struct.Struct(">QQ")
"""Length of the pickle, length of the raw bytes behind it."""


_NICE = 15


class WorkerFailure(Exception):
    """A job failed in a worker process with an error that can't travel. Its text is the traceback."""


def main() -> None:
    """Serve one parent."""
    jobs = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # Whatever else writes to stdout, C libraries included, must not end up between two answers.
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        # Where cores are scarce the parent's event loop goes first: it has little to do, and many who wait.
        os.nice(_NICE)
    path = _read(jobs)
    if path is None:
        return
    # What the parent can import, we must be able to unpickle.
    sys.path[:] = path[0]
    load = _read(jobs)
    if load is None:
        return
    workspace, error = _attempt(load[0])
    _write(answers, (error, 0.0), b"")
    while error is None:
        message = _read(jobs)
        if message is None:
            return
        (function, args), body = message
        began = time.perf_counter()
        result, failure = _attempt(lambda: function(workspace, _no_checkpoint, [body], *args))  # noqa: B023
        seconds = time.perf_counter() - began
        if isinstance(result, bytes):
            _write(answers, (failure, seconds), result)
        else:
            _write(answers, (failure, seconds, result), b"")


def _no_checkpoint() -> None:
    """A process is killed instead of asked."""


def _attempt(work: Any) -> tuple[Any, Exception | None]:
    try:
        return work(), None
    except Exception as error:
        return None, _portable(error)


def _portable(error: Exception) -> Exception:
    try:
        back = pickle.loads(pickle.dumps(error))
    except Exception:
        back = None
    return error if type(back) is type(error) else WorkerFailure("".join(traceback.format_exception(error)))


def _read(source: BinaryIO) -> tuple[Any, bytes] | None:
    header = source.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    n_pickle, n_raw = HEADER.unpack(header)
    return pickle.loads(source.read(n_pickle)), source.read(n_raw)


def _write(sink: BinaryIO, value: Any, raw: bytes) -> None:
    pickled = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    sink.write(HEADER.pack(len(pickled), len(raw)) + pickled)
    sink.write(raw)
    sink.flush()
