"""The one way for CPU work to leave the event loop: admission, limits, a backend, statistics."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, final

from anyio import CapacityLimiter, WouldBlock
from anyio.lowlevel import checkpoint as loop_checkpoint
from anyio.lowlevel import checkpoint_if_cancelled

from ..errors import Overloaded
from .crowd import ToldToComeBack
from .jobs import Body, Job
from .limits import KINDS, Kind, Limits, limiter_statistics
from .processes import ProcessPool, ProcessStatistics, open_process_pool
from .stats import KindStatistics, LimiterStatistics, WorkCounters
from .threads import ThreadBackend

__all__ = ["Backend", "Offloader", "OffloaderStatistics", "open_offloader"]

R = TypeVar("R")
W = TypeVar("W")

Backend = Literal["auto", "thread", "process", "inline"]

_GUESSED_RUN_S = 0.01
_MAX_RETRY_AFTER_S = 3.0
"""Servers close a connection that is idle for longer than a few seconds, and who waits is idle."""
_COME_ROUND_S = 0.001


@dataclass(frozen=True, slots=True)
class OffloaderStatistics:
    """An offloader as it is now."""

    backend: Backend
    kinds: dict[Kind, KindStatistics]
    gil: LimiterStatistics
    processes: ProcessStatistics | None


@final
class Offloader:
    """Runs jobs off the event loop. Made by `open_offloader`; safe to use from many tasks of one loop.

    First come, first served within a kind of work; kinds don't wait for each other but where they share a
    limiter. A full queue refuses at once.
    """

    def __init__(
        self, workspace: Any, backend: Backend, limits: Limits, queue_limit: int, pool: ProcessPool | None
    ) -> None:
        self.backend: Backend = backend
        self._workspace = workspace
        self._limits = limits
        self._queue_limit = queue_limit
        self._pool = pool
        self._threads = ThreadBackend()
        self._came_round = 0.0
        self._counters: dict[Kind, WorkCounters] = {kind: WorkCounters() for kind in KINDS}
        self._told: dict[Kind, ToldToComeBack] = {kind: ToldToComeBack() for kind in KINDS}

    async def run(self, job: Job[R], body: Body, *args: Any, admitted: bool = False) -> R:
        """Return what ``job`` makes of ``body`` and ``args``.

        Args:
            admitted: a further job of a request that has run one: a full queue makes it wait, no more.

        Raises: what the job raises; `Overloaded` when the queue before its limiter is full.

        Cancellation: a job that waits is gone at once, and nothing ran. One that runs in a thread ends at
        its next checkpoint; one in a process is given 100 ms and then killed with its process. Either way
        its tokens come back when its work has ended.
        """
        counters = self._counters[job.kind]
        if self._belongs_inline(job, body):
            await self._let_others_run()
            return self._run_inline(counters, job, body, args)
        if not admitted:
            self.check_admission(job.kind)
        asked = time.perf_counter()
        borrower = object()
        limiters = self._limiters(job)
        try:
            await _acquire_all(limiters, borrower)
        except BaseException:
            counters.cancelled += 1
            raise
        counters.wait.observe(time.perf_counter() - asked)

        release = partial(_release_all, limiters, borrower)
        return await self._run_counted(counters, job, body, args, release)

    def check_admission(self, kind: Kind) -> None:
        """Raise `Overloaded` if a job of this kind would meet a full queue now. Costs nothing else."""
        limiter = self._limits.of(kind)
        if limiter.borrowed_tokens < limiter.total_tokens:
            return
        now = limiter.statistics()
        if now.tasks_waiting < self._queue_limit:
            return
        counters = self._counters[kind]
        counters.refused += 1
        # When half the queue will have run, and all who have been told to come back. Told less, a crowd comes
        # back again and again, and its refusals take from the work what they cost the event loop.
        ahead = (now.tasks_waiting + 1) / 2 + self._told[kind].count()
        retry_after = ahead * counters.mean_run_s(_GUESSED_RUN_S) / max(now.total_tokens, 1)
        retry_after = min(retry_after, _MAX_RETRY_AFTER_S)
        self._told[kind].add(retry_after)
        raise Overloaded(f"The queue for {kind} work is full ({now.tasks_waiting} waiting).", retry_after)

    def limiter(self, kind: Kind) -> CapacityLimiter:
        """Return the limiter of a kind of work."""
        return self._limits.of(kind)

    def limit(self, name: Kind | Literal["gil"]) -> int:
        """Return a limit as it is now."""
        return int(min((self._limits.gil if name == "gil" else self._limits.of(name)).total_tokens, 1024))

    def set_limit(self, name: Kind | Literal["gil"], total: int) -> None:
        """Change a limit while running; see `Limits.set_limit`."""
        self._limits.set_limit(name, total)

    def statistics(self) -> OffloaderStatistics:
        """Return a frozen snapshot."""
        return OffloaderStatistics(
            backend=self.backend,
            kinds={
                kind: counters.snapshot(limiter_statistics(self._limits.of(kind)))
                for kind, counters in self._counters.items()
            },
            gil=limiter_statistics(self._limits.gil),
            processes=None if self._pool is None else self._pool.statistics(),
        )

    def _belongs_inline(self, job: Job[Any], body: Body) -> bool:
        if self.backend == "inline":
            # Generating takes seconds, and tells of its tokens from its thread.
            return job.kind != "engine"
        return self.backend == "auto" and sum(map(len, body)) < job.inline_below

    async def _let_others_run(self) -> None:
        """Let the event loop come round, but not for each of many small jobs: that costs as much as they."""
        now = time.perf_counter()
        if now - self._came_round < _COME_ROUND_S:
            await checkpoint_if_cancelled()
            return
        self._came_round = now
        await loop_checkpoint()

    def _limiters(self, job: Job[Any]) -> list[CapacityLimiter]:
        kind = self._limits.of(job.kind)
        if self._pool is not None and not job.stays:
            return [kind, self._pool.limiter]
        return [kind, self._limits.gil] if job.keeps_gil else [kind]

    def _run_inline(self, counters: WorkCounters, job: Job[R], body: Body, args: tuple[Any, ...]) -> R:
        began = time.perf_counter()
        try:
            return job(self._workspace, _never, body, *args)
        finally:
            counters.ran += 1
            counters.inline += 1
            counters.run.observe(time.perf_counter() - began)

    async def _run_counted(
        self,
        counters: WorkCounters,
        job: Job[R],
        body: Body,
        args: tuple[Any, ...],
        release: Callable[[], None],
    ) -> R:
        try:
            if self._pool is not None and not job.stays:
                result: R = await self._pool.run(job.function, body, args, release, counters.run.observe)
            else:
                result = await self._threads.run(
                    lambda checkpoint: job(self._workspace, checkpoint, body, *args),
                    release,
                    counters.run.observe,
                )
        except Exception:
            counters.ran += 1
            raise
        except BaseException:
            counters.cancelled += 1
            raise
        counters.ran += 1
        return result


def _never() -> None:
    """The checkpoint of inline work: nobody can have gone while the loop itself works."""


async def _acquire_all(limiters: list[CapacityLimiter], borrower: object) -> None:
    taken: list[CapacityLimiter] = []
    try:
        for limiter in limiters:
            if not _taken_at_once(limiter, borrower):
                await limiter.acquire_on_behalf_of(borrower)
            taken.append(limiter)
    except BaseException:
        _release_all(taken, borrower)
        raise


def _taken_at_once(limiter: CapacityLimiter, borrower: object) -> bool:
    """Take a token that is free, without a turn of the loop: the hop that follows looks for cancellation."""
    if limiter.borrowed_tokens >= limiter.total_tokens:
        return False
    try:
        limiter.acquire_on_behalf_of_nowait(borrower)
    except WouldBlock:
        return False
    return True


def _release_all(limiters: list[CapacityLimiter], borrower: object) -> None:
    for limiter in reversed(limiters):
        limiter.release_on_behalf_of(borrower)


@asynccontextmanager
async def open_offloader(
    load: Callable[[], W],
    workspace: W,
    *,
    backend: Backend = "auto",
    limits: Limits | None = None,
    queue_limit: int = 1000,
    processes: int = 2,
) -> AsyncIterator[Offloader]:
    """Open an `Offloader` for the length of an ``async with`` block.

    Args:
        load: makes the workspace that jobs get as their first argument. Must be picklable for the
            ``process`` backend, which calls it once in each of its processes.
        workspace: what ``load`` makes, for jobs in this process.
        backend: ``thread``; ``auto``, the same but for jobs that are smaller than a hop, which run inline;
            ``process``, which has the model in processes of its own; ``inline``, on the event loop, a base
            line to compare with.
        queue_limit: jobs of one kind that may wait for their limiter.
        processes: of the ``process`` backend; one more is kept warm as a spare.

    Raises: what ``load`` raises in a process.
    """
    limits = limits or Limits()
    if backend != "process":
        yield Offloader(workspace, backend, limits, queue_limit, None)
        return
    async with open_process_pool(load, processes) as pool:
        yield Offloader(workspace, backend, limits, queue_limit, pool)
