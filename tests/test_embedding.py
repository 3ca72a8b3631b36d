"""trio_render inside other people's programs: one on Trio, its twin on asyncio, each a process of its own.

The programs run in development mode with warnings as errors. They bring their own nursery (task group) and
their own limiter, and report what they saw.
"""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import pytest
from embedding.workload import N_RENDERS

import trio_render

PROGRAMS = Path(__file__).parent / "embedding"
FLAGS = ("-W", "error", "-X", "dev")


@pytest.fixture(scope="module", params=["trio", "asyncio"])
def finished(request: pytest.FixtureRequest, model_folders: Path) -> subprocess.CompletedProcess[str]:
    """A program that has run to its end."""
    program = PROGRAMS / f"{request.param}_program.py"
    return subprocess.run(
        [sys.executable, *FLAGS, program, model_folders / "deepseek"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def report(finished: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What the program saw."""
    assert finished.returncode == 0, finished.stderr
    seen: dict[str, Any] = json.loads(finished.stdout)
    return seen


def test_no_warnings_and_a_clean_exit(finished: subprocess.CompletedProcess[str]) -> None:
    assert (finished.returncode, finished.stderr) == (0, "")


def test_renders_in_the_programs_own_tasks_wait_at_its_own_limiter(report: dict[str, Any]) -> None:
    assert report["waiting at the limiter"] == N_RENDERS
    assert report["rendered"] == report["batch"]


def test_a_batch_comes_back_in_order(report: dict[str, Any]) -> None:
    assert len(report["shown"]) == N_RENDERS
    for n, prompt in enumerate(report["shown"]):
        assert f"<{n}>" in prompt


def test_an_answer_is_derendered(report: dict[str, Any]) -> None:
    assert report["derendered"] == "The capital is Paris."


def test_a_long_derender_that_is_given_up_returns_and_stops_using_cpu_within_5_ms(
    report: dict[str, Any], record_property: Any
) -> None:
    """Medians: other programs may run beside this one. A job that went on would use 50 of the 50 ms."""
    tries = report["tries"]
    assert all(attempt["cut short"] for attempt in tries)
    figures = {name: median(attempt[name] for attempt in tries) for name in tries[0] if name != "cut short"}
    record_property("median of giving up on a long derender", figures)
    sys.stdout.write(f"medians of {len(tries)} tries: {figures}\n")
    assert figures["cpu in the next 50 ms"] < 2.5, tries
    assert figures["late ms"] < 50, tries


def test_the_limiter_is_whole_again_and_rendering_goes_on(report: dict[str, Any]) -> None:
    assert report["borrowed"] == 0
    assert report["again"] == report["rendered"][0]


def test_no_thread_is_busy_at_the_end(report: dict[str, Any]) -> None:
    assert report.get("active threads", 0) == 0
    assert report["cpu of 100 idle ms"] < 5


def test_the_process_is_left_as_it_was(report: dict[str, Any]) -> None:
    """Switch interval, collector, signal handlers, environment: while the renderer is open and after."""
    assert report["changed inside"] == []
    assert report["changed"] == []


def test_neither_torch_nor_the_server_is_imported(report: dict[str, Any]) -> None:
    assert report["heavy modules"] == []


@pytest.fixture(scope="module")
def smollm2(model_folders: Path) -> trio_render.Model:
    return trio_render.open_model(model_folders / "smollm2")


async def test_a_request_may_name_the_model_as_it_was_opened(smollm2: trio_render.Model) -> None:
    """Without names in the policy, the model serves under the name that answers carry."""
    async with trio_render.open_renderer(smollm2) as renderer:
        request = trio_render.ChatRequest(model=smollm2.name, messages=[{"role": "user", "content": "Hi"}])
        assert (await renderer.chat(request)).model == smollm2.name
        other = trio_render.ChatRequest(model="other", messages=[{"role": "user", "content": "Hi"}])
        with pytest.raises(trio_render.ModelNotFound):
            await renderer.chat(other)


async def test_a_renderer_and_a_derenderer_may_share_a_model_and_a_limiter(
    smollm2: trio_render.Model,
) -> None:
    limiter = anyio.CapacityLimiter(1)
    async with (
        trio_render.open_renderer(smollm2, limiter=limiter) as renderer,
        trio_render.open_derenderer(smollm2, limiter=limiter) as derenderer,
    ):
        assert renderer.model is derenderer.model
        await limiter.acquire_on_behalf_of(limiter)
        async with anyio.create_task_group() as group:
            group.start_soon(renderer.tokenize, trio_render.TokenizeRequest(prompt="Hi"))
            group.start_soon(derenderer.detokenize, trio_render.DetokenizeRequest(tokens=[26843]))
            await anyio.wait_all_tasks_blocked()
            assert limiter.statistics().tasks_waiting == 2
            limiter.release_on_behalf_of(limiter)
