"""Log probabilities of the model's own scores, before anything a request asks for has changed them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from ..protocol.logprobs import Candidate, TokenLogprob

if TYPE_CHECKING:
    import torch

__all__ = ["PromptPlace", "StepLogprobs", "prompt_places"]

PromptPlace = dict[str, dict[str, Any]]
"""By token id: ``logprob``, ``rank`` among all tokens, and ``decoded_token``, which derendering fills in."""

_LOWEST = -9999.0
"""What vLLM writes for a token that can't come: JSON has no infinity."""


@final
class StepLogprobs:
    """Reads the logprobs of each step.

    Args:
        count: candidates beside the token that was chosen; -1 for the whole vocabulary.
        token_ids: instead of the best: exactly these are the candidates.
    """

    def __init__(self, count: int, token_ids: Sequence[int] | None) -> None:
        self._count = count
        self._token_ids = token_ids
        self._scores: torch.Tensor | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Keep a step's scores, (rows, vocabulary). Stands before all other processors."""
        self._scores = scores
        return scores

    def of(self, chosen: torch.Tensor) -> list[TokenLogprob]:
        """Return the entries of the step's tokens, (rows,), with candidates best first."""
        import torch

        assert self._scores is not None
        values = torch.log_softmax(self._scores, dim=-1)
        own = values.gather(1, chosen[:, None])[:, 0].tolist()
        listed, ids = self._candidates(values)
        return [
            TokenLogprob(
                token_id=token_id,
                logprob=_bounded(logprob),
                top_logprobs=[
                    Candidate(token_id=i, logprob=_bounded(value))
                    for i, value in zip(row_ids, row_values, strict=True)
                ],
            )
            for token_id, logprob, row_ids, row_values in zip(
                chosen.tolist(), own, ids.tolist(), listed.tolist(), strict=True
            )
        ]

    def _candidates(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        if self._token_ids is None:
            best = values.topk(_bounded_count(self._count, values.shape[-1]))
            return best.values, best.indices
        ids = torch.tensor(self._token_ids, device=values.device, dtype=torch.long)
        listed, order = values[:, ids].sort(dim=-1, descending=True)
        return listed, ids[order]


def prompt_places(scores: torch.Tensor, token_ids: Sequence[int], count: int) -> list[PromptPlace]:
    """Return the logprobs of prompt tokens, and of the ``count`` best at each place.

    Args:
        scores: the model's, (places, vocabulary), each of the token that comes next.
        token_ids: the tokens that did come.
    """
    import torch

    values = torch.log_softmax(scores.float(), dim=-1)
    own = values.gather(1, torch.tensor(token_ids, device=values.device)[:, None])
    # Ties count against the token, as in vLLM.
    ranks = (values >= own).sum(dim=-1).tolist()
    best = values.topk(_bounded_count(count, values.shape[-1]))
    places = []
    for token_id, logprob, rank, ids, listed in zip(
        token_ids, own[:, 0].tolist(), ranks, best.indices.tolist(), best.values.tolist(), strict=True
    ):
        place = {str(token_id): _prompt_entry(logprob, rank)}
        for n, (i, value) in enumerate(zip(ids, listed, strict=True), 1):
            place.setdefault(str(i), _prompt_entry(value, n))
        places.append(place)
    return places


def _prompt_entry(logprob: float, rank: int) -> dict[str, Any]:
    return {"logprob": _bounded(logprob), "rank": rank, "decoded_token": None}


def _bounded(logprob: float) -> float:
    return max(logprob, _LOWEST)


def _bounded_count(count: int, vocab_size: int) -> int:
    return vocab_size if count < 0 else min(count, vocab_size)
