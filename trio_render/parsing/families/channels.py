"""Families whose output is a sequence of messages with headers."""

from __future__ import annotations

from ..grammar import Channels

__all__ = ["CHANNELS"]

_HARMONY = Channels(
    start="<|start|>",
    channel="<|channel|>",
    message="<|message|>",
    ends=("<|end|>", "<|call|>", "<|return|>"),
    reasoning=("analysis",),
    recipient="functions.",
    signs=("<|channel|>", "<|message|>"),
)

CHANNELS: dict[str, Channels] = {"openai_gptoss": _HARMONY, "openai": _HARMONY, "harmony": _HARMONY}
"""``openai_gptoss`` is the reasoning parser's name in vLLM, ``openai`` the tool parser's."""
