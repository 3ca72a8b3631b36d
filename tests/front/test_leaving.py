"""Who leaves a stream, at whatever point, leaves nothing behind; and errors come out as themselves."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import anyio
import pytest
import sniffio
import trio
from front.conftest import OpenFrontend
from gates import until
from replayed_engine import Output, ReplayedEngine

from trio_render import EngineError, Frontend
from trio_render.protocol.decoding import encode

BODIES: dict[str, Any] = {
    "chat": {"messages": [{"role": "user", "content": "Hi"}], "stream": True},
    "completion": {"prompt": ["a", "b", "c"], "stream": True},
    "tokens": {"token_ids": [1], "stream": True},
}
LONG = [Output([504] * 200, "length")]


async def started(frontend: Frontend, kind: str) -> Any:
    start: dict[str, Callable[..., Any]] = {
        "chat": frontend.start_chat,
        "completion": frontend.start_completion,
        "tokens": frontend.start_tokens,
    }
    return await start[kind]([encode(BODIES[kind])])


async def taken(chunks: Any) -> list[Any]:
    return [chunk async for chunk in chunks]


def tasks() -> int:
    if sniffio.current_async_library() == "trio":
        return trio.lowlevel.current_statistics().tasks_living
    return len(asyncio.all_tasks())


@pytest.mark.parametrize("kind", BODIES)
async def test_breaking_out_after_each_event(kind: str, open_frontend: OpenFrontend) -> None:
    """vllm#25697"""
    engine = ReplayedEngine(LONG)
    async with open_frontend(engine) as frontend:
        before = tasks()
        for k in range(21):
            taken = 0
            async with (await started(frontend, kind)).open_stream() as chunks:
                while taken < k:
                    await anext(chunks)
                    taken += 1
            assert (engine.open, tasks()) == (0, before)
        gc.collect()


@pytest.mark.parametrize("kind", BODIES)
async def test_being_cancelled_at_each_event(kind: str, open_frontend: OpenFrontend) -> None:
    engine = ReplayedEngine(LONG)
    async with open_frontend(engine) as frontend:
        before = tasks()
        for k in range(21):
            with anyio.CancelScope() as scope:
                async with (await started(frontend, kind)).open_stream() as chunks:
                    for _ in range(k):
                        await anext(chunks)
                    scope.cancel()
                    async for _ in chunks:
                        pass
            assert scope.cancelled_caught
            assert (engine.open, tasks()) == (0, before)


@pytest.mark.parametrize("kind", BODIES)
async def test_a_wait_that_is_cancelled_loses_no_chunk(kind: str, open_frontend: OpenFrontend) -> None:
    async with open_frontend(ReplayedEngine(LONG)) as frontend:
        async with (await started(frontend, kind)).open_stream() as chunks:
            expected = [encode(chunk.choices) async for chunk in chunks]
        frontend.engine.pause_s = 0.0005  # type: ignore[attr-defined]  # a `ReplayedEngine`
        seen = []
        async with (await started(frontend, kind)).open_stream() as chunks:
            while True:
                with anyio.move_on_after(0.0004):
                    try:
                        seen.append(encode((await anext(chunks)).choices))
                    except StopAsyncIteration:
                        break
        assert sorted(seen) == sorted(expected)


@pytest.mark.parametrize("kind", BODIES)
async def test_who_takes_nothing_holds_the_engine_up(kind: str, open_frontend: OpenFrontend) -> None:
    """What is made ahead is bounded, and nothing runs that nobody has opened."""
    engine = ReplayedEngine(LONG)
    async with open_frontend(engine) as frontend:
        before = tasks()
        never_opened = await started(frontend, kind)
        async with (await started(frontend, kind)).open_stream():
            await until(lambda: engine.told >= 16)
            for _ in range(100):
                await anyio.lowlevel.checkpoint()
            assert engine.told <= 20
        assert (engine.open, tasks()) == (0, before)
        del never_opened
        gc.collect()


@pytest.mark.parametrize("kind", ["chat", "completion"])
async def test_whole_answers_that_are_cancelled(kind: str, open_frontend: OpenFrontend) -> None:
    engine = ReplayedEngine(LONG, pause_s=0.001)
    async with open_frontend(engine) as frontend:
        before = tasks()
        with anyio.move_on_after(0.02) as scope:
            await (await started(frontend, kind)).answer_json()
        assert scope.cancelled_caught
        assert (engine.open, tasks()) == (0, before)


@pytest.mark.parametrize("error", [EngineError("late"), ValueError("bug")], ids=["engine's", "bug"])
@pytest.mark.parametrize("kind", BODIES)
async def test_an_error_comes_behind_its_chunks_as_itself(
    kind: str, error: Exception, open_frontend: OpenFrontend
) -> None:
    engine = ReplayedEngine(LONG, failure=(3, error), in_flight=1)
    async with open_frontend(engine) as frontend:
        before = tasks()
        async with (await started(frontend, kind)).open_stream() as chunks:
            for _ in range(3):
                await anext(chunks)
            with pytest.raises(type(error), match=str(error)):
                await anext(chunks)
        assert (engine.open, tasks()) == (0, before)
        with pytest.raises(type(error), match=str(error)):
            await (await started(frontend, kind)).answer()


@pytest.mark.parametrize("error", [EngineError("dying"), ValueError("bug")], ids=["engine's", "bug"])
@pytest.mark.parametrize("kind", BODIES)
async def test_an_error_while_being_cancelled(
    kind: str, error: Exception, open_frontend: OpenFrontend
) -> None:
    """anyio#787: no group reaches the caller, whose own cancellation comes out, or the error itself."""
    engine = ReplayedEngine(LONG, dying=error)
    async with open_frontend(engine) as frontend:
        before = tasks()
        for k in range(200 if kind == "completion" else 40):
            caught = None
            with anyio.CancelScope() as scope:
                try:
                    async with (await started(frontend, kind)).open_stream() as chunks:
                        for _ in range(k % 5):
                            await anext(chunks)
                        if k % 2:
                            scope.cancel()
                            await anyio.lowlevel.checkpoint()
                except Exception as raised:
                    caught = raised
            assert caught is None or type(caught) in (EngineError, ValueError)
            assert (engine.open, tasks()) == (0, before)


async def test_an_error_of_the_reader_comes_out_as_itself(open_frontend: OpenFrontend) -> None:
    engine = ReplayedEngine(LONG)
    async with open_frontend(engine) as frontend:
        for kind in BODIES:
            opened = await started(frontend, kind)
            with pytest.raises(LookupError, match="mine"):
                await leave_with(LookupError("mine"), opened)
        assert engine.open == 0


async def leave_with(error: Exception, opened: Any) -> None:
    async with opened.open_stream() as chunks:
        await anext(chunks)
        raise error


@pytest.mark.parametrize("output", [Output([10**6]), Output([504], "")], ids=["an id that is none", "no end"])
@pytest.mark.parametrize("kind", ["chat", "completion"])
async def test_an_engine_that_says_nonsense_is_at_fault(
    kind: str, output: Output, open_frontend: OpenFrontend
) -> None:
    async with open_frontend(ReplayedEngine([output])) as frontend:
        with pytest.raises(EngineError):
            await (await started(frontend, kind)).answer_json()
        async with (await started(frontend, kind)).open_stream() as chunks:
            with pytest.raises(EngineError):
                await taken(chunks)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("kind", BODIES)
async def test_being_cancelled_by_asyncio_itself(kind: str, open_frontend: OpenFrontend) -> None:
    """``task.cancel()``, as programs without anyio do it, at once and later."""
    engine = ReplayedEngine(LONG, pause_s=0.001)
    async with open_frontend(engine) as frontend:
        before = tasks()

        async def read() -> None:
            async with (await started(frontend, kind)).open_stream() as chunks:
                await taken(chunks)

        for turns in range(30):
            task = asyncio.create_task(read())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (engine.open, tasks()) == (0, before)
        gc.collect()
