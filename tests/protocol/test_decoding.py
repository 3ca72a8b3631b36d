"""Bodies of any kind: a wire type, or MalformedRequest with the place of the fault."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_render import (
    ChatRequest,
    CompletionRequest,
    DerenderChatRequest,
    DerenderCompletionRequest,
    DetokenizeRequest,
    InvalidRequest,
    MalformedRequest,
    TokenizeChatRequest,
    TokenizeRequest,
)
from trio_render.protocol.decoding import decode_body, encode, param_of
from trio_render.protocol.stream import DerenderChatChunk, DerenderCompletionChunk

TYPES: list[type[msgspec.Struct]] = [
    ChatRequest,
    CompletionRequest,
    DerenderChatRequest,
    DerenderChatChunk,
    DerenderCompletionChunk,
    DerenderCompletionRequest,
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizeRequest,
]
by_type = pytest.mark.parametrize("type_", TYPES, ids=lambda type_: type_.__name__)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


def param_at_fault(body: bytes, type_: type[Any] = ChatRequest) -> str | None:
    with pytest.raises(MalformedRequest) as caught:
        decode_body(body, type_)
    assert len(caught.value.message) < 300
    return caught.value.param


def is_decoded_or_malformed(body: bytes, type_: type[msgspec.Struct]) -> bool:
    try:
        return isinstance(decode_body(body, type_), type_)
    except MalformedRequest as error:
        return (error.param or "").startswith("body")


@by_type
@settings(deadline=None, max_examples=150)
@given(body=st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_request_or_malformed(type_: type[msgspec.Struct], body: bytes) -> None:
    assert is_decoded_or_malformed(body, type_)


@by_type
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_any_values_of_known_fields_are_a_request_or_malformed(
    type_: type[msgspec.Struct], data: st.DataObject
) -> None:
    names = st.sampled_from(msgspec.structs.fields(type_)).map(lambda field: field.encode_name)
    body = data.draw(st.dictionaries(names, json_values, max_size=6))
    assert is_decoded_or_malformed(json.dumps(body).encode(), type_)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", "body"),
        (b"  \n", "body"),
        (b"{", "body.1"),
        (b'{"messages": [', "body.14"),
        (b'{"messages": x}', "body.13"),
        (b"[]", "body"),
        (b"null", "body"),
        (b"{}", "body.messages"),
        (b'{"messages": null}', "body.messages"),
        (b'{"messages": "hi"}', "body.messages"),
        (b'{"messages": ["hi"]}', "body.messages.0"),
        (b'{"messages": [], "n": "x"}', "body.n"),
        (b'{"messages": [], "n": 1.5}', "body.n"),
        (b'{"messages": [], "n": 9223372036854775808}', "body.n"),
        (b'{"messages": [], "stop_token_ids": [1, "x"]}', "body.stop_token_ids.1"),
        (b'{"messages": [], "tools": [{"type": "function"}]}', "body.tools.0.function"),
        (b'{"messages": [], "tools": [{"function": {"name": 1}}]}', "body.tools.0.function.name"),
        (b'{"messages": [], "truncation_side": "middle"}', "body.truncation_side"),
        (b'{"messages": [], "stream_options": {"include_usage": 5}}', "body.stream_options.include_usage"),
    ],
)
def test_the_place_of_the_fault_is_named(body: bytes, param: str) -> None:
    assert param_at_fault(body) == param


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages": [], "user": "\\ud800"}',
        b'{"messages": [], "user": "\\udc00\\ud800"}',
        b'{"messages": [], "user": "\xed\xa0\x80"}',
        b'{"messages": [{"role": "user", "content": "\\ud83d"}]}',
        b'{"messages": [], "user": "\x01"}',
        b'{"messages": [], "user": "\xff"}',
        b'{"messages": []} trailing',
        b"\xff\xfe",
        b'{"messages": [], "temperature": NaN}',
        b'{"messages": [], "temperature": Infinity}',
        b'{"messages": [], "vllm_xargs": {"a": 1e999}}',
        b'{"messages": [], "vllm_xargs": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_what_no_json_writer_could_give_back_is_malformed(body: bytes) -> None:
    assert (param_at_fault(body) or "").startswith("body")


def test_messages_quote_nothing_of_the_body() -> None:
    secret = "sesame"
    for body in (
        {"messages": secret},
        {"messages": [], "n": secret},
        {"messages": [], "truncation_side": secret},
        {"messages": [], "reasoning_effort": secret},
        {"messages": [], "stop_token_ids": [secret]},
        {"messages": [], "tools": [{"type": secret, "function": {"name": "f"}}]},
    ):
        with pytest.raises(MalformedRequest) as caught:
            decode_body(json.dumps(body).encode(), ChatRequest)
        assert secret not in str(caught.value)


def test_numbers_may_be_written_as_the_reference_takes_them() -> None:
    request = decode_body(b'{"messages": [], "n": 2.0, "seed": "7", "temperature": 1}', ChatRequest)
    assert (request.n, request.seed, request.temperature) == (2, 7, 1.0)


def test_unknown_fields_are_ignored() -> None:
    assert decode_body(b'{"messages": [], "unheard_of": {"a": [1]}}', ChatRequest).messages == []


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("", "body"),
        (".messages", "body.messages"),
        (".tools[0].type", "body.tools.0.type"),
        ("[3][4]", "body.3.4"),
        ("[...].type", "body.type"),
        (".logit_bias[...]", "body.logit_bias"),
    ],
)
def test_a_path_becomes_a_dotted_parameter(path: str, param: str) -> None:
    assert param_of(path) == param


@pytest.mark.parametrize("open_", ["[", '{"a":'])
def test_what_was_nested_within_bounds_can_be_written_or_is_refused(open_: str) -> None:
    """An answer may nest a value deeper than the request that brought it."""
    close = {"[": "]", '{"a":': "}"}[open_]
    for depth in range(100, 1100, 7):
        body = f'{{"prompt": "x", "kv_transfer_params": {{"a": {open_ * depth}1{close * depth}}}}}'
        try:
            request = decode_body(body.encode(), CompletionRequest)
        except MalformedRequest:
            continue
        try:
            written = encode([[[[[request.kv_transfer_params]]]]])
        except InvalidRequest:
            continue
        assert written.count(b"a") >= 1
