"""No endpoint works on the event loop: the debug mode that looks for it finds nothing, but with inline."""

import json
from pathlib import Path

import pytest
from served.long_work import DERENDER, RENDER, derender_body
from served.server import Server, command, first_line, start

STALL = "The event loop was busy for"
WORDS = " ".join(f"word{n}" for n in range(20_000))
MEGABYTE = {"messages": [{"role": "user", "content": WORDS * 5}], "truncate_prompt_tokens": 100}


def log_of_a_busy_server(folder: Path, log: Path, backend: str, n_candidates: int = 5) -> str:
    options = ("--port", "0", "--offload", backend, "--debug-loop-stalls", "20", "--served-model-name", "m")
    with start(command("serve", "--model", str(folder), *options), log) as process:
        line = first_line(process)
        server = Server(process, int(line.split()[1].rpartition(":")[2]), line, log)
        for _ in range(3):
            assert server.post(DERENDER, derender_body(4000, n_candidates)).status == 200
            assert server.post("/v1/completions/derender", completion_derender(n_candidates)).status == 200
            assert server.post(RENDER, MEGABYTE).status == 200
            assert server.post("/tokenize", {"prompt": WORDS * 5}).status == 200
            assert server.post("/v1/completions/render", {"prompt": [WORDS[:9000]] * 60}).status == 200
        server.stop()
        assert process.wait(20) == 0
    # Importing hypercorn before that takes longer, once.
    started, _, served = log.read_text().partition("Running on")
    assert served, started
    return served


def completion_derender(n_candidates: int) -> dict[str, object]:
    return {"generate_responses": [json.loads(derender_body(4000, n_candidates))["generate_response"]]}


@pytest.mark.parametrize("backend", ["thread", "process", "auto"])
def test_offloaded_work_is_never_on_the_loop(model_folders: Path, log: Path, backend: str) -> None:
    assert STALL not in log_of_a_busy_server(model_folders / "smollm2", log, backend)


def test_inline_work_is_and_the_stack_says_what_it_was(model_folders: Path, log: Path) -> None:
    """If this fails, the tests above can't fail either."""
    text = log_of_a_busy_server(model_folders / "smollm2", log, "inline", n_candidates=20)
    assert text.count(STALL) >= 5
    assert "derender/wire.py" in text
