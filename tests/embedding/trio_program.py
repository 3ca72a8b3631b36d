"""A Trio program that embeds trio_render: its own nursery, its own limiter. Prints a report as JSON."""

import json
import sys
import time
from typing import Any

import anyio
import trio
from process_state import Cpu, changed, heavy_modules, settings
from trio.testing import active_thread_count, wait_all_tasks_blocked
from workload import DEADLINE_S, TRIES, answer, chats, long_answer

import trio_render


async def render_all(renderer: trio_render.Renderer, limiter: anyio.CapacityLimiter) -> tuple[list[Any], int]:
    """Render in tasks of our own nursery; also return how many of them waited at our limiter."""
    results: dict[int, list[int]] = {}
    holders = [object() for _ in range(int(limiter.total_tokens))]
    for holder in holders:
        await limiter.acquire_on_behalf_of(holder)

    async def render(n: int, request: trio_render.ChatRequest) -> None:
        results[n] = (await renderer.chat(request)).token_ids

    async with trio.open_nursery() as nursery:
        for n, request in enumerate(chats()):
            nursery.start_soon(render, n, request)
        await wait_all_tasks_blocked()
        waiting = limiter.statistics().tasks_waiting
        for holder in holders:
            limiter.release_on_behalf_of(holder)
    return [results[n] for n in range(len(results))], waiting


async def cut_short(derenderer: trio_render.Derenderer) -> list[dict[str, Any]]:
    """Give up on a long derender, several times; say how late that was and what CPU ran on."""
    request = long_answer()
    tries = []
    for _ in range(TRIES):
        began = time.perf_counter()
        with trio.move_on_after(DEADLINE_S) as scope:
            await derenderer.chat(request)
        late_s = time.perf_counter() - began - DEADLINE_S
        cpu_ms = Cpu()
        await trio.sleep(0.005)
        first_5_ms = cpu_ms()
        await trio.sleep(0.05)
        tries.append(
            {
                "cut short": scope.cancelled_caught,
                "late ms": 1000 * late_s,
                "cpu in the first 5 ms": first_5_ms,
                "cpu in the next 50 ms": cpu_ms(),
            }
        )
    return tries


async def main(folder: str) -> dict[str, Any]:
    before = settings()
    limiter = anyio.CapacityLimiter(3)
    model = await trio.to_thread.run_sync(trio_render.open_model, folder)
    async with (
        trio_render.open_renderer(model, limiter=limiter) as renderer,
        trio_render.open_derenderer(model, limiter=limiter) as derenderer,
    ):
        rendered, waiting = await render_all(renderer, limiter)
        batch = [prompt.token_ids for prompt in await renderer.chat_batch(chats())]
        shown = [
            (await derenderer.detokenize(trio_render.DetokenizeRequest(tokens=ids))).prompt for ids in batch
        ]
        text = await renderer.tokenize(trio_render.TokenizeRequest(prompt="The capital is Paris."))
        completion = await derenderer.chat(answer(text.tokens))
        tries = await cut_short(derenderer)
        again = await renderer.chat(chats()[0])
    return {
        "waiting at the limiter": waiting,
        "rendered": rendered,
        "batch": batch,
        "shown": shown,
        "derendered": completion.choices[0].message.content,
        "tries": tries,
        "again": again.token_ids,
        "borrowed": limiter.statistics().borrowed_tokens,
        "active threads": active_thread_count(),
        "changed inside": changed(before),
    }


if __name__ == "__main__":
    before = settings()
    report = trio.run(main, sys.argv[1])
    report["changed"] = changed(before)
    report["heavy modules"] = heavy_modules()
    cpu_ms = Cpu()
    time.sleep(0.1)
    report["cpu of 100 idle ms"] = cpu_ms()
    json.dump(report, sys.stdout)
