"""Logprobs: texts and bytes of partial characters, candidates, offsets, and numbers JSON can't write."""

import json
from typing import Any

import pytest
from in_process import CHAT_DERENDER, COMPLETION_DERENDER, InProcessServer
from known_faults.bodies import (
    chat_body,
    chat_choice,
    completion_body,
    completion_choice,
    logprob,
    logprobs,
    text_after,
)


def with_logprobs(ids: list[int]) -> dict[str, Any]:
    """``logprobs`` with one entry per id."""
    return logprobs(*(logprob(token_id) for token_id in ids))


def test_vllm_28874_parts_of_a_character_of_byte_tokens(mistral: InProcessServer) -> None:
    """The text was right, but its logprob tokens were U+FFFD."""
    ids = [28705, 233, 176, 173, 28808]
    lists = completion_choice(mistral, ids, logprobs=with_logprobs(ids))["logprobs"]
    assert lists["tokens"] == [" ", "", "", "歪", "!"]
    assert lists["text_offset"] == [0, 1, 1, 1, 2]
    assert text_after(mistral, [1, 15359], ids) == " 歪!"


def test_standardcompletions_2_parts_of_a_character_with_bytes(deepseek: InProcessServer) -> None:
    """One server escapes what is not UTF-8, another writes U+FFFD; joined bytes are what a client can use."""
    ids = [28927, 225, 3]
    content = chat_choice(deepseek, ids, logprobs=with_logprobs(ids))["logprobs"]["content"]
    assert [entry["token"] for entry in content] == ["", "😀", "!"]
    assert bytes(byte for entry in content for byte in entry["bytes"]) == b"\xf0\x9f\x98\x80!"


def test_sglang_32290_candidates_that_show_the_same_text(smollm2: InProcessServer) -> None:
    """Several candidates share the empty text, and the worst one's value stood beside the sampled token."""
    entry = logprob(10813, -0.5, (10813, -0.5), (242, -1.5), (218, -2.5), (235, -3.5))
    lists = completion_choice(smollm2, [10813], logprobs=logprobs(entry))["logprobs"]
    assert lists["token_logprobs"] == [-0.5]
    assert lists["top_logprobs"][0][lists["tokens"][0]] == -0.5


@pytest.mark.parametrize("order", [(218, 235, 17), (17, 235, 218)])
def test_vllm_34875_candidates_follow_the_sampled_tokens(
    smollm2: InProcessServer, order: tuple[int, ...]
) -> None:
    """Candidates of one place were joined as if they followed each other."""
    ids = [10813, 242, 218]
    third = logprob(218, -0.5, *((token_id, -0.5 - n) for n, token_id in enumerate(order)))
    given = logprobs(logprob(10813), logprob(242), third)
    top = chat_choice(smollm2, ids, logprobs=given)["logprobs"]["content"][2]["top_logprobs"]
    shown = {218: "😀", 235: "😑", 17: "!"}
    assert [entry["token"] for entry in top] == [shown[token_id] for token_id in order]
    assert [entry["bytes"] for entry in top] == [list(shown[token_id].encode()) for token_id in order]


def test_sglang_5984_very_small_finite_values_pass_through(smollm2: InProcessServer) -> None:
    """Requests with logprobs answered 500 because masked candidates are close to minus infinity."""
    entry = logprob(26843, -0.5, (26843, -0.5), (665, -9999.0), (30, -1e308))
    (place,) = chat_choice(smollm2, [26843], logprobs=logprobs(entry))["logprobs"]["content"]
    assert place["logprob"] == -0.5
    assert [candidate["logprob"] for candidate in place["top_logprobs"]] == [-0.5, -9999.0, -1e308]


@pytest.mark.parametrize("number", ["-Infinity", "Infinity", "NaN", "-1e999", "1e999"])
@pytest.mark.parametrize("path", [CHAT_DERENDER, COMPLETION_DERENDER])
def test_mlx_omni_server_56_values_that_are_not_finite(
    smollm2: InProcessServer, path: str, number: str
) -> None:
    """A forbidden candidate has minus infinity: an answer with that in it is no JSON."""
    make = chat_body if path == CHAT_DERENDER else completion_body
    entry = logprob(26843, -0.5, (26843, -0.5), (665, -7.25))
    body = json.dumps(make([26843], logprobs=logprobs(entry))).replace("-7.25", number)
    reply = smollm2.post(path, body.encode())
    assert reply.error["code"] == 400
    assert b"Infinity" not in reply.raw


@pytest.mark.parametrize("extra", [(), ((30, -3.0),)])
def test_tabby_api_141_sampled_token_that_is_not_the_best(
    smollm2: InProcessServer, extra: tuple[tuple[int, float], ...]
) -> None:
    """The token list showed the best candidate, not the one sampled."""
    entry = logprob(278, -2.0, (278, -2.0), (665, -0.1), *extra)
    choice = completion_choice(smollm2, [278], logprobs=logprobs(entry), request={"logprobs": 1})
    lists = choice["logprobs"]
    assert (lists["tokens"], lists["token_logprobs"]) == ([" b"], [-2.0])
    assert [list(top.items()) for top in lists["top_logprobs"]] == [[(" b", -2.0), (" there", -0.1)]]


def test_xinference_5245_offsets_count_characters_of_all_tokens(smollm2: InProcessServer) -> None:
    """Offsets counted the wrong unit, and the stop token had no entry."""
    ids = [26843, 2]
    choice = completion_choice(smollm2, ids, finish_reason="stop", logprobs=with_logprobs(ids))
    assert choice["text"] == "Hi"
    assert choice["logprobs"]["tokens"] == ["Hi", "<|im_end|>"]
    assert choice["logprobs"]["text_offset"] == [0, 2]


def test_vllm_6223_prompt_logprobs_keep_their_places(smollm2: InProcessServer) -> None:
    """A shifted index gave prompt tokens long repeated texts."""
    given = [
        None,
        {"26843": {"logprob": -1.0, "rank": 1, "decoded_token": "Hi"}},
        {"665": {"logprob": -2.0, "rank": 2, "decoded_token": " there"}},
    ]
    body = chat_body([30])
    body["generate_response"]["prompt_logprobs"] = given
    assert smollm2.ok(CHAT_DERENDER, body)["prompt_logprobs"] == given


def test_vllm_6223_missing_texts_are_each_tokens_own(smollm2: InProcessServer) -> None:
    """Where the engine gives ids alone, each entry gets the text of its own id."""
    body = chat_body([30])
    body["generate_response"]["prompt_logprobs"] = [
        None,
        {"26843": {"logprob": -1.0, "decoded_token": None}, "665": {"logprob": -3.0, "decoded_token": None}},
    ]
    first, second = smollm2.ok(CHAT_DERENDER, body)["prompt_logprobs"]
    assert first is None
    assert {key: entry["decoded_token"] for key, entry in second.items()} == {"26843": "Hi", "665": " there"}


def test_vllm_5699_text_belongs_to_the_entry_that_completes_it(smollm2: InProcessServer) -> None:
    """The text of an entry belonged to other tokens when text was held back."""
    ids = [10813, 242, 218, 17]
    lists = completion_choice(smollm2, ids, logprobs=with_logprobs(ids))["logprobs"]
    assert lists["tokens"] == ["", "", "😀", "!"]
    assert lists["text_offset"] == [0, 0, 0, 1]


def test_vllm_5699_entries_agree_with_the_text(smollm2: InProcessServer) -> None:
    """Joined tokens of whole characters are the text, and each offset is where its token begins."""
    ids = [2231, 40303, 218, 10813, 242, 218, 504]
    choice = completion_choice(smollm2, ids, logprobs=with_logprobs(ids))
    lists = choice["logprobs"]
    assert "".join(lists["tokens"]) == choice["text"]
    for offset, token in zip(lists["text_offset"], lists["tokens"], strict=True):
        assert choice["text"].startswith(token, offset)
