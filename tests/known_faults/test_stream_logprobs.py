"""Logprobs of streams: of exactly the chunk's tokens, with the characters of the tokens before."""

from typing import Any

import pytest
from in_process import CHAT_DERENDER, COMPLETION_DERENDER, InProcessServer
from known_faults.bodies import logprob, logprobs
from known_faults.streams import chunk_body, deltas, singly, stream


def lists(server: InProcessServer, pieces: list[list[int]], key: str, **options: Any) -> list[list[Any]]:
    """One of the lists of a completion stream's logprobs, by chunk."""
    choices = stream(server, COMPLETION_DERENDER, pieces, with_logprobs=True, **options)
    return [choice["logprobs"][key] for choice in choices]


def test_vllm_28874_parts_of_a_character_of_byte_tokens(mistral: InProcessServer) -> None:
    """The text was right, but its logprob tokens were U+FFFD."""
    pieces = singly([28705, 233, 176, 173, 28808])
    prompt = [1, 15359]
    assert lists(mistral, pieces, "tokens", prompt_ids=prompt) == [[" "], [""], [""], ["歪"], ["!"]]
    assert lists(mistral, pieces, "text_offset", prompt_ids=prompt) == [[0], [1], [1], [1], [2]]
    choices = stream(mistral, COMPLETION_DERENDER, pieces, with_logprobs=True, prompt_ids=prompt)
    assert "".join(deltas(choices)) == " 歪!"


@pytest.mark.parametrize("cut", [1, 2])
def test_standardcompletions_2_parts_of_a_character_with_bytes(deepseek: InProcessServer, cut: int) -> None:
    """Every chunking gives what the whole answer gives."""
    ids = [28927, 225, 3]
    choices = stream(deepseek, CHAT_DERENDER, [ids[:cut], ids[cut:]], with_logprobs=True)
    content = [entry for choice in choices for entry in choice["logprobs"]["content"]]
    assert [entry["token"] for entry in content] == ["", "😀", "!"]
    assert bytes(byte for entry in content for byte in entry["bytes"]) == b"\xf0\x9f\x98\x80!"


def test_vllm_34875_candidates_follow_the_sampled_tokens(smollm2: InProcessServer) -> None:
    """The context of a candidate is what was sampled in the chunks before, never another candidate."""
    state = None
    for piece in ([10813], [242]):
        state = smollm2.ok(CHAT_DERENDER, chunk_body(piece, state))["stream_state"]
    third = logprob(218, -0.5, (218, -0.5), (235, -1.5), (17, -2.5))
    answer = smollm2.ok(CHAT_DERENDER, chunk_body([218], state, logprobs=logprobs(third)))
    (place,) = answer["chunk"]["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in place["top_logprobs"]] == ["😀", "😑", "!"]


def test_xinference_5245_offsets_go_on(smollm2: InProcessServer) -> None:
    """Offsets began again at zero; the stop token has an entry though its text is not shown."""
    pieces = singly([26843, 2])
    assert lists(smollm2, pieces, "tokens", finish_reason="stop") == [["Hi"], ["<|im_end|>"]]
    assert lists(smollm2, pieces, "text_offset", finish_reason="stop") == [[0], [2]]


def test_vllm_5699_text_and_logprobs_in_step(smollm2: InProcessServer) -> None:
    """The text of a chunk belonged to other tokens than its logprobs when text was held back."""
    pieces = singly([10813, 242, 218, 17])
    assert lists(smollm2, pieces, "tokens") == [[""], [""], ["😀"], ["!"]]
    assert lists(smollm2, pieces, "text_offset") == [[0], [0], [0], [1]]


def test_vllm_5699_held_back_stop_text_delays_no_logprobs(smollm2: InProcessServer) -> None:
    """Nor does text that may become a stop."""
    pieces = singly([504, 3575, 314, 7042])
    choices = stream(
        smollm2, COMPLETION_DERENDER, pieces, with_logprobs=True, request={"stop": [" capital is Rome"]}
    )
    assert deltas(choices) == ["The", "", "", " capital is Paris"]
    assert [c["logprobs"]["tokens"] for c in choices] == [["The"], [" capital"], [" is"], [" Paris"]]


def test_llm_d_inference_sim_678_candidates_over_the_bound(smollm2: InProcessServer) -> None:
    """31 candidates in one place are refused as in a whole answer."""
    entry = logprob(81, -0.5, *((token_id, -1.0) for token_id in range(100, 131)))
    reply = smollm2.post(COMPLETION_DERENDER, chunk_body([81], logprobs=logprobs(entry)))
    assert reply.error["code"] == 400
