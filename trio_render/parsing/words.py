"""The parts of a call that are plain words: fixed texts, what may be skipped, the name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .grammar import Literally, Name, Skip
from .markers import markers

if TYPE_CHECKING:
    from .machine import Machine

__all__ = ["MAX_NAME_CHARS", "NAME_PLACES", "SKIP_PLACES", "read_literally", "read_name", "read_skip"]

MAX_NAME_CHARS = 256
SKIP_PLACES = 2
NAME_PLACES = 3
_NAME = re.compile(r"[^\s<>{}\[\]()\"']*")


def read_literally(machine: Machine, step: Literally) -> bool:
    """Read a fixed text. Behind the call's arguments it may be missing."""
    if not machine.skip_space():
        return machine.next_step() if machine.at_end and machine.state.committed else False
    marker = machine.marker(markers((step.text,)))
    if marker == "":
        return False
    if marker is None:
        if step.optional or machine.state.committed:
            return machine.next_step()
        return machine.fail()
    machine.take(len(marker))
    return machine.next_step()


def read_skip(machine: Machine, step: Skip) -> bool:
    """Read up to and with a text; behind a name that waits for it, that is what makes the call."""
    if step.begins and machine.state.place == 0:
        begins = machine.marker(markers((step.begins,)))
        if begins == "":
            return False
        if begins is None:
            return machine.next_step()
        machine.state.place = 1
    count, marker = machine.until(markers((step.until,)))
    machine.take(count + len(marker))
    if not marker:
        return False
    if machine.state.name:
        machine.commit()
    return machine.next_step()


def read_name(machine: Machine, step: Name) -> bool:
    """Read the name and what must follow it."""
    state = machine.state
    if state.place == 0:
        if not machine.skip_space():
            return False
        state.place = 1
    if state.place == 1:
        match = _NAME.match(machine.buffer, machine.pos, machine.end)
        state.token += machine.take(match.end() - machine.pos) if match else ""
        if machine.pos == machine.end:
            return False
        state.place = 2
    if not state.token or len(state.token) > MAX_NAME_CHARS:
        return machine.fail()
    if not machine.skip_space():
        return False
    marker = machine.marker(markers(step.before))
    if marker == "":
        return False
    if marker is None:
        return machine.fail()
    if marker not in step.stays:
        machine.take(len(marker))
    state.name, state.token = state.token, ""
    if step.written_id and not machine.plan.is_written_id(state.name):
        return machine.fail()
    if marker not in step.waits:
        name = state.name
        machine.commit()
        state.name = name if machine.plan.is_typed(state) else ""
    return machine.next_step()
