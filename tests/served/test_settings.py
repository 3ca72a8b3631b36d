"""The command line and the environment, as a person or a deployment uses them."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import fields
from pathlib import Path

import pytest
from served.server import Server, run_to_end, serve, start

from app.settings import Settings

OPTIONS: dict[str, tuple[str, str, object]] = {
    "model": ("--model", "some/where", "some/where"),
    "host": ("--host", "::1", "::1"),
    "port": ("--port", "8123", 8123),
    "served_model_names": ("--served-model-name", "a b", ("a", "b")),
    "max_model_len": ("--max-model-len", "77", 77),
    "chat_template": ("--chat-template", "{{ messages }}", "{{ messages }}"),
    "trust_request_chat_template": ("--trust-request-chat-template", "true", True),
    "max_logprobs": ("--max-logprobs", "-1", -1),
    "reasoning_parser": ("--reasoning-parser", "qwen3", "qwen3"),
    "tool_call_parser": ("--tool-call-parser", "auto", "auto"),
    "enable_auto_tool_choice": ("--enable-auto-tool-choice", "true", True),
    "enable_prompt_embeds": ("--enable-prompt-embeds", "true", True),
    "segment_cache": ("--segment-cache", "2M", 2 * 1024**2),
    "workers": ("--workers", "2", 2),
    "offload": ("--offload", "process", "process"),
    "processes": ("--processes", "3", 3),
    "limit_render": ("--limit-render", "3", 3),
    "limit_derender": ("--limit-derender", "5", 5),
    "limit_prompt_embeds": ("--limit-prompt-embeds", "6", 6),
    "limit_engine": ("--limit-engine", "7", 7),
    "limit_shared": ("--limit-shared", "8", 8),
    "limit_gil": ("--limit-gil", "9", 9),
    "queue_limit": ("--queue-limit", "0", 0),
    "request_timeout_s": ("--request-timeout", "3.5", 3.5),
    "write_timeout_s": ("--write-timeout", "4.5", 4.5),
    "debug_loop_stalls_ms": ("--debug-loop-stalls", "5.5", 5.5),
    "max_body": ("--max-body", "3M", 3 * 1024**2),
    "body_timeout_s": ("--body-timeout", "1.5", 1.5),
    "graceful_timeout_s": ("--graceful-timeout", "2.5", 2.5),
    "stream_state_key": ("--stream-state-key", "a key of 16 chars", "a key of 16 chars"),
    "engine": ("--engine", "http", "http"),
    "upstream": ("--upstream", "http://u", "http://u"),
    "log_level": ("--log-level", "debug", "debug"),
}
"""Setting -> option, a value as text, and that value."""


def variable(option: str) -> str:
    """The environment variable as --help describes it."""
    return "TRIO_RENDER_" + option.removeprefix("--").replace("-", "_").upper()


NEEDS = {
    "enable_auto_tool_choice": ("tool_call_parser",),
    "upstream": ("engine",),
    "engine": ("upstream",),
}
"""Settings that go with others only."""


def test_every_setting_has_an_option_here() -> None:
    assert OPTIONS.keys() == {field.name for field in fields(Settings)}


def test_help_shows_every_setting() -> None:
    top, serve_help = run_to_end("--help"), run_to_end("serve", "--help")
    assert (top.returncode, serve_help.returncode) == (0, 0)
    assert "serve" in top.stdout
    shown = re.findall(r"^  (--[a-z-]+)", serve_help.stdout, re.MULTILINE)
    assert sorted(shown) == sorted(
        [*(option for option, _, _ in OPTIONS.values()), "--limits-from", "--help"]
    )


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_an_environment_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.cli import settings_from_environment

    for other in [other for other in os.environ if other.startswith("TRIO_RENDER_")]:
        monkeypatch.delenv(other)
    monkeypatch.setenv("TRIO_RENDER_MODEL", "m")
    expected = {"model": "m"}
    for set_name in (*NEEDS.get(name, ()), name):
        option, text, value = OPTIONS[set_name]
        monkeypatch.setenv(variable(option), text)
        expected[set_name] = value  # type: ignore[assignment]
    settings = settings_from_environment()
    assert getattr(settings, name) == OPTIONS[name][2]
    assert settings == Settings(**expected)  # type: ignore[arg-type]


def test_the_environment_reaches_a_server(model_folders: Path, log: Path) -> None:
    env = {"TRIO_RENDER_MAX_MODEL_LEN": "77", "TRIO_RENDER_LIMIT_RENDER": "7", "TRIO_RENDER_MAX_BODY": "100"}
    with serve(model_folders / "smollm2", "--limit-render", "3", log=log, env=env) as server:
        assert server.get("/v1/models").json["data"][0]["max_model_len"] == 77
        assert server.post("/tokenize", {"prompt": "x" * 100}).status == 413
        assert "limits: render 3," in server.ready_line, "an option wins over the environment"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ((), "--model"),
        (("--model", ""), "--model must not be empty"),
        (("--port", "70000"), "--port must be 0 to 65535"),
        (("--port", "x"), "--port"),
        (("--max-model-len", "0"), "--max-model-len must be at least 1"),
        (("--max-logprobs", "-2"), "--max-logprobs must be at least -1"),
        (("--limit-render", "0"), "--limit-render must be at least 1"),
        (("--limit-derender", "-1"), "--limit-derender must be at least 1"),
        (("--max-body", "0"), "--max-body must be at least 1"),
        (("--max-body", "10X"), "--max-body"),
        (("--segment-cache", "-1"), "--segment-cache"),
        (("--body-timeout", "0"), "--body-timeout must be above 0"),
        (("--body-timeout", "nan"), "--body-timeout must be above 0"),
        (("--graceful-timeout", "-1"), "--graceful-timeout must be at least 0"),
        (("--stream-state-key", "x" * 15), "--stream-state-key must have at least 16 characters"),
        (("--engine", "vllm"), "--engine"),
        (("--engine", "http"), "--upstream goes with --engine http"),
        (("--upstream", "http://u"), "--upstream goes with --engine http"),
        (("--engine", "http", "--upstream", "u"), "--upstream must be an http(s) URL"),
        (("--log-level", "loud"), "--log-level"),
        (("--bogus",), "--bogus"),
    ],
)
def test_bad_settings_end_with_2(options: tuple[str, ...], complaint: str) -> None:
    model = () if not options or "--model" in options else ("--model", "m")
    ended = run_to_end("serve", *model, *options)
    assert ended.returncode == 2
    assert complaint in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def check_fails(complaint: str, *options: str) -> None:
    ended = run_to_end("serve", "--port", "0", *options)
    assert ended.returncode == 1
    assert ended.stderr.startswith("Error: ")
    assert complaint in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_a_missing_model_ends_with_1(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    check_fails(str(missing), "--model", str(missing))


def test_a_broken_model_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{")
    check_fails("tokenizer", "--model", str(tmp_path))


def test_a_broken_chat_template_ends_with_1(model_folders: Path) -> None:
    check_fails("chat template", "--model", str(model_folders / "smollm2"), "--chat-template", "{% nonsense")


def test_a_port_in_use_ends_with_1(model_folders: Path, server: Server) -> None:
    check_fails("in use", "--model", str(model_folders / "smollm2"), "--port", str(server.port))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_line(process: subprocess.Popen[str], log: Path, text: str) -> None:
    """Wait until the log says ``text``; a minute at most, or until the process ends."""
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        while text not in log.read_text():
            assert process.poll() is None, log.read_text()
            time.sleep(0.02)
    finally:
        watchdog.cancel()
        watchdog.join()


def test_hypercorn_serves_the_app_with_settings_from_the_environment(model_folders: Path, log: Path) -> None:
    env = {
        "TRIO_RENDER_MODEL": str(model_folders / "smollm2"),
        "TRIO_RENDER_SERVED_MODEL_NAME": "one two",
        "TRIO_RENDER_MAX_MODEL_LEN": "99",
    }
    port = free_port()
    hypercorn = [sys.executable, "-m", "hypercorn", "-k", "trio", "--bind", f"127.0.0.1:{port}"]
    with start([*hypercorn, "app:create_app()"], log, env) as process:
        wait_for_line(process, log, "Running on")
        server = Server(process, port, "", log)
        models = server.get("/v1/models").json["data"]
        assert [(model["id"], model["max_model_len"]) for model in models] == [("one", 99), ("two", 99)]
        assert server.post("/tokenize", {"prompt": "Hello world", "model": "two"}).json["count"] == 2
        assert server.post("/tokenize", {"prompt": "x", "model": "m"}).status == 404
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert "Traceback" not in log.read_text()
