"""Several server processes on one listening socket.

hypercorn's own process manager ends all workers when one ends, and exits with 0 on failure. This one
restarts a worker that died, drains all of them on SIGTERM, and exits non-zero when they can't start.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from functools import partial

import msgspec
import trio

from .settings import Settings
from .signals import watch_signals

__all__ = ["WorkersFailed", "supervise"]

log = logging.getLogger("trio_render.app")

_BACKLOG = 1024
_STOP_MARGIN_S = 5.0
_LIVED_S = 10.0
_MAX_DELAY_S = 8.0


class WorkersFailed(Exception):
    """Server processes could not be started, or had to be killed at the end."""


class _Supervisor:
    def __init__(self, settings: Settings, sock: socket.socket) -> None:
        self._settings = settings
        self._socket = sock
        self._running: set[trio.Process] = set()
        self._stopping = False
        self._ended = trio.Condition()

    async def keep(
        self, number: int, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Keep one server process running. Says when the first one is ready; raises if it never is."""
        delay = 0.25
        started = False
        while not self._stopping:
            began = trio.current_time()
            process = await self._spawn()
            self._running.add(process)
            if self._stopping:
                process.send_signal(signal.SIGTERM)
            line = await _first_line(process)
            if line and not started:
                started = True
                task_status.started(line)
            code = await process.wait()
            self._running.discard(process)
            if self._stopping:
                break
            if not started:
                raise WorkersFailed(f"A server process did not start (exit code {code}).")
            log.warning("Server process %d ended with %d; it is started again.", number, code)
            delay = 0.25 if trio.current_time() - began > _LIVED_S else min(delay * 2, _MAX_DELAY_S)
            await trio.sleep(delay)
        async with self._ended:
            self._ended.notify_all()
        # Stopped before it was ready: whoever waits for that is cancelled with us.
        await trio.sleep_forever()

    async def _spawn(self) -> trio.Process:
        # A number of its own: the socket may be closed before the process has taken it.
        fd = os.dup(self._socket.fileno())
        os.set_inheritable(fd, True)
        command = [sys.executable, "-m", "app.worker", str(fd)]
        spawn = partial(
            trio.lowlevel.open_process, command, stdin=-1, stdout=-1, pass_fds=[fd], start_new_session=True
        )
        try:
            process = await spawn()
        finally:
            os.close(fd)
        assert process.stdin is not None
        await process.stdin.send_all(msgspec.json.encode(self._settings) + b"\n")
        return process

    async def stop(self) -> None:
        """Let every process finish its requests, and kill what doesn't end."""
        self._stopping = True
        # Else connections would be accepted by the kernel, and hang.
        self._socket.close()
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        with trio.move_on_after(self._settings.graceful_timeout_s + _STOP_MARGIN_S) as scope:
            async with self._ended:
                while self._running:
                    await self._ended.wait()
        if scope.cancelled_caught:
            for process in self._running:
                process.kill()
            raise WorkersFailed("Server processes did not stop in time and were killed.")


async def supervise(settings: Settings) -> None:
    """Serve with ``settings.workers`` processes until SIGINT or SIGTERM. Prints one line when all are ready.

    Raises:
        WorkersFailed: see there.
        OSError: the address can't be bound.
    """
    with _listening(settings) as sock:
        supervisor = _Supervisor(settings, sock)
        async with trio.open_nursery() as nursery:
            stop = trio.Event()
            await nursery.start(watch_signals, stop)
            async with trio.open_nursery() as workers:
                workers.start_soon(_stop_when_told, stop, supervisor, workers.cancel_scope)
                await _start_all(settings, supervisor, workers)
            nursery.cancel_scope.cancel()


async def _start_all(settings: Settings, supervisor: _Supervisor, workers: trio.Nursery) -> None:
    lines: list[str] = []

    async def start(number: int) -> None:
        lines.append(await workers.start(supervisor.keep, number))

    async with trio.open_nursery() as starting:
        for number in range(settings.workers):
            starting.start_soon(start, number)
    print(f"{lines[0]}; {settings.workers} processes", flush=True)  # noqa: T201 - the contract of serve


async def _stop_when_told(stop: trio.Event, supervisor: _Supervisor, scope: trio.CancelScope) -> None:
    await stop.wait()
    await supervisor.stop()
    scope.cancel()


def _listening(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((settings.host, settings.port))
        sock.listen(_BACKLOG)
        sock.set_inheritable(True)
    except BaseException:
        sock.close()
        raise
    return sock


async def _first_line(process: trio.Process) -> str:
    """Return the first line that a process prints; later ones are passed through to our stdout."""
    assert process.stdout is not None
    data = b""
    while b"\n" not in data:
        chunk = await process.stdout.receive_some(4096)
        if not chunk:
            return ""
        data += chunk
    return data.partition(b"\n")[0].decode()
