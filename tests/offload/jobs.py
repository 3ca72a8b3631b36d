"""Jobs for tests of the offloader: module-level functions, so that worker processes find them by name.

A workspace here is just a dict. Nothing of a model is needed to test how work is offloaded.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from trio_render import InvalidRequest


def load() -> dict[str, Any]:
    return {"pid": os.getpid()}


def load_failing() -> dict[str, Any]:
    raise InvalidRequest("no such workspace", "load")


def join(workspace: Any, checkpoint: Any, body: Any, *args: Any) -> bytes:
    return b"".join(body) + b"|" + ",".join(map(str, args)).encode()


def add(workspace: Any, checkpoint: Any, body: Any, a: int, b: int) -> int:
    return a + b


def pid(workspace: Any, checkpoint: Any, body: Any) -> int:
    assert workspace["pid"] == os.getpid()
    return os.getpid()


def thread_name(workspace: Any, checkpoint: Any, body: Any) -> int:
    return threading.get_ident()


def fail(workspace: Any, checkpoint: Any, body: Any) -> bytes:
    raise InvalidRequest("this can't be", "body")


class Unportable(Exception):
    """Its pickle can't be read back: its constructor needs more than its args hold."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__("gone wrong")


def fail_unportably(workspace: Any, checkpoint: Any, body: Any) -> bytes:
    raise Unportable(1, 2)


def spin(workspace: Any, checkpoint: Any, body: Any, seconds: float, mark: str = "") -> bytes:
    """Be busy with Python for ``seconds``, asking the checkpoint all the time."""
    if mark:
        Path(mark).write_text(str(os.getpid()))
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        checkpoint()
    return b"spun"


def sleep(workspace: Any, checkpoint: Any, body: Any, seconds: float) -> bytes:
    """Be deaf for ``seconds``: one long call without a checkpoint."""
    time.sleep(seconds)
    return b"slept"


def die_once(workspace: Any, checkpoint: Any, body: Any, mark: str) -> bytes:
    """Kill this process the first time, answer the second."""
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return b"alive"


def die(workspace: Any, checkpoint: Any, body: Any) -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def shout(workspace: Any, checkpoint: Any, body: Any) -> bytes:
    """Write to the standard output behind Python's back, as C libraries do."""
    os.write(1, b"noise")
    print("more noise")  # noqa: T201
    return b"quiet"
