"""The process backend: warm worker processes that hold the model, owned by one ``async with`` block.

Not `anyio.to_process`: its workers belong to the event loop instead of a scope, can't be warmed or ended
one by one, and a killed one costs its successor's caller a cold start.
"""

from __future__ import annotations

import logging
import pickle
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import anyio
from anyio.abc import Process, TaskGroup

from ..errors import RenderError, WorkerDied
from .background import background_tasks
from .jobs import Body
from .limits import limiter_statistics
from .process_worker import HEADER
from .stats import LimiterStatistics

__all__ = ["ProcessPool", "ProcessStatistics", "open_process_pool"]

log = logging.getLogger("trio_render.offload")

_COMMAND = [sys.executable, "-c", "from trio_render.offload.process_worker import main; main()"]
_GRACE_S = 0.1
_RESPAWN_DELAY_S = 1.0
_END_S = 1.0
_READ_BYTES = 1 << 20
_SEND_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class ProcessStatistics:
    """Worker processes as they stand at one moment.

    Attributes:
        limiter: jobs that have a process, and those that wait for one.
        idle, total: processes that are warm and without a job, and all of them.
        killed, died: how many have been killed for a caller who went, and how many have died, so far.
    """

    limiter: LimiterStatistics
    idle: int
    total: int
    killed: int
    died: int


class _Worker:
    """One process and its pipes."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.killed = False

    async def exchange(self, value: Any, body: Body) -> tuple[tuple[Any, ...], bytes]:
        """Send a message and return the answer. Raises EndOfStream or BrokenResourceError: it died."""
        await self.tell(value, body)
        header = await self._receive(HEADER.size)
        n_pickle, n_raw = HEADER.unpack(header)
        return pickle.loads(await self._receive(n_pickle)), await self._receive(n_raw)

    async def tell(self, value: Any, body: Body = ()) -> None:
        """Send a message."""
        pickled = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        stdin = self._process.stdin
        assert stdin is not None
        await stdin.send(HEADER.pack(len(pickled), sum(map(len, body))) + pickled)
        for chunk in body:
            for start in range(0, len(chunk), _SEND_BYTES):
                await stdin.send(bytes(chunk[start : start + _SEND_BYTES]))

    async def _receive(self, n: int) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        chunks = []
        while n:
            chunk = await stdout.receive(min(n, _READ_BYTES))
            chunks.append(chunk)
            n -= len(chunk)
        return b"".join(chunks)

    def kill(self) -> None:
        """Kill the process, which fails the exchange that it works for."""
        self.killed = True
        self._kill()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        """Let an idle process end by itself; kill one that doesn't."""
        stdin = self._process.stdin
        assert stdin is not None
        with anyio.move_on_after(_END_S, shield=True):
            await stdin.aclose()
            await self._process.wait()
            return
        self._kill()
        with anyio.CancelScope(shield=True):
            await self._process.wait()

    async def bury(self) -> None:
        """Wait for a process that has died or been killed, and close its pipes."""
        with anyio.CancelScope(shield=True):
            self._kill()
            await self._process.aclose()


class _Outcome:
    """What became of one job, once ``done`` is set."""

    __slots__ = ("answer", "died", "done")

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.answer: tuple[tuple[Any, ...], bytes] | None = None
        self.died = False


class ProcessPool:
    """Warm worker processes. Made by `open_process_pool`.

    Attributes:
        limiter: a token per process that may work; the caller takes one for each job.
    """

    def __init__(self, load: Callable[[], Any], size: int, group: TaskGroup) -> None:
        self._load = load
        self._group = group
        self._idle: deque[_Worker] = deque()
        self._all: set[_Worker] = set()
        self._freed = anyio.Event()
        self._killed = 0
        self._died = 0
        self.limiter = anyio.CapacityLimiter(size)

    def statistics(self) -> ProcessStatistics:
        """Return the pool as it is now."""
        limiter = limiter_statistics(self.limiter)
        return ProcessStatistics(limiter, len(self._idle), len(self._all), self._killed, self._died)

    async def run(
        self,
        function: Callable[..., Any],
        body: Body,
        args: tuple[Any, ...],
        release: Callable[[], None],
        ran_for: Callable[[float], Any],
    ) -> Any:
        """Return ``function(workspace, checkpoint, [body], *args)``, from a process.

        A process that dies under a job costs nobody an answer: the job, which has shown nothing yet, is
        tried once more in another.

        Cancellation: the job has 100 ms to end by itself; then its process is killed, and replaced.

        Raises: what the job raises; `WorkerDied`.
        """
        try:
            for _ in range(2):
                outcome = _Outcome()
                worker = await self._take()
                self._group.start_soon(self._exchange, worker, ((function, args), body), outcome)
                await self._wait(worker, outcome)
                if outcome.answer is not None:
                    return _result(outcome.answer, ran_for)
            raise WorkerDied("A worker process died twice under this request.")
        finally:
            release()

    async def _take(self) -> _Worker:
        while not self._idle:
            await self._freed.wait()
        return self._idle.popleft()

    def _free(self, worker: _Worker) -> None:
        self._idle.append(worker)
        self._freed.set()
        self._freed = anyio.Event()

    async def _wait(self, worker: _Worker, outcome: _Outcome) -> None:
        try:
            await outcome.done.wait()
        except BaseException:
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(_GRACE_S):
                    await outcome.done.wait()
                if not outcome.done.is_set():
                    worker.kill()
                    await outcome.done.wait()
            raise

    async def _exchange(self, worker: _Worker, message: tuple[Any, Body], outcome: _Outcome) -> None:
        """Run in the pool's own task, so that a caller who goes doesn't tear an answer in two."""
        try:
            outcome.answer = await worker.exchange(*message)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            outcome.died = True
            self._all.discard(worker)
            self._killed += worker.killed
            self._died += not worker.killed
            if not worker.killed:
                log.warning("A worker process died in the middle of a job; it is replaced.")
            self._group.start_soon(self._respawn)
            await worker.bury()
        else:
            self._free(worker)
        finally:
            outcome.done.set()

    async def _respawn(self) -> None:
        while True:
            try:
                await self.spawn()
                return
            except (OSError, RenderError) as error:
                log.error("A worker process can't be started: %s", error)
                await anyio.sleep(_RESPAWN_DELAY_S)

    async def spawn(self) -> None:
        """Start one more process and wait until it is warm. Raises what its loading raises."""
        worker = _Worker(await anyio.open_process(_COMMAND, stderr=None))
        try:
            await worker.tell(sys.path)
            (error, _), _ = await worker.exchange(self._load, ())
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            await worker.bury()
            raise WorkerDied("A worker process died while it loaded the model.") from None
        except BaseException:
            await worker.bury()
            raise
        if error is not None:
            await worker.bury()
            raise error
        self._all.add(worker)
        self._free(worker)

    async def end(self) -> None:
        """End every process."""
        async with anyio.create_task_group() as group:
            for worker in self._all:
                group.start_soon(worker.end if worker in self._idle else worker.bury)


def _result(answer: tuple[tuple[Any, ...], bytes], ran_for: Callable[[float], Any]) -> Any:
    (error, seconds, *result), raw = answer
    ran_for(seconds)
    if error is not None:
        raise error
    return result[0] if result else raw


@asynccontextmanager
async def open_process_pool(load: Callable[[], Any], size: int) -> AsyncIterator[ProcessPool]:
    """Open a pool of ``size`` processes and a warm spare; all are warm when it opens.

    Args:
        load: called once in each process; must be picklable.

    Raises: what ``load`` raises.
    """
    async with background_tasks() as group:
        pool = ProcessPool(load, size, group)
        try:
            await _start_all(pool, size + 1)
            yield pool
        finally:
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await pool.end()


async def _start_all(pool: ProcessPool, n: int) -> None:
    failures: list[Exception] = []

    async def start() -> None:
        try:
            await pool.spawn()
        except Exception as error:
            failures.append(error)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for _ in range(n):
            group.start_soon(start)
    if failures:
        raise failures[0]
