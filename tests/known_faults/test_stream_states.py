"""What comes back with a chunk may be damaged, forged or another stream's; and usage, roles, empty chunks."""

import base64
import json
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from in_process import CHAT_DERENDER, COMPLETION_DERENDER, InProcessServer, Reply
from known_faults.bodies import logprob, logprobs
from known_faults.streams import chunk_body, stream

from trio_render import Policy
from trio_render.derender.stream_seal import _check, seal, unseal
from trio_render.protocol.stream import SealedState

PATHS = [CHAT_DERENDER, COMPLETION_DERENDER]


def refused(reply: Reply) -> dict[str, Any]:
    """The error of a state that is not taken: always the same, whatever was wrong with it."""
    error = reply.error
    assert error["code"] == 400
    assert error["param"] == "body.stream_state"
    assert error["message"] == "The stream_state is not that of the chunk before in this stream."
    return error


def state_after(server: InProcessServer, path: str, ids: list[int], **request: Any) -> Any:
    body = chunk_body(ids)
    if request:
        name = "chat_request" if path == CHAT_DERENDER else "completion_request"
        body[name] = {"messages": [{"role": "user", "content": "x"}], "prompt": "x", **request}
    return server.ok(path, body)["stream_state"]


GIVEN: list[Any] = [
    {},
    {"prefix_offset": -1},
    {"read_offset": 99, "prev_tokens": []},
    {"prefix_offset": 2**70},
    {"prev_tokens": [1, 2]},
    {"prev_tokens": None},
    {"prev_tokens": ["x"] * 1025},
    {"output_token_ids": [-1, 2**40]},
    {"output_chunk_lens": [5, 5]},
    *({"v": value} for value in (None, True, 5, 1.5, [], {}, "", "A", "====", "é", "A" * 64, "A" * 10**6)),
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("state", GIVEN, ids=lambda state: str(state)[:40])
def test_vllm_47161_and_50550_states_that_nobody_gave(
    smollm2: InProcessServer, path: str, state: Any
) -> None:
    """Any field could be missing or forged, and the body of the 400 was the parser's own exception text."""
    refused(smollm2.post(path, chunk_body([81], state)))


@pytest.mark.parametrize("state", ["'abc'", 7, [1, 2], True])
def test_vllm_47161_states_that_are_no_object(smollm2: InProcessServer, state: Any) -> None:
    """The form of the body is checked before."""
    error = smollm2.post(CHAT_DERENDER, chunk_body([81], state)).error
    assert (error["code"], error["type"], error["param"]) == (400, "Bad Request", "body.stream_state")


def test_vllm_47161_half_a_surrogate_pair(smollm2: InProcessServer) -> None:
    """Or text that is not Unicode."""
    raw = json.dumps(chunk_body([81], {"v": "HERE"})).replace("HERE", "\\ud83d")
    assert smollm2.post(CHAT_DERENDER, raw.encode()).error["code"] == 400


@pytest.mark.parametrize("path", PATHS)
def test_vllm_47161_unknown_keys_are_ignored(smollm2: InProcessServer, path: str) -> None:
    """A later version, or a proxy, may add some."""
    state = {**state_after(smollm2, path, [10813, 242]), "extra": {"a": [1]}, "prev_tokens": None}
    answer = smollm2.ok(path, chunk_body([218], state))
    choice = answer["chunk"]["choices"][0]
    assert (choice.get("text") or choice["delta"]["content"]) == "😀"


@pytest.mark.parametrize("path", PATHS)
def test_vllm_47161_states_of_other_streams(smollm2: InProcessServer, path: str) -> None:
    """Held-back text of one stream must never be shown in another."""
    state = state_after(smollm2, path, [504, 3575], stop=[" capital of France"])
    other_request = chunk_body([17], state)
    other_request["generate_chunk"]["request_id"] = "r2"
    refused(smollm2.post(path, other_request))
    refused(smollm2.post(PATHS[1 - PATHS.index(path)], chunk_body([17], state)))
    error = smollm2.post(path, chunk_body([17], state, index=1)).error
    assert (error["code"], error["param"]) == (400, "body.stream_state")
    empty = {**chunk_body([17], state)}
    empty["generate_chunk"] = {"request_id": "r2", "choices": []}
    refused(smollm2.post(path, empty))


def mutations(text: str, rng: random.Random) -> Iterator[str]:
    """The state with one bit, byte or piece changed."""
    data = base64.b64decode(text)
    for place in range(len(data)):
        for bit in range(8):
            yield base64.b64encode(
                data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]
            ).decode()
        yield base64.b64encode(data[:place]).decode()
        yield base64.b64encode(data[:place] + rng.randbytes(3) + data[place:]).decode()
    for place in range(len(text)):
        yield text[:place] + rng.choice("AZaz09+/=-_ \n\0é") + text[place + 1 :]
        yield text[:place] + text[place + 1 :]


@pytest.mark.parametrize("path", PATHS)
def test_vllm_47161_damaged_states(smollm2: InProcessServer, path: str) -> None:
    """A changed bit anywhere is a 400, or changes nothing."""
    state = state_after(smollm2, path, [504, 3575, 10813, 242], stop=["xyz"])["v"]
    for changed in mutations(state, random.Random(1)):
        reply = smollm2.post(path, chunk_body([218], {"v": changed}))
        if reply.status == 200:
            assert base64.b64decode(changed) == base64.b64decode(state)
        else:
            refused(reply)


VALUES: list[Any] = [
    *(-2, -1, 0, 1, 3, 4, 30, 49151, 49152, 2**31, 2**53, 2**60, 2**64 - 1, True, False, None, 1.5),
    *("", "x", "x" * 4095, "x" * 4096, b"", b"\xf0", b"\xf0\x9f\x98", b"abc", b"\xf0" * 64, b"\x80" * 500),
    *([], [False, b"", b"", 0], {}, [1, 2, 3]),
]


def forged(packed: bytes) -> Iterator[bytes]:
    """States with a good check and any one field replaced: what a client can make where there is no key."""
    fields = msgspec.msgpack.decode(packed)
    text = next(n for n, value in enumerate(fields) if isinstance(value, list))
    for value in VALUES:
        for n in range(len(fields)):
            yield msgspec.msgpack.encode([*fields[:n], value, *fields[n + 1 :]])
        for n in range(len(fields[text])):
            inner = [*fields[text][:n], value, *fields[text][n + 1 :]]
            yield msgspec.msgpack.encode([*fields[:text], inner, *fields[text + 1 :]])
        yield msgspec.msgpack.encode([*fields, value])
    yield msgspec.msgpack.encode(fields[:-1])
    yield packed + b"\xc0"
    yield b"\x9f" * 5000
    yield b""


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("ids", [[504], [10813, 242], [504, 10813]])
def test_vllm_50550_forged_states(smollm2: InProcessServer, path: str, ids: list[int]) -> None:
    """A client that makes its own state gets its own text, or a 400; never a crash, never much work."""
    kind = "chat" if path == CHAT_DERENDER else "completion"
    packed = base64.b64decode(state_after(smollm2, path, ids, stop=["xyz"])["v"])[16:]
    statuses = set()
    for data in forged(packed):
        sealed = base64.b64encode(_check(data, b"", kind, "r") + data).decode()
        for piece, fields in [
            ([218, 81], {}),
            ([], {"finish_reason": "stop"}),
            ([218], {"logprobs": logprobs(logprob(218))}),
        ]:
            body = chunk_body(piece, {"v": sealed}, **fields)
            body["completion_request"] = {"prompt": "x", "stop": ["xyz"], "min_tokens": 2}
            reply = smollm2.post(path, body)
            statuses.add(reply.status)
            if reply.status != 200:
                assert (reply.error["code"], reply.error["param"]) == (400, "body.stream_state")
    assert statuses == {200, 400}


def test_vllm_50550_states_can_not_be_forged_where_there_is_a_key(smollm2: InProcessServer) -> None:
    """With a key, only states that were given by a server with that key are taken."""
    keyed = InProcessServer(smollm2.model, Policy(served_names=("m",), stream_state_key=b"k" * 32))
    state = state_after(keyed, CHAT_DERENDER, [504])
    assert keyed.ok(CHAT_DERENDER, chunk_body([3575], state))
    refused(smollm2.post(CHAT_DERENDER, chunk_body([3575], state)))
    refused(keyed.post(CHAT_DERENDER, chunk_body([3575], state_after(smollm2, CHAT_DERENDER, [504]))))
    packed = base64.b64decode(state["v"])[16:]
    forged_ = base64.b64encode(_check(packed, b"", "chat", "r") + packed).decode()
    refused(keyed.post(CHAT_DERENDER, chunk_body([3575], {"v": forged_})))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("ids", [[26843], [242], [10813], [10813, 242], [10813, 242, 218], [504, 3575]])
def test_sglang_34740_the_state_does_not_grow(smollm2: InProcessServer, path: str, ids: list[int]) -> None:
    """The state grew by one string a call, up to a limit that ended the stream."""
    state, sizes = None, []
    for n in range(4000):
        answer = smollm2.ok(path, chunk_body([ids[n % len(ids)]], state))
        state = answer["stream_state"]
        sizes.append(len(json.dumps(state)))
    assert max(sizes[100:]) - min(sizes[90:110]) <= 16
    assert max(sizes) < 300


def test_a_state_is_sealed_as_it_was_unsealed(smollm2: InProcessServer) -> None:
    """Otherwise the tests above would look at something else than states."""
    sealed = SealedState(v=state_after(smollm2, CHAT_DERENDER, [504, 10813])["v"])
    assert seal(unseal(sealed, smollm2.model, b"", "chat", "r"), b"", "chat", "r") == sealed


@pytest.mark.parametrize("path", PATHS)
def test_vllm_51795_negative_ids(smollm2: InProcessServer, path: str) -> None:
    """The batch refused them, the stream answered 200 with empty text."""
    for body in (
        chunk_body([-5]),
        chunk_body([81, 49152]),
        chunk_body([81], logprobs=logprobs(logprob(-1))),
        {**chunk_body([81]), "prompt_token_ids": [-1]},
    ):
        assert smollm2.post(path, body).error["code"] == 400
    for state in ({"logprob_context_token_ids": [-1]}, {"output_token_ids": [-1]}):
        refused(smollm2.post(path, chunk_body([81], state)))


@pytest.mark.parametrize("path", PATHS)
def test_llm_d_inference_sim_678_shapes_of_chunks(smollm2: InProcessServer, path: str) -> None:
    """Two choices in a chunk, or more tokens than the context, are 400; another model is 404."""
    two = chunk_body([81])
    two["generate_chunk"]["choices"].append({"index": 1, "token_ids": [82]})
    assert smollm2.post(path, two).error["code"] == 400
    assert smollm2.post(path, chunk_body([81] * 8193)).error["code"] == 400
    assert smollm2.post(path, {**chunk_body([81]), "model": "unknown"}).error["code"] == 404


USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_litellm_25410_chunk_without_choices(smollm2: InProcessServer, path: str, place: int) -> None:
    """Code that takes the first choice fails on a usage chunk, which may come anywhere."""
    state, texts, roles, usages = None, "", [], []
    pieces: list[Any] = [[504], [3575]]
    pieces.insert(place, None)
    for piece in pieces:
        body = chunk_body(piece or [], state)
        if piece is None:
            body["prompt_tokens"] = 9
            body["generate_chunk"] = {"request_id": "r", "choices": [], "usage": USAGE}
        answer = smollm2.ok(path, body)
        if piece is None and state is not None:
            assert answer["stream_state"] == state
        state = answer["stream_state"]
        for choice in answer["chunk"]["choices"]:
            texts += choice.get("text") or choice["delta"]["content"]
            roles.append(choice.get("delta", {}).get("role"))
        usages.append(answer["chunk"].get("usage"))
    assert texts == "The capital"
    assert roles == (["assistant", None] if path == CHAT_DERENDER else [None, None])
    wanted = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    assert usages == [wanted if piece is None else None for piece in pieces]


@pytest.mark.parametrize("path", PATHS)
def test_litellm_25410_chunks_without_tokens(smollm2: InProcessServer, path: str) -> None:
    """A choice with an empty list, with null, or with nothing but a finish reason."""
    state = None
    shown = []
    for piece, fields in [([], {}), (None, {}), ([504], {}), (None, {"finish_reason": "length"})]:
        answer = smollm2.ok(path, chunk_body(piece, state, **fields))
        state = answer["stream_state"]
        shown.append(answer["chunk"]["choices"][0])
    if path == CHAT_DERENDER:
        assert [c["delta"] for c in shown] == [{"role": "assistant"}, {}, {"content": "The"}, {}]
    else:
        assert [c["text"] for c in shown] == ["", "", "The", ""]
    assert [c["finish_reason"] for c in shown] == [None, None, None, "length"]


def test_llm_agent_39_counts_that_are_none(smollm2: InProcessServer) -> None:
    """Counts below zero, or no numbers, are refused; details are kept."""
    for usage in ({"prompt_tokens": -1}, {"completion_tokens": "many"}, {"completion_tokens": True}):
        body = chunk_body([81])
        body["generate_chunk"]["usage"] = usage
        assert smollm2.post(CHAT_DERENDER, body).error["param"].startswith("body.generate_chunk.usage.")
    assert smollm2.post(CHAT_DERENDER, {**chunk_body([81]), "prompt_tokens": -1}).error["code"] == 400
    body = chunk_body([81])
    details = {"prompt_tokens_details": {"cached_tokens": 5}, "completion_tokens_details": None}
    body["generate_chunk"]["usage"] = {**USAGE, **details}
    assert smollm2.ok(CHAT_DERENDER, body)["chunk"]["usage"] == {**USAGE, **details}


@pytest.mark.parametrize("half", ["\\ud83d", "\\ude00"])
@pytest.mark.parametrize("field", ["request_id", "finish_reason", "stop_reason", "model"])
def test_aider_4987_half_a_surrogate_pair(smollm2: InProcessServer, field: str, half: str) -> None:
    """A lone half survives JSON reading, and fails when it is written as UTF-8."""
    body: dict[str, Any] = chunk_body([81])
    target = body if field == "model" else body["generate_chunk"]
    target = target["choices"][0] if field.endswith("reason") else target
    target[field] = "TEXT"
    raw = json.dumps(body).replace("TEXT", half).encode()
    assert smollm2.post(CHAT_DERENDER, raw).error["code"] == 400


def test_streams_need_no_request(smollm2: InProcessServer) -> None:
    """Nor a model, nor a prompt."""
    choices = stream(smollm2, CHAT_DERENDER, [[504], [3575]])
    assert [choice["delta"]["content"] for choice in choices] == ["The", " capital"]
