"""Sampling parameters as logits processors: transformers' own where it has one, in vLLM's order.

A processor is called once per step with the ids so far, (rows, length), and the scores of the next token,
(rows, vocabulary), as float32. It never writes into the scores it gets: logprobs are read from them later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import EngineError, InvalidRequest
from ..model.tokenizer import Tokenizer
from ..protocol.sampling import SamplingParams

if TYPE_CHECKING:
    import torch

__all__ = ["GREEDY", "Processor", "checked", "processors"]

GREEDY = 1e-5
"""Lower temperatures are none: the most likely token is taken."""

_SEEDS = 2**63


class Processor(Protocol):
    """What transformers' ``generate`` calls between the model and the choice of a token."""

    def __call__(self, input_ids: Any, scores: torch.Tensor) -> torch.Tensor:
        """Return new scores."""


def processors(
    params: SamplingParams,
    tokenizer: Tokenizer,
    stop_ids: Iterable[int],
    prompt_length: int,
    vocab_size: int,
    device: torch.device,
) -> list[Processor]:
    """Return what a request asks for, to be followed by the choice of the most likely token.

    Args:
        stop_ids: end-of-sequence tokens and others that stop; not before ``min_tokens``.
        prompt_length: ids of the prompt that stand before the output.

    Raises:
        InvalidRequest: ids outside the vocabulary.
    """
    from transformers import MinNewTokensLengthLogitsProcessor, RepetitionPenaltyLogitsProcessor

    chain = _token_rules(params, tokenizer, vocab_size, device)
    stops = sorted(stop_ids)
    if params.min_tokens and stops:
        chain.append(
            MinNewTokensLengthLogitsProcessor(prompt_length, params.min_tokens, stops, device=str(device))
        )
    if params.logit_bias:
        chain.append(_bias(params.logit_bias, vocab_size))
    if params.repetition_penalty != 1.0:
        chain.append(RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    if params.frequency_penalty or params.presence_penalty:
        chain.append(OutputPenalties(params.frequency_penalty, params.presence_penalty, prompt_length))
    if params.temperature >= GREEDY:
        chain += _warpers(params)
        chain.append(gumbel_noise(params.seed, params.n, device))
    return chain


def _token_rules(
    params: SamplingParams, tokenizer: Tokenizer, vocab_size: int, device: torch.device
) -> list[Processor]:
    from transformers import NoBadWordsLogitsProcessor

    chain: list[Processor] = []
    if params.allowed_token_ids is not None:
        chain.append(_only(params.allowed_token_ids, vocab_size, device))
    if params.bad_words:
        words = _bad_word_ids(params.bad_words, tokenizer)
        if any(i >= vocab_size for word in words for i in word):
            raise InvalidRequest("bad_words needs tokens that the model doesn't have.", "bad_words")
        chain.append(NoBadWordsLogitsProcessor(words))
    return chain


def _only(allowed: Sequence[int], vocab_size: int, device: torch.device) -> Processor:
    import torch

    if not allowed or not 0 <= min(allowed) <= max(allowed) < vocab_size:
        raise InvalidRequest(
            f"allowed_token_ids must hold ids in 0 to {vocab_size - 1}.", "allowed_token_ids"
        )
    refused = torch.ones(vocab_size, dtype=torch.bool, device=device)
    refused[list(allowed)] = False
    return lambda input_ids, scores: scores.masked_fill(refused, -torch.inf)


def _bad_word_ids(words: Iterable[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Return the ids that write each word, at the start of a text and behind a space.

    Source: vLLM's ``SamplingParams.update_from_tokenizer``: the second spelling counts where it has as many
    tokens as the first, and another one to begin with.
    """
    spellings: list[list[int]] = []
    for word in words:
        bare = tokenizer.encode(word.lstrip())
        spaced = tokenizer.encode(" " + word.lstrip())
        if not bare:
            raise InvalidRequest("bad_words must not hold a text without tokens.", "bad_words")
        spellings.append(bare)
        if len(spaced) == len(bare) and spaced[0] != bare[0]:
            spellings.append(spaced)
    return spellings


def _bias(bias: dict[str, float], vocab_size: int) -> Processor:
    from transformers import SequenceBiasLogitsProcessor

    ids = [int(key) if key.isascii() and key.isdecimal() and len(key) < 20 else vocab_size for key in bias]
    if max(ids) >= vocab_size:
        raise InvalidRequest(f"Keys of logit_bias must be ids in 0 to {vocab_size - 1}.", "logit_bias")
    pairs: list[Any] = [[[i], float(value)] for i, value in zip(ids, bias.values(), strict=True)]
    return SequenceBiasLogitsProcessor(pairs)


class OutputPenalties:
    """Presence and frequency penalties: subtracted for what the output holds, as in vLLM and OpenAI's API."""

    def __init__(self, frequency: float, presence: float, prompt_length: int) -> None:
        self._frequency = frequency
        self._presence = presence
        self._prompt_length = prompt_length
        self._counts: torch.Tensor | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return scores lowered by how often each token stands in its row's output."""
        import torch

        if self._counts is None:
            self._counts = torch.zeros_like(scores)
        if input_ids.shape[1] > self._prompt_length:
            last = input_ids[:, -1:]
            self._counts.scatter_add_(1, last, torch.ones_like(last, dtype=scores.dtype))
        return scores - self._frequency * self._counts - self._presence * (self._counts > 0)


def _warpers(params: SamplingParams) -> list[Processor]:
    """Return temperature and truncation, in vLLM's order."""
    from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    chain: list[Processor] = []
    if params.temperature != 1.0:
        chain.append(TemperatureLogitsWarper(params.temperature))
    if params.min_p > 0:
        chain.append(MinPLogitsWarper(params.min_p))
    if params.top_k > 0:
        chain.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        chain.append(TopPLogitsWarper(params.top_p))
    return chain


def gumbel_noise(seed: int | None, rows: int, device: torch.device) -> Processor:
    """Return noise that makes the largest score a sample of the scores' softmax (the Gumbel-max trick).

    ``generate`` would draw from torch's global generator, which requests that run at once would share. Here
    each row has a generator of its own, seeded with ``seed`` plus its number.
    """
    import torch

    generators = [torch.Generator(device) for _ in range(rows)]
    for row, generator in enumerate(generators):
        if seed is None:
            generator.seed()
        else:
            generator.manual_seed((seed + row) % _SEEDS)

    def noisy(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        noise = torch.empty_like(scores)
        for row, generator in enumerate(generators):
            noise[row].exponential_(generator=generator)
        return scores - noise.clamp_(min=torch.finfo(scores.dtype).tiny).log_()

    return noisy


def checked(is_open: Callable[[int], bool]) -> Processor:
    """Return a last processor that changes nothing, and refuses what no token can be chosen from.

    Args:
        is_open: whether a row still matters.

    Raises, when called:
        InvalidRequest: the request's rules forbid every token.
        EngineError: the model's scores are not numbers.
    """

    def check(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        for row, best in enumerate(scores.amax(dim=-1).tolist()):
            if not is_open(row):
                continue
            if best != best:
                raise EngineError("The model's scores are not numbers.")
            if best == float("-inf"):
                raise InvalidRequest("The request's rules leave no token to choose.")
        return scores

    return check
