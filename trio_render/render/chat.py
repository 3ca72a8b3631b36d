"""Chat request -> `GenerateRequest`: messages -> prompt text -> token ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import InvalidRequest
from ..model.chat_template import ChatTemplate, TemplateInput
from ..model.loading import Model
from ..model.vocabulary import check_token_ids
from ..parsing.families.channels import CHANNELS
from ..parsing.families.reasoning import REASONING
from ..parsing.grammar import Reasoning
from ..parsing.selection import reasoning_in_prompt
from ..policy import Policy
from ..protocol.chat import ChatRequest
from ..protocol.generate import GenerateRequest, ParseContext
from .bounds import check_cache_salt, check_stream_fields
from .messages import normalize_messages
from .prompt import Prompt, encode_prompt, token_prompt
from .request_id import request_id
from .sampling import SamplingBasis, logprob_count, resolve_max_tokens, sampling_basis
from .structural_tag import call_constraint
from .template_variables import template_variables
from .tools import resolve_tool_choice, template_tools, wire_tools
from .truncation import Truncation

__all__ = ["ChatText", "chat_text", "render_chat"]


class ChatText(NamedTuple):
    """A chat's prompt text, with what the template was given beyond the messages."""

    text: str
    variables: dict[str, Any]
    n_tool_calls: int


def render_chat(
    model: Model,
    policy: Policy,
    request: ChatRequest,
    checkpoint: Callable[[], None],
    base_id: str | None = None,
) -> GenerateRequest:
    """Return ``request`` as a prompt for an engine.

    Args:
        checkpoint: called now and then; what it raises ends the work.
        base_id: the caller's request id (a header, say); it wins over the request's own.

    Raises:
        ModelNotFound: ``model`` is not served here.
        InvalidRequest: the parameter at fault is named.
    """
    policy.check_model(request.model)
    _check_fields(request)
    choice = resolve_tool_choice(policy, request)
    truncation = Truncation.of(request, model)
    salt = check_cache_salt(request.cache_salt)
    transfer, given_ids = _split_transfer(request, model)
    top = logprob_count(0 if request.top_logprobs is None else request.top_logprobs, "top_logprobs", policy)
    if top and not request.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs=true.", "top_logprobs")
    prompt_logprobs = logprob_count(request.prompt_logprobs, "prompt_logprobs", policy)
    basis = sampling_basis(
        request,
        model,
        policy,
        logprobs=top if request.logprobs else None,
        prompt_logprobs=top if prompt_logprobs is None and request.echo else prompt_logprobs,
    )
    basis = _for_parsers(policy, request, choice, basis)
    rendered = chat_text(model, policy, request, checkpoint)
    prompt = _prompt(model, request, rendered.text, given_ids, truncation)
    asked = request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens
    default = model.sampling_defaults.get("max_new_tokens")
    max_tokens = resolve_max_tokens(asked, default, len(prompt.token_ids), model)
    _check_min_tokens(request, max_tokens)
    reasoning = REASONING.get(policy.reasoning_parser or "")
    echoed = _echoed(request, rendered.variables)
    return GenerateRequest(
        request_id=request_id("chatcmpl", base_id or request.request_id),
        token_ids=prompt.token_ids,
        token_offsets=prompt.offsets,
        sampling_params=basis.with_max_tokens(max_tokens),
        model=request.model,
        output_mode="tokens",
        stream=bool(request.stream),
        stream_options=request.stream_options if request.stream else None,
        priority=request.priority or 0,
        cache_salt=salt,
        return_token_ids=request.return_token_ids or None,
        kv_transfer_params=transfer,
        ec_transfer_params=request.ec_transfer_params,
        parse_context=ParseContext(
            tools=wire_tools(request.tools),
            tool_choice=choice,
            parallel_tool_calls=request.parallel_tool_calls is not False,
            include_reasoning=request.include_reasoning is not False,
            chat_template_kwargs=echoed,
            history_tool_call_cnt=rendered.n_tool_calls,
        ),
        reasoning_ended=None if reasoning is None else _reasoning_ended(model, request, reasoning, prompt),
        reasoning_parser_kwargs=None if reasoning is None else {"chat_template_kwargs": echoed},
    )


def _for_parsers(
    policy: Policy, request: ChatRequest, choice: str | dict[str, Any] | None, basis: SamplingBasis
) -> SamplingBasis:
    """Return sampling parameters under which the answer can be parsed."""
    fields: dict[str, Any] = {}
    reasoning = REASONING.get(policy.reasoning_parser or "")
    calls = policy.tool_call_parser is not None and choice not in (None, "none")
    if calls or (reasoning is not None and reasoning.keeps_special) or policy.reasoning_parser in CHANNELS:
        fields["skip_special_tokens"] = False
    if request.structured_outputs is None and request.response_format is None:
        constraint = call_constraint(policy, request, choice)
        if constraint is not None:
            fields["structured_outputs"] = constraint
    return basis.replaced(**fields) if fields else basis


def _reasoning_ended(model: Model, request: ChatRequest, reasoning: Reasoning, prompt: Prompt) -> bool:
    if request.include_reasoning is False:
        return True
    return reasoning_in_prompt(reasoning, model.tokenizer.table, prompt.token_ids) == "closed"


def chat_text(model: Model, policy: Policy, request: ChatRequest, checkpoint: Callable[[], None]) -> ChatText:
    """Return the prompt text of ``request``'s messages.

    Raises:
        InvalidRequest: no messages, flags that contradict each other, a template that is not trusted or
            that refuses the messages, an empty prompt.
    """
    if not request.messages:
        raise InvalidRequest("messages must not be empty.", "messages")
    continues = bool(request.continue_final_message)
    generates = request.add_generation_prompt is not False
    if continues and generates:
        raise InvalidRequest(
            "continue_final_message needs add_generation_prompt=false.", "continue_final_message"
        )
    template = _template(model, policy, request)
    variables = template_variables(request)
    messages, n_calls = normalize_messages(request.messages, template.content_format, checkpoint)
    text = template.render(
        TemplateInput(
            messages=messages,
            tools=template_tools(request.tools),
            documents=request.documents,
            add_generation_prompt=generates,
            continue_final_message=continues,
            variables=variables,
        ),
        checkpoint,
    )
    return ChatText(text, variables, n_calls)


def _template(model: Model, policy: Policy, request: ChatRequest) -> ChatTemplate:
    if request.chat_template is not None:
        if not policy.trust_request_chat_template:
            raise InvalidRequest("This server takes no chat_template from requests.", "chat_template")
        return ChatTemplate(request.chat_template, model.special_tokens)
    if model.template is None:
        raise InvalidRequest("The model has no chat template.", "messages")
    return model.template


def _check_fields(request: ChatRequest) -> None:
    check_stream_fields(request)
    if request.media_io_kwargs is not None:
        raise InvalidRequest("This model reads no media.", "media_io_kwargs")


def _check_min_tokens(request: ChatRequest, max_tokens: int) -> None:
    if request.min_tokens is not None and request.min_tokens > max_tokens:
        raise InvalidRequest(
            f"min_tokens must be at most max_tokens ({max_tokens}), not {request.min_tokens}.", "min_tokens"
        )


def _split_transfer(request: ChatRequest, model: Model) -> tuple[dict[str, Any] | None, list[int] | None]:
    """Return ``kv_transfer_params`` without its prompt ids, and those ids.

    They are the prompt as another server has rendered it (a prefill instance, say).
    """
    param = "kv_transfer_params.prompt_token_ids"
    transfer = request.kv_transfer_params
    if transfer is None or "prompt_token_ids" not in transfer:
        return transfer, None
    ids = transfer["prompt_token_ids"]
    if not isinstance(ids, list) or not ids or not all(type(i) is int for i in ids):
        raise InvalidRequest(f"{param} must be a list of token ids.", param)
    check_token_ids(model, ids, param, InvalidRequest)
    return {key: value for key, value in transfer.items() if key != "prompt_token_ids"} or None, ids


def _prompt(
    model: Model, request: ChatRequest, text: str, given_ids: list[int] | None, truncation: Truncation
) -> Prompt:
    if given_ids is not None and not request.echo:
        return token_prompt(model, given_ids, truncation, "kv_transfer_params.prompt_token_ids")
    return encode_prompt(
        model,
        text,
        add_special_tokens=bool(request.add_special_tokens),
        with_offsets=bool(request.return_token_offsets),
        truncation=truncation,
    )


def _echoed(request: ChatRequest, variables: dict[str, Any]) -> dict[str, Any]:
    echoed = {
        **variables,
        "add_generation_prompt": request.add_generation_prompt is not False,
        "continue_final_message": bool(request.continue_final_message),
    }
    if request.documents is not None:
        echoed["documents"] = request.documents
    return {key: value for key, value in echoed.items() if value is not None}
