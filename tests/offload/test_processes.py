"""Worker processes: warm, one answer per job whatever dies, and none left behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from offload import jobs

from trio_render import InvalidRequest, Offloader, WorkerDied, open_offloader
from trio_render.offload.jobs import Job
from trio_render.offload.process_worker import WorkerFailure

pytestmark = pytest.mark.anyio

PID = Job(jobs.pid, "render")


def offloading(processes: int = 1) -> Any:
    return open_offloader(jobs.load, jobs.load(), backend="process", processes=processes)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until_warm(offloader: Offloader, processes: int) -> None:
    with anyio.fail_after(20):
        while True:
            now = offloader.statistics().processes
            assert now is not None
            if now.idle == processes:
                return
            await anyio.sleep(0.01)


async def test_jobs_run_in_other_processes_and_bodies_of_megabytes_come_through() -> None:
    async with offloading() as offloader:
        assert await offloader.run(PID, ()) != os.getpid()
        body: list[bytes | memoryview] = [bytes([n % 251]) * 70_001 for n in range(60)]
        body.append(memoryview(b"#" * 2_000_001))
        assert await offloader.run(Job(jobs.join, "render"), body) == b"".join(body) + b"|"


async def test_all_processes_and_a_spare_are_warm_from_the_start() -> None:
    async with offloading(2) as offloader:
        now = offloader.statistics().processes
        assert now is not None
        assert (now.idle, now.total, now.killed, now.died) == (3, 3, 0, 0)


async def test_processes_let_the_event_loop_go_first() -> None:
    async with offloading() as offloader:
        pid = await offloader.run(PID, ())
        assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)


async def test_no_process_outlives_the_offloader() -> None:
    async with offloading(2) as offloader:
        pids = {await offloader.run(PID, ()) for _ in range(6)}
    assert not any(map(alive, pids))


async def test_a_load_that_fails_is_raised_where_the_offloader_is_opened() -> None:
    with pytest.raises(InvalidRequest, match="no such workspace"):
        async with open_offloader(jobs.load_failing, {}, backend="process"):
            pytest.fail("opened")


async def test_an_error_of_the_block_leaves_as_itself() -> None:
    with pytest.raises(KeyError):
        async with offloading():
            raise KeyError("mine")


async def test_a_process_killed_in_mid_job_costs_nobody_an_answer(tmp_path: Path) -> None:
    async with offloading() as offloader:
        answer = await offloader.run(Job(jobs.die_once, "render"), (), str(tmp_path / "died"))
        assert answer == b"alive"
        await until_warm(offloader, 2)
        now = offloader.statistics().processes
        assert now is not None
        assert now.died == 1


async def test_a_job_that_kills_every_process_ends_in_an_error_and_others_go_on() -> None:
    async with offloading() as offloader:
        with pytest.raises(WorkerDied):
            await offloader.run(Job(jobs.die, "render"), ())
        assert await offloader.run(PID, ()) > 0


async def test_other_requests_are_untouched_by_a_kill() -> None:
    async with offloading(2) as offloader, anyio.create_task_group() as group:
        answers: list[bytes] = []

        async def spin() -> None:
            answers.append(await offloader.run(Job(jobs.spin, "derender"), (), 0.3))

        group.start_soon(spin)
        with pytest.raises(WorkerDied):
            await offloader.run(Job(jobs.die, "render"), ())
    assert answers == [b"spun"]


async def test_a_cancelled_job_is_killed_after_its_grace_and_its_process_replaced(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    async with offloading() as offloader:
        began = anyio.current_time()
        with anyio.move_on_after(0.2):
            await offloader.run(Job(jobs.spin, "derender"), (), 60.0, str(mark))
        assert 0.25 < anyio.current_time() - began < 2.0
        with anyio.fail_after(5):
            while alive(int(mark.read_text())):  # noqa: ASYNC110 - a process has no event
                await anyio.sleep(0.01)
        assert offloader.statistics().kinds["derender"].limiter.borrowed == 0
        # The spare takes over while the replacement loads.
        with anyio.fail_after(5):
            assert await offloader.run(PID, ()) > 0
        await until_warm(offloader, 2)
        now = offloader.statistics().processes
        assert now is not None
        assert (now.killed, now.died) == (1, 0)


async def test_a_cancelled_job_that_ends_within_its_grace_keeps_its_process() -> None:
    async with offloading() as offloader:
        with anyio.move_on_after(0.05):
            await offloader.run(Job(jobs.spin, "derender"), (), 0.1)
        await until_warm(offloader, 2)
        now = offloader.statistics().processes
        assert now is not None
        assert (now.killed, now.died) == (0, 0)


async def test_an_error_that_cannot_travel_arrives_as_text() -> None:
    async with offloading() as offloader:
        with pytest.raises(WorkerFailure, match="gone wrong"):
            await offloader.run(Job(jobs.fail_unportably, "render"), ())
        assert await offloader.run(PID, ()) > 0


async def test_noise_on_the_standard_output_does_not_tear_answers() -> None:
    async with offloading() as offloader:
        assert await offloader.run(Job(jobs.shout, "render"), ()) == b"quiet"
        assert await offloader.run(Job(jobs.join, "render"), [b"still"]) == b"still|"
