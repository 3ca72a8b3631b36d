"""The machine's handlers outside of a call's own parts: content, reasoning, and regions of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .args import read_args
from .channels import read_body, read_header
from .grammar import Args, JsonObject, Literally, Name, Params, PythonCall, Skip, Step
from .json_object import read_object
from .markers import markers
from .params import read_params
from .python_call import read_python_call
from .words import read_literally, read_name, read_skip

if TYPE_CHECKING:
    from .machine import Machine

__all__ = ["CALL_MODES", "CHANNEL_MODES", "HANDLERS"]

CALL_MODES = frozenset({"variant", "fence", "item", "steps", "between", "after"})
"""Modes of regions of calls."""

CHANNEL_MODES = frozenset({"header", "thinking", "speaking", "calling"})
"""Modes of messages with headers."""


def _content(machine: Machine) -> bool:
    state, plan = machine.state, machine.plan
    if not state.started and plan.starts:
        start = _start(machine)
        if start is not None:
            return start
    known = plan.content_markers(state.reasoned)
    count, marker = machine.until(known)
    if count:
        machine.show(machine.take(count))
    if not marker:
        return False
    if plan.tools is not None and marker in plan.tools.opens:
        return _begin_calls(machine, plan.tools.opens[marker], marker)
    machine.mark()
    if plan.channels is not None and marker in (plan.channels.start, plan.channels.channel):
        machine.begin("header", marker)
        state.place = 1
        return True
    reasoning = plan.reasoning
    if reasoning is not None and marker in reasoning.opens and not state.reasoned:
        machine.show_held()
        machine.take(len(marker))
        state.mode = "reasoning"
        state.thought = True
        return True
    machine.take(len(marker))
    if state.seen and not (reasoning is not None and reasoning.drops_closes):
        machine.show(marker)
    return True


def _start(machine: Machine) -> bool | None:
    """Look for calls that must stand at the start; ``None``: there are none."""
    plan = machine.plan
    if not machine.show_space():
        return False
    marker = machine.marker(markers(tuple(plan.starts)))
    if marker == "":
        return False
    return None if marker is None else _begin_calls(machine, plan.starts[marker], marker)


def _begin_calls(machine: Machine, steps_taken: int, marker: str) -> bool:
    if steps_taken < 0:
        return machine.leave("variant")
    machine.begin("variant", marker)
    machine.state.step = steps_taken
    return True


def _reasoning(machine: Machine) -> bool:
    plan, state = machine.plan, machine.state
    reasoning = plan.reasoning
    if reasoning is None:
        return machine.leave("content")
    count, marker = machine.until(plan.reasoning_markers)
    if count:
        machine.think(machine.take(count))
    if not marker:
        return False
    if marker in reasoning.opens:
        # Whitespace before it is framing.
        state.space = ""
        state.thought = True
    else:
        machine.think("", decided=True)
    if marker not in reasoning.ended_by:
        machine.take(len(marker))
    if marker not in reasoning.opens:
        state.reasoned = True
        state.mode = "content"
    return True


def _variant(machine: Machine) -> bool:
    variants = machine.plan.variants
    state = machine.state
    if variants[0].first and not machine.skip_space():
        return False
    for number, variant in enumerate(variants):
        if not variant.first or machine.peek() in variant.first:
            state.variant = number
            if variant.fence is None:
                state.mode = "steps"
                return _steps(machine)
            state.mode = "fence"
            return _fence(machine)
    return machine.fail()


def _fence(machine: Machine) -> bool:
    fence = machine.plan.fence(machine.state)
    if fence.opens:
        if not machine.skip_space():
            return False
        marker = machine.marker(markers((fence.opens,)))
        if not marker:
            return False if marker == "" else machine.fail()
        machine.take(len(marker))
    machine.state.mode = "item"
    return _item(machine)


def _item(machine: Machine) -> bool:
    state = machine.state
    fence = machine.plan.fence(state)
    if not machine.skip_space():
        return False
    if fence.closes and machine.peek() == fence.closes:
        if not state.in_list:
            return machine.fail()
        state.mode = "after"
        machine.take(1)
        state.raw = state.space = ""
        return True
    state.mode = "steps"
    return _steps(machine)


_STEPS: dict[type[Step], Callable[[Machine, Any], bool]] = {
    Literally: read_literally,
    Skip: read_skip,
    Name: read_name,
    Args: read_args,
    JsonObject: read_object,
    Params: read_params,
    PythonCall: read_python_call,
}


def _steps(machine: Machine) -> bool:
    state = machine.state
    steps = machine.plan.steps(state)
    # The machine looks further once the name is sent: it must go round for that.
    committed = state.committed
    while state.step < len(steps):
        step = steps[state.step]
        if not _STEPS[type(step)](machine, step):
            return False
        if state.mode != "steps" or state.committed != committed:
            return True
    if not state.committed:
        return machine.fail()
    machine.sink.end(state.n_calls - 1)
    listed = machine.plan.variants[state.variant].fence is not None
    machine.leave("between" if listed else "after")
    state.in_list = True
    return True


def _between(machine: Machine) -> bool:
    """Between two calls of a list."""
    state = machine.state
    fence = machine.plan.fence(state)
    if not machine.show_space():
        return False
    marker = machine.marker(markers((*fence.separators, fence.closes)))
    if marker == "":
        return False
    if marker is None:
        state.mode = "after"
        return True
    if marker == fence.closes:
        machine.take(len(marker))
        state.space = ""
        state.mode = "after"
    else:
        state.mode = "item"
        machine.take(len(marker))
    return True


def _after(machine: Machine) -> bool:
    """Behind a call: its region may end, or have another one."""
    state, plan = machine.state, machine.plan
    if not machine.show_space():
        return False
    marker = machine.marker(plan.after_markers(state))
    if marker == "":
        return False
    if marker is not None and plan.tools is not None and marker in plan.tools.closes:
        machine.take(len(marker))
        state.space = ""
        return True
    if marker is not None:
        return machine.leave("steps")
    return machine.leave("content")


HANDLERS: dict[str, Callable[[Machine], bool]] = {
    "content": _content,
    "reasoning": _reasoning,
    "variant": _variant,
    "fence": _fence,
    "item": _item,
    "steps": _steps,
    "between": _between,
    "after": _after,
    "header": read_header,
    "thinking": read_body,
    "speaking": read_body,
    "calling": read_body,
}
