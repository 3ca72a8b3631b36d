"""What the machine tells: content, reasoning, calls; and what a piece of a stream adds of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["CallDelta", "Delta", "Sink"]


class Sink(Protocol):
    """``at`` is the place of an event in the text given to the machine, for who has all of it."""

    def content(self, text: str, at: int) -> None:
        """Show text. An empty text: here something begins that is not shown as content."""

    def reasoning(self, text: str) -> None:
        """Show reasoning."""

    def call(self, index: int, name: str, written_id: str | None, at: int) -> None:
        """Begin call ``index``."""

    def arguments(self, index: int, text: str) -> None:
        """Add to the arguments of call ``index``, which has begun."""

    def end(self, index: int) -> None:
        """End call ``index`` as its family does. A broken call has no end."""


@dataclass(slots=True)
class CallDelta:
    """What a piece of text adds to a call. ``name`` only where the call begins."""

    name: str | None = None
    written_id: str | None = None
    arguments: str = ""


@dataclass(slots=True)
class Delta:
    """What a piece of text adds to a message; a `Sink`."""

    text: str = ""
    thought: str = ""
    calls: dict[int, CallDelta] = field(default_factory=dict)

    def content(self, text: str, at: int) -> None:
        """Add content."""
        self.text += text

    def reasoning(self, text: str) -> None:
        """Add reasoning."""
        self.thought += text

    def call(self, index: int, name: str, written_id: str | None, at: int) -> None:
        """Begin a call."""
        self.calls[index] = CallDelta(name, written_id)

    def arguments(self, index: int, text: str) -> None:
        """Add to a call's arguments."""
        self.calls.setdefault(index, CallDelta()).arguments += text

    def end(self, index: int) -> None:
        """Say nothing: a stream's call stands, whole or broken."""
