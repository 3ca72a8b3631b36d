"""Everything in README.md that can be run is run, and what it claims of the server is compared with it.

The demo model takes long to open, so it is opened once, by the server of the first command. The example
programs run beside it with the same vocabulary from a directory.
"""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
import pytest
from readme.blocks import BLOCKS, PROSE, README, ROOT, Block, codes, of_kind, section, table, with_output
from readme.running import Server, ask, masked, request, serving
from served.websocket import WebSocket

import trio_render
from app.cli import serve
from trio_render.parsing.selection import REASONING_PARSERS, TOOL_CALL_PARSERS

pytestmark = pytest.mark.slow

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONSTRAINTS = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
URL = "http://127.0.0.1:8000"


def at_line(value: object) -> str | None:
    block = value[0] if isinstance(value, tuple) else value
    return f"line-{block.line}" if isinstance(block, Block) else None


@pytest.fixture(scope="module")
def demo() -> Iterator[Server]:
    """The server of the first command."""
    command = of_kind("setup")[0].text.splitlines()[-1].split()
    assert command[0] == ".venv/bin/trio-render"
    with serving(*command[1:]) as server:
        server.wait_for_weights()
        yield server


# ------------------------------------------------------------ every block is covered


def test_every_code_block_is_one_that_these_tests_run() -> None:
    covered = {id(block) for block in of_kind("setup")}
    covered.update(id(block) for block in of_kind("bench"))
    for kind, output in [("curl", "json"), ("python", "text"), ("setup", "text")]:
        covered.update(id(block) for pair in with_output(kind, output) for block in pair)
    assert [(block.line, block.language) for block in BLOCKS if id(block) not in covered] == []


def test_there_are_no_code_blocks_of_another_form() -> None:
    """Neither indented nor behind other fences: those would be run by nobody."""
    assert re.findall(r"(?m)^(?: {4,}|\t)\S.*|^ *~~~.*|^ *```.*", PROSE) == []


def test_there_is_something_to_run() -> None:
    kinds = [block.kind for block in BLOCKS]
    assert [kinds.count(kind) for kind in ("setup", "curl", "python", "bench")] == [2, 7, 6, 1]


# ------------------------------------------------------------ the two commands


@pytest.mark.parametrize("block", of_kind("setup"), ids=at_line)
class TestSetUp:
    """pip isn't run in tests; `.ci/run` installs the same."""

    def test_is_one_command_from_nothing(self, block: Block) -> None:
        subprocess.run(["sh", "-n", "-c", block.text], check=True, timeout=10)
        lines = block.text.splitlines()
        assert lines[0].startswith("python3 -m venv .venv")
        assert all(line.endswith(" &&") for line in lines[:-1])

    def test_pins_what_the_constraints_pin(self, block: Block) -> None:
        pins = re.findall(r"[\w-]+==[\w.]+", block.text)
        assert len(pins) == 2
        for pin in pins:
            assert pin in CONSTRAINTS
            assert pin in CI

    def test_installs_under_the_constraints_or_without_dependencies(self, block: Block) -> None:
        installs = re.findall(r"pip install (.*?)(?: &&)?$", block.text, re.MULTILINE)
        assert len(installs) == 3
        assert all(line.startswith(("-c .ci/constraints.txt ", "--no-deps ")) for line in installs)

    def test_asks_for_extras_that_exist(self, block: Block) -> None:
        extras = re.search(r"'\.\[([\w,]+)\]'", block.text)
        assert extras
        assert set(extras[1].split(",")) <= PYPROJECT["project"]["optional-dependencies"].keys()

    def test_runs_scripts_that_exist(self, block: Block) -> None:
        scripts = set(re.findall(r"\.venv/bin/(\S+)", block.text)) - {"pip"}
        assert scripts
        for script in scripts:
            assert entry_points(group="console_scripts", name=script)


def test_the_test_command_installs_what_ci_installs() -> None:
    assert "install --editable '.[dev,demo]'" in CI
    assert "-e '.[dev,demo]'" in of_kind("setup")[1].text


# ------------------------------------------------------------ what runs


@pytest.mark.parametrize(("command", "ready_line"), with_output("setup", "text"), ids=at_line)
def test_the_server_says_that_it_is_ready(demo: Server, command: Block, ready_line: Block) -> None:
    assert demo.ready_line.replace(demo.url, URL) == ready_line.text


@pytest.mark.parametrize(("command", "answer"), with_output("curl", "json"), ids=at_line)
def test_curl_gets_the_answer_that_is_shown(demo: Server, command: Block, answer: Block) -> None:
    assert URL in command.text
    got = masked(ask(command.text.replace(URL, demo.url)))
    assert got == masked(answer.text)
    if isinstance(got, dict):
        assert list(got) == list(json.loads(answer.text))


def run_program(text: str, folder: Path) -> tuple[int, str, str]:
    """Exit code, stderr and stdout of a program, with warnings as errors."""
    program = folder / "example.py"
    program.write_text(text, encoding="utf-8")
    command = [sys.executable, "-W", "error", program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stderr, done.stdout


def with_model(program: Block, folder: Path) -> str:
    """The program's text with a directory instead of the demo model, which has the same vocabulary."""
    assert program.text.count('"demo"') == 1
    return program.text.replace('"demo"', repr(str(folder)))


CLIENTS = [pair for pair in with_output("python", "text") if URL in pair[0].text]
PROGRAMS = [pair for pair in with_output("python", "text") if URL not in pair[0].text]


@pytest.mark.parametrize(("program", "output"), CLIENTS, ids=at_line)
def test_the_example_client_prints_what_is_shown(
    demo: Server, program: Block, output: Block, model_folders: Path, tmp_path: Path
) -> None:
    has_model = "import trio_render" in program.text
    text = with_model(program, model_folders / "smollm2") if has_model else program.text
    assert run_program(text.replace(URL, demo.url), tmp_path) == (0, "", output.text)


@pytest.mark.parametrize(("program", "output"), PROGRAMS, ids=at_line)
def test_the_example_program_prints_what_is_shown(
    program: Block, output: Block, model_folders: Path, tmp_path: Path
) -> None:
    text = with_model(program, model_folders / "smollm2")
    assert run_program(text, tmp_path) == (0, "", output.text)


def test_the_example_with_an_offloader_prints_the_same_in_processes(
    model_folders: Path, tmp_path: Path
) -> None:
    program, output = next(pair for pair in PROGRAMS if "open_offloader" in pair[0].text)
    text = with_model(program, model_folders / "smollm2")
    assert text.count('backend="thread"') == 1
    assert '`backend="process"`' in PROSE
    text = text.replace('backend="thread"', 'backend="process"')
    assert run_program(text, tmp_path) == (0, "", output.text)


def bench_commands() -> list[str]:
    """The arguments of every benchmark command, in a block or in the prose."""
    blocks = [block.text for block in of_kind("bench")]
    found = re.findall(r"python -m bench ((?:[\w-]| )+)", "\n".join([*blocks, *codes(PROSE)]))
    return sorted(set(found))


@pytest.mark.parametrize("arguments", bench_commands())
def test_a_benchmark_has_these_arguments(arguments: str) -> None:
    from bench.__main__ import main

    name, *rest = shlex.split(arguments)
    main.commands[name].make_context(name, rest)


def test_every_benchmark_is_mentioned_with_its_options() -> None:
    from bench.__main__ import main

    assert {arguments.split()[0] for arguments in bench_commands()} == main.commands.keys()
    options = {option for command in main.commands.values() for p in command.params for option in p.opts}
    named = {code for code in codes(section("Benchmarks")) if re.fullmatch(r"--[a-z-]+", code)}
    assert named - {"--offload"} <= options


def test_the_tour_derenders_what_it_has_rendered() -> None:
    rendered, derendered = (json.loads(answer.text) for _, answer in with_output("curl", "json")[1:3])
    assert derendered["usage"]["prompt_tokens"] == len(rendered["token_ids"])


# ------------------------------------------------------------ tables


def test_the_endpoints_are_those_of_the_server(demo: Server) -> None:
    listed = [tuple(code.split()) for cell, _ in table("Endpoints") for code in codes(cell)]
    document = json.loads(request("GET", f"{demo.url}/openapi.json")[1])
    assert {path for _, path in listed} == {*document["paths"], "/openapi.json"}
    for method, path in listed:
        status, _ = request(method, demo.url + path, b"{}" if method == "POST" else None)
        assert status in (200, 400), (method, path)


def test_the_websocket_answers_as_shown(demo: Server) -> None:
    rows = [[[json.loads(code) for code in codes(cell)] for cell in row] for row in table("Streams")]
    with WebSocket(int(demo.url.rsplit(":", 1)[1]), "/v1/chat/completions/derender") as ws:
        for (sent,), shown in rows:
            ws.send(sent)
            for choice in shown:
                assert ws.receive()["choices"] == [choice]


OPTIONS = {param.opts[0]: param for param in serve.params}


def test_the_options_and_their_defaults_are_those_of_the_server() -> None:
    listed = {codes(option)[0]: default for option, default, _ in table("Options")}
    assert list(listed) == list(OPTIONS)
    context = serve.make_context("serve", ["--model", "m"])
    for option, shown in listed.items():
        param = OPTIONS[option]
        default = context.params.get(param.name or "")
        match codes(shown):
            case [code] if code != "--model":
                assert param.type_cast_value(context, code) == default, option
            case _:
                assert param.required if shown == "required" else default in (None, False, ()), option


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_is_an_environment_variable(
    option: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits = tmp_path / "limits.json"
    limits.write_text("{}")
    values: dict[str, Any] = {
        "--limits-from": str(limits),
        "--enable-auto-tool-choice": "1",
        "--enable-prompt-embeds": "1",
        "--engine": "none",
        "--log-level": "debug",
        "--offload": "thread",
        "--trust-request-chat-template": "1",
    }
    name = "TRIO_RENDER_" + option.removeprefix("--").upper().replace("-", "_")
    monkeypatch.setenv("TRIO_RENDER_MODEL", "m")
    monkeypatch.setenv(name, values.get(option, "7"))
    context = serve.make_context("serve", [])
    parameter = OPTIONS[option].name
    assert parameter is not None
    source = context.get_parameter_source(parameter)
    assert source is not None
    assert source.name == "ENVIRONMENT"


def test_every_option_in_the_text_exists() -> None:
    text = section("Operating") + section("Options") + section("What it costs")
    named = {code.split()[0] for code in codes(text) if code.startswith("--")}
    assert {"--offload", "--limit-gil", "--queue-limit", "--workers"} <= named <= OPTIONS.keys()


def test_every_mode_of_offloading_is_explained() -> None:
    type_ = OPTIONS["--offload"].type
    assert isinstance(type_, click.Choice)
    assert [codes(mode)[0] for mode, _ in table("Operating")] == list(type_.choices)


def test_every_figure_is_explained(demo: Server) -> None:
    """Those of worker processes are shown only where there are some."""
    text = request("GET", f"{demo.url}/metrics")[1].decode()
    shown = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    listed = {code for cell, _ in table("Operating", 1) for code in codes(cell)}
    assert {name for name in listed if "process" not in name} == shown
    labels = set(re.findall(r"(\w+)=\"", text)) - {"le"}
    assert labels <= {code for _, cell in table("Operating", 1) for code in codes(cell)}


def test_a_deadline_is_asked_for_as_said(demo: Server) -> None:
    header, status = "X-Request-Timeout", 504
    assert f"header `{header}`" in section("Operating")
    assert f"the answer is {status}" in section("Operating")
    choice = {"index": 0, "token_ids": [504] * 200_000}
    body = json.dumps({"generate_response": {"request_id": "x", "choices": [choice]}}).encode()
    url = f"{demo.url}/v1/chat/completions/derender"
    headers = {"Content-Type": "application/json", header: "0.001"}
    assert request("POST", url, body, headers)[0] == status


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_worker_processes_are_as_many_as_said(model_folders: Path) -> None:
    """A process of each that was asked for, and a spare; their figures are those that the table names."""
    model = str(model_folders / "smollm2")
    with serving("serve", "--model", model, "--offload", "process", "--processes", "2") as server:
        said = "With `--processes 2` the model is in memory four times"
        assert said in " ".join(section("Operating").split())
        assert len(server.children()) + 1 == 4
        text = request("GET", f"{server.url}/metrics")[1].decode()
    # What is counted where the work is, and can be seen from here only if that is in the server itself.
    with serving("serve", "--model", model) as server:
        text += request("GET", f"{server.url}/metrics")[1].decode()
    shown = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    assert {code for cell, _ in table("Operating", 1) for code in codes(cell)} == shown


def test_every_public_name_in_the_text_exists() -> None:
    named = set(re.findall(r"`((?:open_\w+)|(?:[A-Z][a-z]+)+)`", section("In your own program")))
    assert {"open_offloader", "Workspace", "Overloaded"} <= named
    assert {name for name in named if not hasattr(trio_render, name)} == set()
    errors = codes(section("In your own program").split("Errors are typed")[1])
    for name in set(errors) - {"param", "retry_after"}:
        assert issubclass(getattr(trio_render, name), trio_render.RenderError)


def test_the_map_names_every_room() -> None:
    named = {code for cell, _ in table("Map") for code in codes(cell)}
    for name in named:
        assert (ROOT / name).exists() or (ROOT / "trio_render" / name).exists(), name
    rooms = {
        path.name + "/" * path.is_dir()
        for path in (ROOT / "trio_render").iterdir()
        if not path.name.startswith(("__", ".")) and path.name != "py.typed"
    }
    assert rooms - {name.removeprefix("trio_render/") for name in named} == set()
    top = {name.strip("/") for name in PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
    assert top == {name.split("/")[0] for name in named if "/" in name}


def test_the_changelog_has_this_version() -> None:
    assert f"\n### {PYPROJECT['project']['version']}\n" in README


# ------------------------------------------------------------ figures


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_a_served_directory_is_as_small_and_as_quick_as_said(model_folders: Path) -> None:
    """Quick within a factor of five: a machine may be busy. Without PyTorch, which is most of the point."""
    said = re.search(r"DeepSeek.*?ready after about (\d+) s, (\d+) MB resident", " ".join(PROSE.split()))
    assert said
    with serving("serve", "--model", str(model_folders / "deepseek")) as server:
        assert server.ready_s < 5 * int(said[1])
        assert server.resident_mb() == pytest.approx(int(said[2]), rel=0.15)
        assert not server.has_loaded("libtorch")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_the_served_demo_is_as_small_as_said(demo: Server) -> None:
    said = re.search(r"The demo model.*?(\d+) MB resident", " ".join(PROSE.split()))
    assert said
    assert demo.resident_mb() == pytest.approx(int(said[1]), rel=0.25)


# ------------------------------------------------------------ parsers


def test_every_family_of_parsers_is_listed() -> None:
    listed = {row[0]: codes(row[1]) for row in table("Reasoning and tool calls")}
    assert listed == {"reasoning": list(REASONING_PARSERS), "tool calls": list(TOOL_CALL_PARSERS)}
