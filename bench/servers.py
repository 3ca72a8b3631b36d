"""Servers to measure: our own in any mode, and base lines: a raw executor on asyncio, an empty handler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["served"]


@contextmanager
def served(mode: str, model: Path, options: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the URL of a server on loopback, which ends with the block.

    Args:
        mode: ``executor`` for the base line, ``empty`` for one that does nothing; else a value of
            ``--offload``.
    """
    if mode == "executor":
        command = [sys.executable, "-m", "bench.raw_executor", str(model)]
    elif mode == "empty":
        command = [sys.executable, "-m", "bench.empty_server", *options]
    else:
        command = [sys.executable, "-m", "app", "serve", "--model", str(model), "--port", "0"]
        command += ["--offload", mode, "--log-level", "warning", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ})
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("Ready: "):
            raise RuntimeError(f"the server ({mode}) did not start")
        yield line.split()[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
