"""The derenderer's async face: the same results as the plain functions, bounded, cancellable."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest
from anyio import CapacityLimiter
from gates import Gate, until, wait_for_waiters, wait_idle
from opened_models import never, opened

from trio_render import (
    DerenderChatRequest,
    DerenderCompletionRequest,
    Derenderer,
    DetokenizeRequest,
    GenerateChoice,
    GenerateResponse,
    InvalidRequest,
    Model,
    ModelNotFound,
    Policy,
    open_derenderer,
)
from trio_render.derender.chat import derender_chat
from trio_render.derender.completion import derender_completion
from trio_render.model.fragments import FragmentCache

POLICY = Policy(served_names=("m",))
CANCELLED_S = 0.5
"""A cancelled call must be back long before its work would have ended (some 0.5 s and more)."""


@pytest.fixture
def model(model_folders: Path) -> Model:
    return opened(model_folders / "smollm2")


def answer_of(model: Model, text: str) -> GenerateResponse:
    choice = GenerateChoice(index=0, token_ids=model.tokenizer.encode(text))
    return GenerateResponse(request_id=text, choices=[choice])


def chat(model: Model, text: str) -> DerenderChatRequest:
    return DerenderChatRequest(generate_response=answer_of(model, text))


def completion(model: Model, *texts: str) -> DerenderCompletionRequest:
    return DerenderCompletionRequest(generate_responses=[answer_of(model, text) for text in texts])


def is_clean(limiter: CapacityLimiter) -> bool:
    statistics = limiter.statistics()
    return statistics.borrowed_tokens == 0 and statistics.tasks_waiting == 0


def same(ours: Any, plain: Any) -> bool:
    """Equal but for the time of creation."""
    one, other = msgspec.to_builtins(ours), msgspec.to_builtins(plain)
    return {**one, "created": 0} == {**other, "created": 0}


# ------------------------------------------------------------ the same results


async def test_typed_calls_give_what_the_plain_functions_give(model: Model) -> None:
    async with open_derenderer(model, policy=POLICY) as derenderer:
        one, two = chat(model, "hello \U0001f468"), completion(model, "a", "b c")
        assert same(
            await derenderer.chat(one),
            derender_chat(model, POLICY, FragmentCache(model.tokenizer.table), one, never),
        )
        assert same(await derenderer.completion(two), derender_completion(model, POLICY, two, never))
        ids = model.tokenizer.encode("hi there")
        assert (await derenderer.detokenize(DetokenizeRequest(tokens=ids))).prompt == "hi there"


async def test_json_calls_give_what_the_typed_calls_give(model: Model) -> None:
    async with open_derenderer(model, policy=POLICY) as derenderer:
        one, two = chat(model, "hello"), completion(model, "a", "b c")
        body = msgspec.json.encode(one)
        for chunks in ([body], [body[:5], b"", body[5:]]):
            answer = msgspec.json.decode(await derenderer.chat_json(chunks))
            assert same(answer, await derenderer.chat(one))
        answer = msgspec.json.decode(await derenderer.completion_json([msgspec.json.encode(two)]))
        assert same(answer, await derenderer.completion(two))
        ids = json.dumps({"tokens": model.tokenizer.encode("hi")}).encode()
        assert json.loads(await derenderer.detokenize_json([ids])) == {"prompt": "hi"}


async def test_batches_keep_their_order(model: Model) -> None:
    async with open_derenderer(model, policy=POLICY) as derenderer:
        answers = await derenderer.chat_batch([chat(model, f"number {n}") for n in range(40)])
        assert [answer.choices[0].message.content for answer in answers] == [f"number {n}" for n in range(40)]
        completions = await derenderer.completion_batch([completion(model, str(n), "x") for n in range(9)])
        assert [answer.choices[0].text for answer in completions] == [str(n) for n in range(9)]
        assert await derenderer.completion_batch([]) == []
        assert is_clean(derenderer.limiter)


async def test_errors_leave_as_themselves(model: Model) -> None:
    async with open_derenderer(model, policy=POLICY) as derenderer:
        with pytest.raises(ModelNotFound):
            await derenderer.chat(
                DerenderChatRequest(generate_response=answer_of(model, "hi"), model="another")
            )
        with pytest.raises(InvalidRequest) as caught:
            await derenderer.completion(DerenderCompletionRequest(generate_responses=[]))
        assert caught.value.param == "generate_responses"
        with pytest.raises(InvalidRequest):
            await derenderer.chat_batch([*[chat(model, "hi")] * 5, chat(model, ""), *[chat(model, "hi")] * 5])
        assert is_clean(derenderer.limiter)


async def test_the_limiter_passed_in_is_shared(model: Model) -> None:
    limiter = CapacityLimiter(1)
    async with (
        open_derenderer(model, limiter=limiter) as one,
        open_derenderer(model, limiter=limiter) as other,
    ):
        limiter.acquire_on_behalf_of_nowait("test")
        async with anyio.create_task_group() as group:
            group.start_soon(one.chat, chat(model, "a"))
            group.start_soon(other.chat, chat(model, "b"))
            await wait_for_waiters(limiter, 2)
            limiter.release_on_behalf_of("test")
    assert is_clean(limiter)


# ------------------------------------------------------------ cancelled in the queue


class SlowPolicy(Policy):
    """Holds every request at its first check until a gate opens."""

    __slots__ = ("gate",)

    def check_model(self, requested: str | None) -> None:
        self.gate.deaf_job(never)


CALLS: dict[str, Callable[[Derenderer], Awaitable[object]]] = {
    "chat": lambda derenderer: derenderer.chat(chat(derenderer.model, "hi")),
    "chat_batch": lambda derenderer: derenderer.chat_batch([chat(derenderer.model, "hi")] * 3),
    "completion": lambda derenderer: derenderer.completion(completion(derenderer.model, "hi")),
    "completion_batch": lambda derenderer: derenderer.completion_batch(
        [completion(derenderer.model, "hi")] * 3
    ),
    "detokenize": lambda derenderer: derenderer.detokenize(DetokenizeRequest(tokens=[5])),
    "chat_json": lambda derenderer: derenderer.chat_json([msgspec.json.encode(chat(derenderer.model, "hi"))]),
    "completion_json": lambda derenderer: derenderer.completion_json(
        [msgspec.json.encode(completion(derenderer.model, "hi"))]
    ),
    "detokenize_json": lambda derenderer: derenderer.detokenize_json([b'{"tokens": [5]}']),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_cancelled_in_the_queue_does_nothing(model: Model, name: str) -> None:
    policy, gate = SlowPolicy(served_names=("m",)), Gate()
    object.__setattr__(policy, "gate", gate)
    async with open_derenderer(model, policy=policy, limiter=1) as derenderer:
        async with anyio.create_task_group() as group:
            group.start_soon(derenderer.chat, chat(model, "first"))
            await gate.wait_started()
            async with anyio.create_task_group() as behind:
                behind.start_soon(CALLS[name], derenderer)
                await wait_for_waiters(derenderer.limiter, 1)
                behind.cancel_scope.cancel()
            gate.opened.set()
        assert gate.runs == 1
        assert is_clean(derenderer.limiter)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await CALLS[name](derenderer)
        assert scope.cancelled_caught
        assert gate.runs == 1


# ------------------------------------------------------------ cancelled while it runs

N_TOKENS, N_CANDIDATES = 8000, 20


@pytest.fixture(scope="module")
def large(model_folders: Path) -> tuple[Model, dict[str, bytes]]:
    """A model with large outputs of it: chat and completion bodies."""
    model = opened(model_folders / "deepseek")
    ids = [1000 + n * 7 % 100_000 for n in range(N_TOKENS)]
    content = [
        {
            "token_id": i,
            "logprob": -0.5,
            "top_logprobs": [
                {"token_id": (i * 31 + k * 977) % 128_000, "logprob": -1.0 - k} for k in range(N_CANDIDATES)
            ],
        }
        for i in ids
    ]
    choice = {"index": 0, "token_ids": ids, "finish_reason": "length", "logprobs": {"content": content}}
    response = json.dumps({"request_id": "r", "choices": [choice]})
    return model, {
        "chat_json": f'{{"generate_response": {response}}}'.encode(),
        "completion_json": f'{{"generate_responses": [{response}]}}'.encode(),
    }


def cpu_s() -> float:
    times = psutil.Process().cpu_times()
    return times.user + times.system


async def assert_idle() -> None:
    """The process computes nothing any more."""
    before = cpu_s()
    await anyio.sleep(0.2)
    assert cpu_s() - before < 0.1


@pytest.mark.parametrize("name", ["chat_json", "completion_json"])
async def test_a_cancelled_derender_stops_soon_and_leaves_no_work_behind(
    large: tuple[Model, dict[str, bytes]], name: str
) -> None:
    model, bodies = large
    async with open_derenderer(model, limiter=1) as derenderer:
        call = getattr(derenderer, name)
        began = time.monotonic()
        await call([bodies[name]])
        whole = time.monotonic() - began
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(call, [bodies[name]])
                # Into the middle of the work, decoding behind it.
                await anyio.sleep(whole / 2)
                cancelled = time.monotonic()
                scope.cancel()
        assert time.monotonic() - cancelled < max(CANCELLED_S, whole) / 2
        assert is_clean(derenderer.limiter)
        await assert_idle()
        assert (await derenderer.detokenize(DetokenizeRequest(tokens=[5]))).prompt


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("how", ["cancel", "wait_for"])
async def test_a_natively_cancelled_derender_stops_too(
    large: tuple[Model, dict[str, bytes]], how: str, anyio_backend: str
) -> None:
    model, bodies = large
    async with open_derenderer(model, limiter=1) as derenderer:
        task = asyncio.create_task(derenderer.chat_json([bodies["chat_json"]]))
        if how == "cancel":
            await until(lambda: derenderer.limiter.borrowed_tokens > 0)
            began = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(task, 0.05)
        assert time.monotonic() - began < CANCELLED_S
        await wait_idle(derenderer.limiter)
        await anyio.sleep(CANCELLED_S)
        await assert_idle()
        assert (await derenderer.detokenize(DetokenizeRequest(tokens=[5]))).prompt
