"""Servers to measure: our own in any mode, and base lines: a raw executor on asyncio, an empty handler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Server", "serve_command", "served", "started"]


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    url: str
    pid: int


def serve_command(model: str | Path, *options: str) -> list[str]:
    """Return the command of our own server, on a free port."""
    command = [sys.executable, "-m", "app", "serve", "--model", str(model), "--port", "0"]
    return [*command, "--log-level", "warning", *options]


@contextmanager
def started(command: list[str]) -> Iterator[Server]:
    """Yield a server that says ``Ready: URL``; it ends with the block."""
    # What is set for other servers would be measured as if it were the default.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRIO_RENDER_")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("Ready: "):
            raise RuntimeError(f"{' '.join(command)} did not start")
        yield Server(line.split()[1], process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


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
        command = serve_command(model, "--offload", mode, *options)
    with started(command) as server:
        yield server.url
