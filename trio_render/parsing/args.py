"""Arguments that stand by themselves: a JSON value behind the call's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .grammar import Args
from .json_value import Outcome, read_value
from .markers import markers

if TYPE_CHECKING:
    from .machine import Machine

__all__ = ["PLACES", "read_args"]

PLACES = 3
_FIRST, _VALUE, _ANYTHING = range(PLACES)


def read_args(machine: Machine, step: Args) -> bool:
    """Read the value. What is no object goes on until one of the step's ends."""
    state = machine.state
    if state.place == _FIRST:
        if not machine.skip_space():
            return False
        marker = machine.marker(markers(step.ends))
        if marker == "":
            return False
        if marker is not None:
            return _without(machine)
        state.place = _VALUE if machine.peek() == "{" else _ANYTHING
    if state.place == _VALUE:
        outcome = read_value(machine, step.ends, machine.arguments)
        return False if outcome is Outcome.MORE else machine.next_step()
    count, marker = machine.until(markers(step.ends))
    machine.arguments(machine.take(count))
    return machine.next_step() if marker else False


def _without(machine: Machine) -> bool:
    machine.arguments("{}")
    return machine.next_step()
