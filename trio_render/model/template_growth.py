"""Bounds on what one template operation may build, checked before it builds it.

The sandbox keeps a template from reaching the interpreter; it does not keep it from writing
``'x' * 10**12``. What an operation would build is estimated from its operands and taken from the
render's budget.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jinja2
from jinja2.sandbox import unsafe

__all__ = ["Pace", "TemplateTooCostly", "charge_format", "charge_method", "charge_operator"]

_MAX_INTEGER_BITS = 4096
_WIDE = re.compile(r"\d{5,}|\*")


class TemplateTooCostly(jinja2.TemplateError):
    """The template took more steps, or built more text, than a prompt can need."""


class Pace:
    """The budget of one render, and its checkpoint. A template can't call its methods.

    Args:
        checkpoint: raises when the render's caller has gone. Called every 64 steps.
        max_steps: loop turns, calls and operators that the render may take.
        max_chars: characters (or items) that all of its operations together may build.
    """

    __slots__ = ("_chars_left", "_checkpoint", "_steps_left", "stopped_by")

    def __init__(self, checkpoint: Callable[[], None], max_steps: int, max_chars: int) -> None:
        self._checkpoint = checkpoint
        self._steps_left = max_steps
        self._chars_left = max_chars
        self.stopped_by: BaseException | None = None

    @unsafe
    def step(self) -> None:
        """Count one step. Raises `TemplateTooCostly`, or what the checkpoint raises."""
        self._steps_left -= 1
        if self._steps_left < 0:
            raise TemplateTooCostly("the chat template takes too many steps")
        if self._steps_left & 63 == 0:
            try:
                self._checkpoint()
            except BaseException as error:
                self.stopped_by = error
                raise

    @unsafe
    def build(self, n_chars: int) -> None:
        """Take ``n_chars`` from the budget. Raises `TemplateTooCostly` when it is used up."""
        self._chars_left -= n_chars
        if self._chars_left < 0:
            raise TemplateTooCostly("the chat template builds too long a value")


def charge_operator(pace: Pace, operator: str, left: Any, right: Any) -> None:
    """Charge ``left operator right`` to ``pace`` before it is computed."""
    if operator == "+":
        pace.build(_size(left) + _size(right))
    elif operator == "%" and isinstance(left, str):
        charge_format(pace, left)
    elif operator == "*":
        _charge_repetition(pace, left, right)
        _charge_repetition(pace, right, left)
    if operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
        if bits > _MAX_INTEGER_BITS:
            raise TemplateTooCostly("the chat template builds too large a number")


def charge_method(pace: Pace, name: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Charge a method of a text, or the filter of the same name, to ``pace`` before it runs."""
    values = (*args, *kwargs.values())
    pace.build(_size(target))
    if name in ("center", "ljust", "rjust", "zfill", "expandtabs", "indent", "wordwrap", "batch", "slice"):
        width = max((value for value in values if isinstance(value, int)), default=0)
        rows = str(target).count("\n") + str(target).count("\t") + 1 if isinstance(target, str) else 1
        pace.build(rows * max(width, max(map(_size, values), default=0)))
    elif name == "replace" and len(values) >= 2:
        old, new = str(values[0]), str(values[1])
        pace.build(str(target).count(old) * len(new))
    elif name == "join" and values:
        items, separator = (values[0], target) if isinstance(target, str) else (target, values[0])
        pace.build(_size(separator) * _size(items))
    elif name in ("format", "format_map") and isinstance(target, str):
        charge_format(pace, target)


def _charge_repetition(pace: Pace, sized: Any, count: Any) -> None:
    if isinstance(count, int) and isinstance(sized, str | list | tuple):
        pace.build(len(sized) * max(count, 0))


def charge_format(pace: Pace, text: str) -> None:
    """Charge a format text to ``pace``; refuse one that pads to a great width."""
    pace.build(len(text))
    if _WIDE.search(text):
        raise TemplateTooCostly("the chat template formats to too great a width")


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | dict) else 0
