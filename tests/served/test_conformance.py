"""The recorded cases, over a real socket."""

from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from conformance.cases import Case, ServerSettings, group_by_server, load_cases
from conformance.compare import Diff, Send, run_case
from in_process import InProcessServer
from opened_models import opened
from served.conftest import OpenServer
from served.server import exchange

from trio_render import Policy

CASES = group_by_server(load_cases())
AUTO = ("--enable-auto-tool-choice",)

SETTINGS = {
    ServerSettings("smollm2"): 572,
    ServerSettings("smollm2", flags=("--max-model-len=64",)): 21,
    ServerSettings("smollm2", flags=("--trust-request-chat-template",)): 29,
    ServerSettings("mistral-hf"): 135,
    ServerSettings("qwen3"): 91,
    ServerSettings("deepseek"): 82,
    ServerSettings("qwen3", "qwen3", "hermes", AUTO): 112,
    ServerSettings("qwen3", "deepseek_r1", "hermes", AUTO): 13,
    ServerSettings("qwen3", "", "hermes", AUTO): 9,
    ServerSettings("qwen3", "qwen3"): 9,
}


def sender(connection: HTTPConnection) -> Send:
    """Requests on one connection, which the server may close after an answer."""

    def send(method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> tuple[int, Any]:
        reply = exchange(connection, method, path, body, headers)
        try:
            return reply.status, reply.json
        except ValueError:
            return reply.status, reply.body.decode() or None

    return send


def failure(case: Case, send: Send) -> str | None:
    try:
        run_case(case, send)
    except Diff as diff:
        return f"{case.id}: {diff}"
    return None


def parsers(settings: ServerSettings) -> list[str]:
    named = {"--reasoning-parser": settings.reasoning_parser, "--tool-call-parser": settings.tool_parser}
    return [part for option, name in named.items() if name for part in (option, name)]


def over_a_socket(settings: ServerSettings, count: int) -> Any:
    """A large vocabulary takes long to open; what parsers make of it is compared without a server as well."""
    marks = [pytest.mark.slow] if settings.reasoning_parser or settings.tool_parser else []
    return pytest.param(settings, count, id=str(settings), marks=marks)


@pytest.mark.parametrize(("settings", "count"), [over_a_socket(*item) for item in SETTINGS.items()])
def test_recorded_answers(settings: ServerSettings, count: int, open_server: OpenServer) -> None:
    server = open_server(settings.model, *parsers(settings), *settings.flags)
    connection = server.connect()
    outcomes = [failure(case, sender(connection)) for case in CASES[settings]]
    connection.close()
    failures = [outcome for outcome in outcomes if outcome]
    assert not failures, "\n".join([f"{len(failures)} of {len(outcomes)} cases:", *failures])
    assert len(outcomes) == count
    server.assert_quiet()


PARSED = [settings for settings in SETTINGS if settings.reasoning_parser or settings.tool_parser]


@pytest.mark.parametrize("settings", PARSED, ids=str)
def test_recorded_answers_of_parsers(settings: ServerSettings, model_folders: Path) -> None:
    """The workers' jobs, called directly."""
    policy = Policy(
        served_names=("m",),
        reasoning_parser=settings.reasoning_parser or None,
        tool_call_parser=settings.tool_parser or None,
        enable_auto_tool_choice=bool(settings.flags),
    )
    server = InProcessServer(opened(model_folders / settings.model), policy)

    def send(method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> tuple[int, Any]:
        reply = server.send(method, path, headers, body or b"")
        return reply.status, reply.body

    failures = [found for case in CASES[settings] if (found := failure(case, send))]
    assert not failures, "\n".join(failures)


def test_every_case_is_run() -> None:
    assert CASES.keys() == SETTINGS.keys()
    assert sum(map(len, CASES.values())) == 1073
