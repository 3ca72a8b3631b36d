"""SIGINT and SIGTERM as an event."""

from __future__ import annotations

import signal

import trio

__all__ = ["watch_signals"]


async def watch_signals(
    stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Set ``stop`` at the first SIGINT or SIGTERM; later ones change nothing, up to the process's end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # What the receiver restores when it closes: a second signal must not spoil a clean end.
        signal.signal(number, signal.SIG_IGN)
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            stop.set()
