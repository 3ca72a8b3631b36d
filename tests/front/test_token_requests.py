"""``/inference/v1/generate``: whatever JSON comes in, it is a request or is refused, with its parameter."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_models import never, opened

from trio_render import InvalidRequest, MalformedRequest, ModelNotFound, Policy, Workspace, workspace_of
from trio_render.protocol.decoding import encode
from trio_render.protocol.sampling import SamplingFields, SamplingParams
from trio_render.render.generate import generate_request

NAMES = sorted({*SamplingFields.__struct_fields__, *SamplingParams.__struct_fields__})
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.integers(),
    st.floats(),
    st.sampled_from([0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 1e308, 49151, 49152]),
)
SCALARS = st.one_of(
    st.none(), st.booleans(), NUMBERS, st.text(max_size=8), st.sampled_from(["1", "nan", "-inf"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=6) | st.sampled_from(NAMES), inner, max_size=3),
    ),
    max_leaves=8,
)
PARAMS = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=10), JSON, max_size=5)


@pytest.fixture(scope="module")
def workspace(model_folders: Path) -> Workspace:
    return workspace_of(opened(model_folders / "smollm2"), Policy(served_names=("m",)))


def check(workspace: Workspace, body: dict[str, Any]) -> None:
    """Accepted, and then written and read back as it is; or refused by name."""
    try:
        request = generate_request(workspace, never, [json.dumps(body).encode()])
    except ModelNotFound:
        return
    except InvalidRequest as error:
        refused = error
    else:
        refused = None
    if refused is not None:
        assert refused.param
        assert len(refused.message) < 1000
        return
    written = encode(request)
    json.loads(written, parse_constant=lambda name: pytest.fail(name))
    assert generate_request(workspace, never, [written]) == request


@given(params=PARAMS)
@settings(max_examples=150, deadline=None)
def test_any_sampling_params(workspace: Workspace, params: dict[str, Any]) -> None:
    check(workspace, {"token_ids": [504], "sampling_params": params})


@given(
    body=st.dictionaries(
        st.sampled_from(
            ["token_ids", "sampling_params", "request_id", "stream", "priority", "model", "stream_options",
             "cache_salt", "output_mode", "return_token_ids", "kv_transfer_params", "reasoning_ended"]
        ),
        JSON | st.just([504]),
        max_size=6,
    )
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_any_body(workspace: Workspace, body: dict[str, Any]) -> None:
    check(workspace, body)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "body.token_ids"),
    ({"token_ids": None}, "body.token_ids"),
    ({"token_ids": "abc"}, "body.token_ids"),
    ({"token_ids": []}, "prompt"),
    ({"token_ids": [-1]}, "body.token_ids"),
    ({"token_ids": [49152]}, "body.token_ids"),
    ({"token_ids": [1.5]}, "body.token_ids.0"),
    ({"token_ids": [1] * 8192}, "input_tokens"),
    ({"token_ids": [1], "sampling_params": 5}, "body.sampling_params"),
    ({"token_ids": [1], "sampling_params": {"temperature": "warm"}}, "body.sampling_params.temperature"),
    ({"token_ids": [1], "sampling_params": {"temperature": -1}}, "temperature"),
    ({"token_ids": [1], "sampling_params": {"top_p": 0}}, "top_p"),
    ({"token_ids": [1], "sampling_params": {"n": 0}}, "n"),
    ({"token_ids": [1], "sampling_params": {"max_tokens": 0}}, "max_tokens"),
    ({"token_ids": [1], "sampling_params": {"max_tokens": -5}}, "max_tokens"),
    ({"token_ids": [1], "sampling_params": {"min_tokens": 20}}, "min_tokens"),
    ({"token_ids": [1], "sampling_params": {"logprobs": 21}}, "logprobs"),
    ({"token_ids": [1], "sampling_params": {"logprobs": True}}, "body.sampling_params.logprobs"),
    (
        {"token_ids": [1], "sampling_params": {"stop_token_ids": [[1]]}},
        "body.sampling_params.stop_token_ids.0",
    ),
    ({"token_ids": [1], "stream_options": {"include_usage": True}}, "stream_options"),
    ({"token_ids": [1], "model": 5}, "body.model"),
]


@pytest.mark.parametrize(("body", "param"), REFUSED)
def test_what_is_refused_is_named(workspace: Workspace, body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        generate_request(workspace, never, [json.dumps(body).encode()])
    assert refused.value.param == param


def test_an_unknown_model(workspace: Workspace) -> None:
    with pytest.raises(ModelNotFound):
        generate_request(workspace, never, [b'{"token_ids": [1], "model": "other"}'])


def test_a_refusal_quotes_nothing(workspace: Workspace) -> None:
    for params in ({"truncation_side": "SECRET"}, {"temperature": "SECRET"}, {"seed": ["SECRET"]}):
        body = json.dumps({"token_ids": [1], "sampling_params": params}).encode()
        with pytest.raises(MalformedRequest) as refused:
            generate_request(workspace, never, [body])
        assert "SECRET" not in refused.value.message
