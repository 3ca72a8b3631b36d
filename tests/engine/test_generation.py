"""One request through the model: which tokens come, and what stops them."""

from functools import cache

import pytest
import torch
from engine_demo import QUESTION, STORY, answer, chunks_of, ids, joined, request, text, weights, workspace

from trio_render import InvalidRequest
from trio_render.engine.requests import output_room
from trio_render.protocol.sampling import StreamOptions

EOS = 2


@cache
def continuation() -> list[int]:
    return answer(STORY, max_tokens=12).token_ids


def greedy(n: int = 12) -> list[int]:
    return continuation()[:n]


def test_greedy_is_what_plain_generate_gives() -> None:
    prompt = torch.tensor([ids(STORY)])
    plain = weights().model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, do_sample=False, pad_token_id=0
    )
    assert greedy() == plain[0, prompt.shape[1] :].tolist()


def test_a_question_is_answered() -> None:
    row = answer(QUESTION)
    assert "Paris" in row.text
    assert (row.finish_reason, row.stop_reason) == ("stop", None)
    assert row.token_ids[-1] == EOS
    assert EOS not in row.token_ids[:-1]


def test_embeddings_of_a_prompt_are_the_prompt() -> None:
    table = weights().model.get_input_embeddings().weight
    embeds = table[ids(STORY)].to(torch.bfloat16)
    [from_embeds] = joined(chunks_of(request([], max_tokens=12), embeds))
    assert from_embeds.token_ids == greedy()


def test_embeddings_must_be_numbers() -> None:
    embeds = torch.full((3, weights().hidden_size), torch.nan)
    with pytest.raises(InvalidRequest) as caught:
        chunks_of(request([]), embeds)
    assert caught.value.param == "prompt_embeds"


def test_a_prompt_is_read_in_pieces_with_the_same_result() -> None:
    long = ids(STORY) * 40
    assert len(long) > 256
    prompt = torch.tensor([long])
    plain = weights().model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=3, do_sample=False, pad_token_id=0
    )
    seen = 0

    def checkpoint() -> None:
        nonlocal seen
        seen += 1

    [row] = joined(chunks_of(request(long, max_tokens=3), checkpoint=checkpoint))
    assert row.token_ids == plain[0, len(long) :].tolist()
    assert seen >= 3 + len(long) // 128


def test_a_prompt_of_one_token_has_several_rows() -> None:
    rows = joined(chunks_of(request([ids(STORY)[0]], n=2, max_tokens=3, temperature=1.0, seed=0)))
    assert [len(row.token_ids) for row in rows] == [3, 3]


def test_choices_end_by_themselves() -> None:
    chunks = chunks_of(request(QUESTION, n=4, temperature=1.0, seed=1, max_tokens=14))
    rows = joined(chunks)
    lengths = [len(row.token_ids) for row in rows]
    assert len(rows) == 4
    assert len(set(lengths)) > 1, "all rows ended together: choose another seed"
    assert all(row.pieces == len(row.token_ids) for row in rows)
    assert {row.finish_reason for row in rows} == {"stop", "length"}
    assert all((row.finish_reason == "length") == (EOS not in row.token_ids) for row in rows)
    for step, chunk in enumerate(chunks):
        assert [choice.index for choice in chunk.choices] == [
            index for index, length in enumerate(lengths) if length > step
        ]


def test_sixteen_tokens_are_the_default() -> None:
    row = answer(STORY)
    assert len(row.token_ids) == 16
    assert row.finish_reason == "length"


def test_the_context_bounds_the_output() -> None:
    room = 3
    prompt = ids(STORY) * (workspace().model.max_model_len // len(ids(STORY)) + 1)
    prompt = prompt[: workspace().model.max_model_len]
    with pytest.raises(InvalidRequest) as caught:
        chunks_of(request(prompt))
    assert caught.value.param == "prompt"
    assert output_room(request(prompt[room:], max_tokens=10), None, workspace().model) == room


def test_stop_token_ids_stop_with_their_id() -> None:
    third = greedy()[2]
    row = answer(STORY, stop_token_ids=[third])
    assert row.token_ids == greedy()[: greedy().index(third) + 1]
    assert (row.finish_reason, row.stop_reason) == ("stop", third)


def test_stop_strings_stop_when_they_are_complete() -> None:
    whole = text(greedy())
    string = whole[len(text(greedy(4))) - 1 : len(text(greedy(6))) - 1]
    row = answer(STORY, stop=["never written", string])
    assert (row.finish_reason, row.stop_reason) == ("stop", string)
    assert string in row.text
    assert string not in text(row.token_ids[:-1])


def test_a_stop_string_beats_the_length() -> None:
    last = text(greedy(5)[-1:])
    row = answer(STORY, stop=[last.strip()], max_tokens=5)
    assert len(row.token_ids) <= 5
    assert row.finish_reason == "stop"


def test_nothing_stops_before_min_tokens() -> None:
    unbound = answer(QUESTION)
    row = answer(QUESTION, min_tokens=12, stop=["Paris"], max_tokens=14)
    assert len(unbound.token_ids) < 12
    assert len(row.token_ids) >= 12
    assert EOS not in row.token_ids[:11]
    fourth = greedy()[3]
    kept = answer(STORY, min_tokens=6, stop_token_ids=[fourth], max_tokens=8)
    assert fourth not in kept.token_ids[:6]


def test_eos_is_ignored_on_request() -> None:
    row = answer(QUESTION, ignore_eos=True)
    assert EOS in row.token_ids[:-1]
    assert (len(row.token_ids), row.finish_reason) == (16, "length")


def test_tokens_come_in_larger_pieces_on_request() -> None:
    row = answer(STORY, stream_interval=5, max_tokens=12, logprobs=0)
    assert row.pieces == 4, "the first, two of five, the last"
    assert row.token_ids == greedy()
    assert [entry.token_id for entry in row.logprobs] == greedy()


def test_usage_and_the_prompt_come_on_request() -> None:
    outside = {
        "return_token_ids": True,
        "stream_options": StreamOptions(include_usage=True, continuous_usage_stats=True),
    }
    chunks = chunks_of(request(STORY, outside=outside, max_tokens=3))
    n = len(ids(STORY))
    assert [chunk.usage["completion_tokens"] for chunk in chunks if chunk.usage] == [1, 2, 3, 3]
    assert chunks[-1].choices == []
    assert chunks[-1].usage == {"prompt_tokens": n, "completion_tokens": 3, "total_tokens": n + 3}
    assert [chunk.prompt_token_ids for chunk in chunks] == [ids(STORY), None, None, None]
