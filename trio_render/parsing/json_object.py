"""A call as a JSON object: ``{"name": ..., "arguments": {...}}``, members in any order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from .grammar import JsonObject
from .json_value import Outcome, read_value
from .state import HOLD_CHARS
from .words import MAX_NAME_CHARS

if TYPE_CHECKING:
    from collections.abc import Callable

    from .machine import Machine

__all__ = ["PLACES", "read_object"]

PLACES = 9
_OPEN, _KEY_OR_END, _KEY, _COLON, _VALUE, _NAME, _OTHER, _ARGUMENTS, _COMMA_OR_END = range(PLACES)
_TEXT = re.compile(r'(?:[^"\\]|\\.)*', re.DOTALL)
_BESIDE = frozenset({"type", "id", "index"})


def read_object(machine: Machine, step: JsonObject) -> bool:
    """Read the object as far as it goes."""
    state = machine.state
    if state.place in (_KEY, _NAME):
        return _read_text(machine)
    if state.place in (_OTHER, _ARGUMENTS) and state.value:
        return _read_member(machine, step)
    if not machine.skip_space():
        return False
    char = machine.peek()
    place = state.place
    if place == _OPEN:
        return _go(machine, _KEY_OR_END) if char == "{" else machine.broken()
    if place == _COLON:
        return _go(machine, _VALUE) if char == ":" else machine.broken()
    if place == _VALUE:
        return _begin_value(machine, step, char)
    if place in (_OTHER, _ARGUMENTS):
        return _read_member(machine, step)
    if char == "}":
        return _end(machine, step)
    if place == _KEY_OR_END and char == '"':
        state.token = ""
        return _go(machine, _KEY)
    if place == _COMMA_OR_END and char == ",":
        return _go(machine, _KEY_OR_END)
    return machine.broken()


def _go(machine: Machine, place: int) -> bool:
    machine.take(1)
    machine.state.place = place
    return True


def _read_text(machine: Machine) -> bool:
    """Read a key or the name up to its closing quotation mark."""
    state = machine.state
    match = _TEXT.match(machine.buffer, machine.pos, machine.end)
    if match and match.end() > machine.pos:
        piece = machine.take(match.end() - machine.pos)
        state.token = (state.token + piece)[: HOLD_CHARS + 1]
    if machine.pos == machine.end or machine.peek() != '"':
        return False
    machine.take(1)
    text = _decoded(state.token)
    state.token = ""
    if state.place == _KEY:
        state.key = text
        state.place = _COLON
        return True
    if not 0 < len(text) <= MAX_NAME_CHARS:
        return machine.fail()
    state.name = text
    state.place = _COMMA_OR_END
    if state.has_args:
        machine.commit()
        machine.arguments(state.args)
        state.args = ""
    return True


def _decoded(raw: str) -> str:
    try:
        text: str = msgspec.json.decode(f'"{raw}"', type=str)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return ""
    return text


def _begin_value(machine: Machine, step: JsonObject, char: str) -> bool:
    state = machine.state
    if char in ",:]}":
        return machine.broken()
    key, state.key = state.key, ""
    if key == "name" and not (state.name or state.committed):
        return _go(machine, _NAME) if char == '"' else machine.broken()
    if key in step.arguments and not state.has_args:
        if state.name:
            machine.commit()
        state.place = _ARGUMENTS
        return True
    if step.strict and not state.committed and key not in _BESIDE:
        return machine.broken()
    state.place = _OTHER
    return True


def _read_member(machine: Machine, step: JsonObject) -> bool:
    state = machine.state
    outcome = read_value(machine, step.ends, _receiver(machine))
    if outcome is Outcome.MORE:
        return False
    if outcome is Outcome.BROKEN:
        return machine.broken()
    state.has_args = state.has_args or state.place == _ARGUMENTS
    state.place = _COMMA_OR_END
    return True


def _receiver(machine: Machine) -> Callable[[str], None]:
    state = machine.state
    if state.place == _OTHER:
        return lambda _: None
    if state.committed:
        return machine.arguments

    def hold(text: str) -> None:
        state.args += text

    return hold


def _end(machine: Machine, step: JsonObject) -> bool:
    state = machine.state
    if not state.committed and (not state.name or step.needs_arguments):
        return machine.broken()
    machine.take(1)
    if not state.committed:
        machine.commit()
        machine.arguments("{}")
    return machine.next_step()
