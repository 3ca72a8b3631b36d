"""One server process of several: settings come in on stdin, the socket is inherited.

stdin stays open for as long as the supervisor lives; its end is an order to stop.
"""

from __future__ import annotations

import sys

import msgspec
import trio

from .serving import log_to_stderr, serve
from .settings import Settings

__all__: list[str] = []


async def _serve(settings: Settings, listen_fd: int) -> None:
    async with trio.open_nursery() as nursery:
        orphaned = trio.Event()
        nursery.start_soon(_watch_supervisor, orphaned)
        await serve(settings, listen_fd=listen_fd, also_stop=orphaned)
        nursery.cancel_scope.cancel()


async def _watch_supervisor(orphaned: trio.Event) -> None:
    async with trio.lowlevel.FdStream(sys.stdin.fileno()) as stdin:
        while await stdin.receive_some(1024):
            pass
    orphaned.set()


def main() -> None:
    """Serve until told to stop."""
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=Settings)
    log_to_stderr(settings.log_level)
    trio.run(_serve, settings, int(sys.argv[1]))


if __name__ == "__main__":
    main()
