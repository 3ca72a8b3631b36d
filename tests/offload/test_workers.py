"""A job in a thread: its result, its errors, and its end when the caller goes."""

import asyncio
import threading
import time
from collections.abc import Callable

import anyio
import pytest
import trio.testing
from anyio import CapacityLimiter
from gates import PATIENCE_S, Gate, wait_for_waiters, wait_idle

from trio_render.offload.workers import run_in_thread


def is_clean(limiter: CapacityLimiter) -> bool:
    statistics = limiter.statistics()
    return statistics.borrowed_tokens == 0 and statistics.tasks_waiting == 0


async def test_the_result_comes_from_another_thread_under_the_limiter_given() -> None:
    limiter = CapacityLimiter(1)
    seen: list[float] = []

    def job(checkpoint: Callable[[], None], a: int, *, b: int) -> tuple[int, int]:
        checkpoint()
        seen.append(limiter.borrowed_tokens)
        return a + b, threading.get_ident()

    total, thread = await run_in_thread(job, limiter, 1, b=2)
    assert total == 3
    assert thread != threading.get_ident()
    assert seen == [1]
    assert is_clean(limiter)


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_the_call_is_a_checkpoint_whether_it_returns_or_raises(anyio_backend: str) -> None:
    limiter = CapacityLimiter(1)
    with trio.testing.assert_checkpoints():
        await run_in_thread(lambda checkpoint: None, limiter)
    with pytest.raises(ZeroDivisionError), trio.testing.assert_checkpoints():
        await run_in_thread(lambda checkpoint: 1 / 0, limiter)


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("no"), TimeoutError("no")])
async def test_an_error_of_the_job_leaves_as_itself(error: Exception) -> None:
    limiter = CapacityLimiter(1)

    def job(checkpoint: Callable[[], None]) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await run_in_thread(job, limiter)
    assert caught.value is error
    assert is_clean(limiter)


async def test_a_caller_cancelled_in_the_queue_goes_at_once_and_its_job_never_runs() -> None:
    limiter = CapacityLimiter(1)
    front, queued = Gate(), Gate()
    async with anyio.create_task_group() as group:
        group.start_soon(run_in_thread, front.job, limiter)
        await front.wait_started()
        async with anyio.create_task_group() as behind:
            behind.start_soon(run_in_thread, queued.job, limiter)
            await wait_for_waiters(limiter, 1)
            behind.cancel_scope.cancel()
        assert front.running == 1
        assert limiter.statistics().tasks_waiting == 0
        front.opened.set()
    assert queued.runs == 0
    assert is_clean(limiter)


async def test_a_caller_cancelled_before_the_call_runs_nothing() -> None:
    limiter = CapacityLimiter(1)
    gate = Gate()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await run_in_thread(gate.job, limiter)
    assert scope.cancelled_caught
    assert gate.runs == 0
    assert is_clean(limiter)


async def test_a_running_job_ends_at_its_next_checkpoint_and_only_then_its_caller_goes() -> None:
    limiter = CapacityLimiter(1)
    gate = Gate()
    async with anyio.create_task_group() as group:
        group.start_soon(run_in_thread, gate.job, limiter)
        await gate.wait_started()
        group.cancel_scope.cancel()
    assert gate.ended == 1
    assert is_clean(limiter)


async def test_the_token_is_held_until_a_job_without_checkpoints_has_ended() -> None:
    limiter = CapacityLimiter(1)
    gate = Gate()
    opener = threading.Timer(0.05, gate.opened.set)
    async with anyio.create_task_group() as group:
        group.start_soon(run_in_thread, gate.deaf_job, limiter)
        await gate.wait_started()
        opener.start()
        group.cancel_scope.cancel()
    assert gate.opened.is_set()
    assert gate.ended == 1
    assert is_clean(limiter)


async def test_a_result_that_comes_after_the_cancellation_leaves_the_scope_cancelled() -> None:
    limiter = CapacityLimiter(1)
    gate = Gate()
    after: list[str] = []

    async def caller() -> None:
        await run_in_thread(gate.deaf_job, limiter)
        await anyio.lowlevel.checkpoint()
        after.append("here")

    async with anyio.create_task_group() as group:
        group.start_soon(caller)
        await gate.wait_started()
        group.cancel_scope.cancel()
        gate.opened.set()
    assert after == []
    assert is_clean(limiter)


async def test_as_many_jobs_run_as_the_limiter_has_tokens() -> None:
    limiter = CapacityLimiter(3)
    gate = Gate()
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(run_in_thread, gate.job, limiter)
        await gate.wait_started(3)
        await wait_for_waiters(limiter, 7)
        gate.opened.set()
    assert gate.most_running == 3
    assert gate.ended == 10
    assert is_clean(limiter)


async def test_tokens_survive_cancellations_at_any_moment() -> None:
    limiter = CapacityLimiter(2)

    def job(checkpoint: Callable[[], None]) -> None:
        for _ in range(20):
            checkpoint()

    async def tried(n: int) -> None:
        with anyio.move_on_after((n % 17) * 0.0002):
            await run_in_thread(job, limiter)

    async with anyio.create_task_group() as group:
        for n in range(300):
            group.start_soon(tried, n)
    await wait_idle(limiter)
    assert is_clean(limiter)
    assert await run_in_thread(lambda checkpoint: "fine", limiter) == "fine"


# ------------------------------------------------------------ cancellation that is not anyio's


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("how", ["cancel", "wait_for", "timeout"])
async def test_a_native_cancellation_ends_the_job_at_its_next_checkpoint(
    how: str, anyio_backend: str
) -> None:
    limiter = CapacityLimiter(1)
    gate = Gate()

    async def call() -> str:
        return await run_in_thread(gate.job, limiter)

    began = time.monotonic()
    task = asyncio.create_task(call())
    await gate.wait_started()
    if how == "cancel":
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    elif how == "wait_for":
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(task, 0.01)
    else:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await task
    assert time.monotonic() - began < PATIENCE_S
    await gate.wait_ended()
    await wait_idle(limiter)
    assert is_clean(limiter)
    assert await run_in_thread(lambda checkpoint: "fine", limiter) == "fine"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_natively_cancelled_caller_in_the_queue_runs_nothing(anyio_backend: str) -> None:
    limiter = CapacityLimiter(1)
    front, queued = Gate(), Gate()
    running = asyncio.create_task(run_in_thread(front.job, limiter))
    await front.wait_started()
    waiting = asyncio.create_task(run_in_thread(queued.job, limiter))
    await wait_for_waiters(limiter, 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    front.opened.set()
    assert await running == "done"
    await wait_idle(limiter)
    assert queued.runs == 0
    assert is_clean(limiter)
