"""Answers are what OpenAI's own client takes them for."""

from collections import Counter
from typing import Any

import pytest
from conformance.cases import Case, load_cases
from openai.types import Completion
from openai.types.chat import ChatCompletion
from pydantic import BaseModel
from served.conftest import OpenServer

MODELS: dict[str, type[BaseModel]] = {"derender_chat": ChatCompletion, "derender_completion": Completion}

CASES = [case for case in load_cases() if case.group in MODELS and case.exchanges[0].expected.status == 200]

EXPECTED: dict[str, dict[str, int]] = {
    "derender_chat": {"validated": 105, "finish reason": 1},
    "derender_completion": {"validated": 114, "finish reason": 3, "null in logprobs": 1},
}


def holds_null(value: Any) -> bool:
    """Whether there is a null below ``value`` where OpenAI has none (a token's bytes may be null)."""
    match value:
        case dict():
            return any(holds_null(item) for key, item in value.items() if key != "bytes")
        case list():
            return any(map(holds_null, value))
    return value is None


def exception(body: dict[str, Any]) -> str | None:
    """Why OpenAI has no words for an answer that vLLM's protocol allows."""
    reasons = {choice.get("finish_reason") for choice in body["choices"]}
    if reasons & {None, "abort"}:
        return "finish reason"
    if any(holds_null(choice["logprobs"]) for choice in body["choices"] if choice.get("logprobs")):
        return "null in logprobs"
    return None


def answer_of(case: Case, open_server: OpenServer) -> bytes:
    reply = open_server(case.server.model, *case.server.flags).post(
        case.path, case.exchanges[0].payload(None), case.headers
    )
    assert reply.status == 200
    return reply.body


@pytest.mark.parametrize("group", MODELS)
def test_answers_fit_the_client(group: str, open_server: OpenServer) -> None:
    counts: Counter[str] = Counter()
    for case in CASES:
        if case.group != group:
            continue
        why_not = exception(case.exchanges[0].expected.body)
        counts[why_not or "validated"] += 1
        if why_not is None:
            MODELS[group].model_validate_json(answer_of(case, open_server), strict=True)
    assert counts == EXPECTED[group]
