"""The stall detector itself, on both backends: work on the loop is seen, work beside it is not."""

from __future__ import annotations

import time
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from offload import jobs

from trio_render import Stall, open_offloader, watch_loop
from trio_render.offload.jobs import Job

pytestmark = pytest.mark.anyio


def work_on_the_loop(seconds: float) -> None:
    ends = time.thread_time() + seconds
    while time.thread_time() < ends:
        pass


async def test_a_busy_turn_is_reported_once_with_its_stack() -> None:
    stalls: list[Stall] = []
    async with watch_loop(0.02, stalls.append):
        await anyio.sleep(0.05)
        work_on_the_loop(0.1)
        await anyio.sleep(0.05)
    assert len(stalls) == 1
    assert stalls[0].busy_s > 0.02
    assert "work_on_the_loop" in stalls[0].stack


@pytest.mark.parametrize("backend", ["thread", "process", "auto"])
async def test_offloaded_work_stalls_nothing(backend: Any) -> None:
    assert await stalls_of(backend) == []


async def test_inline_work_stalls_the_loop() -> None:
    stalls = await stalls_of("inline")
    assert stalls
    assert "spin" in stalls[0].stack


async def stalls_of(backend: Any) -> list[Stall]:
    stalls: list[Stall] = []
    async with (
        open_offloader(jobs.load, jobs.load(), backend=backend, processes=1) as offloader,
        watch_loop(0.02, stalls.append),
    ):
        for _ in range(3):
            await offloader.run(Job(jobs.spin, "derender"), (), 0.1)
            await anyio.lowlevel.checkpoint()
    return stalls
