"""Which families read an output: chosen by name, or from what the model's own files say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from ..errors import ModelLoadError
from ..model.loading import Model
from ..model.token_table import TokenTable
from ..policy import Policy
from ..protocol.chat import ChatRequest
from .families.channels import CHANNELS
from .families.reasoning import REASONING
from .families.tools import TOOLS
from .grammar import Reasoning
from .plan import ParsePlan
from .state import ParserState

__all__ = [
    "REASONING_PARSERS",
    "TOOL_CALL_PARSERS",
    "parse_plan",
    "reasoning_in_prompt",
    "resolve_parsers",
    "start_state",
    "wants_tools",
]

REASONING_PARSERS = (*REASONING, "openai_gptoss")
TOOL_CALL_PARSERS = (*TOOLS, "openai")
_AUTO = "auto"
_MAX_PROMPT_TAIL = 4096


def resolve_parsers(policy: Policy, model: Model) -> tuple[str | None, str | None]:
    """Return the names of the reasoning and tool-call parsers; ``auto`` is looked up in the model's files.

    A family is told by texts that its chat template or its vocabulary holds; the one that most of them
    tell wins.

    Raises:
        ModelLoadError: a name that no family has.
    """
    evidence = model.parser_evidence
    template = "" if model.template is None else model.template.source
    reasoning = _resolved(
        policy.reasoning_parser,
        # A model may have the tokens without ever reasoning, and all its answers would be reasoning.
        {
            name: (family.signs, template if family.starts_inside else evidence)
            for name, family in REASONING.items()
        },
        REASONING_PARSERS,
        "openai_gptoss",
        evidence,
    )
    tools = _resolved(
        policy.tool_call_parser,
        {name: (family.signs, evidence) for name, family in TOOLS.items()},
        TOOL_CALL_PARSERS,
        "openai",
        evidence,
    )
    return reasoning, tools


def _resolved(
    name: str | None,
    signs: Mapping[str, tuple[Sequence[str], str]],
    known: Sequence[str],
    harmony: str,
    evidence: str,
) -> str | None:
    if name is None or name in known:
        return name
    if name != _AUTO:
        raise ModelLoadError(f"There is no parser {name!r}; there are auto, {', '.join(known)}.")
    if all(sign in evidence for sign in CHANNELS[harmony].signs):
        return harmony
    fitting = {
        family: sum(map(len, texts))
        for family, (texts, where) in signs.items()
        if texts and all(text in where for text in texts)
    }
    return max(fitting, key=fitting.__getitem__) if fitting else None


def wants_tools(request: ChatRequest) -> bool:
    """Say whether a request may be answered by tool calls: it has tools, and does not rule them out."""
    return bool(request.tools) and request.tool_choice not in (None, "none")


def parse_plan(policy: Policy, request: ChatRequest | None) -> ParsePlan | None:
    """Return what to read an answer to ``request`` for; ``None``: it is plain text."""
    if request is None:
        return None
    wanted = policy.tool_call_parser is not None and wants_tools(request)
    channels = CHANNELS.get(policy.reasoning_parser or "") or (
        CHANNELS.get(policy.tool_call_parser or "") if wanted else None
    )
    reasoning = REASONING.get(policy.reasoning_parser or "")
    tools = TOOLS.get(policy.tool_call_parser or "") if wanted else None
    if reasoning is None and tools is None and channels is None:
        return None
    schemas = {tool.function.name: tool.function.parameters for tool in request.tools or ()} if wanted else {}
    return ParsePlan(reasoning, tools, channels, wanted, schemas)


def start_state(
    plan: ParsePlan, table: TokenTable, prompt_ids: Sequence[int] | None, request: ChatRequest
) -> ParserState:
    """Return where an output starts that follows ``prompt_ids``, as far as those are known."""
    if plan.channels is not None:
        return ParserState(mode="header")
    reasoning = plan.reasoning
    if reasoning is None:
        return ParserState(mode="content", reasoned=True)
    place = reasoning_in_prompt(reasoning, table, prompt_ids or ())
    switches = request.chat_template_kwargs or {}
    if place == "closed" or any(switches.get(name) is False for name in reasoning.switches):
        return ParserState(mode="content", reasoned=True)
    if place == "open":
        return ParserState(mode="reasoning", thought=True)
    return ParserState(mode="reasoning" if reasoning.starts_inside else "content")


def reasoning_in_prompt(
    reasoning: Reasoning, table: TokenTable, prompt_ids: Sequence[int]
) -> Literal["open", "closed"] | None:
    """Say whether a prompt's last turn has opened reasoning, or closed it as well."""
    opens = [marker.encode() for marker in reasoning.opens]
    closes = [marker.encode() for marker in reasoning.closes]
    turn: list[bytes] = []
    for token_id in reversed(prompt_ids[-_MAX_PROMPT_TAIL:]):
        value = table.byte_values[token_id]
        if token_id in table.special_ids and value not in opens and value not in closes:
            break
        turn.append(value)
        if value in opens or value in closes:
            break
    text = b"".join(reversed(turn))
    opened = max(text.rfind(marker) for marker in opens)
    closed = max(text.rfind(marker) for marker in closes)
    if closed > opened:
        return "closed"
    return "open" if opened >= 0 else None
