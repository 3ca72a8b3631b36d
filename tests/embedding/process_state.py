"""What of a process a library must leave as it found it, and how much CPU the process uses."""

import gc
import os
import signal
import sys
import time
from typing import Any


def settings() -> dict[str, Any]:
    """Every process-wide switch that a library could be tempted to touch."""
    return {
        "switch interval": sys.getswitchinterval(),
        "gc threshold": gc.get_threshold(),
        "gc enabled": gc.isenabled(),
        "gc frozen objects": gc.get_freeze_count(),
        "recursion limit": sys.getrecursionlimit(),
        "signal handlers": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "environment": dict(os.environ),
        "working directory": os.getcwd(),
    }


def changed(before: dict[str, Any]) -> list[str]:
    """The names of the settings that are no longer as they were."""
    after = settings()
    return [name for name in before if before[name] != after[name]]


def heavy_modules() -> list[str]:
    """Modules that embedding must not import, and has."""
    return [name for name in ("app", "hypercorn", "quart", "torch", "transformers") if name in sys.modules]


class Cpu:
    """A clock: CPU milliseconds of all threads of this process since the last call."""

    def __init__(self) -> None:
        self._last = time.process_time()

    def __call__(self) -> float:
        before, self._last = self._last, time.process_time()
        return 1000 * (self._last - before)
