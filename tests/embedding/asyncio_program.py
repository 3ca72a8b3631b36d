"""The asyncio twin of trio_program.py: its own task group, its own limiter. Prints a report as JSON."""

import asyncio
import json
import sys
import time
from typing import Any

import anyio
from process_state import Cpu, changed, heavy_modules, settings
from workload import DEADLINE_S, TRIES, answer, chats, long_answer

import trio_render


async def render_all(renderer: trio_render.Renderer, limiter: anyio.CapacityLimiter) -> tuple[list[Any], int]:
    """Render in tasks of our own task group; also return how many of them waited at our limiter."""
    holders = [object() for _ in range(int(limiter.total_tokens))]
    for holder in holders:
        await limiter.acquire_on_behalf_of(holder)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(renderer.chat(request)) for request in chats()]
        await anyio.wait_all_tasks_blocked()
        waiting = limiter.statistics().tasks_waiting
        for holder in holders:
            limiter.release_on_behalf_of(holder)
    return [task.result().token_ids for task in tasks], waiting


async def cut_short(derenderer: trio_render.Derenderer) -> list[dict[str, Any]]:
    """Give up on a long derender, several times; say how late that was and what CPU ran on."""
    request = long_answer()
    tries = []
    for _ in range(TRIES):
        timed_out = False
        began = time.perf_counter()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await derenderer.chat(request)
        except TimeoutError:
            timed_out = True
        late_s = time.perf_counter() - began - DEADLINE_S
        cpu_ms = Cpu()
        await asyncio.sleep(0.005)
        first_5_ms = cpu_ms()
        await asyncio.sleep(0.05)
        tries.append(
            {
                "cut short": timed_out,
                "late ms": 1000 * late_s,
                "cpu in the first 5 ms": first_5_ms,
                "cpu in the next 50 ms": cpu_ms(),
            }
        )
    return tries


async def main(folder: str) -> dict[str, Any]:
    # Development mode logs steps that take long, as ours may on a busy machine.
    asyncio.get_running_loop().slow_callback_duration = 60
    before = settings()
    limiter = anyio.CapacityLimiter(3)
    model = await asyncio.to_thread(trio_render.open_model, folder)
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
        "changed inside": changed(before),
    }


if __name__ == "__main__":
    before = settings()
    report = asyncio.run(main(sys.argv[1]))
    report["changed"] = changed(before)
    report["heavy modules"] = heavy_modules()
    cpu_ms = Cpu()
    time.sleep(0.1)
    report["cpu of 100 idle ms"] = cpu_ms()
    json.dump(report, sys.stdout)
