"""Completion request -> one `GenerateRequest` per prompt.

Split in two, so that a batch can fan out: `plan_completion` checks everything that the prompts share,
`render_prompt` does one prompt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ..errors import InvalidRequest, MalformedRequest
from ..model.loading import Model
from ..policy import Policy
from ..protocol.completion import CompletionRequest
from ..protocol.generate import GenerateRequest
from .bounds import check_cache_salt, check_prompt_length, check_stream_fields
from .prompt import Prompt, encode_prompt, token_prompt
from .request_id import request_id
from .sampling import SamplingBasis, logprob_count, resolve_max_tokens, sampling_basis
from .truncation import Truncation

__all__ = [
    "CompletionPlan",
    "check_completion_fields",
    "plan_completion",
    "render_embeds",
    "render_prompt",
]

_DEFAULT_MAX_TOKENS = 16
_TOKEN_ID_CHARS = 4


@dataclass(frozen=True, slots=True)
class CompletionPlan:
    """A checked request: its prompts, and what they share. Holds no model, so that it travels to a process.

    Attributes:
        request: the request without its prompts.
        prompts: the prompts of this plan, or of a part of it.
        embeds: base64 texts of prompts given as embeddings. They come in front of ``prompts``, and are not
            counted in ``first`` and ``total``.
        first: place of the first of them in the whole request, which has ``total``.
    """

    request: CompletionRequest
    prompts: list[str] | list[list[int]]
    embeds: list[str]
    first: int
    total: int
    truncation: Truncation
    basis: SamplingBasis
    cache_salt: str | None
    base_id: str

    def size(self, index: int) -> int:
        """Return a prompt's size in characters: what its rendering costs grows with it."""
        prompt = self.prompts[index]
        return len(prompt) if isinstance(prompt, str) else len(prompt) * _TOKEN_ID_CHARS

    def part(self, places: range) -> CompletionPlan:
        """Return the plan of some of the prompts only."""
        prompts = self.prompts[places.start : places.stop]
        return replace(self, prompts=prompts, embeds=[], first=self.first + places.start)


def render_prompt(model: Model, plan: CompletionPlan, index: int) -> GenerateRequest:
    """Return prompt ``index`` of ``plan`` for an engine.

    Raises:
        InvalidRequest: it is too long, or empty; ``min_tokens`` is above its ``max_tokens``.
    """
    prompt = _prompt(model, plan, index)
    suffix = f"-{plan.first + index}" if plan.total > 1 else ""
    return _generate_request(model, plan, prompt, len(prompt.token_ids), suffix)


def render_embeds(model: Model, plan: CompletionPlan, index: int, rows: int) -> GenerateRequest:
    """Return the prompt that is embedding ``index`` of ``plan``, of ``rows`` rows, without its tokens.

    Raises: see `render_prompt`.
    """
    check_prompt_length(model, rows)
    return _generate_request(model, plan, Prompt([], None), rows, f"-embeds-{index}")


def _generate_request(
    model: Model, plan: CompletionPlan, prompt: Prompt, n_tokens: int, suffix: str
) -> GenerateRequest:
    request = plan.request
    max_tokens = resolve_max_tokens(
        request.max_tokens,
        model.sampling_defaults.get("max_new_tokens", _DEFAULT_MAX_TOKENS),
        n_tokens,
        model,
        echo_only=bool(request.echo),
    )
    if request.min_tokens is not None and request.min_tokens > max_tokens:
        raise InvalidRequest(
            f"min_tokens must be at most max_tokens ({max_tokens}), not {request.min_tokens}.",
            "min_tokens",
        )
    return GenerateRequest(
        request_id=plan.base_id + suffix,
        token_ids=prompt.token_ids,
        token_offsets=prompt.offsets,
        sampling_params=plan.basis.with_max_tokens(max_tokens),
        model=request.model,
        output_mode="tokens",
        stream=bool(request.stream),
        stream_options=request.stream_options if request.stream else None,
        priority=request.priority or 0,
        cache_salt=plan.cache_salt,
        return_token_ids=request.return_token_ids or None,
        kv_transfer_params=request.kv_transfer_params,
        ec_transfer_params=request.ec_transfer_params,
    )


def _prompt(model: Model, plan: CompletionPlan, index: int) -> Prompt:
    prompt = plan.prompts[index]
    if isinstance(prompt, str):
        return encode_prompt(
            model,
            prompt,
            add_special_tokens=plan.request.add_special_tokens is not False,
            with_offsets=bool(plan.request.return_token_offsets),
            truncation=plan.truncation,
        )
    return token_prompt(model, prompt, plan.truncation, "body.prompt")


def plan_completion(
    model: Model, policy: Policy, request: CompletionRequest, base_id: str | None = None
) -> CompletionPlan:
    """Check what all prompts of ``request`` share.

    Raises:
        ModelNotFound: ``model`` is not served here.
        InvalidRequest: the parameter at fault is named.
        MalformedRequest: ``prompt`` is of none of its four forms.
    """
    policy.check_model(request.model)
    check_stream_fields(request)
    check_completion_fields(request, policy)
    embeds = _embeds(request)
    prompts = [] if embeds and request.prompt in (None, "", []) else _prompts(request.prompt)
    if len(prompts) + len(embeds) > policy.max_prompts:
        raise InvalidRequest(
            f"A request takes at most {policy.max_prompts} prompts, not {len(prompts) + len(embeds)}.",
            "prompt",
        )
    logprobs = logprob_count(request.logprobs, "logprobs", policy)
    prompt_logprobs = logprob_count(request.prompt_logprobs, "prompt_logprobs", policy)
    return CompletionPlan(
        request=msgspec.structs.replace(request, prompt=None, prompt_embeds=None),
        prompts=prompts,
        embeds=embeds,
        first=0,
        total=len(prompts),
        truncation=Truncation.of(request, model),
        basis=sampling_basis(
            request,
            model,
            policy,
            logprobs=logprobs,
            prompt_logprobs=logprobs if prompt_logprobs is None and request.echo else prompt_logprobs,
        ),
        cache_salt=check_cache_salt(request.cache_salt),
        base_id=request_id("cmpl", base_id or request.request_id),
    )


def check_completion_fields(request: CompletionRequest, policy: Policy) -> None:
    """Raise `InvalidRequest` for a prompt that is missing, or fields that this server can't serve."""
    if request.suffix is not None:
        raise InvalidRequest("suffix is not supported.", "suffix")
    if request.prompt_embeds is not None and request.prompt_embeds != []:
        _check_embeds_fields(request, policy)
    elif request.prompt is None or request.prompt == "" or request.prompt == []:
        raise InvalidRequest("prompt is required, and must not be empty.", "prompt")


def _check_embeds_fields(request: CompletionRequest, policy: Policy) -> None:
    if not policy.enable_prompt_embeds:
        raise InvalidRequest("prompt_embeds are not enabled on this server.", "prompt_embeds")
    # Both would have to show tokens that embeddings don't have.
    for name in ("echo", "prompt_logprobs"):
        if getattr(request, name) not in (None, False):
            raise InvalidRequest(f"{name} is not available with prompt_embeds.", name)


def _embeds(request: CompletionRequest) -> list[str]:
    given = [] if request.prompt_embeds is None else request.prompt_embeds
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InvalidRequest("prompt_embeds must be a text, or a list of texts.", "prompt_embeds")
    return texts


def _prompts(prompt: Any) -> list[str] | list[list[int]]:
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list):
        if all(type(item) is int for item in prompt):
            return [prompt]
        if all(isinstance(item, str) for item in prompt):
            return prompt
        if all(isinstance(item, list) and all(type(i) is int for i in item) for item in prompt):
            return prompt
    raise MalformedRequest(
        "prompt must be a text, a list of texts, a list of token ids, or a list of such lists.", "body.prompt"
    )
