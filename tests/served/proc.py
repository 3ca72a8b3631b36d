"""Reads what the kernel knows of a server process."""

import resource
import sys
from pathlib import Path

import pytest
from served.server import Server

MIB = 1024 * 1024

reads_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def threads(server: Server) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/task").iterdir()))


def resident(server: Server) -> int:
    """The server's memory in bytes."""
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def forget_peak(server: Server) -> None:
    """Let `peak_resident` count from now on, and not what the start took."""
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")


def peak_resident(server: Server) -> int:
    """The most memory in bytes that the server had."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
