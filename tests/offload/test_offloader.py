"""The offloader on both backends of anyio and all of its own: results, order, refusals, cancellation."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import anyio
import pytest
from offload import jobs

from trio_render import InvalidRequest, Limits, Offloader, Overloaded, open_offloader
from trio_render.offload.jobs import Job

pytestmark = pytest.mark.anyio

BACKENDS = ["inline", "auto", "thread", "process"]
JOIN = Job(jobs.join, "render")
SPIN = Job(jobs.spin, "derender")


def offloading(backend: Any, **options: Any) -> Any:
    return open_offloader(jobs.load, jobs.load(), backend=backend, processes=1, **options)


async def until(condition: Any) -> None:
    """Wait for a condition that other tasks bring about; a hang fails the test."""
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110 - statistics have no event to wait for
            await anyio.sleep(0.001)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_job_gets_its_body_and_arguments(backend: str) -> None:
    async with offloading(backend) as offloader:
        assert await offloader.run(JOIN, [b"one ", b"two"], 3, "four") == b"one two|3,four"
        assert await offloader.run(Job(jobs.add, "engine"), (), 2, 3) == 5


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_jobs_error_leaves_as_itself(backend: str) -> None:
    async with offloading(backend) as offloader:
        with pytest.raises(InvalidRequest, match="this can't be") as caught:
            await offloader.run(Job(jobs.fail, "render"), ())
        assert caught.value.param == "body"
        assert offloader.statistics().kinds["render"].ran == 1


async def test_auto_runs_small_bodies_on_the_loop_and_others_in_a_thread() -> None:
    job = Job(jobs.thread_name, "render", inline_below=100)
    async with offloading("auto") as offloader:
        assert await offloader.run(job, [b"x" * 99]) == threading.get_ident()
        assert await offloader.run(job, [b"x" * 60, b"x" * 60]) != threading.get_ident()
        statistics = offloader.statistics().kinds["render"]
    assert (statistics.ran, statistics.inline) == (2, 1)


async def test_a_full_queue_refuses_at_once_and_says_when_to_come_back() -> None:
    gate = threading.Event()

    async with (
        offloading("thread", limits=Limits(render=1), queue_limit=2) as offloader,
        anyio.create_task_group() as group,
    ):
        job = Job(lambda workspace, checkpoint, body: gate.wait(10), "render")
        for _ in range(3):
            group.start_soon(offloader.run, job, ())
        await until(lambda: offloader.statistics().kinds["render"].limiter.waiting == 2)
        with pytest.raises(Overloaded) as caught:
            await offloader.run(job, ())
        assert caught.value.retry_after > 0
        with pytest.raises(Overloaded):
            offloader.check_admission("render")
        offloader.check_admission("derender")
        group.start_soon(partial(offloader.run, job, (), admitted=True))
        await until(lambda: offloader.statistics().kinds["render"].limiter.waiting == 3)
        gate.set()
    statistics = offloader.statistics().kinds["render"]
    assert (statistics.ran, statistics.refused) == (4, 2)
    assert statistics.limiter.borrowed == 0


async def test_first_come_first_served() -> None:
    started: list[int] = []

    async with offloading("thread", limits=Limits(render=1)) as offloader, anyio.create_task_group() as group:

        def job(workspace: Any, checkpoint: Any, body: Any, number: int) -> None:
            started.append(number)

        gate = threading.Event()
        group.start_soon(offloader.run, Job(lambda w, c, b: gate.wait(10), "render"), ())
        await until(lambda: offloader.statistics().kinds["render"].limiter.borrowed == 1)
        for number in range(20):
            group.start_soon(offloader.run, Job(job, "render"), (), number)
            await until(lambda n=number: offloader.statistics().kinds["render"].limiter.waiting == n + 1)
        gate.set()
    assert started == list(range(20))


async def test_kinds_do_not_starve_each_other() -> None:
    gate = threading.Event()
    async with (
        offloading("thread", limits=Limits(render=1, gil=4)) as offloader,
        anyio.create_task_group() as group,
    ):
        blocked = Job(lambda w, c, b: gate.wait(10), "render")
        for _ in range(5):
            group.start_soon(offloader.run, blocked, ())
        await until(lambda: offloader.statistics().kinds["render"].limiter.waiting == 4)
        assert await offloader.run(Job(jobs.join, "derender"), [b"free"]) == b"free|"
        gate.set()


async def test_a_job_that_keeps_the_gil_takes_its_tighter_limit_too() -> None:
    gate = threading.Event()
    async with (
        offloading("thread", limits=Limits(render=4, gil=1)) as offloader,
        anyio.create_task_group() as group,
    ):
        for _ in range(3):
            group.start_soon(offloader.run, Job(lambda w, c, b: gate.wait(10), "render"), ())
        await until(lambda: offloader.statistics().gil.waiting == 2)
        assert offloader.statistics().kinds["render"].limiter.borrowed == 3
        free = Job(jobs.join, "render", keeps_gil=False)
        assert await offloader.run(free, [b"by"]) == b"by|"
        gate.set()
    assert offloader.statistics().gil.borrowed == 0


async def test_a_limit_can_be_changed_while_jobs_wait() -> None:
    gate = threading.Event()
    async with (
        offloading("thread", limits=Limits(derender=1, gil=9)) as offloader,
        anyio.create_task_group() as group,
    ):
        for _ in range(3):
            group.start_soon(offloader.run, Job(lambda w, c, b: gate.wait(10), "derender"), ())
        await until(lambda: offloader.statistics().kinds["derender"].limiter.waiting == 2)
        offloader.set_limit("derender", 3)
        await until(lambda: offloader.statistics().kinds["derender"].limiter.borrowed == 3)
        gate.set()
    for name, total in (("derender", 0), ("nonsense", 1)):
        with pytest.raises(ValueError, match="limit"):
            offloader.set_limit(name, total)  # type: ignore[arg-type]


async def test_one_limiter_can_be_shared_by_all_kinds() -> None:
    limiter = anyio.CapacityLimiter(1)
    async with offloading("thread", limits=Limits(shared=limiter)) as offloader:
        await offloader.run(JOIN, ())
        await offloader.run(SPIN, (), 0.0)
        now = offloader.statistics()
    assert limiter.borrowed_tokens == 0
    assert {statistics.limiter.limit for statistics in now.kinds.values()} == {1}


@pytest.mark.parametrize("backend", ["thread", "process"])
async def test_cancelled_while_queued_nothing_runs(backend: str, tmp_path: Any) -> None:
    mark = tmp_path / "ran"
    async with offloading(backend, limits=Limits(derender=1)) as offloader:
        async with anyio.create_task_group() as group:
            group.start_soon(offloader.run, SPIN, (), 0.3)
            await until(lambda: offloader.statistics().kinds["derender"].limiter.borrowed == 1)
            with anyio.move_on_after(0.05) as scope:
                await offloader.run(SPIN, (), 0.0, str(mark))
            assert scope.cancelled_caught
        assert not mark.exists()
        statistics = offloader.statistics().kinds["derender"]
    assert (statistics.ran, statistics.cancelled) == (1, 1)
    assert (statistics.limiter.borrowed, statistics.limiter.waiting) == (0, 0)


async def _cancelled_in(offloader: Offloader, job: Job[bytes], after_s: float, *args: Any) -> float:
    """Return how much later than asked a cancelled run gives control back."""
    began = anyio.current_time()
    with anyio.move_on_after(after_s):
        await offloader.run(job, (), *args)
    return anyio.current_time() - began - after_s


async def test_cancelled_while_running_a_thread_ends_at_its_next_checkpoint() -> None:
    async with offloading("thread") as offloader:
        late = sorted([await _cancelled_in(offloader, SPIN, 0.05, 30.0) for _ in range(5)])
        assert late[2] < 0.05
        assert offloader.statistics().kinds["derender"].limiter.borrowed == 0
        assert offloader.statistics().gil.borrowed == 0


async def test_tokens_are_held_until_a_deaf_thread_has_ended() -> None:
    """A call without a checkpoint can't be cut short: its caller waits, its token stays taken."""
    async with offloading("thread", limits=Limits(derender=1)) as offloader:
        late = await _cancelled_in(offloader, Job(jobs.sleep, "derender"), 0.05, 0.4)
        assert late > 0.3
        assert offloader.statistics().kinds["derender"].limiter.borrowed == 0


async def test_nothing_is_lost_in_a_storm_of_cancellations() -> None:
    """anyio#947's kind: tokens that disappear when a cancel meets a release."""
    async with offloading("thread", limits=Limits(derender=3, gil=2)) as offloader:

        async def one(number: int) -> None:
            with anyio.move_on_after(0.0002 * (number % 9)):
                await offloader.run(SPIN, (), 0.0003)

        for _ in range(20):
            async with anyio.create_task_group() as group:
                for number in range(50):
                    group.start_soon(one, number)
        statistics = offloader.statistics()
        limiter = statistics.kinds["derender"].limiter
        assert (limiter.borrowed, limiter.waiting, statistics.gil.borrowed) == (0, 0, 0)
        assert await offloader.run(SPIN, (), 0.0) == b"spun"
        counted = statistics.kinds["derender"]
    assert counted.ran + counted.cancelled == 1000
    assert counted.cancelled > 0


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_native_cancellation_on_asyncio_ends_the_thread_and_frees_its_tokens(
    anyio_backend: str,
) -> None:
    import asyncio

    async with offloading("thread", limits=Limits(derender=1)) as offloader:
        task = asyncio.create_task(offloader.run(SPIN, (), 30.0))
        await until(lambda: offloader.statistics().kinds["derender"].limiter.borrowed == 1)
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: offloader.statistics().kinds["derender"].limiter.borrowed == 0)
        assert await offloader.run(SPIN, (), 0.0) == b"spun"


async def test_limits_refuse_nothing_below_one() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Limits(render=0)


async def test_load_is_not_called_without_processes() -> None:
    async with open_offloader(partial(pytest.fail, "loaded"), {}, backend="thread") as offloader:
        assert await offloader.run(JOIN, ()) == b"|"
