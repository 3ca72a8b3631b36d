"""Messages with headers, as gpt-oss writes them: reasoning, content and calls, each in its own message.

Source: OpenAI's harmony format, https://github.com/openai/harmony.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .markers import markers
from .words import MAX_NAME_CHARS

if TYPE_CHECKING:
    from .grammar import Channels
    from .machine import Machine

__all__ = ["HEADER_PLACES", "read_body", "read_header"]

HEADER_PLACES = 2
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"\s*([^\s<]+)")


def read_header(machine: Machine) -> bool:
    """Read a header up to the message, and go where it says."""
    channels = machine.plan.channels
    if channels is None:
        return machine.fail()
    state = machine.state
    if state.place == 0:
        if not machine.skip_space():
            return False
        begins = machine.marker(markers((channels.start, channels.channel, channels.message, "to=")))
        if not begins:
            return False if begins == "" else machine.fail()
        state.place = 1
    count, marker = machine.until(markers((channels.message, *channels.ends)))
    machine.take(count)
    if not marker:
        return False
    if marker != channels.message:
        return machine.fail()
    machine.take(len(marker))
    return _route(machine, channels, state.raw)


def _route(machine: Machine, channels: Channels, header: str) -> bool:
    state = machine.state
    channel = _CHANNEL.match(header.rpartition(channels.channel)[2]) if channels.channel in header else None
    recipient = _RECIPIENT.search(header)
    to = recipient[1] if recipient else ""
    name = to.removeprefix(channels.recipient)
    if to != name and 0 < len(name) <= MAX_NAME_CHARS and machine.plan.tools_wanted:
        state.name = name
        machine.commit()
        state.mode, state.place = "calling", 0
        return True
    thinks = to != "" or (channel is not None and channel[1] in channels.reasoning)
    again = state.started
    machine.reset("thinking" if thinks else "speaking")
    if not thinks and again:
        machine.show("\n")
    return True


def read_body(machine: Machine) -> bool:
    """Read a message up to its end, or to the next one's start."""
    state, channels = machine.state, machine.plan.channels
    if channels is None:
        return machine.leave("content")
    count, marker = machine.until(markers((*channels.ends, channels.start)))
    if count:
        text = machine.take(count)
        if state.mode == "calling":
            state.has_args = True
            machine.arguments(text)
        elif state.mode == "thinking":
            machine.sink.reasoning(text)
        else:
            machine.show(text)
    if not marker and not machine.at_end:
        return False
    if state.mode == "calling" and (state.has_args or marker):
        if not state.has_args:
            machine.arguments("{}")
        machine.sink.end(state.n_calls - 1)
    if marker in channels.ends:
        machine.take(len(marker))
    return machine.leave("content") and bool(marker)
