"""Fan-out: in order, bounded, and with one failure as itself."""

import asyncio

import anyio
import pytest
from anyio.lowlevel import checkpoint

from trio_render.fanout import fan_out


class Gauge:
    """Work that counts itself."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.finished: list[int] = []
        self.cancelled: list[int] = []
        self.most = 0
        self.running = 0

    async def work(self, item: int) -> int:
        self.started.append(item)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            for _ in range(item % 3):
                await checkpoint()
        except BaseException:
            self.cancelled.append(item)
            raise
        finally:
            self.running -= 1
        self.finished.append(item)
        return item * 10


@pytest.mark.parametrize("in_flight", [1, 2, 5, 1000, 0, -3])
async def test_results_come_in_the_order_of_the_items(in_flight: int) -> None:
    gauge = Gauge()
    assert await fan_out(gauge.work, range(20), in_flight) == [n * 10 for n in range(20)]
    assert sorted(gauge.finished) == list(range(20))
    assert gauge.started == list(range(20))


async def test_results_that_come_out_of_order_are_put_in_order() -> None:
    gates = [anyio.Event() for _ in range(4)]

    async def work(n: int) -> int:
        await gates[n].wait()
        if n:
            gates[n - 1].set()
        return n

    gates[3].set()
    assert await fan_out(work, range(4), 4) == [0, 1, 2, 3]


@pytest.mark.parametrize("in_flight", [1, 3, 8])
async def test_no_more_run_at_a_time_than_allowed(in_flight: int) -> None:
    gauge = Gauge()
    gate = anyio.Event()

    async def work(n: int) -> int:
        gauge.running += 1
        gauge.most = max(gauge.most, gauge.running)
        if gauge.running == in_flight:
            gate.set()
        await gate.wait()
        gauge.running -= 1
        return n

    await fan_out(work, range(8), in_flight)
    assert gauge.most == in_flight


async def test_nothing_gives_nothing() -> None:
    gauge = Gauge()
    assert await fan_out(gauge.work, [], 5) == []
    assert gauge.started == []


class Failure(Exception):
    """What a piece of work raises in these tests."""


async def test_the_first_failure_cancels_the_others_and_leaves_as_itself() -> None:
    gauge = Gauge()
    error = Failure("the fourth")
    stuck = anyio.Event()

    async def work(n: int) -> int:
        gauge.started.append(n)
        if n < 3:
            try:
                await stuck.wait()
            except BaseException:
                gauge.cancelled.append(n)
                raise
        await checkpoint()
        raise error

    with pytest.raises(Failure) as caught:
        await fan_out(work, range(100), 4)
    assert caught.value is error
    assert gauge.started == [0, 1, 2, 3]
    assert sorted(gauge.cancelled) == [0, 1, 2]


async def test_of_several_failures_the_first_leaves() -> None:
    async def work(n: int) -> int:
        try:
            if n == 1:
                raise Failure("first")
            await anyio.sleep_forever()
        finally:
            if n == 0:
                raise Failure("while being cancelled")
        return n

    with pytest.raises(Failure, match="first"):
        await fan_out(work, range(2), 2)


@pytest.mark.parametrize("in_flight", [1, 4])
async def test_a_failure_with_one_worker_leaves_as_itself_too(in_flight: int) -> None:
    async def work(n: int) -> int:
        raise Failure(n)

    with pytest.raises(Failure):
        await fan_out(work, [0], in_flight)


async def test_a_cancelled_caller_starts_nothing_more() -> None:
    gauge = Gauge()
    started = anyio.Event()

    async def work(n: int) -> int:
        gauge.started.append(n)
        if n == 1:
            started.set()
        try:
            await anyio.sleep_forever()
        finally:
            gauge.cancelled.append(n)
        return n

    async with anyio.create_task_group() as group:
        group.start_soon(fan_out, work, range(50), 2)
        await started.wait()
        group.cancel_scope.cancel()
    assert gauge.started == [0, 1]
    assert sorted(gauge.cancelled) == [0, 1]


async def test_a_cancellation_from_outside_is_not_taken_for_a_failure() -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await fan_out(Gauge().work, range(5), 2)
    assert scope.cancelled_caught


async def test_a_group_that_the_work_raises_leaves_as_that_group() -> None:
    group = ExceptionGroup("of the work", [Failure("a"), Failure("b")])

    async def work(n: int) -> int:
        raise group

    with pytest.raises(ExceptionGroup) as caught:
        await fan_out(work, range(3), 2)
    assert caught.value is group


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_natively_cancelled_caller_ends_its_workers(anyio_backend: str) -> None:
    gauge = Gauge()
    started = anyio.Event()

    async def work(n: int) -> int:
        gauge.started.append(n)
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            gauge.cancelled.append(n)
        return n

    task = asyncio.create_task(fan_out(work, range(9), 3))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(gauge.cancelled) == gauge.started
