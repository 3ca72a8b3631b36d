"""Where the machine stands in an output: explicit, small, and independent of what came before."""

from __future__ import annotations

from typing import Annotated

import msgspec

__all__ = ["HOLD_CHARS", "ParserState"]

HOLD_CHARS = 4096
"""Most markup that is held back while it is not yet a call; past that it is content."""

_Text = Annotated[str, msgspec.Meta(max_length=2 * HOLD_CHARS)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Small = Annotated[int, msgspec.Meta(ge=0, le=15)]


class ParserState(msgspec.Struct, array_like=True, kw_only=True, gc=False):
    """The machine's state between two pieces of text.

    Attributes:
        mode: name of the handler that goes on.
        look: text read and not decided: it may begin a marker.
        raw: markup of a call whose name has not been sent.
        space: whitespace that is content only if something other than a call follows (or reasoning, if no
            marker does).
        token: a key, name or value that is not complete.
        name, key, args: the call's name; a member's key; arguments that came before the name.
        variant, step, place: how the family writes this call, and where in it the machine is.
        value: how far a JSON value is: not begun, in a container or text, in a word.
        depth: open brackets of a value.
        quote: the quotation mark that ends a Python text.
        in_string, escaped, comma: within a value.
        committed: the call's name has been sent.
        has_args: the call has arguments (or a first parameter).
        in_list: a list of calls has one already.
        thought: reasoning has begun to be shown.
        reasoned: reasoning has ended, or can't begin any more.
        started: something other than whitespace was shown as content.
        seen: the same, since the last call or the end of reasoning.
        n_calls: calls sent.
    """

    mode: Annotated[str, msgspec.Meta(max_length=16)]
    look: _Text = ""
    raw: _Text = ""
    space: _Text = ""
    token: _Text = ""
    name: _Text = ""
    key: _Text = ""
    args: _Text = ""
    variant: _Small = 0
    step: _Small = 0
    place: _Small = 0
    value: _Small = 0
    depth: _Count = 0
    quote: Annotated[str, msgspec.Meta(max_length=1)] = ""
    in_string: bool = False
    escaped: bool = False
    comma: bool = False
    committed: bool = False
    has_args: bool = False
    in_list: bool = False
    thought: bool = False
    reasoned: bool = False
    started: bool = False
    seen: bool = False
    n_calls: _Count = 0
