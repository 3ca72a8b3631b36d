"""What the whole process shares, set as a server wants it: scheduling, environment, memory, the collector."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["collector_off", "settle_memory", "trim_memory", "tuned_process"]

_SWITCH_INTERVAL_S = 0.0005
_ENVIRONMENT = {"FASTOKENS_BPE_THREADS": "1", "OMP_NUM_THREADS": "1"}


@contextmanager
def tuned_process() -> Iterator[None]:
    """Set what the whole process shares, as a server wants it, for the length of the block.

    The event loop has the GIL back from a busy thread after 0.5 ms instead of 5. fastokens encodes a text in
    the thread that asks for it, and PyTorch reads a tensor there: threads of their own are outside every
    limit. Each of fastokens' keeps a cache of some 50 MB; PyTorch's wait for each other every 0.1 ms, which
    on busy cores takes many times longer than the work. An operator who has set ``FASTOKENS_BPE_THREADS`` or
    ``OMP_NUM_THREADS`` is left alone. PyTorch reads the latter when it is imported. Progress bars of what
    loads weights are for terminals, not for logs.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    wanted = _ENVIRONMENT if sys.stderr.isatty() else {**_ENVIRONMENT, "TQDM_DISABLE": "1"}
    unset = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(unset)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        for name in unset:
            del os.environ[name]


def settle_memory() -> None:
    """Give back what loading has used, and keep the collector off what stays.

    The model's tables live as long as the process; a full collection over them stops everything.
    """
    gc.collect()
    gc.freeze()
    trim_memory()


def trim_memory() -> None:
    """Give freed memory back to the system. Takes a while, without the GIL."""
    if sys.platform == "linux":
        # glibc keeps hundreds of MB that parsing a large vocabulary has freed; musl has no such call.
        with suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)


@contextmanager
def collector_off() -> Iterator[None]:
    """Keep the collector off for the length of the block, and off what is there at its end.

    While weights load, its passes over a file's metadata stop everything for 300 ms.
    """
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()
