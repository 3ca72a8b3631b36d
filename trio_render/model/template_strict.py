"""The environment for templates that requests send: whatever they do ends, soon and in little memory.

An operator's template is bounded as a mistake is: where an operation is likely to grow. A request's template
may be made to do harm, so here everything is charged: each literal, comparison, lookup, filter, test, call
and output, with what it reads and what it may build (see `StrictPace`). What can't be measured is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import jinja2
import jinja2.nodes
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import SandboxedEscapeFormatter, SandboxedFormatter
from markupsafe import Markup

from .template_environment import (
    ChargingTree,
    Namespace,
    TemplateEnvironment,
    call_with_context,
    pace_of,
    steps,
)
from .template_growth import (
    ASCII_ESCAPED,
    CONTAINERS,
    SLOT,
    StrictPace,
    TemplateTooCostly,
    Weight,
    charge_json,
    charge_percent,
    charge_text_method,
    widest,
)

__all__ = ["StrictEnvironment"]

_ESCAPED = 6
_STEPS_OF_A_FILTER = 3
_MAX_PRECISION = 400
_MAX_TIME_FORMAT = 200
_MAX_FORMATTED = 1 << 24
_WIDE = re.compile(r"\d{5,}")

_NO_ATTRIBUTES = {
    str: {"encode", "translate", "maketrans"},  # bytes, and tables that make one character many
    int: {"to_bytes", "from_bytes"},
}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TYPE_TESTS = _words(
    "boolean callable defined escaped false float integer iterable mapping none number sameas sequence"
    " string true undefined"
)
_ITERATING = _words(
    "batch dictsort groupby items join list map max min reject rejectattr reverse select selectattr"
    " slice sort sum unique xmlattr"
)
"""Filters that go over the items of a value one by one."""

_CONSUMING = _words("dictsort groupby join list max min reverse sort sum unique xmlattr")
"""Those that take all of an iterator, so that it may be made a list first, and weighed."""

_BUILDS = {
    **dict.fromkeys(("capitalize", "lower", "title", "upper"), 3),
    **dict.fromkeys(("center", "filesizeformat", "format", "indent", "join", "replace"), 1),
    **dict.fromkeys(("reverse", "safe", "string", "striptags", "trim", "truncate", "wordcount"), 1),
    **dict.fromkeys(("e", "escape", "forceescape", "xmlattr"), _ESCAPED),
    "urlencode": ASCII_ESCAPED,
    "urlize": 32,
    "wordwrap": 2,
}
"""How many characters a filter may make of one."""


class StrictEnvironment(TemplateEnvironment):
    """`TemplateEnvironment` for templates that nobody vouches for."""

    pace_type = StrictPace

    def __init__(self) -> None:
        super().__init__()
        self.finalize = _output
        for name, filter_ in list(self.filters.items()):
            if not name.startswith("__"):
                self.filters[name] = _bounded_filter(name, filter_)
        for name, test in list(self.tests.items()):
            if name not in _TYPE_TESTS:
                self.tests[name] = _bounded_test(test)
        own = {"held": _held, "joined": _joined, "read": _read, "sliced": _sliced, "spread": _spread}
        self.filters.update({f"__{name}": filter_ for name, filter_ in own.items()})
        self.globals["namespace"] = _BareNamespace
        self.globals["strftime_now"] = _short_times(self.globals["strftime_now"])

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        tree: jinja2.nodes.Template = ChargingTree().visit(super()._parse(source, name, filename))
        return tree

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        for type_, names in _NO_ATTRIBUTES.items():
            if attr in names and (isinstance(obj, type_) or obj is type_):
                return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if super().wrap_str_format(value) is None:
            return None
        text: str = value.__self__
        by_map = value.__name__ == "format_map"

        def format_(*args: Any, **kwargs: Any) -> str:
            if by_map:
                (kwargs,), args = args, ()
            formatter = _BoundedFormatter(self)
            if isinstance(text, Markup):
                formatter = _BoundedEscapeFormatter(self, escape=text.escape)
            return type(text)(formatter.vformat(text, args, kwargs))

        format_.__name__ = value.__name__
        format_.format_text = text  # type: ignore[attr-defined]
        return format_

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        pace = _strict(__context)
        if isinstance(__obj, Macro):
            return super().call(__context, __obj, *args, **kwargs)
        if isinstance(__obj, LoopContext) and args:
            args = (args[0] if isinstance(args[0], jinja2.Undefined) else steps(pace, args[0]), *args[1:])
        target = getattr(__obj, "__self__", getattr(__obj, "format_text", None))
        if isinstance(target, str):
            args = tuple(list(steps(pace, arg)) if isinstance(arg, Iterator) else arg for arg in args)
            charge_text_method(pace, __obj.__name__, target, args, kwargs)
        elif isinstance(target, CONTAINERS):
            pace.work(pace.length(target))
        for value in (*args, *kwargs.values()):
            pace.work(pace.length(value))
        result = super().call(__context, __obj, *args, **kwargs)
        return _settled(pace, target if isinstance(target, str) else "", result)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        pace = _strict(context)
        if isinstance(left, str) and operator == "%":
            charge_percent(pace, left, right)
        if isinstance(left, Markup) or isinstance(right, Markup):
            pace.build(_ESCAPED * (pace.length(left) + pace.length(right)))
        weight: Weight | None = None
        if isinstance(left, list | tuple) and isinstance(right, list | tuple) and operator == "+":
            one, other = pace.weigh(left), pace.weigh(right)
            weight = Weight(one.chars + other.chars, max(one.depth, other.depth))
            pace.build(SLOT * (len(left) + len(right)))
        elif operator == "*":
            items, times = (right, left) if isinstance(left, int) else (left, right)
            if isinstance(items, list | tuple) and isinstance(times, int):
                one = pace.weigh(items)
                weight = Weight(one.chars * max(times, 0) + 2, one.depth)
                pace.build(SLOT * len(items) * max(times, 0))
        if weight is not None:
            pace.check(weight)
        result = super().call_binop(context, operator, left, right)
        if weight is not None:
            pace.keep(result, weight)
        return pace.hold(result)


def _strict(context: Context) -> StrictPace:
    pace = pace_of(context)
    assert isinstance(pace, StrictPace)
    return pace


class _BoundedFormatter(SandboxedFormatter):
    """Counts each field's value, which ``{0.a}`` may take from anywhere, and the width of its format."""

    growth = 1

    def __init__(self, environment: StrictEnvironment, **kwargs: Any) -> None:
        super().__init__(environment, **kwargs)
        self._pace = StrictPace(lambda: None, _MAX_FORMATTED, _MAX_FORMATTED)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion is not None:
            self._pace.build(10 * self._pace.weigh(value).chars)  # of !a
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> Any:
        if _WIDE.search(format_spec):
            raise TemplateTooCostly("the chat template formats to too great a width")
        self._pace.build(self.growth * (self._pace.weigh(value).chars + widest(format_spec)))
        return super().format_field(value, format_spec)


class _BoundedEscapeFormatter(_BoundedFormatter, SandboxedEscapeFormatter):
    growth = _ESCAPED


class _BareNamespace(Namespace):
    """Doesn't show what it holds: that may be itself."""

    def __repr__(self) -> str:
        return "<Namespace>"


def _short_times(strftime_now: Any) -> Callable[[str], str]:
    def strftime_now_(format_: str) -> str:
        if len(format_) > _MAX_TIME_FORMAT or _WIDE.search(format_):
            raise TemplateTooCostly("the chat template formats the time at too great a length")
        return str(strftime_now(format_))

    return strftime_now_


@jinja2.pass_context
def _output(context: Context, value: Any) -> Any:
    """Charge what the template writes, also where it is kept in a variable."""
    pace = _strict(context)
    pace.step()
    pace.build(pace.length(value))
    return value


@jinja2.pass_context
def _held(context: Context, value: Any) -> Any:
    """Charge a literal. Its keys have been hashed."""
    pace = _strict(context)
    pace.step()
    pace.build(SLOT * len(value))
    if isinstance(value, dict):
        pace.work(sum(map(pace.length, value)))
    return pace.hold(value)


@jinja2.pass_context
def _read(context: Context, value: Any) -> Any:
    """Charge what is compared, or looked up."""
    pace = _strict(context)
    pace.step()
    pace.work(pace.length(value))
    return value


@jinja2.pass_context
def _sliced(context: Context, value: Any) -> Any:
    """Charge a slice. A long one weighs what the whole did at most, which has been held."""
    pace = _strict(context)
    pace.step()
    if isinstance(value, str):
        pace.build(len(value))
    elif isinstance(value, list | tuple):
        pace.build(SLOT * len(value))
        pace.hold(value)
    return value


@jinja2.pass_context
def _spread(context: Context, values: Any) -> Any:
    """Charge ``*values``, which become a tuple."""
    pace = _strict(context)
    return values if isinstance(values, jinja2.Undefined) else list(steps(pace, values))


@jinja2.pass_context
def _joined(context: Context, parts: list[Any]) -> str:
    """Do what ``a ~ b`` does, once the price is paid."""
    pace = _strict(context)
    pace.step()
    pace.build(sum(map(pace.length, parts)))
    return "".join(map(str, parts))


def _bounded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @jinja2.pass_context
    def filter_(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        pace = _strict(context)
        if isinstance(value, Iterator):
            value = steps(pace, value)
            value = list(value) if name in _CONSUMING else value
        pace.steps(_STEPS_OF_A_FILTER)
        _charge_filter(pace, name, value, (*args, *kwargs.values()))
        if name == "format":
            charge_percent(pace, str(value), kwargs or args)
        result = call_with_context(context, function, value, *args, **kwargs)
        return _settled(pace, value, result)

    return filter_


def _bounded_test(function: Any) -> Callable[..., Any]:
    @jinja2.pass_context
    def test(context: Context, value: Any, *args: Any) -> Any:
        pace = _strict(context)
        pace.step()
        for each in (value, *args):
            pace.work(pace.length(each))
        if isinstance(value, str) and "%" in value:
            charge_percent(pace, value, args)  # '%99d' is divisibleby(2)
        return call_with_context(context, function, value, *args)

    return test


def _charge_filter(pace: StrictPace, name: str, value: Any, values: tuple[Any, ...]) -> None:
    """Charge a filter with what it reads, and with what it may build of it."""
    whole, given = pace.length(value), sum(map(pace.length, values))
    pace.work(whole + given)
    pace.build(_BUILDS.get(name, 0) * whole)
    if name in _ITERATING and (
        isinstance(value, CONTAINERS) or (isinstance(value, str) and name != "reverse")
    ):
        n_items = len(value)
        pace.steps(n_items)
        pace.work(n_items * given)
        if name == "join":
            pace.build(n_items * given)
    if name in ("dictsort", "groupby", "sort", "unique"):
        pace.work(16 * whole)
    elif name == "sum" and any(isinstance(each, CONTAINERS) for each in values):
        pace.work(len(value) * whole)  # each sum is a copy
    elif name == "round" and any(isinstance(each, int) and abs(each) > _MAX_PRECISION for each in values):
        raise TemplateTooCostly("the chat template rounds to too great a precision")
    elif name == "pprint":
        pace.build(whole * whole)  # each line may be indented by nearly the whole
    elif name == "tojson":
        charge_json(pace, value, values)
    elif name in ("title", "urlize", "wordcount", "wordwrap"):
        pace.build(whole * given)
        pace.steps(whole // 4)  # each word is looked at
    elif name == "striptags":
        pace.work(whole * str(value).count("<"))  # each comment is taken out by a copy
    elif name == "trim":
        pace.work(whole * given // 8)
    elif name == "truncate":
        pace.build(given)


def _settled(pace: StrictPace, source: Any, result: Any) -> Any:
    """Charge a result for what it is longer than what it was made of. (That has been charged.)"""
    if isinstance(result, str):
        pace.build(max(0, len(result) - pace.length(source)))
    return pace.hold(result)
