"""A call in Python's syntax, ``name(key=value, ...)``: literals become JSON as they come.

Source: Llama 3.2's and 4's zero-shot format.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING

from .grammar import PythonCall
from .words import MAX_NAME_CHARS

if TYPE_CHECKING:
    from .machine import Machine

__all__ = ["FIRST_COMMITTED", "PLACES", "read_python_call"]

PLACES = 9
_NAME, _OPEN, _KEY_OR_END, _KEY, _EQUALS, _VALUE, _TEXT, _TEXT_END, _AFTER_VALUE = range(PLACES)
FIRST_COMMITTED = _VALUE
_WORD = re.compile(r"[A-Za-z_][\w.]*")
_KEY_WORD = re.compile(r"[A-Za-z_]\w*")
_REST = re.compile(r"[\w.]*")
_ATOM = re.compile(r"[\w.+\-]*")
_IN_SINGLE = re.compile(r"[^\\']*")
_IN_DOUBLE = re.compile(r'[^\\"]*')
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_MAX_ATOM = 400
_CONSTANTS = {
    "True": "true",
    "False": "false",
    "None": "null",
    "true": "true",
    "false": "false",
    "null": "null",
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": ""}
_HEX = {"x": 2, "u": 4, "U": 8}
_OPENERS = {"[": "[", "(": "[", "{": "{"}
_CLOSERS = {"]": "]", ")": "]", "}": "}"}


def read_python_call(machine: Machine, step: PythonCall) -> bool:
    """Read the call as far as it goes."""
    place = machine.state.place
    if place == _TEXT:
        return _text(machine)
    if place in (_NAME, _KEY, _VALUE) and machine.state.token:
        return _word(machine)
    if not machine.skip_space():
        return False
    if place in (_NAME, _KEY_OR_END):
        return _begin_word(machine)
    if place == _OPEN:
        return _expect(machine, "(", _KEY_OR_END)
    if place == _EQUALS:
        return _expect(machine, "=", _VALUE)
    if place == _VALUE:
        return _value(machine)
    if place == _TEXT_END:
        return _text_end(machine)
    return _after_value(machine)


def _expect(machine: Machine, char: str, place: int) -> bool:
    if machine.peek() != char:
        return machine.broken()
    machine.take(1)
    state = machine.state
    state.place = place
    if char == "=":
        if not state.committed:
            machine.commit()
        key = json.dumps(state.key, ensure_ascii=False)
        machine.arguments(f"{', ' if state.has_args else '{'}{key}: ")
        state.has_args = True
        state.depth = 0
    return True


def _begin_word(machine: Machine) -> bool:
    """Begin the name or a key, or end the call."""
    state = machine.state
    char = machine.peek()
    if state.place == _KEY_OR_END and char == ")":
        return _end(machine)
    if not (char.isalpha() or char == "_"):
        return machine.broken()
    state.token = machine.take(1)
    if state.place == _KEY_OR_END:
        state.place = _KEY
    return True


def _word(machine: Machine) -> bool:
    """Go on with a name, a key, or a number or constant."""
    state = machine.state
    match = (_ATOM if state.place == _VALUE else _REST).match(machine.buffer, machine.pos, machine.end)
    if match:
        room = _MAX_ATOM + 1 - len(state.token)
        state.token += machine.take(min(match.end() - machine.pos, room))
    if len(state.token) > _MAX_ATOM:
        state.token = ""
        return machine.broken()
    if machine.pos == machine.end:
        return False
    word, state.token = state.token, ""
    if state.place == _VALUE:
        text = _atom(word)
        if text is None:
            return machine.broken()
        machine.arguments(text)
        state.place = _AFTER_VALUE
        return True
    if len(word) > MAX_NAME_CHARS or not (_WORD if state.place == _NAME else _KEY_WORD).fullmatch(word):
        return machine.broken()
    if state.place == _NAME:
        state.name, state.place = word, _OPEN
    else:
        state.key, state.place = word, _EQUALS
    return True


def _atom(word: str) -> str | None:
    if word in _CONSTANTS:
        return _CONSTANTS[word]
    try:
        return str(int(word))
    except ValueError:
        pass
    try:
        number = float(word)
    except ValueError:
        return None
    return json.dumps(number) if math.isfinite(number) else None


def _value(machine: Machine) -> bool:
    state = machine.state
    char = machine.peek()
    if char in "'\"":
        machine.take(1)
        _comma(machine)
        machine.arguments('"')
        state.quote, state.place = char, _TEXT
    elif char in _OPENERS:
        machine.take(1)
        _comma(machine)
        machine.arguments(_OPENERS[char])
        state.depth += 1
    elif char in _CLOSERS and state.depth:
        # An empty container, or a comma before its end.
        state.comma = False
        return _close(machine, char)
    elif char.isalnum() or char in "+-._":
        _comma(machine)
        state.token = machine.take(1)
    else:
        return machine.broken()
    return True


def _comma(machine: Machine) -> None:
    if machine.state.comma:
        machine.arguments(", ")
        machine.state.comma = False


def _close(machine: Machine, char: str) -> bool:
    machine.take(1)
    machine.arguments(_CLOSERS[char])
    machine.state.depth -= 1
    machine.state.place = _AFTER_VALUE
    return True


def _after_value(machine: Machine) -> bool:
    state = machine.state
    char = machine.peek()
    if state.depth == 0:
        if char == ")":
            return _end(machine)
        return _expect(machine, ",", _KEY_OR_END)
    if char in _CLOSERS:
        return _close(machine, char)
    if char == ",":
        state.comma = True
    elif char == ":":
        machine.arguments(": ")
    else:
        return machine.broken()
    return _expect(machine, char, _VALUE)


def _end(machine: Machine) -> bool:
    machine.take(1)
    if not machine.state.committed:
        machine.commit()
    machine.arguments("}" if machine.state.has_args else "{}")
    return machine.next_step()


def _text(machine: Machine) -> bool:
    """Go on with a text, up to its closing quotation mark."""
    state = machine.state
    match = (_IN_SINGLE if state.quote == "'" else _IN_DOUBLE).match(machine.buffer, machine.pos, machine.end)
    if match and match.end() > machine.pos:
        machine.arguments(_escaped(machine.take(match.end() - machine.pos)))
    if machine.pos == machine.end:
        return False
    if machine.peek() == state.quote:
        machine.take(1)
        state.place = _TEXT_END
        return True
    return _escape(machine)


def _text_end(machine: Machine) -> bool:
    """End a text, unless another one stands beside it: the two are one text."""
    state = machine.state
    char = machine.peek()
    if char in "'\"":
        machine.take(1)
        state.quote, state.place = char, _TEXT
    else:
        machine.arguments('"')
        state.place = _AFTER_VALUE
    return True


def _escape(machine: Machine) -> bool:
    if machine.end - machine.pos < 2:
        return False
    char = machine.buffer[machine.pos + 1]
    length = 2 + _HEX.get(char, 0)
    if machine.end - machine.pos < length:
        return False
    written = machine.take(length)
    if _SURROGATE.fullmatch(written):
        # Half of a pair, which JSON writes the same way.
        machine.arguments(written)
    else:
        machine.arguments(_escaped(_unescaped(written)))
    return True


def _unescaped(written: str) -> str:
    char = written[1]
    if char in _HEX:
        digits = written[2:]
        try:
            text = chr(int(digits, 16))
            text.encode()
        except (ValueError, OverflowError):
            return written
        return text
    if char in "\\'\"":
        return char
    return _ESCAPES.get(char, written)


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
