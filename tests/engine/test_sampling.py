"""Sampling parameters: what each does to the choice of tokens, as vLLM defines it."""

import math
from typing import Any

import pytest
import torch
from engine_demo import (
    QUESTION,
    STORY,
    answer,
    best_by_hand,
    chunks_of,
    ids,
    joined,
    params,
    request,
    workspace,
)

from trio_render import InvalidRequest
from trio_render.engine.sampling import OutputPenalties, gumbel_noise, processors

STEPS = 4
PENALISED = 14
CPU = torch.device("cpu")


def sampled(seed: int | None, **fields: Any) -> list[list[int]]:
    rows = joined(chunks_of(request(STORY, temperature=1.0, seed=seed, max_tokens=STEPS, **fields)))
    return [row.token_ids for row in rows]


def test_a_seed_gives_the_same_tokens_again() -> None:
    first = sampled(1)
    assert sampled(1) == first
    assert sampled(2) != first
    assert sampled(None) != sampled(None)
    assert len(set(map(tuple, sampled(7, n=3)))) == 3


def test_a_seed_may_be_any_64_bit_number() -> None:
    assert sampled(2**63 - 1, n=2) == sampled(2**63 - 1, n=2)
    assert sampled(-(2**63), n=2) != sampled(2**63 - 1, n=2)


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    sampled(1)
    assert torch.equal(torch.get_rng_state(), before)


def test_noise_samples_from_the_softmax() -> None:
    chances = torch.tensor([0.1, 0.2, 0.7, 0.0])
    rows = 4000
    scores = chances.log().expand(rows, -1)
    noisy = gumbel_noise(5, rows, CPU)(None, scores)
    counts = noisy.argmax(dim=-1).bincount(minlength=4)
    for chance, count in zip(chances.tolist(), counts.tolist(), strict=True):
        assert abs(count - rows * chance) <= 4 * math.sqrt(rows * chance * (1 - chance))


def kept(**fields: Any) -> list[int]:
    """Which of five tokens can be chosen."""
    scores = torch.tensor([[0.4, 0.3, 0.2, 0.07, 0.03]]).log()
    chain = processors(params(temperature=1.0, **fields), workspace().model.tokenizer, [], 0, 5, CPU)
    for processor in chain[:-1]:
        scores = processor(torch.zeros((1, 0), dtype=torch.long), scores)
    return [i for i, score in enumerate(scores[0].tolist()) if score > -math.inf]


def test_truncation() -> None:
    assert kept() == [0, 1, 2, 3, 4]
    assert kept(top_k=2) == [0, 1]
    assert kept(top_k=-1) == [0, 1, 2, 3, 4]
    assert kept(top_p=0.65) == [0, 1]
    assert kept(min_p=0.2) == [0, 1, 2]
    assert kept(min_p=0.2, top_p=0.85) == [0, 1, 2], "top_p counts what min_p leaves"
    assert kept(allowed_token_ids=[1, 3]) == [1, 3]


def test_temperature_divides_the_scores() -> None:
    scores = torch.tensor([[1.0, 2.0]])
    chain = processors(params(temperature=0.5), workspace().model.tokenizer, [], 0, 2, CPU)
    assert chain[0](torch.zeros((1, 0), dtype=torch.long), scores).tolist() == [[2.0, 4.0]]


def test_penalties_count_the_output_and_not_the_prompt() -> None:
    penalties = OutputPenalties(0.5, 0.25, 2)
    rows = torch.tensor([[7, 7], [7, 7]])
    assert penalties(rows, torch.zeros(2, 9)).tolist() == [[0.0] * 9] * 2
    for more in ([7, 3], [7, 4]):
        rows = torch.cat([rows, torch.tensor(more)[:, None]], dim=1)
        changed = penalties(rows, torch.zeros(2, 9))
    assert changed[0, 7] == -1.25
    assert changed[1, [3, 4, 7]].tolist() == [-0.75, -0.75, 0.0]


def unchanged(scores: torch.Tensor, output: list[int]) -> torch.Tensor:
    return scores


@pytest.mark.parametrize("presence", [0.0, 1.5])
def test_frequency_and_presence_penalties_change_the_answer(presence: float) -> None:
    def lowered(scores: torch.Tensor, output: list[int]) -> torch.Tensor:
        counts = torch.bincount(torch.tensor(output, dtype=torch.long), minlength=scores.shape[0])
        return scores - 2.0 * counts - presence * (counts > 0)

    prompt = ids("1, 1, 1, 1, 1,")
    penalised = answer(
        prompt, frequency_penalty=2.0, presence_penalty=presence, max_tokens=PENALISED
    ).token_ids
    assert penalised == best_by_hand(prompt, penalised, lowered)
    assert penalised != best_by_hand(prompt, penalised, unchanged)


def test_the_repetition_penalty_counts_prompt_and_output() -> None:
    prompt = ids("1, 1, 1, 1, 1,")

    def lowered(scores: torch.Tensor, output: list[int]) -> torch.Tensor:
        scores = scores.clone()
        for i in {*prompt, *output}:
            scores[i] = scores[i] / 1.4 if scores[i] > 0 else scores[i] * 1.4
        return scores

    penalised = answer(prompt, repetition_penalty=1.4, max_tokens=STEPS).token_ids
    assert penalised == best_by_hand(prompt, penalised, lowered)
    assert penalised != best_by_hand(prompt, penalised, unchanged)


def test_a_bias_forces_a_token() -> None:
    assert answer(STORY, logit_bias={"345": 100.0}, max_tokens=3).token_ids == [345] * 3
    first = answer(STORY, max_tokens=1).token_ids[0]
    assert answer(STORY, logit_bias={str(first): -100.0}, max_tokens=1).token_ids != [first]


def test_only_allowed_tokens_come() -> None:
    assert set(answer(QUESTION, allowed_token_ids=[300, 301], max_tokens=4).token_ids) <= {300, 301}


def test_bad_words_do_not_come() -> None:
    assert "Paris" in answer(QUESTION).text
    assert "Paris" not in answer(QUESTION, bad_words=["Paris"]).text
    assert "France is" not in answer(QUESTION, bad_words=["France is"]).text


def test_rules_that_leave_no_token_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="no token"):
        answer(STORY, allowed_token_ids=[2], min_tokens=2)


@pytest.mark.parametrize(
    ("name", "value"),
    [("allowed_token_ids", [10**6]), ("logit_bias", {"1000000": 1.0}), ("logit_bias", {"x": 1.0})],
)
def test_ids_outside_the_vocabulary_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        answer(STORY, **{name: value})
    assert caught.value.param == name
