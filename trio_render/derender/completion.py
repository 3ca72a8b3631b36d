"""Engine answers (one per prompt) -> one completion."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..errors import InvalidRequest, MalformedRequest
from ..model.loading import Model
from ..policy import Policy
from ..protocol.completion import Completion, CompletionChoice, CompletionRequest
from ..protocol.derender import DerenderCompletionRequest
from ..protocol.generate import GenerateResponse
from ..render.completion import check_completion_fields
from ..render.sampling import logprob_count
from .bounds import check_prompt_ids, check_prompt_tokens, check_response, check_sequences
from .choice import choice_text
from .detokenize import START, seed_from_prompt
from .logprobs import completion_logprobs
from .prompt_logprobs import resolved_prompt_logprobs
from .stop import StopRules
from .usage import usage

__all__ = ["completion_candidates", "derender_completion"]


def derender_completion(
    model: Model, policy: Policy, body: DerenderCompletionRequest, checkpoint: Callable[[], None]
) -> Completion:
    """Return the engine's answers as one completion; choices are numbered across the answers.

    Args:
        checkpoint: called once per choice and per place with logprobs; what it raises ends the work.

    Raises:
        ModelNotFound: ``model`` is not served here.
        InvalidRequest: no answers; bounds (see `derender.bounds`); ids outside the vocabulary.
        MalformedRequest: lists that don't go with the answers.
    """
    policy.check_model(body.model)
    _check_body(model, policy, body)
    responses, request = body.generate_responses, body.completion_request
    rules = StopRules.of(request, model)
    choices: list[CompletionChoice] = []
    for n, response in enumerate(responses):
        given = None if body.prompt_token_ids is None else body.prompt_token_ids[n]
        prompt_ids = response.prompt_token_ids if given is None else given
        choices += _choices(
            model, policy, response, prompt_ids, request, rules, first=len(choices), checkpoint=checkpoint
        )
    return Completion(
        id=responses[0].request_id,
        object="text_completion",
        created=int(time.time()),
        model=policy.answer_name(model.name),
        choices=choices,
        usage=usage(sum(body.prompt_tokens or ()), responses),
        kv_transfer_params=_common(responses, "kv_transfer_params"),
        ec_transfer_params=_common(responses, "ec_transfer_params"),
        weight_version=_common(responses, "weight_version"),
        metrics=responses[0].metrics if len(responses) == 1 else None,
    )


def _check_body(model: Model, policy: Policy, body: DerenderCompletionRequest) -> None:
    responses = body.generate_responses
    if not responses:
        raise InvalidRequest("generate_responses must not be empty.", "generate_responses")
    check_sequences(responses, policy)
    if body.completion_request is not None:
        check_completion_fields(body.completion_request, policy)
    for name in ("prompt_token_ids", "prompt_tokens"):
        value = getattr(body, name)
        if value is not None and len(value) != len(responses):
            raise MalformedRequest(
                f"{name} must have one entry per response ({len(responses)}), not {len(value)}.",
                f"body.{name}",
            )
    for n, prompt_ids in enumerate(body.prompt_token_ids or ()):
        check_prompt_ids(model, prompt_ids, f"body.prompt_token_ids.{n}")
    for n, count in enumerate(body.prompt_tokens or ()):
        check_prompt_tokens(count, f"body.prompt_tokens.{n}")
    for n, response in enumerate(responses):
        check_response(model, policy, response, body.completion_request, f"body.generate_responses.{n}")


def _choices(
    model: Model,
    policy: Policy,
    response: GenerateResponse,
    prompt_ids: list[int] | None,
    request: CompletionRequest | None,
    rules: StopRules,
    *,
    first: int,
    checkpoint: Callable[[], None],
) -> list[CompletionChoice]:
    seed = START
    if prompt_ids:
        table = model.tokenizer.table
        seed = seed_from_prompt(table, prompt_ids, skip_special_tokens=rules.skip_special_tokens)
    returns_ids = request is not None and bool(request.return_token_ids)
    n_candidates = completion_candidates(request, policy)
    prompt_logprobs = resolved_prompt_logprobs(model, response.prompt_logprobs, checkpoint)
    choices = []
    for n, given in enumerate(response.choices):
        checkpoint()
        shown = choice_text(model, given, rules, seed)
        logprobs = None
        if given.logprobs is not None:
            content = given.logprobs.content or []
            logprobs = completion_logprobs(model, content, n_candidates, checkpoint)
        choices.append(
            CompletionChoice(
                index=first + n,
                text=shown.text,
                finish_reason=given.finish_reason,
                logprobs=logprobs,
                stop_reason=shown.stop_reason,
                token_ids=given.token_ids if returns_ids else None,
                prompt_token_ids=response.prompt_token_ids if returns_ids else None,
                prompt_logprobs=prompt_logprobs,
                routed_experts=given.routed_experts,
            )
        )
    return choices


def completion_candidates(request: CompletionRequest | None, policy: Policy) -> int | None:
    """Return how many candidates a place keeps beside the sampled token; ``None`` is all of them.

    Raises:
        InvalidRequest: ``logprobs`` is none that can be asked for.
    """
    if request is None or request.logprob_token_ids:
        return None
    asked = logprob_count(request.logprobs, "logprobs", policy)
    return None if asked in (None, -1) else asked


def _common(responses: list[GenerateResponse], name: str) -> Any:
    """Return a field that all answers agree on, else ``None``."""
    values = [getattr(response, name) for response in responses]
    return values[0] if all(value == values[0] for value in values) else None
