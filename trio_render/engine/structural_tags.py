"""xgrammar's structural tags as a Lark grammar of llguidance.

Source: xgrammar's format as `trio_render.render.structural_tag` writes it; llguidance's ``docs/syntax.md``
for lazy rules, which end at the first place where they can.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..errors import InvalidRequest

__all__ = ["Literal", "structural_tag_grammar"]

Literal = Callable[[str], str]
"""Writes a text for a grammar: special tokens in it by their ids, the rest as strings."""

_SPECIAL = "<["
_FREE_TEXT = r"TEXT: /(.|\n)*/"
_TAGS_KEYS = {"type", "tags", "separator", "at_least_one", "stop_after_first"}
_TRIGGERED_KEYS = {"type", "triggers", "tags", "at_least_one", "stop_after_first", "excludes"}
_CONTENT_KEYS = {"type", "json_schema", "style", "any_order", "max_whitespace_cnt", "excludes"}


def structural_tag_grammar(written: str, literal: Literal) -> str:
    """Return the grammar of a structural tag, given as JSON.

    Raises:
        InvalidRequest (``structured_outputs``): no structural tag, or one that can't be expressed.
    """
    try:
        tag = json.loads(written)
    except ValueError:
        raise _refused("is not valid JSON") from None
    format_ = tag.get("format") if isinstance(tag, dict) and tag.get("type") == "structural_tag" else None
    if not isinstance(format_, dict):
        raise _refused("needs the type structural_tag and a format")
    if format_.get("type") == "tags_with_separator":
        return _separated(format_, literal)
    if format_.get("type") == "triggered_tags":
        return _triggered(format_, literal)
    raise _refused("must be of tags_with_separator or triggered_tags")


def _refused(why: str) -> InvalidRequest:
    return InvalidRequest(f"structural_tag {why}.", "structured_outputs")


def _separated(format_: dict[str, Any], literal: Literal) -> str:
    _only_keys(format_, _TAGS_KEYS)
    tags = _tags(format_)
    separator = literal(_text(format_, "separator"))
    more = "" if format_.get("stop_after_first") else f" ({separator} tag)*"
    start = f"tag{more}" if format_.get("at_least_one") else f"(tag{more})?"
    options = "\n    | ".join(
        " ".join(filter(None, (literal(begin), content, literal(end)))) for begin, content, end in tags
    )
    return f"start: {start}\ntag: {options}\n"


def _triggered(format_: dict[str, Any], literal: Literal) -> str:
    """Text is free up to a trigger; from there on one of the trigger's tags is written to its end."""
    _only_keys(format_, _TRIGGERED_KEYS)
    if format_.get("at_least_one") or format_.get("excludes"):
        raise _refused("with at_least_one or excludes is not supported for triggered_tags")
    triggers = format_.get("triggers")
    if not isinstance(triggers, list) or not all(isinstance(t, str) and t for t in triggers):
        raise _refused("needs a list of triggers")
    rules = []
    left = _tags(format_)
    for n, trigger in enumerate(triggers):
        mine = [tag for tag in left if tag[0].startswith(trigger)]
        left = [tag for tag in left if tag not in mine]
        if not mine:
            raise _refused("has a trigger without a tag")
        options = "\n    | ".join(
            " ".join(filter(None, (literal(begin[len(trigger) :]), content, literal(end))))
            for begin, content, end in mine
        )
        rules.append(f"{_head(n, trigger, literal)}\ntag_{n}: head_{n} rest_{n}\nrest_{n}: {options}\n")
    if left:
        raise _refused("has a tag that begins with no trigger")
    any_tag = " | ".join(f"tag_{n}" for n in range(len(rules)))
    start = f"TEXT | {any_tag}" if format_.get("stop_after_first") else f"({any_tag})* TEXT"
    return f"start: {start}\n{''.join(rules)}{_FREE_TEXT}\n"


def _head(n: int, trigger: str, literal: Literal) -> str:
    """Return the rule for free text and a trigger, which is a text or begins with a special token.

    Free text never goes over a special token; where a text is the trigger, the rule has to be lazy.
    """
    written = literal(trigger)
    if written.startswith(_SPECIAL):
        return f"head_{n}: TEXT {written}"
    if f" {_SPECIAL}" in written:
        raise _refused("has a trigger with a special token behind a text")
    return f"head_{n}[lazy]: TEXT {written}"


def _tags(format_: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return begin, content as a grammar, and end of each tag."""
    tags = format_.get("tags")
    if not isinstance(tags, list) or not tags:
        raise _refused("needs a list of tags")
    found = []
    for tag in tags:
        if not isinstance(tag, dict) or tag.get("type") != "tag":
            raise _refused("has a tag that is none")
        _only_keys(tag, {"type", "begin", "content", "end"})
        found.append((_text(tag, "begin"), _content(tag.get("content")), _text(tag, "end")))
    return found


def _content(content: Any) -> str:
    if not isinstance(content, dict) or content.get("type") != "json_schema":
        raise _refused("must have contents of type json_schema")
    _only_keys(content, _CONTENT_KEYS)
    if content.get("style", "json") != "json":
        raise _refused("can only have contents in the style json with this engine")
    if content.get("any_order") or content.get("excludes") or content.get("max_whitespace_cnt") is not None:
        raise _refused("with any_order, excludes or max_whitespace_cnt is not supported")
    schema = content.get("json_schema")
    if not isinstance(schema, dict | bool):
        raise _refused("needs a json_schema")
    return f"%json {json.dumps(schema)}"


def _only_keys(found: dict[str, Any], known: set[str]) -> None:
    if found.keys() - known:
        raise _refused(f"of this type takes only {', '.join(sorted(known))}")


def _text(found: dict[str, Any], key: str) -> str:
    text = found.get(key)
    if not isinstance(text, str):
        raise _refused(f"needs a text for {key}")
    return text
