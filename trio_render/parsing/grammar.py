"""What a table says of a family: which markers its output has, and how it writes a call.

Markers are texts. A marker may arrive in any number of pieces; whether the vocabulary has a token for it
does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "Args",
    "Channels",
    "Fence",
    "IdStyle",
    "JsonObject",
    "Literally",
    "Name",
    "Params",
    "PythonCall",
    "Reasoning",
    "Skip",
    "Step",
    "Tools",
    "Variant",
]

IdStyle = Literal["uuid", "nine", "written"]
"""``chatcmpl-tool-`` and 16 hex digits; nine letters or digits; or what the output itself writes."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How a family marks its reasoning.

    Attributes:
        opens, closes: any of them begins or ends it.
        starts_inside: output begins with reasoning, without a marker.
        ended_by: also ends it, and is not part of the end.
        drops_closes: later marks of its end are no content.
        keeps_special: the engine is asked to keep special tokens, even without tools.
        switches: ``chat_template_kwargs`` that turn reasoning off when they are false.
        signs: texts in a chat template or vocabulary that tell the family; all of them.
    """

    opens: tuple[str, ...]
    closes: tuple[str, ...]
    starts_inside: bool = False
    ended_by: tuple[str, ...] = ()
    drops_closes: bool = False
    keeps_special: bool = False
    switches: tuple[str, ...] = ("enable_thinking", "thinking")
    signs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Literally:
    """This text, perhaps behind whitespace."""

    text: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Skip:
    """Anything up to and with a text; if ``begins`` is given, only where that stands."""

    until: str
    begins: str = ""


@dataclass(frozen=True, slots=True)
class Name:
    """The call's name, in front of one of these texts.

    Attributes:
        before: ends the name; ``stays`` are those that are part of what follows.
        waits: those behind which a `Skip` must come before there is a call.
        written_id: the name is written ``functions.NAME:INDEX``, and that is the call's id.
    """

    before: tuple[str, ...]
    stays: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    written_id: bool = False


@dataclass(frozen=True, slots=True)
class Args:
    """The arguments as a JSON value. One of ``ends``, outside of strings, ends them in any case."""

    ends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JsonObject:
    """Name and arguments as members of an object, in any order.

    Attributes:
        arguments: keys that the arguments may have.
        needs_arguments: an object without them is no call.
        ends: ends a broken object.
        strict: an object with any other key before its name is no call.
    """

    arguments: tuple[str, ...] = ("arguments",)
    needs_arguments: bool = False
    ends: tuple[str, ...] = ()
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Params:
    """Arguments as pairs of tagged texts; the tool's schema says what type a text is.

    Attributes:
        key_open, key_close: around a key.
        value_open: before a value; empty where the value follows its key at once.
        value_close: ends a value.
        value_cut: also ends a value, and is part of what follows.
        close: what may follow the last value.
        trims_newline: one newline at each end of a value is framing.
    """

    key_open: str
    key_close: str
    value_open: str
    value_close: str
    value_cut: tuple[str, ...] = ()
    close: tuple[str, ...] = ()
    trims_newline: bool = False


@dataclass(frozen=True, slots=True)
class PythonCall:
    """``name(key=value, ...)`` with Python literals."""


Step = Literally | Skip | Name | Args | JsonObject | Params | PythonCall


@dataclass(frozen=True, slots=True)
class Fence:
    """A list of calls: its brackets and what stands between two."""

    opens: str = "["
    separators: tuple[str, ...] = (",",)
    closes: str = "]"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to write calls.

    Attributes:
        steps: one call.
        fence: calls stand in a list.
        first: the variant is meant where the region goes on with one of these characters; empty: always.
    """

    steps: tuple[Step, ...]
    fence: Fence | None = None
    first: str = ""


@dataclass(frozen=True, slots=True)
class Tools:
    """How a family writes tool calls.

    Attributes:
        opens: markers that begin a region of calls, anywhere in the content; each with the number of
            steps of its first call that it has already taken, -1 where it is itself part of the first.
        before: by marker, characters of which one follows, perhaps behind whitespace, where a call begins;
            only to be quicker about what is none.
        starts: as ``opens``, but only where nothing other than whitespace has come before.
        closes: may follow a call, and is no content.
        variants: ways to write calls; the first that fits is taken.
        ids: how ids are made.
        frames: whitespace before a call is framing, not content.
        tags: for a structural tag: what stands before and after a call's arguments; ``%s`` is its name.
        style: how arguments are written between them, in xgrammar's word.
        signs: as for `Reasoning`.
    """

    opens: dict[str, int]
    variants: tuple[Variant, ...]
    before: dict[str, str] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    closes: tuple[str, ...] = ()
    ids: IdStyle = "uuid"
    frames: bool = True
    tags: tuple[tuple[str, str], ...] = ()
    style: Literal["json", "qwen_xml"] = "json"
    signs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Channels:
    """Output as a sequence of messages, each with a header that says where it goes.

    Source: OpenAI's harmony format.
    """

    start: str
    channel: str
    message: str
    ends: tuple[str, ...]
    reasoning: tuple[str, ...]
    recipient: str
    signs: tuple[str, ...] = ()
