"""The incremental machine: text in any pieces -> content, reasoning and calls.

What it does next depends on its state and the characters that follow, never on how they are cut: where a
character can't be decided yet, it waits for more. Markup is held back until it is a call (its name is
known and its arguments have begun); if it can't become one, or is longer than `HOLD_CHARS`, it is content,
and reading goes on where it broke. So every character is read once or twice, and the cost is linear.
"""

from __future__ import annotations

import re

from .markers import Markers
from .modes import HANDLERS
from .plan import ParsePlan
from .sink import Sink
from .state import HOLD_CHARS, ParserState

__all__ = ["Machine"]

_HOLDING = frozenset({"variant", "fence", "item", "steps", "header"})
_SPACE = re.compile(r"\s*")


class Machine:
    """Reads one output on behalf of a state, which it changes.

    A handler goes on from the state and returns whether to go on at once: ``False`` means that it needs
    more text. Handlers move by `take`, and look no further than ``end``.
    """

    __slots__ = ("_final", "buffer", "end", "plan", "pos", "sink", "state")

    def __init__(self, plan: ParsePlan, state: ParserState, sink: Sink) -> None:
        self.plan = plan
        self.state = state
        self.sink = sink
        self.buffer = ""
        self.pos = 0
        self.end = 0
        self._final = False

    def feed(self, text: str, *, final: bool = False) -> None:
        """Read ``text``; with ``final``, decide everything that is still held."""
        state = self.state
        self.buffer = state.look + text
        self.pos = 0
        self._final = final
        length = len(self.buffer)
        while True:
            self.end = length
            if not state.committed and state.mode in _HOLDING:
                self.end = min(length, self.pos + HOLD_CHARS - len(state.raw))
            if HANDLERS[state.mode](self):
                continue
            room = HOLD_CHARS - len(state.raw)
            if not self._holding or length - self.pos < room:
                break
            self.take(room)
            self.fail()
        state.look = self.buffer[self.pos :]
        if final:
            self._finish()

    @property
    def at_end(self) -> bool:
        """Whether no character will ever follow those up to ``end``."""
        return self._final and self.end == len(self.buffer)

    @property
    def _holding(self) -> bool:
        return not self.state.committed and self.state.mode in _HOLDING

    # ------------------------------------------------------------ moving

    def take(self, count: int) -> str:
        """Move over ``count`` characters and return them; markup that may still fail is kept."""
        text = self.buffer[self.pos : self.pos + count]
        self.pos += count
        state = self.state
        if not state.committed and state.mode in _HOLDING:
            state.raw += text
        return text

    def skip_space(self) -> bool:
        """Move over whitespace. Return whether a character follows."""
        if self.pos < self.end and self.buffer[self.pos].isspace():
            match = _SPACE.match(self.buffer, self.pos, self.end)
            if match:
                self.take(match.end() - self.pos)
        return self.pos < self.end

    def show_space(self) -> bool:
        """Show whitespace as content. Return whether a character follows."""
        if self.pos < self.end and self.buffer[self.pos].isspace():
            match = _SPACE.match(self.buffer, self.pos, self.end)
            if match:
                self.show(self.take(match.end() - self.pos))
        return self.pos < self.end

    def peek(self) -> str:
        """Return the next character; there must be one before ``end``."""
        return self.buffer[self.pos]

    def marker(self, markers: Markers) -> str | None:
        """Return the marker here, ``None`` for none, and an empty text where more is needed to tell."""
        found = markers.at(self.buffer, self.pos, self.end)
        return None if found == "" and self.at_end else found

    def until(self, markers: Markers) -> tuple[int, str]:
        """Return how many characters lie before the next marker, and the marker; empty for none yet.

        Characters that may begin a marker are not counted.
        """
        match = markers.search(self.buffer, self.pos, self.end)
        if match:
            return match.start() - self.pos, match[0]
        tail = 0 if self.at_end else markers.cut_tail(self.buffer, self.pos, self.end)
        return self.end - tail - self.pos, ""

    # ------------------------------------------------------------ telling

    def show(self, text: str) -> None:
        """Show content that ends at ``pos``, all but whitespace that may turn out to stand around a call."""
        state = self.state
        text = state.space + text
        shown = text
        if self.plan.tools is not None:
            if self.plan.tools.frames:
                shown = text.rstrip()
            elif not state.seen and not text.strip():
                shown = ""
            if len(text) - len(shown) > HOLD_CHARS:
                shown = text[: len(text) - HOLD_CHARS]
        state.space = text[len(shown) :]
        if shown:
            if not state.seen and shown.strip():
                state.seen = state.started = True
            self.sink.content(shown, self.pos - len(text))

    def show_held(self) -> None:
        """Show whitespace that was held back and, as it turns out, does not stand around a call."""
        state = self.state
        if state.space:
            self.sink.content(state.space, self.pos - len(state.space))
            state.space = ""

    def mark(self) -> None:
        """Tell that here something begins that is no part of the call before it, and perhaps no content."""
        self.sink.content("", self.pos - len(self.state.space))

    def think(self, text: str, *, decided: bool = False) -> None:
        """Show reasoning, all but whitespace at its very start that may stand before its marker."""
        state = self.state
        text = state.space + text
        if text.strip() or state.thought or decided or len(text) > HOLD_CHARS:
            state.space = ""
            if text:
                state.thought = True
                self.sink.reasoning(text)
        else:
            state.space = text

    def commit(self) -> None:
        """Send the call's name: from here on it stands."""
        state = self.state
        name, written_id = self.plan.named(state.name)
        self.sink.call(state.n_calls, name, written_id, self.pos - len(state.raw) - len(state.space))
        state.n_calls += 1
        state.committed = True
        state.raw = state.space = state.name = ""
        state.seen = False

    def arguments(self, text: str) -> None:
        """Send a piece of the call's arguments."""
        if text:
            self.sink.arguments(self.state.n_calls - 1, text)

    # ------------------------------------------------------------ changing modes

    def begin(self, mode: str, marker: str) -> bool:
        """Begin markup, with what has been read of it."""
        self.reset(mode)
        self.take(len(marker))
        return True

    def fail(self) -> bool:
        """Give up on markup that is no call: it is content, and reading goes on here."""
        if not self.state.raw:
            self.take(1)
        text = self.state.raw
        self.reset("content")
        self.show(text)
        return True

    def broken(self) -> bool:
        """Go on after a fault: before the name is sent there is no call, after it the call stands."""
        return self.leave("after") if self.state.committed else self.fail()

    def next_step(self) -> bool:
        """Go on with the call's next step."""
        self.state.step += 1
        self.state.place = 0
        return True

    def leave(self, mode: str) -> bool:
        """Go on in another mode, with nothing left of a call."""
        in_list = self.state.in_list
        self.reset(mode)
        self.state.in_list = in_list
        return True

    def reset(self, mode: str) -> None:
        """Forget everything about a call."""
        state = self.state
        state.mode = mode
        state.raw = state.token = state.name = state.key = state.args = state.quote = ""
        state.step = state.place = state.value = state.depth = 0
        state.in_string = state.escaped = state.comma = False
        state.committed = state.has_args = state.in_list = False

    def _finish(self) -> None:
        state = self.state
        self.pos = len(self.buffer)
        if self._holding:
            text = state.raw + state.look
            self.reset("content")
            self.show(text)
        if state.mode == "reasoning":
            self.think("", decided=True)
        if state.seen or not state.n_calls:
            self.show_held()
        state.look = state.space = ""
