"""Logprobs are those of the model's own scores, whatever the request does to them."""

import json

import pytest
import torch
from engine_demo import STORY, answer, chunks_of, ids, request, scores, weights, workspace

from trio_render import InvalidRequest
from trio_render.engine.requests import check_request

CLOSE = 2e-3


def expected(token_ids: list[int]) -> torch.Tensor:
    return torch.log_softmax(scores(ids(STORY) + token_ids[:-1]), dim=-1)[-len(token_ids) :]


def test_each_token_has_its_own_and_the_best() -> None:
    row = answer(STORY, logprobs=3, max_tokens=5, temperature=1.5, seed=3, logit_bias={"345": 5.0})
    values = expected(row.token_ids)
    assert [entry.token_id for entry in row.logprobs] == row.token_ids
    for place, entry in zip(values, row.logprobs, strict=True):
        assert entry.logprob == pytest.approx(place[entry.token_id].item(), abs=CLOSE)
        best = place.topk(3)
        assert [candidate.token_id for candidate in entry.top_logprobs] == best.indices.tolist()
        assert [c.logprob for c in entry.top_logprobs] == pytest.approx(best.values.tolist(), abs=CLOSE)


def test_none_asked_for_are_none() -> None:
    assert answer(STORY, max_tokens=2).logprobs == []
    [one, *_] = answer(STORY, max_tokens=2, logprobs=0).logprobs
    assert one.top_logprobs == []


def test_the_whole_vocabulary_is_finite_json() -> None:
    [entry] = answer(STORY, max_tokens=1, logprobs=-1).logprobs
    assert len({candidate.token_id for candidate in entry.top_logprobs}) == 49152
    json.dumps([candidate.logprob for candidate in entry.top_logprobs], allow_nan=False)


def test_chosen_candidates_come_instead_of_the_best() -> None:
    [entry] = answer(STORY, max_tokens=1, logprob_token_ids=[5, 345, 17]).logprobs
    [place] = expected([entry.token_id or 0])
    assert [c.token_id for c in entry.top_logprobs] == sorted([5, 345, 17], key=lambda i: -place[i].item())
    assert [c.logprob for c in entry.top_logprobs] == pytest.approx(
        sorted(place[[5, 345, 17]].tolist(), reverse=True), abs=CLOSE
    )


@pytest.mark.parametrize("count", [0, 2])
def test_prompt_logprobs_come_with_the_first_piece(count: int) -> None:
    prompt = ids(STORY) * 25
    assert len(prompt) > 128
    chunks = chunks_of(request(prompt, prompt_logprobs=count, max_tokens=2, n=2, temperature=1.0))
    assert chunks[1].prompt_logprobs is None
    places = chunks[0].prompt_logprobs
    assert places is not None
    assert len(places) == len(prompt)
    assert places[0] is None
    values = torch.log_softmax(scores(prompt), dim=-1)
    for token_id, before, place in zip(prompt[1:], values[:-1], places[1:], strict=True):
        assert place is not None
        own = place[str(token_id)]
        assert own["logprob"] == pytest.approx(before[token_id].item(), abs=CLOSE)
        assert abs(own["rank"] - int((before >= before[token_id]).sum())) <= 1
        best = {str(i) for i in before.topk(count).indices.tolist()}
        assert len(place) == len({*best, str(token_id)})
        assert own["decoded_token"] is None


def test_embeddings_have_no_prompt_logprobs() -> None:
    asked = request([], prompt_logprobs=1)
    with pytest.raises(InvalidRequest) as caught:
        check_request(asked, torch.zeros(2, weights().hidden_size), workspace().model, weights())
    assert caught.value.param == "prompt_logprobs"
