"""Reading over one JSON value without understanding it: only where it ends."""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import cache
from typing import TYPE_CHECKING

from .markers import markers

if TYPE_CHECKING:
    from collections.abc import Callable

    from .machine import Machine

__all__ = ["NESTED", "VALUES", "Outcome", "read_value"]

VALUES = 3
_NOT_BEGUN, NESTED, _WORD = range(VALUES)
_IN_TEXT = re.compile(r'["\\]')
_WORDS = re.compile(r"[^\s,\]}{\[\"<]*")


class Outcome(Enum):
    """How far a value is."""

    MORE = auto()
    DONE = auto()
    BROKEN = auto()


@cache
def _structure(ends: tuple[str, ...]) -> re.Pattern[str]:
    firsts = "".join(dict.fromkeys(end[0] for end in ends))
    return re.compile(f"[{re.escape('{}[]' + chr(34) + firsts)}]")


def read_value(machine: Machine, ends: tuple[str, ...], emit: Callable[[str], None]) -> Outcome:
    """Read a value from its first character on, giving it to ``emit`` in pieces.

    Args:
        ends: outside of strings, any of these ends a value that is not complete.
    """
    state = machine.state
    if state.value == _NOT_BEGUN:
        if machine.pos == machine.end:
            return Outcome.MORE
        state.value = NESTED if machine.peek() in '{["' else _WORD
        state.depth = 0
        state.in_string = state.escaped = False
    outcome = _word(machine, emit) if state.value == _WORD else _nested(machine, ends, emit)
    if outcome is not Outcome.MORE:
        state.value = _NOT_BEGUN
    return outcome


def _word(machine: Machine, emit: Callable[[str], None]) -> Outcome:
    state = machine.state
    match = _WORDS.match(machine.buffer, machine.pos, machine.end)
    if match and match.end() > machine.pos:
        emit(machine.take(match.end() - machine.pos))
        state.in_string = True  # it has a character
    if machine.pos == machine.end and not machine.at_end:
        return Outcome.MORE
    return Outcome.DONE if state.in_string else Outcome.BROKEN


def _nested(machine: Machine, ends: tuple[str, ...], emit: Callable[[str], None]) -> Outcome:
    state, buffer = machine.state, machine.buffer
    start = pos = machine.pos
    outcome = Outcome.MORE
    structure = _structure(ends)
    while pos < machine.end:
        if state.escaped:
            state.escaped = False
            pos += 1
            continue
        match = (_IN_TEXT if state.in_string else structure).search(buffer, pos, machine.end)
        if match is None:
            pos = machine.end
            break
        pos = match.start()
        char = buffer[pos]
        if state.in_string:
            state.escaped = char == "\\"
            state.in_string = state.escaped
        elif char == '"':
            state.in_string = True
        elif char in "{[":
            state.depth += 1
        elif char in "}]":
            state.depth -= 1
        else:
            end = markers(ends).at(buffer, pos, machine.end)
            if end:
                outcome = Outcome.BROKEN
                break
            if end == "" and not machine.at_end:
                break
        pos += 1
        if state.depth <= 0 and not state.in_string:
            outcome = Outcome.DONE
            break
    if pos > start:
        emit(machine.take(pos - start))
    return outcome
