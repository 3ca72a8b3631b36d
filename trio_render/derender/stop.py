"""Where an output ends: stop tokens and stop strings.

Source: vLLM 0.33 ``check_stop`` / ``check_stop_strings``: the stop string that the engine itself would
have met first, token by token, wins.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..errors import MalformedRequest
from ..model.loading import Model
from ..protocol.generate import GenerateChoice
from ..protocol.sampling import SamplingFields
from ..protocol.stream import ChunkChoice

__all__ = ["StopRules", "StringStop", "find_stop_string", "stop_token"]


class StopRules(NamedTuple):
    """What ends an output, as its request says."""

    eos_ids: frozenset[int]
    token_ids: frozenset[int]
    strings: tuple[str, ...]
    included: bool
    min_tokens: int
    skip_special_tokens: bool

    @classmethod
    def of(cls, request: SamplingFields | None, model: Model) -> StopRules:
        """Read the rules. Raises `MalformedRequest` (``body.stop``): neither a text nor a list of texts."""
        if request is None:
            return cls(model.eos_ids, frozenset(), (), False, 0, True)
        return cls(
            eos_ids=frozenset() if request.ignore_eos else model.eos_ids,
            token_ids=frozenset(request.stop_token_ids or ()),
            strings=_strings(request.stop),
            included=bool(request.include_stop_str_in_output),
            min_tokens=request.min_tokens or 0,
            skip_special_tokens=request.skip_special_tokens is not False,
        )


def _strings(value: object) -> tuple[str, ...]:
    given = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(stop, str) for stop in given):
        raise MalformedRequest("stop must be a text or a list of texts.", "body.stop")
    return tuple(stop for stop in given if stop)


def stop_token(
    rules: StopRules, choice: GenerateChoice | ChunkChoice, token_ids: Sequence[int]
) -> tuple[bool, int | None]:
    """Say whether the last token is one that stopped the output, and which id to report as the reason.

    EOS is never reported, as the engine doesn't. A reason that the engine has given counts like a rule.
    """
    if choice.finish_reason != "stop" or not token_ids:
        return False, None
    last = token_ids[-1]
    if last in rules.eos_ids:
        return True, None
    if last in rules.token_ids or (type(choice.stop_reason) is int and choice.stop_reason == last):
        return True, last
    return False, None


class StringStop(NamedTuple):
    """A stop string in a text: the text ends at ``end``."""

    string: str
    end: int


def find_stop_string(
    text: str,
    strings: Sequence[str],
    *,
    included: bool,
    start: int,
    n_tokens: int,
    length_after: Callable[[int], int],
) -> StringStop | None:
    """Return the stop string that ends ``text``.

    Of all matches the one completed by the earliest token wins, and among those completed by one token the
    first in ``strings``.

    Args:
        start: a match must end behind this place; what the first ``min_tokens`` tokens bring doesn't stop.
        length_after: length of the text that the first k tokens give.
    """
    ends = []
    for string in strings:
        place = text.find(string, max(start - len(string) + 1, 0))
        if place >= 0:
            ends.append(place + len(string))
    if not ends:
        return None
    n = bisect_left(range(n_tokens + 1), min(ends), key=length_after)
    shown = length_after(n) if n <= n_tokens else len(text)
    for string in strings:
        place = text.find(string, max(start - len(string) + 1, 0), max(shown, min(ends)))
        if place >= 0:
            return StringStop(string, place + len(string) if included else place)
    return None
