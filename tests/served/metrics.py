"""Reads a server's ``/metrics``."""

import time
from collections.abc import Callable

from served.server import Server


def figures(server: Server) -> dict[str, float]:
    """Series with labels, as written -> value."""
    lines = server.get("/metrics").body.decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {series: float(value) for series, value in pairs}


def running(server: Server, kind: str = "derender") -> float:
    return figures(server)[f'trio_render_running{{limiter="{kind}"}}']


def waiting(server: Server, kind: str = "derender") -> float:
    return figures(server)[f'trio_render_waiting{{limiter="{kind}"}}']


def borrowed(server: Server) -> dict[str, float]:
    return {name: value for name, value in figures(server).items() if name.startswith("trio_render_running")}


def until(condition: Callable[[], bool], within_s: float) -> float:
    """Wait until a condition holds, and return how long that took."""
    began = time.perf_counter()
    while not condition():
        assert time.perf_counter() - began < within_s, "it did not come about in time"
        time.sleep(0.005)
    return time.perf_counter() - began
