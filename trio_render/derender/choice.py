"""One generated sequence -> its text and what stopped it. Shared by chat and completion answers."""

from __future__ import annotations

from typing import NamedTuple

from ..model.loading import Model
from ..protocol.generate import GenerateChoice
from .detokenize import Seed, detokenize
from .stop import StopRules, find_stop_string, stop_token

__all__ = ["ChoiceText", "choice_text"]


class ChoiceText(NamedTuple):
    """A sequence's visible text, and the stop reason to report: a token id, a stop string, or nothing."""

    text: str
    stop_reason: int | str | None


def choice_text(model: Model, choice: GenerateChoice, rules: StopRules, seed: Seed) -> ChoiceText:
    """Return the text of ``choice``, without what stopped it unless the rules include that."""
    table = model.tokenizer.table
    all_ids = choice.token_ids or []
    stopped, token_reason = stop_token(rules, choice, all_ids)
    ids = all_ids[:-1] if stopped and not rules.included else all_ids
    text = detokenize(table, ids, skip_special_tokens=rules.skip_special_tokens, seed=seed)
    reason = choice.stop_reason if choice.stop_reason is not None else token_reason
    if choice.finish_reason != "stop":
        return ChoiceText(text, reason)
    # What the engine reports is what it stopped at, whatever else the request lists.
    strings = (choice.stop_reason,) if isinstance(choice.stop_reason, str) else rules.strings

    def length_after(n: int) -> int:
        return len(detokenize(table, ids[:n], skip_special_tokens=rules.skip_special_tokens, seed=seed))

    found = find_stop_string(
        text,
        [string for string in strings if string],
        included=rules.included,
        start=length_after(rules.min_tokens) if rules.min_tokens > 0 else 0,
        n_tokens=len(ids),
        length_after=length_after,
    )
    return ChoiceText(text, reason) if found is None else ChoiceText(text[: found.end], found.string)
