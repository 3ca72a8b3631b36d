"""Bodies that no engine would send are refused before any work, and the place is named."""

import json
from pathlib import Path
from typing import Any

import pytest
from opened_models import never, opened

from trio_render import InvalidRequest, Model, ModelNotFound, Policy
from trio_render.derender import wire
from trio_render.workspace import workspace_of

POLICY = Policy(served_names=("m",), max_logprobs=2, max_sequences=3)
MAX_LEN = 8192
CHOICE = {"index": 0, "token_ids": [5]}


@pytest.fixture
def model(model_folders: Path) -> Model:
    return opened(model_folders / "smollm2")


def response(*choices: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"request_id": "r", "choices": list(choices or (CHOICE,)), **fields}


def chat(model: Model, /, **body: Any) -> None:
    wire.chat_json(workspace_of(model, POLICY), never, [json.dumps(body).encode()])


def completion(model: Model, /, **body: Any) -> None:
    wire.completion_json(workspace_of(model, POLICY), never, [json.dumps(body).encode()])


def candidates(n: int) -> dict[str, Any]:
    top = [{"token_id": 5, "logprob": -1.0}] * n
    return {**CHOICE, "logprobs": {"content": [{"token_id": 5, "logprob": -1.0, "top_logprobs": top}]}}


IN_A_RESPONSE: list[tuple[dict[str, Any], str]] = [
    (response({**CHOICE, "token_ids": []}), "choices.0.token_ids"),
    (response({"index": 0}), "choices.0.token_ids"),
    (response(CHOICE, {**CHOICE, "token_ids": [-1]}), "choices.1.token_ids"),
    (response({**CHOICE, "token_ids": [49152]}), "choices.0.token_ids"),
    (response({**CHOICE, "token_ids": [5] * (MAX_LEN + 1)}), "choices.0.token_ids"),
    (response({**CHOICE, "stop_reason": 1.5}), "choices.0.stop_reason"),
    (response({**CHOICE, "stop_reason": True}), "choices.0.stop_reason"),
    (response({**CHOICE, "stop_reason": []}), "choices.0.stop_reason"),
    (response(candidates(4)), "choices.0.logprobs.content"),
    (response(prompt_token_ids=[-1]), "prompt_token_ids"),
    (response(prompt_token_ids=[5] * (MAX_LEN + 1)), "prompt_token_ids"),
    (response(prompt_logprobs=[None] * (MAX_LEN + 1)), "prompt_logprobs"),
]


@pytest.mark.parametrize(("given", "place"), IN_A_RESPONSE)
def test_the_place_in_an_answer_is_named(model: Model, given: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chat(model, generate_response=given)
    assert caught.value.param == f"body.generate_response.{place}"
    with pytest.raises(InvalidRequest) as caught:
        completion(model, generate_responses=[response(), given])
    assert caught.value.param == f"body.generate_responses.1.{place}"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"generate_response": response(), "prompt_token_ids": [-1]}, "body.prompt_token_ids"),
        ({"generate_response": response(), "prompt_token_ids": [5] * (MAX_LEN + 1)}, "body.prompt_token_ids"),
        ({"generate_response": response(), "prompt_tokens": -1}, "body.prompt_tokens"),
        ({"generate_response": response(*[CHOICE] * 4)}, "choices"),
        ({"generate_response": response(), "chat_request": {"messages": [], "stop": 5}}, "body.stop"),
    ],
)
def test_the_place_in_a_chat_body_is_named(model: Model, body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chat(model, **body)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"generate_responses": []}, "generate_responses"),
        ({"generate_responses": [response(), response()], "prompt_tokens": [1]}, "body.prompt_tokens"),
        ({"generate_responses": [response()], "prompt_tokens": [-1]}, "body.prompt_tokens.0"),
        ({"generate_responses": [response()], "prompt_token_ids": []}, "body.prompt_token_ids"),
        (
            {"generate_responses": [response(), response()], "prompt_token_ids": [[5], [-1]]},
            "body.prompt_token_ids.1",
        ),
        ({"generate_responses": [response(CHOICE, CHOICE)] * 2}, "choices"),
        ({"generate_responses": [response()], "completion_request": {}}, "prompt"),
        (
            {"generate_responses": [response()], "completion_request": {"prompt": "a", "suffix": "b"}},
            "suffix",
        ),
    ],
)
def test_the_place_in_a_completion_body_is_named(model: Model, body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        completion(model, **body)
    assert caught.value.param == param


def test_just_within_the_bounds(model: Model) -> None:
    chat(model, generate_response=response(candidates(3)), prompt_token_ids=[5] * MAX_LEN, prompt_tokens=0)
    chat(model, generate_response=response(*[CHOICE] * 3))
    chat(model, generate_response=response({**CHOICE, "token_ids": [5] * MAX_LEN}))
    asked = {"messages": [], "logprob_token_ids": [1, 2, 3, 4]}
    chat(model, generate_response=response(candidates(5)), chat_request=asked)


def test_another_model_is_not_found(model: Model) -> None:
    with pytest.raises(ModelNotFound):
        chat(model, model="another", generate_response=response())
    with pytest.raises(ModelNotFound):
        completion(model, model="another", generate_responses=[response()])
