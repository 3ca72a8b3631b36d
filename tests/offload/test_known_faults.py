"""Faults that public reports describe for limiters, threads and cancellation, tried on the offloader itself.

Each test is named by its issue number. Covered here: anyio#71, trio#810, anyio#947, anyio#787 (a failing
child), trio#548. `test_offloader` covers their relatives: a deaf job with a limit of one, a storm of
cancellations at random moments. What needs a server is in `served/test_known_faults.py`.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest
from gates import Gate, until, wait_for_waiters, wait_idle
from offload import jobs

from trio_render import InvalidRequest, Limits, Offloader, open_offloader
from trio_render.fanout import fan_out
from trio_render.offload.jobs import Job

pytestmark = pytest.mark.anyio

DEAF_S = 1.5
CANCELLED_AFTER_S = 0.2
SLEEP = Job(jobs.sleep, "derender")
ADD = Job(jobs.add, "derender")


def offloading(**limits: int) -> Any:
    workspace = jobs.load()
    return open_offloader(jobs.load, workspace, backend="thread", limits=Limits(**limits), queue_limit=2000)


def moment(workspace: Any, checkpoint: Any, body: Any) -> float:
    """When this job ran."""
    return time.perf_counter()


MOMENT = Job(moment, "derender")


async def test_anyio_71_a_cancelled_thread_keeps_its_token_until_it_ends() -> None:
    """A thread can't be stopped: a token given back before its end is one too many threads."""
    returned: list[float] = []

    async def cancelled(offloader: Offloader) -> None:
        with anyio.move_on_after(CANCELLED_AFTER_S):
            await offloader.run(SLEEP, (), DEAF_S)
        returned.append(time.perf_counter() - began)

    async with offloading(derender=2, gil=9) as offloader:
        began = time.perf_counter()
        async with anyio.create_task_group() as group:
            group.start_soon(cancelled, offloader)
            group.start_soon(cancelled, offloader)
            await anyio.sleep(CANCELLED_AFTER_S)
            assert offloader.limiter("derender").borrowed_tokens == 2
            third = await offloader.run(MOMENT, ()) - began
    assert DEAF_S <= third < DEAF_S + 1
    assert all(seconds >= DEAF_S for seconds in returned)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_anyio_71_a_thread_abandoned_by_its_task_keeps_its_token_too(anyio_backend: str) -> None:
    """On asyncio the caller can be cancelled away from under a running thread."""
    async with offloading(derender=2, gil=9) as offloader:
        began = time.perf_counter()
        tasks = [asyncio.create_task(offloader.run(SLEEP, (), DEAF_S)) for _ in range(2)]
        await anyio.sleep(CANCELLED_AFTER_S)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert time.perf_counter() - began < DEAF_S, "nobody has abandoned anything"
        assert offloader.limiter("derender").borrowed_tokens == 2
        third = await offloader.run(MOMENT, ()) - began
    assert DEAF_S <= third < DEAF_S + 1


async def test_trio_810_a_job_that_calls_back_ends_with_its_deadline() -> None:
    """A thread that waits for a thread of its own limiter waits for itself."""
    inner: list[Any] = []

    def nest(workspace: Any, checkpoint: Any, body: Any, offloader: Offloader) -> None:
        inner.append(anyio.from_thread.run(offloader.run, ADD, (), 1, 2))

    async with offloading(derender=1) as offloader:
        began = time.perf_counter()
        with anyio.move_on_after(0.2) as scope:
            await offloader.run(Job(nest, "derender"), (), offloader)
        assert scope.cancelled_caught
        assert 0.2 <= time.perf_counter() - began < 2
        assert inner == []
        assert await offloader.run(ADD, (), 1, 2) == 3
        assert offloader.limiter("derender").borrowed_tokens == 0
        assert offloader.statistics().gil.borrowed == 0


async def test_anyio_947_no_token_is_lost_when_a_cancel_meets_a_release() -> None:
    """On asyncio a token could disappear for ever."""
    calls, clients = 10_000, 20
    gate = Gate()
    rng = random.Random(947)

    def cancel_and_end(workspace: Any, checkpoint: Any, body: Any, cancel: Callable[[], None]) -> None:
        anyio.from_thread.run_sync(cancel)

    cancelled_by_itself = Job(cancel_and_end, "derender")

    async with offloading(derender=3, gil=3) as offloader:

        async def client() -> None:
            for _ in range(calls // clients // 2):
                with anyio.CancelScope() as scope:
                    await offloader.run(cancelled_by_itself, (), scope.cancel)
                async with anyio.create_task_group() as group:
                    group.start_soon(offloader.run, ADD, (), 1, 2)
                    for _ in range(rng.randrange(20)):
                        await anyio.lowlevel.checkpoint()
                    group.cancel_scope.cancel()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for _ in range(clients):
                    group.start_soon(client)
        now = offloader.statistics()
        counted = now.kinds["derender"]
        assert counted.ran + counted.cancelled == calls
        assert min(counted.ran, counted.cancelled) > calls // 20
        assert (counted.limiter.borrowed, counted.limiter.waiting) == (0, 0)
        assert (now.gil.borrowed, now.gil.waiting) == (0, 0)

        # The full capacity is there: three at a time.
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(offloader.run, Job(lambda w, c, b: gate.job(c), "derender"), ())
            await gate.wait_started(3)
            gate.opened.set()


async def test_anyio_787_an_error_that_meets_a_cancellation_ends_its_group() -> None:
    """A child's error during a disconnect got lost, and the group with it hung."""
    failed = 0

    def fail_late(workspace: Any, checkpoint: Any, body: Any, cancel: Callable[[], None], late: bool) -> None:
        if late:
            anyio.from_thread.run_sync(cancel)
            raise InvalidRequest("this can't be", "body")
        while True:
            checkpoint()
            time.sleep(0.0005)

    job = Job(fail_late, "render")

    async def three(offloader: Offloader, late: int, cancel: Callable[[], None]) -> None:
        await fan_out(lambda number: offloader.run(job, (), cancel, number == late), range(3), 3)

    async with offloading(render=3, gil=3) as offloader:
        with anyio.fail_after(60):
            for number in range(1000):
                with anyio.CancelScope() as scope:
                    with pytest.raises(InvalidRequest, match="this can't be"):
                        await three(offloader, number % 3, scope.cancel)
                    failed += 1
        await wait_idle(offloader.limiter("render"))
        assert offloader.statistics().gil.borrowed == 0
    assert failed == 1000


async def test_trio_548_cancelled_waiters_are_forgotten() -> None:
    """Bookkeeping of waiting tasks kept them after they were cancelled."""
    gate = Gate()
    per_round = 1000

    async def cancel_waiters(offloader: Offloader) -> None:
        async with anyio.create_task_group() as waiters:
            for _ in range(per_round):
                waiters.start_soon(offloader.run, ADD, (), 1, 2)
            await wait_for_waiters(offloader.limiter("derender"), per_round)
            waiters.cancel_scope.cancel()

    async with offloading(derender=1) as offloader, anyio.create_task_group() as group:
        group.start_soon(offloader.run, Job(lambda w, c, b: gate.job(c), "derender"), ())
        await gate.wait_started()
        await cancel_waiters(offloader)
        before = live_objects()
        for _ in range(10):
            await cancel_waiters(offloader)
        grown = live_objects() - before
        gate.opened.set()
        await until(lambda: gate.ended == 1)
        statistics = offloader.statistics().kinds["derender"]
    assert grown < per_round
    assert statistics.cancelled == 11 * per_round
    assert statistics.limiter.waiting == 0


def live_objects() -> int:
    """How many objects the collector knows of, garbage left out."""
    gc.collect()
    return len(gc.get_objects())
