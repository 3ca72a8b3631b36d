"""Anonymous memory for payloads and tensors."""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress

__all__ = ["TOUCHED_BYTES", "anonymous_memory", "touch_memory"]

TOUCHED_BYTES = 2 * 1024 * 1024
"""What `touch_memory` touches: a huge page."""

_HUGE_FROM = 2 * TOUCHED_BYTES


def anonymous_memory(size: int) -> mmap.mmap:
    """Return ``size`` (at least 1) zero bytes that go back to the system as soon as nothing uses them.

    From 4 MiB on in huge pages, where the system has some: touching and freeing 64 MiB in small ones takes
    tens of milliseconds, all of them under the GIL.
    """
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def touch_memory(memory: mmap.mmap, start: int) -> None:
    """Have the system provide ``TOUCHED_BYTES`` from ``start`` on, or less at the end, without the GIL.

    They are zero afterwards. The system provides memory where it is first touched. A huge page takes it
    0.3 ms, and 9 where the machine is a virtual one and its host has to find that memory too.
    """
    count = min(TOUCHED_BYTES, len(memory) - start)
    ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory, start)), 0, count)
