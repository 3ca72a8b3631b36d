"""What the engine can't do is refused by name, before it costs anything; nothing is passed over."""

import math
from typing import Any

import pytest
import torch
from engine_demo import request, weights, workspace

from trio_render import InvalidRequest
from trio_render.engine.requests import check_request


def refused(
    outside: dict[str, Any] | None = None,
    embeds: torch.Tensor | None = None,
    prompt: str | list[int] = "hello",
    **fields: Any,
) -> str | None:
    with pytest.raises(InvalidRequest) as caught:
        check_request(request(prompt, outside=outside, **fields), embeds, workspace().model, weights())
    return caught.value.param


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("thinking_token_budget", 5),
        ("repetition_detection", {"max_pattern_size": 3}),
        ("extra_args", {"mode": "fast"}),
        ("temperature", -1.0),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("top_k", -2),
        ("min_p", 1.5),
        ("presence_penalty", 3.0),
        ("frequency_penalty", -3.0),
        ("repetition_penalty", 0.0),
        ("n", 0),
        ("max_tokens", 0),
        ("min_tokens", 17),
        ("stream_interval", 0),
        ("logprobs", -2),
        ("prompt_logprobs", -2),
        ("stop", ["a", ""]),
        ("stop_token_ids", [-1]),
        ("logprob_token_ids", [10**6]),
    ],
)
def test_sampling_parameters(name: str, value: Any) -> None:
    assert refused(**{name: value}) == name


@pytest.mark.parametrize(
    ("name", "value"), [("kv_transfer_params", {}), ("ec_transfer_params", {"a": 1}), ("priority", 1)]
)
def test_fields_of_the_request(name: str, value: Any) -> None:
    assert refused({name: value}) == name


@pytest.mark.parametrize("prompt", [[], [-1], [49152], [5] * 8192], ids=len)
def test_prompts(prompt: list[int]) -> None:
    assert refused(prompt=prompt) == "prompt"


@pytest.mark.parametrize("shape", [(3,), (0, 576), (3, 575), (1, 3, 576)])
def test_embeddings_of_another_shape(shape: tuple[int, ...]) -> None:
    assert refused(embeds=torch.zeros(shape)) == "prompt_embeds"


def test_harmless_values_pass() -> None:
    asked = request("hello", outside={"cache_salt": "s"}, extra_args={}, top_k=-1, temperature=1.5)
    check_request(asked, None, workspace().model, weights())
    check_request(asked, torch.zeros(4, 576), workspace().model, weights())
