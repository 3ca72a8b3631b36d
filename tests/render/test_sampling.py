"""Sampling parameters: defaults, ranges, and `max_tokens` against the context."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opened_models import opened

from trio_render import ChatRequest, InvalidRequest, MalformedRequest, Model, Policy, SamplingParams
from trio_render.render.sampling import logprob_count, resolve_max_tokens, sampling_basis

POLICY = Policy(max_sequences=8)


@pytest.fixture
def model(model_folders: Path) -> Model:
    return opened(model_folders / "smollm2")


def params(model: Model, **fields: Any) -> SamplingParams:
    request = ChatRequest(messages=[], **fields)
    return sampling_basis(request, model, POLICY, logprobs=None, prompt_logprobs=None).with_max_tokens(7)


def param_at_fault(model: Model, **fields: Any) -> str | None:
    with pytest.raises(InvalidRequest) as caught:
        params(model, **fields)
    return caught.value.param


def test_defaults(model: Model) -> None:
    plain = params(model)
    assert (plain.temperature, plain.top_p, plain.top_k, plain.n, plain.max_tokens) == (1.0, 1.0, 0, 1, 7)
    assert plain.stop == plain.stop_token_ids == plain.bad_words == []


def test_the_model_s_own_defaults_stand_behind_the_request(model: Model) -> None:
    own = replace(model, sampling_defaults={"temperature": 0.6, "top_k": 20, "top_p": 0.95})
    assert (params(own).temperature, params(own).top_k, params(own).top_p) == (0.6, 20, 0.95)
    assert params(own, temperature=1.5).temperature == 1.5


def test_greedy_sampling_leaves_nothing_to_choose_from(model: Model) -> None:
    greedy = params(model, temperature=0, top_p=0.5, top_k=5, min_p=0.1)
    assert (greedy.temperature, greedy.top_p, greedy.top_k, greedy.min_p) == (0.0, 1.0, 0, 0.0)
    assert params(model, temperature=0.001).temperature == 0.01


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("temperature", [0.0, 2.0], [-0.1, 2.1, math.nan, math.inf, -math.inf]),
        ("top_p", [0.01, 1.0], [0.0, 1.1, -1.0, math.nan]),
        ("min_p", [0.0, 1.0], [-0.1, 1.1, math.nan]),
        ("presence_penalty", [-2.0, 2.0], [-2.1, 2.1, math.nan]),
        ("frequency_penalty", [-2.0, 2.0], [-2.1, 2.1, math.inf]),
        ("repetition_penalty", [0.1, 2.0], [0.0, 2.1, math.nan]),
        ("top_k", [-1, 0, 10**9], [-2]),
        ("min_tokens", [0, 5], [-1]),
        ("n", [1, 8], [0, -1, 9]),
        ("stop", ["a", ["a"] * 4, []], ["", [""], ["a", ""]]),
        ("stop_token_ids", [[], [0], [49151]], [[-1], [49152], [10**30]]),
        ("allowed_token_ids", [[5]], [[], [-1], [49152]]),
        ("logprob_token_ids", [[5], []], [[-1], [49152]]),
        ("bad_words", [["a"], []], [[""]]),
        (
            "logit_bias",
            [{}, {"5": 1}, {"49151": -3.5}],
            [{"-1": 1}, {"49152": 1}, {"x": 1}, {"²": 1}, {"": 1}],
        ),
        ("use_beam_search", [False], [True]),
    ],
)
def test_values_out_of_range_name_their_parameter(
    model: Model, name: str, good: list[Any], bad: list[Any]
) -> None:
    for value in good:
        params(model, **{name: value})
    for value in bad:
        assert param_at_fault(model, **{name: value}) == name


@pytest.mark.parametrize("stop", [5, {}, [5], ["a"] * 5, True])
def test_stop_of_the_wrong_form_is_malformed(model: Model, stop: Any) -> None:
    with pytest.raises(MalformedRequest) as caught:
        params(model, stop=stop)
    assert caught.value.param == "body.stop"


@pytest.mark.parametrize("amount", ["1", None, True, [], {}])
def test_a_bias_that_is_no_number_is_malformed(model: Model, amount: Any) -> None:
    with pytest.raises(MalformedRequest) as caught:
        params(model, logit_bias={"5": amount})
    assert caught.value.param == "body.logit_bias.5"


def test_a_bias_is_kept_within_a_hundred(model: Model) -> None:
    assert params(model, logit_bias={"5": 1e300, "6": -(10**400), "7": 3}).logit_bias == {
        "5": 100.0,
        "6": -100.0,
        "7": 3.0,
    }


def test_several_sequences_need_a_temperature(model: Model) -> None:
    assert param_at_fault(model, n=2, temperature=0) == "n"


def test_text_is_held_back_for_the_longest_stop_string(model: Model) -> None:
    assert params(model, stop=["ab", "abcd"]).output_text_buffer_length == 3
    assert params(model, stop=["abcd"], include_stop_str_in_output=True).output_text_buffer_length == 0


@pytest.mark.parametrize(
    ("asked", "default", "prompt", "wanted"),
    [
        (None, None, 100, 8092),
        (None, 16, 100, 16),
        (None, 16, 8190, 2),
        (None, 16, 8192, 1),
        (5, None, 100, 5),
        (8192, None, 100, 8092),
        (1, 16, 8191, 1),
    ],
)
def test_max_tokens_fits_into_what_the_prompt_leaves(
    model: Model, asked: int | None, default: int | None, prompt: int, wanted: int
) -> None:
    assert resolve_max_tokens(asked, default, prompt, model) == wanted


@pytest.mark.parametrize("asked", [0, -1, 8193, 2**63 - 1])
def test_max_tokens_out_of_range_is_refused(model: Model, asked: int) -> None:
    with pytest.raises(InvalidRequest) as caught:
        resolve_max_tokens(asked, None, 10, model)
    assert caught.value.param == "max_tokens"


def test_an_echo_needs_no_tokens(model: Model) -> None:
    assert resolve_max_tokens(0, None, 10, model, echo_only=True) == 1


@pytest.mark.parametrize(("value", "count"), [(None, None), (0, 0), (20, 20), (-1, -1), (5.0, 5)])
def test_counts_of_candidates(value: Any, count: int | None) -> None:
    assert logprob_count(value, "logprobs", Policy()) == count


@pytest.mark.parametrize("value", [-2, 21, 1.5, "5", True, [], {}, 1e300, math.inf, math.nan, 10**40])
def test_counts_of_candidates_that_are_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        logprob_count(value, "logprobs", Policy())
    assert caught.value.param == "logprobs"
    assert len(caught.value.message) < 400


def test_without_a_bound_any_count_goes() -> None:
    assert logprob_count(10**6, "logprobs", Policy(max_logprobs=-1)) == 10**6
