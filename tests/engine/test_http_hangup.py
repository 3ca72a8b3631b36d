"""Whoever leaves a generation ends it: the upstream sees the hang-up, and the connection is free again."""

import gc
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus
from engine_requests import generate_request
from gates import until
from scripted_upstream import (
    STREAM_HEAD,
    Connection,
    ScriptedUpstream,
    event_of,
    piece,
    script,
    scripted_upstream,
)

from trio_render.engine.http import HttpEngine, open_http_engine

SOON_S = 1.0
"""How soon the upstream must see a hang-up. Nothing waits for it to pass."""


class Watched:
    """A script that answers as far as it is told to, and then waits for the hang-up."""

    def __init__(self, events: int | None, per_send: int = 1) -> None:
        self._events = events
        self._per_send = per_send
        self.asked = anyio.Event()
        self.hung_up = anyio.Event()

    async def __call__(self, connection: Connection) -> None:
        try:
            await connection.request()
            self.asked.set()
            if self._events is not None:
                await connection.send(STREAM_HEAD)
                event = event_of(piece(5)) * self._per_send
                for _ in range(self._events):
                    await connection.send_chunk(event)
            await connection.until_hung_up()
        finally:
            self.hung_up.set()

    async def sees_it_soon(self) -> None:
        with anyio.fail_after(SOON_S):
            await self.hung_up.wait()


@asynccontextmanager
async def opened(serve: Any, **options: Any) -> AsyncIterator[tuple[HttpEngine, ScriptedUpstream]]:
    """An engine whose connections are gone or idle at the end. No generator is left to the collector."""
    async with scripted_upstream(serve) as upstream:
        async with open_http_engine(upstream.url, **options) as engine:
            yield engine, upstream
            assert_free(engine)
        await until(lambda: upstream.opened == 0)
    gc.collect()
    await anyio.lowlevel.checkpoint()


def assert_free(engine: HttpEngine) -> None:
    statistics = engine.statistics()
    assert (statistics.borrowed, statistics.waiting) == (0, 0)
    assert all(connection.is_idle() for connection in engine._upstream._idle)


@pytest.mark.parametrize("per_send", [1, 50])
@pytest.mark.parametrize("events", [0, 1, 2, 3, 5, 8, 13, 20])
async def test_leaving_after_some_events_hangs_up(events: int, per_send: int) -> None:
    serve = Watched(20, per_send)
    async with opened(serve) as (engine, _):
        async with engine.generate(generate_request()) as chunks:
            for _ in range(events):
                await anext(chunks)
        await serve.sees_it_soon()


async def test_breaking_out_of_the_loop_hangs_up() -> None:
    for events in (1, 2, 7, 19, 20):
        serve = Watched(20)
        async with opened(serve) as (engine, _):
            async with engine.generate(generate_request()) as chunks:
                seen = 0
                async for _ in chunks:
                    seen += 1
                    if seen == events:
                        break
            await serve.sees_it_soon()


async def test_an_error_in_the_block_leaves_as_itself_and_hangs_up() -> None:
    async def fail(engine: HttpEngine) -> None:
        async with engine.generate(generate_request()) as chunks:
            async for _ in chunks:
                raise ZeroDivisionError

    serve = Watched(3)
    async with opened(serve) as (engine, _):
        with pytest.raises(ZeroDivisionError):
            await fail(engine)
        await serve.sees_it_soon()


@pytest.mark.parametrize("streams", [True, False])
async def test_a_cancel_before_the_head_hangs_up(streams: bool) -> None:
    serve = Watched(None)

    async def generate(engine: HttpEngine) -> None:
        async with engine.generate(generate_request(stream=streams)):
            raise AssertionError("there was no answer")

    async with opened(serve) as (engine, _), anyio.create_task_group() as group:
        group.start_soon(generate, engine)
        await serve.asked.wait()
        group.cancel_scope.cancel()
    assert serve.hung_up.is_set()


async def test_a_cancel_while_a_whole_answer_comes_hangs_up() -> None:
    came = anyio.Event()

    async def serve(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        came.set()
        await connection.until_hung_up()
        hung_up.set()

    hung_up = anyio.Event()

    async def generate(engine: HttpEngine) -> None:
        async with engine.generate(generate_request(stream=False)):
            raise AssertionError("there was no whole answer")

    async with opened(serve) as (engine, _):
        async with anyio.create_task_group() as group:
            group.start_soon(generate, engine)
            await came.wait()
            await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        with anyio.fail_after(SOON_S):
            await hung_up.wait()


@pytest.mark.parametrize("where", ["in the iterator", "in the block"])
async def test_a_cancel_in_mid_stream_hangs_up(where: str) -> None:
    serve = Watched(2)

    async def generate(engine: HttpEngine, *, task_status: TaskStatus[None]) -> None:
        async with engine.generate(generate_request()) as chunks:
            await anext(chunks)
            await anext(chunks)
            task_status.started()
            if where == "in the iterator":
                await anext(chunks)
            await anyio.sleep_forever()

    async with opened(serve) as (engine, _):
        async with anyio.create_task_group() as group:
            await group.start(generate, engine)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        await serve.sees_it_soon()


async def test_a_cancelled_scope_sends_nothing() -> None:
    serve = Watched(1)
    async with opened(serve) as (engine, upstream):
        with anyio.CancelScope() as scope:
            scope.cancel()
            async with engine.generate(generate_request()):
                pass
        assert scope.cancelled_caught
        assert upstream.connections == 0


async def test_who_waits_for_a_connection_can_go_and_the_next_gets_it() -> None:
    serve = script(lambda connection, _: connection.send_stream(piece(5, finish="stop")))
    done: list[int] = []

    async def generate(engine: HttpEngine, number: int) -> None:
        async with engine.generate(generate_request()) as chunks:
            done.extend([number async for _ in chunks])

    async with opened(serve, connections=1) as (engine, upstream):
        async with anyio.create_task_group() as group:
            async with engine.generate(generate_request()):
                async with anyio.create_task_group() as leaving:
                    leaving.start_soon(generate, engine, 1)
                    await until(lambda: engine.statistics().waiting == 1)
                    group.start_soon(generate, engine, 2)
                    await until(lambda: engine.statistics().waiting == 2)
                    leaving.cancel_scope.cancel()
                assert engine.statistics().waiting == 1
            with anyio.fail_after(SOON_S):
                await until(lambda: done == [2])
        assert upstream.connections == 2


async def test_cancels_at_every_step_lose_no_connection() -> None:
    """Cancelled after every number of rounds of the event loop, from before connecting to behind the end."""
    serve = script(lambda connection, _: connection.send_stream(piece(5), piece(6, finish="stop")))
    finished = 0

    async def generate(engine: HttpEngine) -> None:
        nonlocal finished
        async with engine.generate(generate_request()) as chunks:
            async for _ in chunks:
                pass
        finished += 1

    async with opened(serve, connections=3) as (engine, upstream):
        for rounds in [*range(60), *range(60)]:
            async with anyio.create_task_group() as group:
                for _ in range(2):
                    group.start_soon(generate, engine)
                for _ in range(rounds):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
            assert_free(engine)
            await until(lambda: upstream.opened == len(engine._upstream._idle))
        before = finished
        await generate(engine)
        assert finished == before + 1
    assert finished > 1


async def test_many_at_once() -> None:
    serve = script(lambda connection, _: connection.send_stream(piece(5), piece(6, finish="stop")))
    lengths: list[int] = []

    async def generate(engine: HttpEngine, enough: int) -> None:
        async with engine.generate(generate_request()) as chunks:
            n = 0
            while n < enough and await anext(chunks, None) is not None:
                n += 1
            lengths.append(n)

    async with opened(serve, connections=20) as (engine, upstream):
        began = time.monotonic()
        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(generate, engine, number % 4)
        assert time.monotonic() - began < 10
        assert sorted(lengths) == sorted(min(number % 4, 2) for number in range(200))
        await until(lambda: upstream.opened <= 20)


async def test_a_finished_stream_leaves_its_connection_for_the_next() -> None:
    """Also where the body's end comes a little behind the last event."""

    async def answer(connection: Connection, _: Any) -> None:
        await connection.send(STREAM_HEAD)
        await connection.send_chunk(event_of(piece(5, finish="stop")) + b"data: [DONE]\n\n")
        await anyio.sleep(0.005)
        await connection.send(b"0\r\n\r\n")

    async with opened(script(answer)) as (engine, upstream):
        for _ in range(5):
            async with engine.generate(generate_request()) as chunks:
                assert len([chunk async for chunk in chunks]) == 1
        assert upstream.connections == 1


async def test_an_upstream_that_does_not_end_its_body_delays_no_one() -> None:
    async def serve(connection: Connection) -> None:
        await connection.request()
        await connection.send(STREAM_HEAD)
        await connection.send_chunk(event_of(piece(5, finish="stop")) + b"data: [DONE]\n\n")
        await connection.until_hung_up()

    async with opened(serve) as (engine, _):
        with anyio.fail_after(SOON_S):
            async with engine.generate(generate_request()) as chunks:
                assert len([chunk async for chunk in chunks]) == 1


async def test_closing_the_engine_closes_kept_connections() -> None:
    whole = json.dumps({"request_id": "r", "choices": [{"index": 0, "token_ids": [5]}]}).encode()
    async with scripted_upstream(script(lambda connection, _: connection.send_whole(whole))) as upstream:
        async with open_http_engine(upstream.url) as engine, engine.generate(generate_request(stream=False)):
            assert upstream.opened == 1
        await until(lambda: upstream.opened == 0)
