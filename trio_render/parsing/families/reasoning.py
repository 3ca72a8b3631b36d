"""How families mark their reasoning. Names are those of vLLM's ``--reasoning-parser``."""

from __future__ import annotations

from ..grammar import Reasoning

__all__ = ["REASONING"]

_THINK = ("<think>",)
_END_THINK = ("</think>",)

REASONING: dict[str, Reasoning] = {
    # Everything up to </think> is reasoning; many templates open it in the prompt.
    "deepseek_r1": Reasoning(
        _THINK, _END_THINK, starts_inside=True, signs=("</think>", "<\uff5cUser\uff5c>")
    ),
    "qwen3": Reasoning(
        _THINK,
        _END_THINK,
        starts_inside=True,
        ended_by=("<tool_call>",),
        drops_closes=True,
        keeps_special=True,
        signs=("</think>", "<|im_start|>"),
    ),
    "glm45": Reasoning(
        _THINK,
        _END_THINK,
        starts_inside=True,
        ended_by=("<tool_call>",),
        drops_closes=True,
        keeps_special=True,
        signs=("</think>", "<|observation|>"),
    ),
    "mistral": Reasoning(
        ("[THINK]",),
        ("[/THINK]",),
        ended_by=("[TOOL_CALLS]",),
        drops_closes=True,
        keeps_special=True,
        signs=("[/THINK]",),
    ),
    # Written out, not marked by tokens of its own.
    "granite": Reasoning(
        ("Here is my thought process:", "Here's my thought process:"),
        ("Here is my response:", "Here's my response:"),
        signs=("Here is my thought process:",),
    ),
    "olmo3": Reasoning(_THINK, _END_THINK, starts_inside=True, signs=("<think>", "huggingface.co/allenai")),
    "seed_oss": Reasoning(
        ("<seed:think>",),
        ("</seed:think>",),
        starts_inside=True,
        ended_by=("<seed:tool_call>",),
        drops_closes=True,
        keeps_special=True,
        signs=("</seed:think>",),
    ),
    "kimi_k2": Reasoning(
        _THINK,
        _END_THINK,
        starts_inside=True,
        ended_by=("<|tool_calls_section_begin|>",),
        drops_closes=True,
        keeps_special=True,
        signs=("</think>", "<|tool_calls_section_begin|>"),
    ),
}
