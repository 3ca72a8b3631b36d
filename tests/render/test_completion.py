"""Completion prompts in their four forms."""

from pathlib import Path
from typing import Any

import pytest
from opened_models import opened

from trio_render import CompletionRequest, InvalidRequest, MalformedRequest, Model, Policy
from trio_render.protocol.generate import GenerateRequest
from trio_render.render.completion import plan_completion, render_prompt


@pytest.fixture
def model(model_folders: Path) -> Model:
    return opened(model_folders / "smollm2")


def rendered(model: Model, policy: Policy | None = None, /, **fields: Any) -> list[GenerateRequest]:
    plan = plan_completion(model, policy or Policy(), CompletionRequest(**fields))
    return [render_prompt(model, plan, n) for n in range(plan.total)]


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [("hi you", ["hi you"]), (["hi you"], ["hi you"]), (["a", "b c"], ["a", "b c"])],
)
def test_texts(model: Model, prompt: Any, texts: list[str]) -> None:
    assert [r.token_ids for r in rendered(model, prompt=prompt)] == [model.tokenizer.encode(t) for t in texts]


@pytest.mark.parametrize(
    ("prompt", "ids"), [([5, 6], [[5, 6]]), ([[5], [6, 7]], [[5], [6, 7]]), ([[5]], [[5]])]
)
def test_ids(model: Model, prompt: Any, ids: list[list[int]]) -> None:
    assert [r.token_ids for r in rendered(model, prompt=prompt)] == ids


@pytest.mark.parametrize(
    "prompt",
    [5, 1.5, True, {}, [None], [1.5], [True], ["a", 5], [[5], "a"], [["a"]], [[1.5]], [[True]], [[[5]]]],
)
def test_a_prompt_of_no_form_is_malformed(model: Model, prompt: Any) -> None:
    with pytest.raises(MalformedRequest) as caught:
        rendered(model, prompt=prompt)
    assert caught.value.param == "body.prompt"


@pytest.mark.parametrize("prompt", [[-1], [49152], [10**30], [[5], [-1]]])
def test_ids_outside_the_vocabulary_are_refused(model: Model, prompt: Any) -> None:
    with pytest.raises(MalformedRequest) as caught:
        rendered(model, prompt=prompt)
    assert caught.value.param == "body.prompt"


@pytest.mark.parametrize("prompt", [[""], ["a", ""], [[]], [[5], []]])
def test_one_empty_prompt_spoils_the_batch(model: Model, prompt: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        rendered(model, prompt=prompt)
    assert caught.value.param == "prompt"


def test_prompts_of_a_batch_are_numbered(model: Model) -> None:
    assert [r.request_id for r in rendered(model, prompt=["a", "b"], request_id="x")] == [
        "cmpl-x-0",
        "cmpl-x-1",
    ]
    assert [r.request_id for r in rendered(model, prompt=["a"], request_id="x")] == ["cmpl-x"]
    one, two = rendered(model, prompt=["a", "b"])
    assert one.request_id[:-2] == two.request_id[:-2]


def test_the_policy_bounds_the_batch(model: Model) -> None:
    policy = Policy(max_prompts=3)
    assert len(rendered(model, policy, prompt=["a"] * 3)) == 3
    for prompt in (["a"] * 4, [[5]] * 4):
        with pytest.raises(InvalidRequest) as caught:
            rendered(model, policy, prompt=prompt)
        assert caught.value.param == "prompt"
    assert rendered(model, policy, prompt=[5] * 100)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "x"}, "suffix"),
        ({"prompt_embeds": "x"}, "prompt_embeds"),
        ({"prompt_embeds": ["x"]}, "prompt_embeds"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"cache_salt": "x" * 129}, "cache_salt"),
        ({"cache_salt": "a\x00"}, "cache_salt"),
        ({"logprobs": 21}, "logprobs"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"min_tokens": 20}, "min_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_fields_that_can_not_be_served_are_named(model: Model, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        rendered(model, prompt="hi", **fields)
    assert caught.value.param == param


def test_offsets_are_places_in_the_text(model: Model) -> None:
    text = "caf\u00e9 \U0001f468 end"
    (answer,) = rendered(model, prompt=text, return_token_offsets=True)
    assert answer.token_offsets is not None
    assert len(answer.token_offsets) == len(answer.token_ids)
    assert answer.token_ids == model.tokenizer.encode(text)
    assert text[slice(*answer.token_offsets[-1])] == " end"
