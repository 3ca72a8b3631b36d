"""Checks that run before any work: counts, ids in the vocabulary, candidates. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidRequest, MalformedRequest
from ..model.loading import Model
from ..model.vocabulary import check_token_ids
from ..policy import Policy
from ..protocol.generate import GenerateChoice, GenerateResponse
from ..protocol.sampling import SamplingFields
from ..protocol.stream import ChunkChoice, GenerateChunk

__all__ = [
    "candidate_bound",
    "check_chunk",
    "check_one_choice",
    "check_prompt_ids",
    "check_prompt_tokens",
    "check_response",
    "check_sequences",
]


def check_sequences(responses: Sequence[GenerateResponse], policy: Policy) -> None:
    """Raise `InvalidRequest` for more choices than the policy allows."""
    n = sum(len(response.choices) for response in responses)
    if n > policy.max_sequences:
        raise InvalidRequest(f"At most {policy.max_sequences} choices, not {n}.", "choices")


def check_prompt_tokens(count: int | None, where: str) -> None:
    """Raise `MalformedRequest` for a negative count of prompt tokens."""
    if count is not None and count < 0:
        raise MalformedRequest("A number of prompt tokens must not be negative.", where)


def check_prompt_ids(model: Model, prompt_ids: Sequence[int] | None, where: str) -> None:
    """Raise `InvalidRequest` for prompt ids out of range, or more than the context."""
    if prompt_ids is None:
        return
    check_token_ids(model, prompt_ids, where)
    _check_count(model, len(prompt_ids), "prompt tokens", where)


def check_response(
    model: Model, policy: Policy, response: GenerateResponse, request: SamplingFields | None, where: str
) -> None:
    """Check one engine answer.

    Raises:
        MalformedRequest: ids outside the vocabulary, a ``stop_reason`` that is neither id nor text.
        InvalidRequest: no tokens, or more than the context; too many candidates.
    """
    check_prompt_ids(model, response.prompt_token_ids, f"{where}.prompt_token_ids")
    if response.prompt_logprobs is not None:
        _check_count(model, len(response.prompt_logprobs), "prompt_logprobs", f"{where}.prompt_logprobs")
    bound = candidate_bound(policy, request)
    for n, choice in enumerate(response.choices):
        _check_choice(model, choice, f"{where}.choices.{n}", bound)


def check_chunk(model: Model, chunk: GenerateChunk, n_prompt: int, candidates: int | None) -> None:
    """Check one streamed chunk. A choice without tokens is one.

    Args:
        n_prompt: prompt tokens that were sent for the stream.
        candidates: see `candidate_bound`.

    Raises:
        MalformedRequest: ids outside the vocabulary, a ``stop_reason`` that is neither id nor text.
        InvalidRequest: more tokens than the context, the prompt's included; too many candidates.
    """
    for n, choice in enumerate(chunk.choices):
        where = f"body.generate_chunk.choices.{n}"
        ids = choice.token_ids or ()
        check_token_ids(model, ids, f"{where}.token_ids")
        _check_count(model, len(ids) + n_prompt, "prompt and output tokens", f"{where}.token_ids")
        _check_reason_and_logprobs(model, choice, where, candidates)


def check_one_choice(chunk: GenerateChunk) -> None:
    """Raise `InvalidRequest` for a chunk with several choices: their client carries one choice's state."""
    if len(chunk.choices) > 1:
        raise InvalidRequest(
            f"A chunk carries one choice, not {len(chunk.choices)}.", "generate_chunk.choices"
        )


def _check_choice(model: Model, choice: GenerateChoice, where: str, candidates: int | None) -> None:
    ids = choice.token_ids
    if not ids:
        raise InvalidRequest("token_ids must not be empty.", f"{where}.token_ids")
    check_token_ids(model, ids, f"{where}.token_ids")
    _check_count(model, len(ids), "token_ids", f"{where}.token_ids")
    _check_reason_and_logprobs(model, choice, where, candidates)


def _check_reason_and_logprobs(
    model: Model, choice: GenerateChoice | ChunkChoice, where: str, candidates: int | None
) -> None:
    if choice.stop_reason is not None and type(choice.stop_reason) not in (int, str):
        raise MalformedRequest("stop_reason must be a token id or a text.", f"{where}.stop_reason")
    content = choice.logprobs.content if choice.logprobs is not None else None
    if not content:
        return
    _check_count(model, len(content), "logprobs", f"{where}.logprobs")
    most = max(len(entry.top_logprobs) for entry in content)
    if candidates is not None and most > candidates:
        raise InvalidRequest(
            f"A place has at most {candidates} candidates, not {most}.", f"{where}.logprobs.content"
        )


def candidate_bound(policy: Policy, request: SamplingFields | None) -> int | None:
    """Return the most candidates of one place: those asked for, and the sampled token beside them."""
    if policy.max_logprobs == -1:
        return None
    listed = len(request.logprob_token_ids or ()) if request is not None else 0
    return max(policy.max_logprobs, listed) + 1


def _check_count(model: Model, n: int, what: str, where: str) -> None:
    if n > model.max_model_len:
        raise InvalidRequest(f"At most {model.max_model_len} {what}, the model's context; not {n}.", where)
