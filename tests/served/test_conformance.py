"""The recorded cases of a server without parsers, over a real socket."""

from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any

import pytest
from conformance.cases import Case, ServerSettings, group_by_server, load_cases
from conformance.compare import Diff, Send, run_case
from served.conftest import OpenServer
from served.server import exchange

GROUPS = {
    "render_chat",
    "render_completion",
    "derender_chat",
    "derender_completion",
    "stream_chat",
    "stream_completion",
    "tokenize",
    "errors",
    "server",
}

CASES = group_by_server(case for case in load_cases() if case.group in GROUPS)

SETTINGS = {
    ServerSettings("smollm2"): 572,
    ServerSettings("smollm2", flags=("--max-model-len=64",)): 21,
    ServerSettings("smollm2", flags=("--trust-request-chat-template",)): 29,
    ServerSettings("mistral-hf"): 135,
    ServerSettings("qwen3"): 91,
    ServerSettings("deepseek"): 82,
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


@pytest.mark.parametrize(("settings", "count"), SETTINGS.items(), ids=str)
def test_recorded_answers(settings: ServerSettings, count: int, open_server: OpenServer) -> None:
    server = open_server(settings.model, *settings.flags)
    connection = server.connect()
    outcomes = [failure(case, sender(connection)) for case in CASES[settings]]
    connection.close()
    failures = [outcome for outcome in outcomes if outcome]
    assert not failures, "\n".join([f"{len(failures)} of {len(outcomes)} cases:", *failures])
    assert len(outcomes) == count
    server.assert_quiet()


def test_every_case_without_a_parser_is_run() -> None:
    plain = {settings for settings in CASES if not settings.reasoning_parser and not settings.tool_parser}
    assert plain == SETTINGS.keys()
    assert sum(len(CASES[settings]) for settings in SETTINGS) == 930
