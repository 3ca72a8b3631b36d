"""Arguments as tagged texts: keys and values between markers, turned into a JSON object as they come."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .grammar import Params
from .markers import markers
from .state import HOLD_CHARS
from .typing_rules import as_json

if TYPE_CHECKING:
    from .machine import Machine

__all__ = ["PLACES", "read_params"]

PLACES = 8
_NEXT, _KEY, _OPEN, _FIRST, _HELD, _TEXT, _NESTED, _BEFORE_NESTED = range(PLACES)
_STRING = frozenset({"string"})
_NESTED_TYPES = frozenset({"object", "array"})


def read_params(machine: Machine, step: Params) -> bool:
    """Read pairs as far as they go."""
    place = machine.state.place
    if place == _NEXT:
        return _next(machine, step)
    if place == _KEY:
        return _key(machine, step)
    if place == _OPEN:
        return _open(machine, step)
    if place == _FIRST:
        return _first(machine, step)
    return _value(machine, step)


def _next(machine: Machine, step: Params) -> bool:
    state = machine.state
    if not machine.skip_space():
        return _done(machine) if machine.at_end and state.has_args else False
    marker = machine.marker(machine.plan.behind_params(step))
    if marker == "":
        return False
    if marker is None:
        return machine.broken()
    if marker != step.key_open:
        return _done(machine)
    machine.take(len(marker))
    state.token = ""
    state.place = _KEY
    return True


def _done(machine: Machine) -> bool:
    machine.arguments("}" if machine.state.has_args else "{}")
    return machine.next_step()


def _key(machine: Machine, step: Params) -> bool:
    state = machine.state
    count, marker = machine.until(markers((step.key_close,)))
    state.token += machine.take(min(count, HOLD_CHARS + 1 - len(state.token)))
    if len(state.token) > HOLD_CHARS:
        return machine.broken()
    if not marker:
        return False
    machine.take(len(marker))
    state.key, state.token = state.token.strip(), ""
    machine.arguments((", " if state.has_args else "{") + json.dumps(state.key, ensure_ascii=False) + ": ")
    state.has_args = True
    state.place = _OPEN if step.value_open else _FIRST
    return True


def _open(machine: Machine, step: Params) -> bool:
    if not machine.skip_space():
        return False
    marker = machine.marker(markers((step.value_open,)))
    if marker == "":
        return False
    if marker is None:
        return machine.broken()
    machine.take(len(marker))
    machine.state.place = _FIRST
    return True


def _first(machine: Machine, step: Params) -> bool:
    """Decide how the value is read: as it comes, or held until its type can be told."""
    state = machine.state
    if machine.pos == machine.end:
        return False
    if step.trims_newline and machine.peek() == "\n":
        machine.take(1)
    types = machine.plan.types(state.name, state.key)
    if not types or types == _STRING:
        machine.arguments('"')
        state.place = _TEXT
    else:
        state.place = _BEFORE_NESTED if types <= _NESTED_TYPES else _HELD
    return True


def _value(machine: Machine, step: Params) -> bool:
    state = machine.state
    count, marker = machine.until(markers((step.value_close, *step.value_cut)))
    # The newline in front of the marker that ends the value is not part of it.
    text = machine.buffer[machine.pos : machine.pos + count]
    framed = step.trims_newline and text.endswith("\n")
    if framed and not marker and not (machine.at_end and machine.pos + count == machine.end):
        framed = False
        count -= 1
        text = text[:-1]
    machine.take(count)
    _add(machine, text[:-1] if framed else text)
    if not marker:
        return False
    if state.place in (_HELD, _BEFORE_NESTED):
        machine.arguments(as_json(state.token, machine.plan.types(state.name, state.key)))
    elif state.place == _TEXT:
        machine.arguments('"')
    state.token = ""
    if marker == step.value_close:
        machine.take(len(marker))
    state.place = _NEXT
    return True


def _add(machine: Machine, text: str) -> None:
    state = machine.state
    if state.place in (_HELD, _BEFORE_NESTED):
        state.token += text
        begun = state.token.lstrip()
        if state.place == _BEFORE_NESTED and begun:
            if begun[0] in "{[":
                machine.arguments(state.token)
                state.token, state.place = "", _NESTED
                return
            state.place = _HELD
        if len(state.token) <= HOLD_CHARS:
            return
        # Too long for a number or a word: a text, or a nested value of a schema that allows both.
        machine.arguments('"')
        text, state.token, state.place = state.token, "", _TEXT
    if state.place == _TEXT:
        text = json.dumps(text, ensure_ascii=False)[1:-1]
    machine.arguments(text)
