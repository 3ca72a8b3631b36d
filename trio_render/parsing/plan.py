"""What the machine reads for: a request's families and switches, with their markers prepared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .grammar import Channels, Fence, Literally, Params, Reasoning, Step, Tools, Variant
from .markers import Markers, markers
from .state import ParserState
from .typing_rules import allowed_types

__all__ = ["ParsePlan"]

_WRITTEN_ID = re.compile(r"(?:functions\.)?(.+):\d+")


@dataclass(frozen=True, slots=True)
class ParsePlan:
    """Everything that reading an output depends on, apart from the output.

    Attributes:
        reasoning: how reasoning is marked; ``None``: it is not looked for.
        tools: how calls are written; ``None``: they are not looked for.
        channels: the output consists of messages with headers.
        tools_wanted: the request may be answered by calls.
        schemas: parameters of the request's tools, by name.
    """

    reasoning: Reasoning | None = None
    tools: Tools | None = None
    channels: Channels | None = None
    tools_wanted: bool = False
    schemas: Mapping[str, Any] = field(default_factory=dict)
    _markers: tuple[Markers, Markers] = field(init=False, repr=False, compare=False)

    @property
    def starts(self) -> Mapping[str, int]:
        """Markers of calls that must stand at the start."""
        return {} if self.tools is None else self.tools.starts

    @property
    def variants(self) -> Sequence[Variant]:
        """Ways to write calls."""
        return () if self.tools is None else self.tools.variants

    def fence(self, state: ParserState) -> Fence:
        """Return the list that the calls stand in."""
        return self.variants[state.variant].fence or _NO_FENCE

    def steps(self, state: ParserState) -> Sequence[Step]:
        """Return the steps of a call."""
        return () if self.tools is None else self.tools.variants[state.variant].steps

    def content_markers(self, reasoned: bool) -> Markers:
        """Return what ends content; a stray end of reasoning too, which is no content."""
        return self._markers[reasoned]

    def __post_init__(self) -> None:
        """Prepare what is asked for most."""
        object.__setattr__(self, "_markers", (self._in_content(False), self._in_content(True)))

    def _in_content(self, reasoned: bool) -> Markers:
        texts: list[str] = []
        if self.tools is not None:
            texts += self.tools.opens
        if self.reasoning is not None:
            texts += self.reasoning.closes
            if not reasoned:
                texts += self.reasoning.opens
        if self.channels is not None:
            texts += (self.channels.start, self.channels.channel)
        return markers(tuple(texts), () if self.tools is None else tuple(self.tools.before.items()))

    @property
    def reasoning_markers(self) -> Markers:
        """What reasoning may meet."""
        reasoning = self.reasoning
        texts = () if reasoning is None else (*reasoning.closes, *reasoning.opens, *reasoning.ended_by)
        return markers(texts)

    def after_markers(self, state: ParserState) -> Markers:
        """Return what may stand behind a call: its region's end, or the next call."""
        tools = self.tools
        if tools is None:
            return markers(())
        first = self.steps(state)[0]
        again = (first.text,) if isinstance(first, Literally) and self.repeats(state) else ()
        return markers((*tools.closes, *again))

    def behind_params(self, step: Params) -> Markers:
        """Return what may stand behind a parameter: the next one, or anything that ends the call."""
        tools = self.tools
        return markers(
            (step.key_open, *step.close, *(() if tools is None else (*tools.closes, *tools.opens)))
        )

    def repeats(self, state: ParserState) -> bool:
        """Say whether calls may follow each other in one region."""
        return self.variants[state.variant].fence is None

    def is_typed(self, state: ParserState) -> bool:
        """Say whether the call's arguments are written as texts, whose types its tool's schema gives."""
        return any(isinstance(step, Params) for step in self.steps(state))

    def types(self, name: str, key: str) -> frozenset[str]:
        """Return the types that a tool's schema allows for an argument; empty where it says nothing."""
        schema = self.schemas.get(name)
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        return allowed_types(properties.get(key)) if isinstance(properties, Mapping) else frozenset()

    def named(self, written: str) -> tuple[str, str | None]:
        """Return a call's name and the id that the output itself gives it."""
        if self.tools is not None and self.tools.ids == "written":
            match = _WRITTEN_ID.fullmatch(written)
            if match:
                return match[1], written
        return written, None

    def is_written_id(self, written: str) -> bool:
        """Say whether a name has the form that carries an id."""
        return _WRITTEN_ID.fullmatch(written) is not None


_NO_FENCE = Fence("", (), "")
