"""``serve --limits-from FILE``: what the file sets, what wins over it, and what is refused."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from served.server import run_to_end

from app.cli import serve, settings_from_environment
from app.settings import SettingsError


def written(folder: Path, value: Any) -> Path:
    file = folder / "limits.json"
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return file


@pytest.fixture(autouse=True)
def no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("TRIO_RENDER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRIO_RENDER_MODEL", "m")


def params(*options: str) -> dict[str, Any]:
    return serve.make_context("serve", list(options)).params


def test_a_file_sets_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    limits = {
        "offload": "process",
        "processes": 3,
        "limit_render": 4,
        "limit_derender": 5,
        "limit_prompt_embeds": 6,
        "limit_engine": 7,
        "limit_shared": 8,
        "limit_gil": 9,
    }
    for chosen in (limits, {"limit_derender": 5}, {"limit_shared": None}, {}):
        found = params("--limits-from", str(written(tmp_path, chosen)))
        assert found == params() | chosen


def test_options_and_the_environment_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(written(tmp_path, {"limit_render": 3, "limit_derender": 3, "limit_gil": 3}))
    monkeypatch.setenv("TRIO_RENDER_LIMIT_DERENDER", "5")
    for options in (
        ("--limit-render", "7", "--limits-from", file),
        ("--limits-from", file, "--limit-render", "7"),
    ):
        found = params(*options)
        assert (found["limit_render"], found["limit_derender"], found["limit_gil"]) == (7, 5, 3)


def test_the_environment_may_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIO_RENDER_LIMITS_FROM", str(written(tmp_path, {"limit_gil": 2})))
    assert settings_from_environment().limit_gil == 2
    monkeypatch.setenv("TRIO_RENDER_LIMITS_FROM", str(written(tmp_path, {"limit_gil": 0})))
    with pytest.raises(SettingsError, match="limit_gil"):
        settings_from_environment()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"limit_render": 2', "is not JSON"),
        (b"\xff".decode("latin-1") + "[" * 100_000, "is not JSON"),
        ([2], "must hold an object"),
        (2, "must hold an object"),
        ({"limit_rendr": 2}, "'limit_rendr' is not one of offload, limit_render"),
        ({"model": "m"}, "'model' is not one of"),
        ({"limit-render": 2}, "'limit-render' is not one of"),
        ({"x" * 1000: 2}, "'" + "x" * 100 + "' is not one of"),
        ({"limit_render": "2"}, "'limit_render' must be a whole number"),
        ({"limit_render": 2.0}, "'limit_render' must be a whole number"),
        ({"limit_gil": True}, "'limit_gil' must be a whole number"),
        ({"limit_gil": None}, "'limit_gil' must be a whole number"),
        ({"limit_gil": 0}, "'limit_gil' must be at least 1"),
        ({"limit_shared": -1}, "'limit_shared' must be at least 1"),
        ({"processes": 0}, "'processes' must be at least 1"),
        ({"limit_render": 2, "limit_derender": 0}, "'limit_derender' must be at least 1"),
        ({"offload": "threads"}, "'offload' must be one of auto, thread, process, inline"),
        ({"offload": ["auto"]}, "'offload' must be one of"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path: Path, content: Any, complaint: str) -> None:
    file = written(tmp_path, content)
    with pytest.raises(click.UsageError) as caught:
        params("--limits-from", str(file))
    assert f"--limits-from {file}" in caught.value.message
    assert complaint in caught.value.message


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    missing = tmp_path / "missing.json"
    ended = run_to_end("serve", "--model", "m", "--limits-from", str(missing))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"--limits-from {missing} can't be read" in ended.stderr
    assert "Traceback" not in ended.stderr
