"""A token-in request as any client may write it -> a `GenerateRequest` with nothing left to guess.

Source: vLLM 0.33 ``/inference/v1/generate``; its clients leave out what has a default.
"""

from __future__ import annotations

from typing import Any

from ..errors import InvalidRequest
from ..model.loading import Model
from ..model.vocabulary import check_token_ids
from ..policy import Policy
from ..protocol.decoding import decode_body, decode_part
from ..protocol.generate import GenerateBody, GenerateRequest
from ..protocol.sampling import SamplingFields, SamplingParams
from ..workspace import Body, Checkpoint, Workspace
from .bounds import check_cache_salt, check_prompt_length
from .request_id import request_id
from .sampling import logprob_count, resolve_max_tokens, sampling_basis

__all__ = ["generate_request"]

_PLACE = "body.sampling_params"

_DEFAULTS: dict[str, Any] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "max_tokens": 16,
}
"""`SamplingParams` means these by a field that is not there; a model recommends others to people."""


def generate_request(
    workspace: Workspace, checkpoint: Checkpoint, body: Body, base_id: str | None = None
) -> GenerateRequest:
    """Return a token-in request, checked; a job.

    Args:
        base_id: the caller's own id for the request (from a header); it wins over the body's.

    Raises:
        ModelNotFound: ``model`` is not served here.
        InvalidRequest: the parameter at fault is named.
        MalformedRequest: see `decode_body`; sampling parameters of a wrong type.
    """
    model, policy = workspace.model, workspace.policy
    given = decode_body(b"".join(body), GenerateBody)
    checkpoint()
    policy.check_model(given.model)
    if given.stream_options is not None and not given.stream:
        raise InvalidRequest("stream_options needs stream=true.", "stream_options")
    check_token_ids(model, given.token_ids, "body.token_ids")
    check_prompt_length(model, len(given.token_ids))
    return GenerateRequest(
        request_id=base_id or given.request_id or request_id("generate", None),
        token_ids=given.token_ids,
        sampling_params=_sampling_params(model, policy, given),
        output_mode="tokens",
        stream=bool(given.stream),
        priority=given.priority or 0,
        model=given.model,
        stream_options=given.stream_options,
        cache_salt=check_cache_salt(given.cache_salt),
        return_token_ids=given.return_token_ids,
        kv_transfer_params=given.kv_transfer_params,
        ec_transfer_params=given.ec_transfer_params,
        reasoning_ended=given.reasoning_ended,
        reasoning_parser_kwargs=given.reasoning_parser_kwargs,
    )


def _sampling_params(model: Model, policy: Policy, given: GenerateBody) -> SamplingParams:
    values = {key: value for key, value in given.sampling_params.items() if value is not None}
    values["vllm_xargs"] = values.pop("extra_args", None)
    fields: SamplingFields = decode_part(
        {**_DEFAULTS, **values, "stream": given.stream}, SamplingFields, _PLACE
    )
    logprobs = decode_part(values.get("logprobs"), int | None, f"{_PLACE}.logprobs", strict=True)
    basis = sampling_basis(
        fields,
        model,
        policy,
        logprobs=logprob_count(logprobs, "logprobs", policy),
        prompt_logprobs=logprob_count(fields.prompt_logprobs, "prompt_logprobs", policy),
    )
    max_tokens = resolve_max_tokens(fields.max_tokens, None, len(given.token_ids), model)
    if fields.min_tokens is not None and fields.min_tokens > max_tokens:
        raise InvalidRequest(
            f"min_tokens must be at most max_tokens ({max_tokens}), not {fields.min_tokens}.", "min_tokens"
        )
    return basis.with_max_tokens(max_tokens)
