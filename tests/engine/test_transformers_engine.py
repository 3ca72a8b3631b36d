"""The engine among tasks and threads: loading, cancellation, limits. On both event loops."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
import torch
from engine_demo import QUESTION, STORY, ids, joined, request, small_model, weights, workspace
from gates import until, wait_for_waiters, wait_idle

from trio_render import (
    EngineError,
    GenerateChunk,
    GenerateRequest,
    InvalidRequest,
    Limits,
    Offloader,
    Overloaded,
    open_offloader,
)
from trio_render.engine.transformers import TransformersEngine, open_transformers_engine

ENDLESS = {"max_tokens": 4000, "ignore_eos": True}


@asynccontextmanager
async def offloading(engine: int = 1, queue_limit: int = 100) -> AsyncIterator[Offloader]:
    limits = Limits(engine=engine)
    async with open_offloader(
        workspace, workspace(), backend="thread", limits=limits, queue_limit=queue_limit
    ) as offloader:
        yield offloader
        assert offloader.limiter("engine").borrowed_tokens == 0
        assert offloader.limiter("engine").statistics().tasks_waiting == 0


@asynccontextmanager
async def serving(
    engine: int = 1, queue_limit: int = 100
) -> AsyncIterator[tuple[TransformersEngine, Offloader]]:
    """The demo model's engine, whose offloader must be clean in the end."""
    async with offloading(engine, queue_limit) as offloader:
        yield TransformersEngine(workspace(), offloader, weights()), offloader


@pytest.fixture
def steps() -> AsyncIterator[list[int]]:
    """Grows with each pass through the model."""
    seen: list[int] = []
    handle = weights().model.register_forward_hook(lambda *_: seen.append(1))
    yield seen
    handle.remove()


async def collected(engine: TransformersEngine, asked: GenerateRequest) -> list[GenerateChunk]:
    async with engine.generate(asked) as chunks:
        return [chunk async for chunk in chunks]


# ------------------------------------------------------------ loading


async def test_weights_load_beside_the_block(tmp_path: Path) -> None:
    async with (
        offloading() as offloader,
        open_transformers_engine(workspace(), offloader, source=str(small_model(tmp_path))) as engine,
    ):
        assert engine.phase == "loading"
        with pytest.raises(Overloaded, match="being loaded") as caught:
            await collected(engine, request(STORY))
        assert caught.value.retry_after > 0
        await engine.wait_ready()
        assert engine.phase == "ready"
        [row] = joined(await collected(engine, request(STORY, max_tokens=3)))
        assert len(row.token_ids) == 3


async def test_weights_that_are_not_there(tmp_path: Path) -> None:
    async with (
        offloading() as offloader,
        open_transformers_engine(workspace(), offloader, source=str(tmp_path)) as engine,
    ):
        with pytest.raises(EngineError, match="no weights"):
            await engine.wait_ready()
        assert engine.phase == "failed"
        with pytest.raises(EngineError, match="no weights"):
            await collected(engine, request(STORY))


async def test_weights_that_are_broken(tmp_path: Path) -> None:
    folder = small_model(tmp_path)
    (folder / "model.safetensors").write_bytes(b"nothing")
    async with (
        offloading() as offloader,
        open_transformers_engine(workspace(), offloader, source=str(folder)) as engine,
    ):
        with pytest.raises(EngineError):
            await engine.wait_ready()
        assert engine.phase == "failed"


async def test_leaving_while_loading_waits_for_nothing(tmp_path: Path) -> None:
    async with offloading() as offloader:
        with anyio.fail_after(5):
            async with open_transformers_engine(
                workspace(), offloader, source=str(small_model(tmp_path))
            ) as engine:
                assert engine.phase == "loading"


async def test_errors_of_the_block_leave_as_themselves() -> None:
    async with serving() as (engine, _):
        with pytest.raises(LookupError):
            async with engine.generate(request(STORY, **ENDLESS)):
                raise LookupError


def test_importing_maps_no_torch() -> None:
    program = "import sys, trio_render, trio_render.engine.transformers; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# ------------------------------------------------------------ answers


async def test_each_step_comes_as_it_is_done(steps: list[int]) -> None:
    async with serving() as (engine, offloader):
        assert engine.takes_embeds
        async with engine.generate(request(STORY, max_tokens=8)) as chunks:
            seen = [len(steps) async for _ in chunks]
        assert len(seen) == 8
        assert seen[0] < seen[-1], "all pieces came at the end"
        assert offloader.statistics().kinds["engine"].ran == 1


async def test_embeddings() -> None:
    table = weights().model.get_input_embeddings().weight
    async with serving() as (engine, _):
        async with engine.generate(request([], max_tokens=4), table[ids(QUESTION)]) as chunks:
            [row] = joined([chunk async for chunk in chunks])
        assert row.text == "The capital of France"


async def test_two_at_once_have_their_own_seeds() -> None:
    asked = [request(STORY, temperature=1.0, seed=seed, max_tokens=5) for seed in (1, 2)]
    together: dict[int, list[int]] = {}

    async def one(number: int) -> None:
        [row] = joined(await collected(engine, asked[number]))
        together[number] = row.token_ids

    async with serving(engine=2) as (engine, _):
        alone = [joined(await collected(engine, each))[0].token_ids for each in asked]
        async with anyio.create_task_group() as group:
            group.start_soon(one, 0)
            group.start_soon(one, 1)
    assert [together[0], together[1]] == alone
    assert alone[0] != alone[1]


async def test_what_is_refused_is_refused_on_entering(steps: list[int]) -> None:
    async with serving() as (engine, _):
        with pytest.raises(InvalidRequest) as caught:
            async with engine.generate(request(STORY, thinking_token_budget=1)):
                pytest.fail("entered")
        assert caught.value.param == "thinking_token_budget"
    assert not steps


async def test_errors_of_the_job_come_from_the_iterator() -> None:
    async with serving() as (engine, offloader):
        with pytest.raises(InvalidRequest) as caught:
            await collected(engine, request(STORY, allowed_token_ids=[10**6]))
        assert caught.value.param == "allowed_token_ids"
        assert offloader.statistics().kinds["engine"].ran == 1


async def test_a_model_that_fails_is_an_engine_error() -> None:
    async with serving() as (engine, _):
        handle = weights().model.register_forward_pre_hook(lambda *_: torch.zeros(2) @ torch.zeros(3))
        try:
            with pytest.raises(EngineError, match="RuntimeError"):
                await collected(engine, request(STORY))
        finally:
            handle.remove()


# ------------------------------------------------------------ leaving


async def test_leaving_stops_within_one_token(steps: list[int]) -> None:
    async with serving() as (engine, offloader):
        got = 0
        async with engine.generate(request(STORY, **ENDLESS)) as chunks:
            async for _ in chunks:
                got += 1
                if got == 3:
                    before = len(steps)
                    break
        after = len(steps)
        assert after <= before + 2, "the step under way, and one that had just begun"
        assert offloader.limiter("engine").borrowed_tokens == 0
        await anyio.sleep(0.2)
        assert len(steps) == after, "the thread runs on"
        assert offloader.statistics().kinds["engine"].cancelled == 1


async def test_a_cancelled_scope_stops_too(steps: list[int]) -> None:
    async with serving() as (engine, offloader):
        with anyio.CancelScope() as scope:
            async with engine.generate(request(STORY, **ENDLESS)) as chunks:
                async for _ in chunks:
                    before = len(steps)
                    scope.cancel()
        assert scope.cancelled_caught
        assert len(steps) <= before + 2
        assert offloader.limiter("engine").borrowed_tokens == 0


async def test_a_long_prompt_can_be_left(steps: list[int]) -> None:
    async with serving() as (engine, _):
        async with engine.generate(request(ids(STORY) * 500, **ENDLESS)):
            await until(lambda: bool(steps))
        assert len(steps) < 5, "the prompt takes 27 pieces"


async def test_never_iterating_leaks_nothing(steps: list[int]) -> None:
    async with serving() as (engine, offloader):
        async with engine.generate(request(STORY, max_tokens=2)):
            await until(lambda: offloader.statistics().kinds["engine"].ran == 1)
        engine.generate(request(STORY))
        await anyio.sleep(0.05)
        assert offloader.statistics().kinds["engine"].ran == 1, "nothing runs before the block is entered"


# ------------------------------------------------------------ limits


async def test_a_full_queue_refuses_on_entering() -> None:
    async with serving(engine=1, queue_limit=1) as (engine, offloader):
        limiter = offloader.limiter("engine")
        async with engine.generate(request(STORY, **ENDLESS)) as chunks:
            await anext(aiter(chunks))
            async with engine.generate(request(STORY, max_tokens=1)):
                await wait_for_waiters(limiter, 1)
                with pytest.raises(Overloaded):
                    async with engine.generate(request(STORY)):
                        pytest.fail("entered")
        await wait_idle(limiter)
        assert offloader.statistics().kinds["engine"].refused == 1


async def test_who_waits_gets_a_turn() -> None:
    async with serving() as (engine, _):
        answers: list[str] = []

        async def one() -> None:
            [row] = joined(await collected(engine, request(QUESTION, max_tokens=4)))
            answers.append(row.text)

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(one)
        assert answers == ["The capital of France"] * 3
