"""Streams of the library: typed, on both event loops, one step at a time, nothing left behind."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from gates import wait_for_waiters
from opened_models import opened
from streaming import POLICY, chunk_of

from trio_render import (
    ChatChunk,
    ChatRequest,
    ChatStreamRequest,
    ChunkChoice,
    CompletionRequest,
    CompletionStreamRequest,
    GenerateChunk,
    InvalidRequest,
    MalformedRequest,
    Model,
    ModelNotFound,
    open_derenderer,
    open_offloader,
    workspace_of,
)
from trio_render.offload.offloader import Backend, Offloader

PARIS = [504, 3575, 314, 7042, 30]


@pytest.fixture
def model(model_folders: Path) -> Model:
    return opened(model_folders / "smollm2")


def offloading(model: Model, backend: Backend) -> Any:
    workspace = workspace_of(model, POLICY)
    return open_offloader(lambda: workspace, workspace, backend=backend)


def jobs(offloader: Offloader) -> tuple[int, int]:
    """How many jobs ran, and how many of them inline."""
    counts = offloader.statistics().kinds["derender"]
    return counts.ran, counts.inline


async def test_a_chat_stream(model: Model) -> None:
    async with open_derenderer(model, policy=POLICY) as derenderer:
        request = ChatStreamRequest(chat_request=ChatRequest(messages=[], stop=["."]), prompt_tokens=3)
        async with derenderer.open_stream(request) as stream:
            deltas: list[ChatChunk] = [await stream.step(chunk_of([i])) for i in PARIS]
            usage = {"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 1}}
            last = await stream.step(GenerateChunk(request_id="r", choices=[], usage=usage))
    assert [d.choices[0].delta.content for d in deltas] == ["The", " capital", " is", " Paris", None]
    assert [d.choices[0].delta.role for d in deltas] == ["assistant", None, None, None, None]
    assert (deltas[-1].choices[0].finish_reason, deltas[-1].choices[0].stop_reason) == ("stop", ".")
    assert last.usage == {**usage, "prompt_tokens": 3, "total_tokens": 8}


async def test_a_completion_stream_of_several_choices(model: Model) -> None:
    async with open_derenderer(model, policy=POLICY) as derenderer:
        request = CompletionStreamRequest(completion_request=CompletionRequest(prompt="x"))
        async with derenderer.open_stream(request) as stream:
            texts = {0: "", 2: ""}
            for token_id in PARIS:
                both = [ChunkChoice(index=n, token_ids=[token_id]) for n in texts]
                for choice in (await stream.step(GenerateChunk(request_id="r", choices=both))).choices:
                    texts[choice.index] += choice.text
    assert texts == {0: "The capital is Paris.", 2: "The capital is Paris."}


async def test_what_a_request_gets_wrong_is_said_on_entering(model: Model) -> None:
    async with open_derenderer(model, policy=POLICY) as derenderer:
        for request, error in [
            (ChatStreamRequest(model="other"), ModelNotFound),
            (ChatStreamRequest(prompt_token_ids=[-1]), MalformedRequest),
            (ChatStreamRequest(prompt_tokens=-1), MalformedRequest),
            (ChatStreamRequest(chat_request=ChatRequest(messages=[], stop=["x" * 4097])), InvalidRequest),
        ]:
            with pytest.raises(error):
                async with derenderer.open_stream(request):
                    raise AssertionError("opened")


async def test_a_step_that_fails_changes_nothing(model: Model) -> None:
    async with (
        open_derenderer(model, policy=POLICY) as derenderer,
        derenderer.open_stream(CompletionStreamRequest()) as stream,
    ):
        await stream.step(chunk_of([10813, 242]))
        with pytest.raises(MalformedRequest):
            await stream.step(chunk_of([218, 10**6]))
        assert (await stream.step(chunk_of([218]))).choices[0].text == "\U0001f600"
        assert derenderer.limiter.borrowed_tokens == 0


async def test_a_step_that_is_cancelled_changes_nothing(model: Model) -> None:
    async with (
        open_derenderer(model, policy=POLICY, limiter=1) as derenderer,
        derenderer.open_stream(CompletionStreamRequest()) as stream,
    ):
        await stream.step(chunk_of([10813, 242]))
        derenderer.limiter.acquire_on_behalf_of_nowait("test")
        async with anyio.create_task_group() as group:
            group.start_soon(stream.step, chunk_of([17]))
            await wait_for_waiters(derenderer.limiter, 1)
            group.cancel_scope.cancel()
        derenderer.limiter.release_on_behalf_of("test")
        assert (await stream.step(chunk_of([218]))).choices[0].text == "\U0001f600"
        assert derenderer.limiter.borrowed_tokens == 0


async def test_steps_called_together_run_in_their_order(model: Model) -> None:
    async with (
        open_derenderer(model, policy=POLICY) as derenderer,
        derenderer.open_stream(CompletionStreamRequest()) as stream,
    ):
        texts = []

        async def step(token_id: int) -> None:
            texts.append((await stream.step(chunk_of([token_id]))).choices[0].text)

        async with anyio.create_task_group() as group:
            for token_id in PARIS:
                group.start_soon(step, token_id)
                await anyio.lowlevel.checkpoint()
        assert sorted(texts) == sorted(["The", " capital", " is", " Paris", "."])


async def test_a_closed_stream_says_so(model: Model) -> None:
    async with open_derenderer(model, policy=POLICY) as derenderer:
        async with derenderer.open_stream(CompletionStreamRequest()) as stream:
            await stream.step(chunk_of([504]))
        with pytest.raises(RuntimeError, match="closed"):
            await stream.step(chunk_of([504]))


@pytest.mark.parametrize(("backend", "inline"), [("auto", 3), ("thread", 0), ("inline", 4)])
async def test_only_small_chunks_run_inline(model: Model, backend: Backend, inline: int) -> None:
    async with (
        offloading(model, backend) as offloader,
        open_derenderer(workspace_of(model, POLICY), offloader=offloader) as derenderer,
        derenderer.open_completion_stream_json([b"{}"]) as stream,
    ):
        for ids in ([5], PARIS, [5] * 4000):
            choices = [{"index": 0, "token_ids": ids}]
            body = json.dumps({"request_id": "r", "choices": choices}).encode()
            await stream.step([body[:9], body[9:]])
        assert jobs(offloader) == (4, inline)


async def test_typed_chunks_are_measured_by_their_tokens(model: Model) -> None:
    async with (
        offloading(model, "auto") as offloader,
        open_derenderer(workspace_of(model, POLICY), offloader=offloader) as derenderer,
        derenderer.open_stream(CompletionStreamRequest()) as stream,
    ):
        assert jobs(offloader) == (1, 0)
        await stream.step(chunk_of(PARIS))
        assert jobs(offloader) == (2, 1)
        await stream.step(chunk_of(PARIS * 100))
        assert jobs(offloader) == (3, 1)


async def test_small_carried_chunks_run_inline(model: Model) -> None:
    """A hop costs more than the step of a chunk, though its body may be over 1 KiB with the request."""
    async with (
        offloading(model, "auto") as offloader,
        open_derenderer(workspace_of(model, POLICY), offloader=offloader) as derenderer,
    ):
        for n, wanted in ((5, 1), (3000, 2), (6000, 2)):
            body = {
                "chat_request": {"messages": [{"role": "user", "content": "x" * n}]},
                "stream": True,
                "generate_chunk": {"request_id": "r", "choices": [{"index": 0, "token_ids": [5]}]},
            }
            await derenderer.chat_json([json.dumps(body).encode()])
            assert jobs(offloader)[1] == wanted
