"""Which tokens of a prompt are kept, and which prompts are too long."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opened_models import opened

from trio_render import CompletionRequest, InvalidRequest, Model, Policy
from trio_render.protocol.generate import GenerateRequest
from trio_render.render.completion import plan_completion, render_prompt
from trio_render.render.truncation import Truncation

MAX_LEN = 8192


@pytest.fixture
def model(model_folders: Path) -> Model:
    return opened(model_folders / "smollm2")


def prompt(model: Model, **fields: Any) -> GenerateRequest:
    return render_prompt(model, plan_completion(model, Policy(), CompletionRequest(**fields)), 0)


@given(st.lists(st.integers()), st.integers(0, 10), st.integers(0, 4), st.booleans())
def test_what_is_kept_is_an_end_of_the_prompt(
    items: list[int], most: int, reserved: int, start: bool
) -> None:
    kept = Truncation(most, start).keep(items, reserved)
    assert len(kept) == min(len(items), max(most - reserved, 0))
    assert kept == (items[: len(kept)] if start else items[len(items) - len(kept) :])
    assert Truncation(None, start).keep(items, reserved) == items


@pytest.mark.parametrize(("side", "kept"), [(None, [3, 4]), ("left", [3, 4]), ("right", [1, 2])])
def test_ids_are_cut_on_the_side_asked_for(model: Model, side: Any, kept: list[int]) -> None:
    cut = prompt(model, prompt=[1, 2, 3, 4], truncate_prompt_tokens=2, truncation_side=side)
    assert cut.token_ids == kept


def test_special_tokens_around_a_text_are_never_cut(model_folders: Path) -> None:
    model = opened(model_folders / "mistral-hf")
    ids = model.tokenizer.encode("one two three")
    cut = prompt(model, prompt="one two three", truncate_prompt_tokens=2, return_token_offsets=True)
    assert cut.token_ids == [1, ids[-1]]
    assert cut.token_offsets == [(0, 0), (7, 13)]
    assert prompt(model, prompt="one two three", truncate_prompt_tokens=1).token_ids == [1]


def test_minus_one_leaves_room_for_one_token(model: Model) -> None:
    cut = prompt(model, prompt=[5] * 9000, truncate_prompt_tokens=-1)
    assert len(cut.token_ids) == MAX_LEN - 1
    assert cut.sampling_params.max_tokens == 1


@pytest.mark.parametrize("n", [0, -2, MAX_LEN + 1, -(2**63)])
def test_a_truncation_out_of_range_is_refused(model: Model, n: int) -> None:
    with pytest.raises(InvalidRequest) as caught:
        prompt(model, prompt="hi", truncate_prompt_tokens=n)
    assert caught.value.param == "truncate_prompt_tokens"


@pytest.mark.parametrize(
    ("given_prompt", "param"),
    [
        ([5] * MAX_LEN, "input_tokens"),
        ("word " * MAX_LEN, "input_tokens"),
        ("a" * 6_000_000, "input_text"),
        ("7" * 6_000_000, "input_text"),
        ("", "prompt"),
        ([], "prompt"),
    ],
    ids=["ids", "words", "letters", "digits", "empty text", "no ids"],
)
def test_a_prompt_that_can_not_fit_is_refused(model: Model, given_prompt: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        prompt(model, prompt=given_prompt)
    assert caught.value.param == param
    assert len(caught.value.message) < 300


def test_the_longest_prompt_leaves_one_token(model: Model) -> None:
    longest = prompt(model, prompt=[5] * (MAX_LEN - 1))
    assert longest.sampling_params.max_tokens == 1


def test_a_text_is_cut_to_size_before_its_length_counts(model: Model) -> None:
    text = "word " * MAX_LEN
    assert len(prompt(model, prompt=text, truncate_prompt_tokens=10).token_ids) == 10
