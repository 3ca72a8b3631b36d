"""Empty, negative and huge values, shapes of bodies, text that is not Unicode: 400 or 404, never more."""

import json
from typing import Any

import pytest
from in_process import (
    CHAT_DERENDER,
    CHAT_RENDER,
    COMPLETION_DERENDER,
    COMPLETION_RENDER,
    TOKENIZE,
    InProcessServer,
)
from known_faults.bodies import chat_body, choice, completion_body, logprob, logprobs, response

USER_HI = [{"role": "user", "content": "Hi"}]


def status(server: InProcessServer, path: str, body: Any) -> int:
    """The status of a reply whose error, if it is one, is short and says the same."""
    reply = server.post(path, body)
    if reply.status >= 400:
        assert reply.error["code"] == reply.status
        assert len(reply.raw) < 1024
    return reply.status


def prompt(value: Any) -> dict[str, Any]:
    """A completion render body."""
    return {"model": "m", "prompt": value}


EMPTY_PROMPTS = ["", [""], ["a", ""], [], [[]], None, 5, ["a", [1]]]


@pytest.mark.parametrize("value", EMPTY_PROMPTS, ids=str)
def test_vllm_7746_prompt_without_tokens(smollm2: InProcessServer, value: Any) -> None:
    """A prompt without tokens reached the engine and ended it."""
    assert status(smollm2, COMPLETION_RENDER, prompt(value)) == 400


def test_vllm_7746_empty_texts_that_get_a_bos(mistral: InProcessServer) -> None:
    """An empty text in a list has a token where the tokenizer adds one."""
    assert status(mistral, COMPLETION_RENDER, prompt("")) == 400
    rendered = mistral.ok(COMPLETION_RENDER, prompt([""]))
    assert [one["token_ids"] for one in rendered] == [[1]]
    rendered = mistral.ok(COMPLETION_RENDER, prompt(["a", ""]))
    assert [one["token_ids"] for one in rendered] == [[1, 264], [1]]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETION_DERENDER, completion_body([-1])),
        (CHAT_DERENDER, chat_body([-1])),
        (COMPLETION_DERENDER, completion_body([81], logprobs=logprobs(logprob(-1)))),
        (COMPLETION_DERENDER, completion_body([81], logprobs=logprobs(logprob(81, -0.5, (-1, -1.0))))),
        (CHAT_DERENDER, chat_body([81], logprobs=logprobs(logprob(-1)))),
        (CHAT_DERENDER, {**chat_body([81]), "prompt_token_ids": [-1]}),
        (COMPLETION_DERENDER, {**completion_body([81]), "prompt_token_ids": [[-1]]}),
        (COMPLETION_RENDER, prompt([-1])),
        (COMPLETION_RENDER, prompt([[-1]])),
    ],
)
def test_vllm_51795_negative_ids(smollm2: InProcessServer, path: str, body: dict[str, Any]) -> None:
    """The lower bound was not checked on one path, so a negative index went through."""
    assert status(smollm2, path, body) == 400


HUGE_IDS = [49152, 2**31, 2**32, 2**40, 2**63, 2**64, 10**40]


@pytest.mark.parametrize("token_id", HUGE_IDS)
def test_vllm_26797_ids_beyond_the_vocabulary(smollm2: InProcessServer, token_id: int) -> None:
    """An id far beyond the vocabulary came in, and one path took it."""
    assert status(smollm2, COMPLETION_DERENDER, completion_body([81, token_id, 82])) == 400
    assert status(smollm2, CHAT_DERENDER, chat_body([81, token_id, 82])) == 400
    assert status(smollm2, COMPLETION_RENDER, prompt([81, token_id, 82])) == 400
    for entry in (logprob(token_id), logprob(81, -0.5, (token_id, -1.0))):
        assert status(smollm2, COMPLETION_DERENDER, completion_body([81], logprobs=logprobs(entry))) == 400
        assert status(smollm2, CHAT_DERENDER, chat_body([81], logprobs=logprobs(entry))) == 400


@pytest.mark.parametrize("token_id", [248077, 248200, 248319])
def test_vllm_26797_ids_between_tokenizer_and_model(qwen3: InProcessServer, token_id: int) -> None:
    """An embedding is wider than its tokenizer; what the tokenizer does not know is shown as nothing."""
    ids = [64, token_id, 65]
    answer = qwen3.ok(COMPLETION_DERENDER, completion_body(ids, logprobs=logprobs(*map(logprob, ids))))
    assert answer["choices"][0]["text"] == "ab"
    assert answer["choices"][0]["logprobs"]["tokens"] == ["a", "", "b"]


CANDIDATES = [(token_id, -1.0) for token_id in range(100, 131)]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"model": "m", "generate_responses": []}, 400),
        (completion_body([]), 400),
        (completion_body(None), 400),
        ({**completion_body([81]), "prompt_tokens": [5, 6]}, 400),
        ({**completion_body([81]), "model": "unknown"}, 404),
        (completion_body([81] * 8193), 400),
        (completion_body([81], logprobs=logprobs(logprob(81, -0.5, *CANDIDATES))), 400),
    ],
    ids=["no responses", "no ids", "null", "prompt_tokens", "model", "8193 ids", "31 candidates"],
)
def test_llm_d_inference_sim_678_shapes_of_derender_bodies(
    smollm2: InProcessServer, body: dict[str, Any], wanted: int
) -> None:
    """A second implementation had to copy the error rules one by one."""
    assert status(smollm2, COMPLETION_DERENDER, body) == wanted


TWO_RESPONSES = {
    "model": "m",
    "generate_responses": [
        {**response(choice([81]), choice([82])), "request_id": "first"},
        {**response(choice([81, 82])), "request_id": "second"},
    ],
    "prompt_tokens": [5, 6],
}


def test_llm_d_inference_sim_678_choices_are_numbered_across_responses(smollm2: InProcessServer) -> None:
    """Two responses become one answer with the id of the first."""
    answer = smollm2.ok(COMPLETION_DERENDER, TWO_RESPONSES)
    assert answer["id"] == "first"
    assert [(one["index"], one["text"]) for one in answer["choices"]] == [(0, "a"), (1, "b"), (2, "ab")]


def test_llm_agent_39_usage_is_counted(smollm2: InProcessServer) -> None:
    """The number was counted but not written."""
    answer = smollm2.ok(COMPLETION_DERENDER, TWO_RESPONSES)
    assert answer["usage"] == {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15}


def test_llm_agent_39_negative_prompt_tokens(smollm2: InProcessServer) -> None:
    """A count below zero is refused."""
    assert status(smollm2, COMPLETION_DERENDER, {**TWO_RESPONSES, "prompt_tokens": [5, -1]}) == 400
    assert status(smollm2, CHAT_DERENDER, {**chat_body([81]), "prompt_tokens": -1}) == 400


@pytest.mark.parametrize("options", [{}, {"include_usage": True}], ids=str)
def test_vllm_36379_stream_options_without_stream(smollm2: InProcessServer, options: dict[str, Any]) -> None:
    """Options of a stream that is none are a mistake."""
    chat = {"model": "m", "messages": USER_HI, "stream_options": options}
    assert status(smollm2, CHAT_RENDER, chat) == 400
    assert status(smollm2, COMPLETION_RENDER, {**prompt("a"), "stream_options": options}) == 400


def test_rapid_mlx_730_half_a_surrogate_pair_in_a_message(smollm2: InProcessServer) -> None:
    """A bad message was found only when rendering; the client saw the library's error and class name."""
    raw = b'{"model":"m","messages":[{"role":"user","content":"a\\ud83d b"}]}'
    error = smollm2.post(CHAT_RENDER, raw).error
    assert (error["code"], error["type"]) == (400, "Bad Request")
    assert error["param"].startswith("body")
    for word in ("msgspec", "Traceback", "UnicodeEncodeError", "codec", "surrogates not allowed"):
        assert word not in error["message"]


TOOL = {"type": "function", "function": {"name": "f", "description": "TEXT"}}
WITH_TEXT: list[tuple[str, dict[str, Any]]] = [
    (CHAT_RENDER, {"model": "m", "messages": [{"role": "user", "content": "TEXT"}]}),
    (CHAT_RENDER, {"model": "m", "messages": USER_HI, "stop": ["TEXT"]}),
    (CHAT_RENDER, {"model": "m", "messages": USER_HI, "tools": [TOOL], "tool_choice": "none"}),
    (COMPLETION_RENDER, prompt("TEXT")),
    (COMPLETION_RENDER, prompt(["b", "TEXT"])),
    (COMPLETION_RENDER, {**prompt("b"), "stop": "TEXT"}),
    (TOKENIZE, prompt("TEXT")),
    (TOKENIZE, {"model": "m", "messages": [{"role": "user", "content": "TEXT"}]}),
    (CHAT_DERENDER, {**chat_body([81]), "chat_request": {"messages": USER_HI, "stop": ["TEXT"]}}),
    (COMPLETION_DERENDER, completion_body([81], request={"stop": ["TEXT"]})),
    (COMPLETION_DERENDER, completion_body([81], stop_reason="TEXT")),
]


@pytest.mark.parametrize(("path", "body"), WITH_TEXT)
@pytest.mark.parametrize("half", ["\\ud83d", "\\ude00", "\\ud83d\\ud83d"])
def test_aider_4987_half_a_surrogate_pair(
    smollm2: InProcessServer, path: str, body: dict[str, Any], half: str
) -> None:
    """A lone half survives JSON reading, and fails when it is written as UTF-8."""
    raw = json.dumps(body).replace("TEXT", "a" + half)
    assert status(smollm2, path, raw.encode()) == 400


@pytest.mark.parametrize(("path", "body"), WITH_TEXT)
def test_aider_4987_whole_surrogate_pair(smollm2: InProcessServer, path: str, body: dict[str, Any]) -> None:
    """Two halves together are a character."""
    assert status(smollm2, path, json.dumps(body).replace("TEXT", "a\\ud83d\\ude00").encode()) == 200


def test_aider_4987_ids_of_a_whole_pair(smollm2: InProcessServer) -> None:
    """And it is the character that it says."""
    raw = b'{"model":"m","prompt":"\\ud83d\\ude00"}'
    (rendered,) = smollm2.ok(COMPLETION_RENDER, raw)
    assert rendered["token_ids"] == [10813, 242, 218]


@pytest.mark.parametrize("path", [CHAT_RENDER, COMPLETION_RENDER, TOKENIZE, COMPLETION_DERENDER])
@pytest.mark.parametrize(
    "name",
    [
        '"' + "x" * 10_000_000 + '"',
        r'"\ud83d"',
        r'"say \"m\"\n\u0000\u001b[31m"',
        '"' + "\U0001f336" * 300 + '"',
    ],
    ids=["10 MB", "half a pair", "quotes and controls", "wide characters"],
)
def test_llama_cpp_9210_error_messages_about_what_the_client_sent(
    smollm2: InProcessServer, path: str, name: str
) -> None:
    """User text inside an error message broke the error's writer."""
    body = json.dumps({**completion_body([81]), "messages": USER_HI, "prompt": "a", "model": "NAME"})
    assert status(smollm2, path, body.replace('"NAME"', name).encode()) in (400, 404)


@pytest.mark.parametrize(
    "value", ["x" * 5_000_000, {"k" * 5_000_000: 1}, ["y" * 5_000_000]], ids=["text", "key", "list"]
)
def test_llama_cpp_9210_errors_about_huge_values_are_short(smollm2: InProcessServer, value: Any) -> None:
    """Whichever field is at fault, its value is not repeated."""
    for field in (
        "messages",
        "temperature",
        "stop_token_ids",
        "logit_bias",
        "response_format",
        "tool_choice",
    ):
        body = {"model": "m", "messages": USER_HI, field: value}
        assert status(smollm2, CHAT_RENDER, body) == 400
