"""``chat_template_kwargs`` -> variables of the template. The server's own switches stay the server's."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidRequest
from ..protocol.chat import ChatRequest

__all__ = ["template_variables"]

_REFUSED = frozenset({"chat_template", "messages", "self", "tokenizer", "conversation", "tools", "documents"})
"""Names of a template call's own arguments. Silently dropping them would hide a mistake."""

_IGNORED = frozenset(
    {
        "add_generation_prompt",
        "continue_final_message",
        "tokenize",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
    }
)
"""Switches of transformers' ``apply_chat_template`` that belong to the server: what a request says of
them changes nothing."""


def template_variables(request: ChatRequest) -> dict[str, Any]:
    """Return the variables that the request adds. Special tokens (``bos_token``, ...) can't be set.

    Raises:
        InvalidRequest (``chat_template_kwargs``): a name that belongs to the template call itself.
    """
    given = request.chat_template_kwargs or {}
    refused = sorted(_REFUSED & given.keys())
    if refused:
        raise InvalidRequest(f"chat_template_kwargs must not set {refused[0]!r}.", "chat_template_kwargs")
    if any(name.startswith("__") for name in given):
        raise InvalidRequest(
            "Names in chat_template_kwargs must not start with two underscores.", "chat_template_kwargs"
        )
    # The reference passes no nulls on: to a template they are undefined.
    variables = {name: value for name, value in given.items() if value is not None and name not in _IGNORED}
    if request.reasoning_effort is not None:
        variables["reasoning_effort"] = request.reasoning_effort
        variables.setdefault("enable_thinking", request.reasoning_effort != "none")
    return variables
