"""Any ids and any logprobs give a valid JSON answer, in both formats."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_models import NAMES, never, opened

from trio_render import InvalidRequest, Model, Policy
from trio_render.derender import wire
from trio_render.derender.detokenize import detokenize
from trio_render.model.fragments import FragmentCache
from trio_render.workspace import Workspace, workspace_of

MODERATE = settings(deadline=None, max_examples=60)
POLICY = Policy(max_logprobs=5)
logprobs = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-100, 0)


def token_ids(model: Model) -> st.SearchStrategy[int]:
    return st.integers(0, min(400, model.vocab_size - 1)) | st.integers(0, model.vocab_size - 1)


def entries(model: Model) -> st.SearchStrategy[dict[str, Any]]:
    """A place of logprobs: ids, placeholders or texts."""
    who = st.one_of(
        st.fixed_dictionaries({"token_id": token_ids(model)}),
        st.fixed_dictionaries({"token": token_ids(model).map("token_id:{}".format)}),
        st.fixed_dictionaries({"token": st.text(max_size=5)}).filter(
            lambda entry: not entry["token"].startswith("token_id:")
        ),
    )
    candidate = st.builds(lambda who, logprob: {**who, "logprob": logprob}, who, logprobs)
    return st.builds(
        lambda place, top: {**place, "top_logprobs": top}, candidate, st.lists(candidate, max_size=4)
    )


def responses(model: Model) -> st.SearchStrategy[dict[str, Any]]:
    choice = st.fixed_dictionaries(
        {
            "index": st.integers(0, 9),
            "token_ids": st.lists(token_ids(model), min_size=1, max_size=12),
            "finish_reason": st.sampled_from(["stop", "length", None]),
            "logprobs": st.none() | st.fixed_dictionaries({"content": st.lists(entries(model), max_size=6)}),
        }
    )
    return st.fixed_dictionaries({"request_id": st.text(max_size=5), "choices": st.lists(choice, max_size=3)})


def chat_answer(model: Model, body: dict[str, Any]) -> dict[str, Any]:
    raw = wire.chat_json(workspace_of(model, POLICY), never, [json.dumps(body).encode()])
    answer: dict[str, Any] = json.loads(raw.decode("utf-8", "strict"))
    return answer


def completion_answer(model: Model, body: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        wire.completion_json(workspace_of(model, POLICY), never, [json.dumps(body).encode()]).decode(
            "utf-8", "strict"
        )
    )
    return answer


@pytest.mark.parametrize("name", NAMES)
def test_any_output_has_a_chat_answer(model_folders: Path, name: str) -> None:
    model = opened(model_folders / name)

    @MODERATE
    @given(responses(model))
    def check(response: dict[str, Any]) -> None:
        answer = chat_answer(model, {"generate_response": response})
        assert len(answer["choices"]) == len(response["choices"])
        for shown, choice in zip(answer["choices"], response["choices"], strict=True):
            if choice["logprobs"] is None:
                continue
            places = shown["logprobs"]["content"]
            assert len(places) == len(choice["logprobs"]["content"])
            for place, entry in zip(places, choice["logprobs"]["content"], strict=True):
                assert place["logprob"] == entry["logprob"]
                assert len(place["top_logprobs"]) == len(entry["top_logprobs"])
                for item in (place, *place["top_logprobs"]):
                    assert bytes(item["bytes"]).decode() == item["token"]

    check()


@pytest.mark.parametrize("name", NAMES)
def test_any_output_has_a_completion_answer(model_folders: Path, name: str) -> None:
    model = opened(model_folders / name)

    @MODERATE
    @given(st.lists(responses(model), min_size=1, max_size=2))
    def check(given: list[dict[str, Any]]) -> None:
        answer = completion_answer(model, {"generate_responses": given})
        flat = [choice for response in given for choice in response["choices"]]
        assert [choice["index"] for choice in answer["choices"]] == list(range(len(flat)))
        assert answer["usage"]["completion_tokens"] == sum(len(choice["token_ids"]) for choice in flat)
        for shown, choice in zip(answer["choices"], flat, strict=True):
            if choice["logprobs"] is None:
                continue
            lists = shown["logprobs"]
            assert len({len(column) for column in lists.values()}) == 1
            offsets = [len("".join(lists["tokens"][:n])) for n in range(len(lists["tokens"]))]
            assert lists["text_offset"] == offsets

    check()


@pytest.mark.parametrize("name", NAMES)
def test_token_texts_of_logprobs_add_up_to_the_text(model_folders: Path, name: str) -> None:
    """For an output of whole characters; a first space aside, which only the text may lose."""
    model = opened(model_folders / name)

    @MODERATE
    @given(
        st.text(
            st.characters(codec="utf-8", min_codepoint=32, max_codepoint=0x3FFFF), min_size=1, max_size=15
        )
    )
    def check(text: str) -> None:
        ids = model.tokenizer.encode(text)
        content = [{"token_id": i, "logprob": -1.0, "top_logprobs": []} for i in ids]
        choice = {"index": 0, "token_ids": ids, "finish_reason": "length", "logprobs": {"content": content}}
        response = {"request_id": "r", "choices": [choice]}
        request = {"messages": [], "skip_special_tokens": False}
        answer = chat_answer(model, {"generate_response": response, "chat_request": request})["choices"][0]
        shown = "".join(place["token"] for place in answer["logprobs"]["content"])
        content_text = answer["message"]["content"]
        assert content_text == detokenize(model.tokenizer.table, ids, skip_special_tokens=False)
        if model.tokenizer.table.rules.strips_first_space:
            shown = shown.removeprefix(" ")
        assert shown == content_text

    check()


@pytest.mark.parametrize("value", ["NaN", "1e999", "-1e999", "Infinity"])
def test_a_logprob_that_json_can_not_say_is_refused(model_folders: Path, value: str) -> None:
    model = opened(model_folders / "smollm2")
    place = f'{{"token_id": 5, "logprob": {value}, "top_logprobs": []}}'
    choice = f'{{"index": 0, "token_ids": [5], "logprobs": {{"content": [{place}]}}}}'
    response = f'{{"request_id": "r", "choices": [{choice}]}}'
    with pytest.raises(InvalidRequest):
        wire.chat_json(workspace_of(model, POLICY), never, [f'{{"generate_response": {response}}}'.encode()])
    with pytest.raises(InvalidRequest):
        wire.completion_json(
            workspace_of(model, POLICY), never, [f'{{"generate_responses": [{response}]}}'.encode()]
        )


def test_the_fragment_cache_changes_no_answer(model_folders: Path) -> None:
    model = opened(model_folders / "deepseek")
    cache = FragmentCache(model.tokenizer.table)

    @MODERATE
    @given(responses(model))
    def check(response: dict[str, Any]) -> None:
        body = json.dumps({"generate_response": response}).encode()
        warm = json.loads(wire.chat_json(Workspace(model, POLICY, cache), never, [body]))
        cold = json.loads(wire.chat_json(workspace_of(model, POLICY), never, [body]))
        assert warm["choices"] == cold["choices"]

    check()


def test_checkpoints_are_met_every_few_places(model_folders: Path) -> None:
    model = opened(model_folders / "smollm2")
    content = [{"token_id": 5, "logprob": -1.0, "top_logprobs": []}] * 640
    choice = {"index": 0, "token_ids": [5] * 640, "logprobs": {"content": content}}
    response = {"request_id": "r", "choices": [choice], "prompt_logprobs": [None] * 30}
    calls: list[int] = []
    body = json.dumps({"generate_response": response}).encode()
    wire.chat_json(workspace_of(model, POLICY), lambda: calls.append(1), [body])
    assert len(calls) >= 30 + 640 / 32
    calls.clear()
    body = json.dumps({"generate_responses": [response]}).encode()
    wire.completion_json(workspace_of(model, POLICY), lambda: calls.append(1), [body])
    assert len(calls) >= 30 + 640
