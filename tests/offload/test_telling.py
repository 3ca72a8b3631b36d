"""A job that tells: what it says comes in order, its error last, and the block's end ends it."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from gates import PATIENCE_S, Gate

from trio_render import Limits, Offloader, Overloaded, open_offloader
from trio_render.offload.jobs import Body, Job
from trio_render.offload.telling import telling

Tell = Callable[[object], None]
Checkpoint = Callable[[], None]


def count(_: object, checkpoint: Checkpoint, body: Body, tell: Tell, to: int) -> None:
    for number in range(to):
        checkpoint()
        tell(number)


def fail(_: object, checkpoint: Checkpoint, body: Body, tell: Tell) -> None:
    tell("first")
    raise LookupError("then this")


def wait(_: object, checkpoint: Checkpoint, body: Body, tell: Tell, gate: Gate) -> None:
    tell("begun")
    gate.job(checkpoint)
    tell("ended")


def engine_job(function: Callable[..., None]) -> Job[None]:
    return Job(function, kind="engine", keeps_gil=False, stays=True)


@asynccontextmanager
async def offloading(queue_limit: int = 10) -> AsyncIterator[Offloader]:
    async with open_offloader(
        object, None, backend="inline", limits=Limits(engine=1), queue_limit=queue_limit
    ) as offloader:
        yield offloader
        assert offloader.limiter("engine").borrowed_tokens == 0


async def test_what_is_told_comes_in_order() -> None:
    async with offloading() as offloader, telling(offloader, engine_job(count), (), 50) as told:
        assert [thing async for thing in told] == list(range(50))
        assert [thing async for thing in told] == [], "the end stays the end"


async def test_an_error_comes_behind_what_was_told() -> None:
    async with offloading() as offloader, telling(offloader, engine_job(fail), ()) as told:
        assert await anext(told) == "first"
        with pytest.raises(LookupError, match="then this"):
            await anext(told)


async def test_an_error_that_nobody_asks_for_is_nobodys() -> None:
    async with offloading() as offloader, telling(offloader, engine_job(fail), ()) as told:
        assert await anext(told) == "first"


async def test_things_come_while_the_job_runs() -> None:
    gate = Gate()
    async with offloading() as offloader, telling(offloader, engine_job(wait), (), gate) as told:
        assert await anext(told) == "begun"
        assert gate.ended == 0
        gate.opened.set()
        assert [thing async for thing in told] == ["ended"]


async def test_the_end_of_the_block_ends_the_job() -> None:
    gate = Gate()
    async with offloading() as offloader:
        async with telling(offloader, engine_job(wait), (), gate) as told:
            assert await anext(told) == "begun"
            await gate.wait_started()
        assert (gate.running, gate.ended) == (0, 1)
        assert offloader.statistics().kinds["engine"].cancelled == 1


async def test_a_slow_hearer_holds_nobody_up() -> None:
    async with offloading() as offloader:
        async with telling(offloader, engine_job(count), (), 500) as told:
            with anyio.fail_after(PATIENCE_S):
                async with telling(offloader, engine_job(count), (), 1) as other:
                    assert [thing async for thing in other] == [0]
            assert [thing async for thing in told] == list(range(500))
        assert threading.active_count() < 20


async def test_a_full_queue_refuses_on_entering() -> None:
    gate = Gate()
    async with (
        offloading(queue_limit=0) as offloader,
        telling(offloader, engine_job(wait), (), gate) as told,
    ):
        assert await anext(told) == "begun"
        with pytest.raises(Overloaded):
            async with telling(offloader, engine_job(count), (), 1):
                pytest.fail("entered")


async def test_a_crowd_that_comes_at_once_meets_the_bound() -> None:
    gate = Gate()
    refused = 0

    async def one() -> None:
        nonlocal refused
        try:
            async with telling(offloader, engine_job(wait), (), gate) as told:
                assert await anext(told) == "begun"
        except Overloaded:
            refused += 1

    async with offloading(queue_limit=2) as offloader:
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as group:
                for _ in range(10):
                    group.start_soon(one)
    assert refused == 7, "one runs, two wait"
