"""The sandbox that chat templates run in, with bounds that end a template that would run for ever.

The same environment and filters as transformers' own (5.x, ``utils/chat_template_utils.py``), so that a
template renders the same text here; the tests prove it on the recorded cases. On top: every loop turn,
call and operator reports to a `Pace`, which bounds the work and lets a cancelled render stop.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.visitor import NodeTransformer

from .template_growth import Pace, charge_method, charge_operator

__all__ = [
    "PACE_NAME",
    "ChargingTree",
    "Namespace",
    "TemplateEnvironment",
    "call_with_context",
    "pace_of",
    "steps",
]

PACE_NAME = "__pace"
"""Name of the `Pace` in a template's context. A leading double underscore can't be set by a request."""

_GROWING_FILTERS = ("batch", "center", "format", "indent", "join", "replace", "slice", "wordwrap")


class _Generation(jinja2.ext.Extension):
    """``{% generation %}`` marks the assistant's text for training; for a prompt it is just its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own declaration

    def parse(self, parser: Parser) -> jinja2.nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(lineno)

    def _body(self, caller: Macro) -> str:
        return str(caller())


class _Dict:
    """``dict(...)`` for templates, without the type's attributes behind it."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class Namespace(jinja2.utils.Namespace):
    """``namespace(...)`` that keeps no names with a leading underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, rest = args[0], args[1:]
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _refuse_underscore(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        super().__setitem__(name, value)


def _refuse_underscore(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError("a namespace keeps no name with a leading underscore")


class TemplateEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Sandboxed, immutable, trimming blocks, with ``break``/``continue`` and paced loops and calls."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})
    pace_type: type[Pace] = Pace
    """What its templates' renders are to be given as `PACE_NAME`."""

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
        )
        self.filters["tojson"] = _to_json
        self.filters["__paced"] = _paced
        self.filters["__joined"] = _joined
        for name in _GROWING_FILTERS:
            self.filters[name] = _charged(name, self.filters[name])
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        self.globals["dict"] = _Dict()
        self.globals["namespace"] = Namespace

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in list(tree.find_all(jinja2.nodes.For)):
            loop.iter = jinja2.nodes.Filter(loop.iter, "__paced", [], [], None, None, lineno=loop.lineno)
        for concat in list(tree.find_all(jinja2.nodes.Concat)):
            parts = jinja2.nodes.List(concat.nodes, lineno=concat.lineno)
            concat.nodes = [jinja2.nodes.Filter(parts, "__joined", [], [], None, None, lineno=concat.lineno)]
        return tree

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        pace = pace_of(__context)
        pace.step()
        target = getattr(__obj, "__self__", getattr(__obj, "format_text", None))
        if isinstance(target, str | list | tuple | dict):
            charge_method(pace, getattr(__obj, "__name__", ""), target, args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            wrapped.format_text = str(value.__self__)  # type: ignore[attr-defined]
        return wrapped

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        pace = pace_of(context)
        pace.step()
        charge_operator(pace, operator, left, right)
        return super().call_binop(context, operator, left, right)


class ChargingTree(NodeTransformer):
    """Puts filters around what reads or builds values without asking the environment.

    They are ``__held``, ``__read``, ``__sliced`` and ``__spread``, and must return what they are given
    (the last one as a list). All that is written passes through ``finalize``.
    """

    def visit_List(self, node: jinja2.nodes.Expr) -> jinja2.nodes.Expr:
        self.generic_visit(node)
        return _through("__held", node)

    visit_Dict = visit_List

    def visit_Tuple(self, node: jinja2.nodes.Tuple) -> jinja2.nodes.Expr:
        self.generic_visit(node)
        return _through("__held", node) if node.ctx == "load" else node

    def visit_Compare(self, node: jinja2.nodes.Compare) -> jinja2.nodes.Node:
        self.generic_visit(node)
        node.expr = _through("__read", node.expr)
        for operand in node.ops:
            operand.expr = _through("__read", operand.expr)
        return node

    def visit_Getitem(self, node: jinja2.nodes.Getitem) -> jinja2.nodes.Expr:
        self.generic_visit(node)
        if isinstance(node.arg, jinja2.nodes.Slice):
            return _through("__sliced", node)
        node.arg = _through("__read", node.arg)
        return node

    def visit_Call(self, node: Any) -> Any:
        self.generic_visit(node)
        if node.dyn_args is not None:
            node.dyn_args = _through("__spread", node.dyn_args)
        if node.dyn_kwargs is not None:
            node.dyn_kwargs = _through("__read", node.dyn_kwargs)
        return node

    visit_Filter = visit_Test = visit_Call

    def visit_TemplateData(self, node: jinja2.nodes.TemplateData) -> jinja2.nodes.Node:
        return jinja2.nodes.Const(node.data, lineno=node.lineno)  # which passes through finalize

    def visit_ScopedEvalContextModifier(self, node: jinja2.nodes.Node) -> jinja2.nodes.Node:
        raise jinja2.TemplateSyntaxError("a prompt can't be escaped for HTML", node.lineno)


def _through(name: str, node: jinja2.nodes.Expr) -> jinja2.nodes.Expr:
    if isinstance(node, jinja2.nodes.Const):
        return node
    return jinja2.nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def pace_of(context: Context) -> Pace:
    """Return the `Pace` of the render that ``context`` belongs to."""
    pace: Pace = context.parent[PACE_NAME]
    return pace


def steps(pace: Pace, items: Iterable[Any]) -> Iterator[Any]:
    """Pass ``items`` on, a step each."""
    for item in items:
        pace.step()
        yield item


@jinja2.pass_context
def _paced(context: Context, items: Any) -> Any:
    """Wrap what a loop goes over. Undefined is left to fail as it would."""
    return items if isinstance(items, jinja2.Undefined) else _turns(pace_of(context), items)


def _turns(pace: Pace, items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        pace.turn()
        yield item


@jinja2.pass_context
def _joined(context: Context, parts: list[Any]) -> str:
    """Do what ``a ~ b`` does, at a price."""
    texts = [str(part) for part in parts]
    pace_of(context).build(sum(map(len, texts)))
    return "".join(texts)


def _charged(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the filter ``function`` with its growth charged first."""

    @jinja2.pass_context
    def filter_(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        pace = pace_of(context)
        if isinstance(value, Iterator):
            value = list(steps(pace, value))
        pace.step()
        charge_method(pace, name, value, args, kwargs)
        return call_with_context(context, function, value, *args, **kwargs)

    return filter_


def call_with_context(__context: Context, __function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a filter or test with what it asks for before its arguments (see ``jinja2.pass_context``)."""
    passes = getattr(__function, "jinja_pass_arg", None)
    if passes is None:
        return __function(*args, **kwargs)
    first = {"context": __context, "eval_context": __context.eval_ctx}.get(passes.name, __context.environment)
    return __function(first, *args, **kwargs)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """jinja2's own ``tojson`` escapes for HTML; a prompt must not be escaped."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(format_: str) -> str:
    return datetime.now().strftime(format_)
