"""A whole output at once. It can see what a stream can't: that a call's arguments are no JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

from .machine import Machine
from .plan import ParsePlan
from .state import ParserState
from .typing_rules import is_json

__all__ = ["Call", "Message", "parse_whole"]


@dataclass(slots=True)
class Call:
    """A tool call. ``arguments`` is JSON text as the model wrote it, where the family writes JSON."""

    name: str
    written_id: str | None
    arguments: str = ""


@dataclass(slots=True)
class Message:
    """What an output says. ``content`` and ``reasoning`` may be empty."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)


@dataclass(slots=True)
class _Begun(Call):
    at: int = 0
    ended: bool = False

    @property
    def sound(self) -> bool:
        """Whether it has its end, and arguments that are JSON."""
        return self.ended and is_json(self.arguments)


class _Whole:
    """A sink that keeps the order of content and calls, and their places."""

    def __init__(self) -> None:
        self.events: list[tuple[int, str | _Begun]] = []
        self.thoughts: list[str] = []
        self._calls: list[_Begun] = []
        self._arguments: list[list[str]] = []

    def content(self, text: str, at: int) -> None:
        self.events.append((at, text))

    def reasoning(self, text: str) -> None:
        self.thoughts.append(text)

    def call(self, index: int, name: str, written_id: str | None, at: int) -> None:
        call = _Begun(name, written_id, at=at)
        self._calls.append(call)
        self._arguments.append([])
        self.events.append((at, call))

    def arguments(self, index: int, text: str) -> None:
        self._arguments[index].append(text)

    def end(self, index: int) -> None:
        self._calls[index].ended = True

    def settle(self) -> None:
        """Join what came in pieces."""
        for call, pieces in zip(self._calls, self._arguments, strict=True):
            call.arguments = "".join(pieces)


def parse_whole(plan: ParsePlan, state: ParserState, text: str) -> Message:
    """Return what ``text``, a whole output, says. A broken call is content, with its markup.

    Args:
        state: where the output starts; it is used up.
    """
    sink = _Whole()
    Machine(plan, state, sink).feed(text, final=True)
    sink.settle()
    message = Message(reasoning="".join(sink.thoughts))
    content: list[str] = []
    ends = [*(at for at, _ in sink.events[1:]), len(text)]
    for (at, event), end in zip(sink.events, ends, strict=False):
        if isinstance(event, str):
            content.append(event)
        elif event.sound:
            message.calls.append(event)
        else:
            content.append(text[at:end])
    message.content = "".join(content)
    return message
