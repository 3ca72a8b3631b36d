"""The renderer's async face: the same results as the plain functions, bounded, cancellable."""

import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio import CapacityLimiter
from gates import Gate, wait_for_waiters
from opened_models import never, opened

from trio_render import (
    ChatRequest,
    CompletionRequest,
    InvalidRequest,
    Model,
    ModelLoadError,
    ModelNotFound,
    Policy,
    Renderer,
    TokenizeChatRequest,
    TokenizeRequest,
    open_renderer,
)
from trio_render.render import wire
from trio_render.render.chat import render_chat
from trio_render.render.completion import plan_completion, render_prompt
from trio_render.render.tokenize import tokenize
from trio_render.workspace import workspace_of

POLICY = Policy(served_names=("m",))


@pytest.fixture
def model(model_folders: Path) -> Model:
    return opened(model_folders / "smollm2")


def chat(text: str, **fields: Any) -> ChatRequest:
    return ChatRequest(messages=[{"role": "user", "content": text}], request_id=text, **fields)


def is_clean(limiter: CapacityLimiter) -> bool:
    statistics = limiter.statistics()
    return statistics.borrowed_tokens == 0 and statistics.tasks_waiting == 0


# ------------------------------------------------------------ the same results


async def test_typed_calls_give_what_the_plain_functions_give(model: Model) -> None:
    one = chat("hi")
    texts = CompletionRequest(prompt=["a", "b c"], request_id="r")
    async with open_renderer(model, policy=POLICY) as renderer:
        assert await renderer.chat(one) == render_chat(model, POLICY, one, never)
        plan = plan_completion(model, POLICY, texts)
        assert await renderer.completion(texts) == [
            render_prompt(model, plan, 0),
            render_prompt(model, plan, 1),
        ]
        for request in (
            TokenizeRequest(prompt="hi", return_token_strs=True),
            TokenizeChatRequest(messages=one.messages),
        ):
            assert await renderer.tokenize(request) == tokenize(model, POLICY, request, never)


async def test_json_calls_give_what_the_typed_calls_give(model: Model) -> None:
    async with open_renderer(model, policy=POLICY) as renderer:
        body = msgspec.json.encode({"messages": [{"role": "user", "content": "hi"}]})
        for chunks in ([body], [body[:7], b"", body[7:]], [bytes([byte]) for byte in body]):
            answer = json.loads(await renderer.chat_json(chunks, "id"))
            assert answer == json.loads(wire.chat_json(workspace_of(model, POLICY), never, [body], "id"))
            assert answer["request_id"] == "chatcmpl-id"
        tokens = json.loads(await renderer.tokenize_json([b'{"prompt": "hi"}']))
        assert tokens == msgspec.to_builtins(await renderer.tokenize(TokenizeRequest(prompt="hi")))


@pytest.mark.parametrize(
    "prompts",
    [["a"], ["a", "b"], [f"text {n} " * (n % 90) + "." for n in range(700)], ["word " * 4000] * 30],
    ids=["one", "two", "many", "long"],
)
async def test_a_batch_is_answered_in_order_however_it_was_cut(model: Model, prompts: list[str]) -> None:
    async with open_renderer(model, policy=POLICY, limiter=3) as renderer:
        body = json.dumps({"prompt": prompts, "request_id": "r", "max_tokens": 1}).encode()
        answer = json.loads(await renderer.completion_json([body]))
        typed = await renderer.completion(CompletionRequest(prompt=prompts, request_id="r", max_tokens=1))
        assert answer == msgspec.to_builtins(typed)
        assert [element["token_ids"] for element in answer] == [
            model.tokenizer.encode(text) for text in prompts
        ]
        assert is_clean(renderer.limiter)


@pytest.mark.parametrize("name", ["equal", "unequal"])
def test_a_costly_batch_is_cut_into_groups_that_cover_it(
    model: Model, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(wire, "_GROUP_S", 1e-5)
    prompts = ["some words " * (20 if name == "equal" else n % 50 + 1) for n in range(300)]
    start = wire.completion_start(
        workspace_of(model, POLICY), never, [json.dumps({"prompt": prompts}).encode()], None
    )
    assert len(start.left) > 1
    done = json.loads(b"[" + start.done + b"]")
    places = [plan.first + n for plan in start.left for n in range(len(plan.prompts))]
    assert places == list(range(len(done), 300))
    assert all(plan.prompts for plan in start.left)


async def test_groups_are_rendered_in_order(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_GROUP_S", 1e-5)
    prompts = [f"number {n}" for n in range(200)]
    async with open_renderer(model, limiter=3) as renderer:
        answer = json.loads(await renderer.completion_json([json.dumps({"prompt": prompts}).encode()]))
    assert [element["token_ids"] for element in answer] == [model.tokenizer.encode(text) for text in prompts]


async def test_a_failure_in_a_group_leaves_as_itself(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_GROUP_S", 1e-5)
    body = json.dumps({"prompt": [*["fine"] * 150, "long " * 9000, *["fine"] * 150]}).encode()
    async with open_renderer(model, limiter=3) as renderer:
        with pytest.raises(InvalidRequest):
            await renderer.completion_json([body])
        assert is_clean(renderer.limiter)


async def test_batches_of_requests_keep_their_order(model: Model) -> None:
    async with open_renderer(model, policy=POLICY) as renderer:
        chats = [chat(f"number {n}") for n in range(40)]
        assert [answer.request_id for answer in await renderer.chat_batch(chats)] == [
            f"chatcmpl-number {n}" for n in range(40)
        ]
        asked = [CompletionRequest(prompt=[str(n)] * (n % 3 + 1), request_id=str(n)) for n in range(20)]
        answers = await renderer.completion_batch(asked)
        assert [len(answer) for answer in answers] == [n % 3 + 1 for n in range(20)]
        assert await renderer.chat_batch([]) == []
        assert is_clean(renderer.limiter)


# ------------------------------------------------------------ errors


async def test_errors_of_the_work_leave_as_themselves(model: Model) -> None:
    async with open_renderer(model, policy=POLICY) as renderer:
        with pytest.raises(ModelNotFound):
            await renderer.chat(chat("hi", model="another"))
        with pytest.raises(InvalidRequest) as caught:
            await renderer.completion(CompletionRequest(prompt=""))
        assert caught.value.param == "prompt"
        bad = json.dumps({"prompt": ["text " * 100] * 900 + [""]}).encode()
        with pytest.raises(InvalidRequest):
            await renderer.completion_json([bad])
        assert is_clean(renderer.limiter)
        assert await renderer.chat(chat("fine"))


async def test_the_first_failure_of_a_batch_is_raised_by_itself(model: Model) -> None:
    async with open_renderer(model, policy=POLICY) as renderer:
        with pytest.raises(InvalidRequest) as caught:
            await renderer.chat_batch([*(chat("hi") for _ in range(9)), ChatRequest(messages=[]), chat("hi")])
        assert caught.value.param == "messages"
        assert is_clean(renderer.limiter)


# ------------------------------------------------------------ limiter and lifetime


async def test_a_limiter_passed_in_is_the_one_used(model: Model) -> None:
    limiter = CapacityLimiter(1)
    gate = Gate()
    async with open_renderer(model, limiter=limiter) as renderer:
        assert renderer.limiter is limiter
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, lambda: gate.deaf_job(never))
            await gate.wait_started()
            limiter.acquire_on_behalf_of_nowait("another")
            group.start_soon(renderer.chat, chat("hi"))
            await wait_for_waiters(limiter, 1)
            limiter.release_on_behalf_of("another")
            gate.opened.set()
    assert is_clean(limiter)


async def test_a_number_makes_a_limiter_of_that_many_threads(model: Model) -> None:
    async with open_renderer(model, limiter=7) as renderer:
        assert renderer.limiter.total_tokens == 7


async def test_a_model_is_opened_by_its_folder(model_folders: Path) -> None:
    async with open_renderer(model_folders / "smollm2") as renderer:
        assert (await renderer.chat(chat("hi"))).token_ids
    with pytest.raises(ModelLoadError):
        async with open_renderer(model_folders / "no-such-model"):
            pass


async def test_an_error_in_the_block_passes_through(model: Model) -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_renderer(model):
            raise ZeroDivisionError


# ------------------------------------------------------------ cancellation


class SlowPolicy(Policy):
    """Holds every request at its first check until a gate opens."""

    __slots__ = ("gate",)

    def check_model(self, requested: str | None) -> None:
        self.gate.deaf_job(never)


def slow_policy() -> tuple[SlowPolicy, Gate]:
    policy, gate = SlowPolicy(served_names=("m",)), Gate()
    object.__setattr__(policy, "gate", gate)
    return policy, gate


CALLS: dict[str, Callable[[Renderer], Awaitable[object]]] = {
    "chat": lambda renderer: renderer.chat(chat("hi")),
    "chat_batch": lambda renderer: renderer.chat_batch([chat("hi")] * 3),
    "completion": lambda renderer: renderer.completion(CompletionRequest(prompt="hi")),
    "completion_batch": lambda renderer: renderer.completion_batch([CompletionRequest(prompt="hi")] * 3),
    "tokenize": lambda renderer: renderer.tokenize(TokenizeRequest(prompt="hi")),
    "chat_json": lambda renderer: renderer.chat_json([b'{"messages": [{"role": "user", "content": "hi"}]}']),
    "completion_json": lambda renderer: renderer.completion_json([b'{"prompt": "hi"}']),
    "tokenize_json": lambda renderer: renderer.tokenize_json([b'{"prompt": "hi"}']),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_cancelled_in_the_queue_does_nothing(model: Model, name: str) -> None:
    policy, gate = slow_policy()
    async with open_renderer(model, policy=policy, limiter=1) as renderer:
        async with anyio.create_task_group() as group:
            group.start_soon(renderer.chat, chat("first"))
            await gate.wait_started()
            async with anyio.create_task_group() as behind:
                behind.start_soon(CALLS[name], renderer)
                await wait_for_waiters(renderer.limiter, 1)
                behind.cancel_scope.cancel()
            assert gate.runs == 1
            gate.opened.set()
        assert gate.runs == 1
        assert is_clean(renderer.limiter)


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_under_a_cancelled_scope_does_nothing(model: Model, name: str) -> None:
    policy, gate = slow_policy()
    async with open_renderer(model, policy=policy) as renderer:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await CALLS[name](renderer)
        assert scope.cancelled_caught
        assert gate.runs == 0
        assert is_clean(renderer.limiter)


async def test_a_batch_keeps_no_more_in_flight_than_the_limiter_has_tokens(model: Model) -> None:
    policy, gate = slow_policy()
    async with open_renderer(model, policy=policy, limiter=3) as renderer:
        async with anyio.create_task_group() as group:
            group.start_soon(renderer.completion_batch, [CompletionRequest(prompt="hi")] * 50)
            await gate.wait_started(3)
            await anyio.wait_all_tasks_blocked()
            assert renderer.limiter.statistics().tasks_waiting == 0
            gate.opened.set()
        assert gate.runs == 50
        assert gate.most_running == 3


async def test_a_cancelled_template_stops_at_its_next_step(model: Model) -> None:
    loops = "{% for i in range(1000) %}{% for j in range(1900) %}{{ tools }}{% endfor %}{% endfor %}"
    policy = Policy(trust_request_chat_template=True)
    async with open_renderer(model, policy=policy, limiter=1) as renderer:
        with anyio.move_on_after(0.05) as scope:
            await renderer.chat(chat("hi", chat_template=loops))
        assert scope.cancelled_caught
        assert is_clean(renderer.limiter)
        assert (await renderer.chat(chat("fine"))).token_ids


async def test_calls_from_many_tasks_do_not_disturb_each_other(model: Model) -> None:
    async with open_renderer(model, limiter=4) as renderer:
        wanted = model.tokenizer.encode("hello world " * 400)

        async def call(n: int) -> None:
            cut = CompletionRequest(prompt="hello world " * 400, truncate_prompt_tokens=10 + n)
            assert len((await renderer.completion(cut))[0].token_ids) == 10 + n
            whole = await renderer.completion(CompletionRequest(prompt="hello world " * 400))
            assert whole[0].token_ids == wanted

        async with anyio.create_task_group() as group:
            for n in range(30):
                group.start_soon(call, n)
        assert threading.active_count() < 30
