"""Engine answer -> chat completion."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from ..model.fragments import FragmentCache
from ..model.loading import Model
from ..policy import Policy
from ..protocol.chat import ChatChoice, ChatCompletion, ChatMessage, ChatRequest
from ..protocol.derender import DerenderChatRequest
from ..protocol.generate import GenerateChoice
from ..render.sampling import logprob_count
from .answer import AnswerPlan
from .bounds import check_prompt_ids, check_prompt_tokens, check_response, check_sequences
from .choice import choice_text
from .detokenize import START, seed_from_prompt
from .logprobs import chat_logprobs
from .prompt_logprobs import resolved_prompt_logprobs
from .stop import StopRules
from .usage import usage

__all__ = ["chat_candidates", "derender_chat"]


def derender_chat(
    model: Model,
    policy: Policy,
    cache: FragmentCache,
    body: DerenderChatRequest,
    checkpoint: Callable[[], None],
) -> ChatCompletion:
    """Return the engine's answer as a chat completion, choices in the order given.

    Args:
        checkpoint: called once per choice and per place with logprobs; what it raises ends the work.

    Raises:
        ModelNotFound: ``model`` is not served here.
        InvalidRequest: bounds (see `derender.bounds`), ids outside the vocabulary.
    """
    policy.check_model(body.model)
    response, request = body.generate_response, body.chat_request
    check_sequences([response], policy)
    check_prompt_ids(model, body.prompt_token_ids, "body.prompt_token_ids")
    check_prompt_tokens(body.prompt_tokens, "body.prompt_tokens")
    check_response(model, policy, response, request, "body.generate_response")
    rules = StopRules.of(request, model)
    plan = AnswerPlan.of(policy, request)
    if plan is not None:
        rules = plan.rules(rules)
    prompt_ids = response.prompt_token_ids if body.prompt_token_ids is None else body.prompt_token_ids
    seed = START
    if prompt_ids:
        table = model.tokenizer.table
        seed = seed_from_prompt(table, prompt_ids, skip_special_tokens=rules.skip_special_tokens)
    n_candidates = chat_candidates(request, policy)
    returns_ids = request is not None and bool(request.return_token_ids)

    def choice(given: GenerateChoice) -> ChatChoice:
        checkpoint()
        shown = choice_text(model, given, rules, seed)
        message = ChatMessage(role="assistant", content=shown.text)
        finish_reason: str | None = given.finish_reason or "stop"
        if plan is not None:
            message = plan.message(model, prompt_ids, shown.text)
            finish_reason = plan.finish_reason(finish_reason, len(message.tool_calls or ()))
        hides = plan is not None and plan.hides_reasoning
        return ChatChoice(
            index=given.index,
            message=message,
            finish_reason=finish_reason,
            logprobs=None if hides else _logprobs(model, cache, given, n_candidates, checkpoint),
            stop_reason=shown.stop_reason,
            token_ids=given.token_ids if returns_ids and not hides else None,
            routed_experts=given.routed_experts,
        )

    return ChatCompletion(
        id=response.request_id,
        object="chat.completion",
        created=int(time.time()),
        model=policy.answer_name(model.name),
        choices=[choice(given) for given in response.choices],
        usage=usage(body.prompt_tokens or 0, [response]),
        prompt_logprobs=resolved_prompt_logprobs(model, response.prompt_logprobs, checkpoint),
        prompt_token_ids=response.prompt_token_ids if returns_ids else None,
        kv_transfer_params=response.kv_transfer_params,
        ec_transfer_params=response.ec_transfer_params,
        weight_version=response.weight_version,
        metrics=response.metrics,
    )


def chat_candidates(request: ChatRequest | None, policy: Policy) -> int | None:
    """Return how many candidates a place keeps; ``None`` is all of them.

    Raises:
        InvalidRequest: ``top_logprobs`` is none that can be asked for.
    """
    if request is None or not request.logprobs or request.logprob_token_ids:
        return None
    asked = logprob_count(request.top_logprobs, "top_logprobs", policy)
    return None if asked == -1 else asked or 0


def _logprobs(
    model: Model,
    cache: FragmentCache,
    given: GenerateChoice,
    n_candidates: int | None,
    checkpoint: Callable[[], None],
) -> msgspec.Raw | None:
    if given.logprobs is None:
        return None
    return chat_logprobs(model, cache, given.logprobs.content or [], n_candidates, checkpoint)
