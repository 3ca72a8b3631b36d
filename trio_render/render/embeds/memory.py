"""Anonymous memory for payloads and tensors."""

from __future__ import annotations

import mmap
from contextlib import suppress

__all__ = ["anonymous_memory"]

_HUGE_FROM = 4 * 1024 * 1024


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
