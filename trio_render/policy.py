"""What the operator allows: bounds and switches that are not the model's own."""

from __future__ import annotations

from dataclasses import dataclass, field

from .errors import ModelNotFound

__all__ = ["Policy"]

_SHOWN_NAME_CHARS = 100


@dataclass(frozen=True, slots=True)
class Policy:
    """Bounds and switches of one renderer or derenderer.

    Attributes:
        served_names: names a request's ``model`` may carry; the first one is written into answers.
            Empty: a workspace fills in the name that its model was opened with.
        trust_request_chat_template: accept ``chat_template`` from requests. Off by default: such a
            template runs (sandboxed and bounded) on this machine.
        max_logprobs: most ``logprobs`` / ``top_logprobs`` a request may ask for; -1 is no bound but
            the vocabulary.
        max_prompts: most prompts in one completion request.
        max_sequences: most sequences (``n``, or choices in one answer).
        reasoning_parser, tool_call_parser: families that outputs are parsed for, by name; ``None``: not.
            ``auto``: a workspace looks them up in its model's files.
        enable_auto_tool_choice: accept ``tool_choice="auto"``, the default of requests with tools.
        stream_state_key: authenticates the states that clients of streams carry, up to 64 bytes; whoever
            shares it takes each other's. Empty: states are checked, but could be made by others.
        enable_prompt_embeds: accept ``prompt_embeds``. Needs PyTorch, which a workspace then imports.
    """

    served_names: tuple[str, ...] = ()
    trust_request_chat_template: bool = False
    max_logprobs: int = 20
    max_prompts: int = 1024
    max_sequences: int = 16384
    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    enable_auto_tool_choice: bool = False
    stream_state_key: bytes = field(default=b"", repr=False)
    enable_prompt_embeds: bool = False

    def answer_name(self, model_name: str) -> str:
        """Return the name that answers carry."""
        return self.served_names[0] if self.served_names else model_name

    def check_model(self, requested: str | None) -> None:
        """Raise `ModelNotFound` unless ``requested`` is served here; ``None`` and ``""`` always are."""
        if requested and requested not in self.served_names:
            shown = requested[:_SHOWN_NAME_CHARS]
            raise ModelNotFound(f"The model {shown!r} does not exist.", "model")
