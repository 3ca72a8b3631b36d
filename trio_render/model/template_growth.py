"""Bounds on what one template operation may build, checked before it builds it.

The sandbox keeps a template from reaching the interpreter; it does not keep it from writing
``'x' * 10**12``. What an operation would build is estimated from its operands and taken from the
render's budget.
"""

from __future__ import annotations

import re
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import jinja2
from jinja2.runtime import LoopContext
from jinja2.sandbox import unsafe
from jinja2.utils import Cycler, Joiner, Namespace

__all__ = [
    "ASCII_ESCAPED",
    "CONTAINERS",
    "SLOT",
    "Pace",
    "StrictPace",
    "TemplateTooCostly",
    "Weight",
    "charge_format",
    "charge_json",
    "charge_method",
    "charge_operator",
    "charge_percent",
    "charge_text_method",
    "widest",
]

_MAX_INTEGER_BITS = 4096
_WIDE = re.compile(r"\d{5,}|%[^%a-zA-Z]*\*")
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"

CONTAINERS = (list, tuple, dict, range, KeysView, ValuesView, ItemsView, MappingProxyType)
_HOLDERS = (Cycler, Joiner, LoopContext, Namespace)
SLOT = 8
"""What an item of a container weighs besides itself: a pointer's bytes, and more than its ``", "``."""

ASCII_ESCAPED = 12
"""What a character may become: ``\\ud83d\\ude00`` or ``%F0%9F%98%80``."""

_OTHER = 64
_LONG_TEXT = 256
_CHUNK = 1 << 16
_MAX_DEPTH = 400
_MAX_WEIGHTS_KEPT = 10_000
_WORK_PER_CHAR = 8
_TURNS_PER_STEP = 9
"""So bare loops go on for about as long as other work may, and what ends them sooner is a deadline."""
_NUMBER = re.compile(r"\d{2,4}")
_ASCII_CONVERSION = re.compile(r"[%)\d #+.\-hlL]a")
_ASCII_LENGTH = 10
_FROM_THE_END = ("rfind", "rindex", "rpartition", "rsplit", "lstrip", "rstrip", "strip")


class TemplateTooCostly(jinja2.TemplateError):
    """The template took more steps, or built more text, than a prompt can need."""


class Pace:
    """The budget of one render, and its checkpoint. A template can't call its methods.

    Args:
        checkpoint: raises when the render's caller has gone. Called every 64 steps.
        max_steps: loop turns, calls and operators that it may take; a `StrictPace` counts turns apart.
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
            self._check()

    @unsafe
    def turn(self) -> None:
        """Count a loop's turn."""
        self.step()

    @unsafe
    def build(self, n_chars: int) -> None:
        """Take ``n_chars`` from the budget. Raises `TemplateTooCostly` when it is used up."""
        self._chars_left -= n_chars
        if self._chars_left < 0:
            raise TemplateTooCostly("the chat template builds too long a value")

    def _check(self) -> None:
        try:
            self._checkpoint()
        except BaseException as error:
            self.stopped_by = error
            raise


class Weight(NamedTuple):
    """How long a value is when it is written out, at most; and how deep its containers are nested."""

    chars: int
    depth: int


class StrictPace(Pace):
    """A `Pace` that weighs values through and through, for templates that may mean harm.

    A value may hold another one many times: ``[x, x]`` of ``[x, x]`` of ... is small in memory, but takes
    for ever to be written, compared or hashed. So what counts is a value's weight with all that it holds,
    each time that it holds it. No value may weigh more than a render may build; then nothing that walks
    one value can go on for long. A value's weight is kept, with the value, so that a list which grows
    item by item isn't walked again each time. (The sandbox lets no container change. What can change, a
    namespace say, may not be put into one.)
    """

    __slots__ = ("_kept", "_max_chars", "_turns_left", "_work_left")

    def __init__(self, checkpoint: Callable[[], None], max_steps: int, max_chars: int) -> None:
        super().__init__(checkpoint, max_steps, max_chars)
        self._max_chars = max_chars
        self._work_left = max_chars * _WORK_PER_CHAR
        self._turns_left = max_steps * _TURNS_PER_STEP
        self._kept: dict[int, tuple[Any, Weight]] = {}

    @unsafe
    def turn(self) -> None:
        """Count a loop's turn, from a budget of its own: it builds nothing, and is several times as quick."""
        self._turns_left -= 1
        if self._turns_left < 0:
            raise TemplateTooCostly("the chat template takes too many turns")
        if self._turns_left & 63 == 0:
            self._check()

    @unsafe
    def steps(self, count: int) -> None:
        """Count ``count`` steps that are taken at once."""
        before = self._steps_left
        self._steps_left -= count
        if self._steps_left < 0:
            raise TemplateTooCostly("the chat template takes too many steps")
        if before >> 6 != self._steps_left >> 6:
            self._check()

    @unsafe
    def work(self, n_chars: int) -> None:
        """Take the reading of ``n_chars``, of which nothing is built, from a budget of its own."""
        self._work_left -= n_chars
        if self._work_left < 0:
            raise TemplateTooCostly("the chat template reads too much")

    @unsafe
    def length(self, value: Any) -> int:
        """Return how long ``str(value)`` is, at most."""
        return len(value) if isinstance(value, str) else self.weigh(value).chars

    @unsafe
    def weigh(self, value: Any) -> Weight:
        """Return the weight of ``value`` as it is written inside of a container. A step for each item."""
        if isinstance(value, str) and len(value) <= _LONG_TEXT:
            return Weight(len(repr(value)), 0)
        if isinstance(value, int):
            return Weight(value.bit_length() // 3 + 2, 0)
        if not isinstance(value, (str, *CONTAINERS)):
            return Weight(_OTHER, 0)
        kept = self._kept.get(id(value))
        if kept is not None:
            return kept[1]
        if isinstance(value, str):
            places = range(0, len(value), _CHUNK)
            weight = Weight(sum(len(repr(value[place : place + _CHUNK])) for place in places), 0)
        elif isinstance(value, range):
            weight = Weight(_OTHER + SLOT * len(value), 1)
        else:
            weight = self._walked(value)
        return self.keep(value, weight)

    @unsafe
    def keep(self, value: Any, weight: Weight) -> Weight:
        """Remember the weight of ``value``. Raises `TemplateTooCostly` when it is too large."""
        self.check(weight)
        if len(self._kept) >= _MAX_WEIGHTS_KEPT:
            self._kept.clear()
        self._kept[id(value)] = (value, weight)
        return weight

    @unsafe
    def check(self, weight: Weight) -> None:
        """Raise `TemplateTooCostly` if ``weight`` is too large or too deep for any value."""
        if weight.chars > self._max_chars or weight.depth > _MAX_DEPTH:
            raise TemplateTooCostly("the chat template builds too large or too deep a value")

    @unsafe
    def hold(self, value: Any) -> Any:
        """Return ``value``, which an operation has built. Raises `TemplateTooCostly` if it is too large."""
        if isinstance(value, int):
            if value.bit_length() > _MAX_INTEGER_BITS:
                raise TemplateTooCostly("the chat template builds too large a number")
        elif isinstance(value, CONTAINERS):
            self.weigh(value)
        return value

    def _walked(self, value: Any) -> Weight:
        items: Iterable[Any] = value
        if isinstance(value, Mapping):
            self.steps(len(value))
            items = chain.from_iterable(value.items())
        self.steps(len(value))
        chars, depth = 2 + SLOT * len(value), 0
        for item in items:
            if isinstance(item, str) and len(item) <= _LONG_TEXT:
                chars += len(repr(item))
            elif isinstance(item, int):
                chars += item.bit_length() // 3 + 2
            elif isinstance(item, _HOLDERS):
                raise TemplateTooCostly("the chat template keeps a changeable value in a container")
            else:
                weight = self.weigh(item)
                chars += weight.chars
                depth = max(depth, weight.depth)
                if chars > self._max_chars:
                    break
        return Weight(chars, depth + 1)


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
        rows = 1 + sum(map(target.count, _LINE_ENDS + "\t")) if isinstance(target, str) else 1
        pace.build(rows * max(width, max(map(_size, values), default=0)))
    elif name == "replace" and len(values) >= 2:
        old, new = str(values[0]), str(values[1])
        pace.build(str(target).count(old) * len(new))
    elif name == "join" and values:
        items, separator = (values[0], target) if isinstance(target, str) else (target, values[0])
        texts = items if isinstance(items, list | tuple) else ()
        pace.build(_size(separator) * _size(items) + sum(map(_size, texts)))
    elif name in ("format", "format_map") and isinstance(target, str):
        charge_format(pace, target)
        pace.build(sum(map(_size, values)))


def _charge_repetition(pace: Pace, sized: Any, count: Any) -> None:
    if isinstance(count, int) and isinstance(sized, str | list | tuple):
        pace.build(len(sized) * max(count, 0))


def charge_format(pace: Pace, text: str) -> None:
    """Charge a format text to ``pace``; refuse one that pads to a great width."""
    pace.build(len(text))
    if _WIDE.search(text):
        raise TemplateTooCostly("the chat template formats to too great a width")


def widest(text: str) -> int:
    """Return the greatest width that the format ``text`` may pad to, if it isn't too wide to be formatted."""
    return max((int(number[0]) for number in _NUMBER.finditer(text)), default=0)


def charge_percent(pace: StrictPace, text: str, values: Any) -> None:
    """Charge ``text % values``, as if every field showed the largest value."""
    charge_format(pace, text)
    each = values if isinstance(values, tuple) else (values,)
    largest = max((pace.weigh(value).chars for value in each), default=0)
    if _ASCII_CONVERSION.search(text):
        largest *= _ASCII_LENGTH
    n_fields = text.count("%")
    pace.steps(n_fields)
    pace.build(n_fields * (largest + widest(text)))


def charge_text_method(
    pace: StrictPace, name: str, text: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Charge what `charge_method` leaves out: the pieces of a text, its search, and what few texts do."""
    values = (*args, *kwargs.values())
    if name in _FROM_THE_END:
        # These compare each place with the whole of what they look for.
        pace.work(len(text) * sum(len(value) for value in values if isinstance(value, str)) // 8)
    if name in ("split", "rsplit"):
        separators = [value for value in values if isinstance(value, str) and value]
        if separators:
            count = text.count(separators[0])
        else:
            places = range(0, len(text), _CHUNK)
            count = sum(len(text[place : place + _CHUNK].split()) for place in places)
        limits = [value for value in values if isinstance(value, int) and value >= 0]
        pace.steps(1 + min([count, *limits]))
    elif name == "splitlines":
        pace.steps(1 + sum(map(text.count, _LINE_ENDS)))
    elif name == "join":
        pace.build(sum(map(pace.length, values)))
    elif name in ("format", "format_map"):
        pace.steps(text.count("{"))
    elif name == "expandtabs":
        pace.build(8 * text.count("\t"))
    elif not text.isascii():
        pace.build(2 * len(text))  # 'ΐ'.upper() is three characters


def charge_json(pace: StrictPace, value: Any, options: Iterable[Any]) -> None:
    """Charge ``value | tojson(*options)``, where an option may be put into every line, or be ASCII only."""
    weight, options = pace.weigh(value), list(options)
    as_ascii = any(option is True for option in options)
    pace.build(weight.chars * (ASCII_ESCAPED if as_ascii else 2))
    given = [option for option in options if option is not None]
    per_line = sum(option if isinstance(option, int) else pace.length(option) for option in given)
    if per_line > 0:
        pace.build(weight.chars // SLOT * per_line * (weight.depth + 1))
        pace.steps(weight.chars // 16)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | dict) else 0
