"""Constrained decoding with llguidance: the tokens that a grammar allows next, row by row."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from ..errors import EngineError, InvalidRequest, ModelLoadError
from ..model.loading import Model
from ..parsing.families.reasoning import REASONING
from ..policy import Policy
from ..protocol.generate import GenerateRequest
from ..protocol.sampling import StructuredOutputs
from .sampling import Processor
from .structural_tags import structural_tag_grammar
from .text_watch import TextWatch

if TYPE_CHECKING:
    import torch

__all__ = ["Constraint", "Grammars", "masked"]

_PARAM = "structured_outputs"
_MAX_REASON = 200


@final
class Grammars:
    """Compiles constraints for one vocabulary. Safe to use from many threads."""

    def __init__(self, model: Model, vocab_size: int) -> None:
        self._model = model
        self._vocab_size = vocab_size
        self._lock = threading.Lock()
        self._vocabulary: Any = None

    def constraints(self, request: GenerateRequest, policy: Policy) -> list[Constraint] | None:
        """Return a constraint for each row of a request; ``None`` where it sets none. Blocks.

        Raises:
            InvalidRequest (``structured_outputs``): the constraint is malformed, too complex or of a kind
                that can't be expressed; llguidance is not installed.
            EngineError: the model's file, which the vocabulary is read from, is gone or has changed.
        """
        wanted = request.sampling_params.structured_outputs
        if wanted is None:
            return None
        try:
            import llguidance
        except ImportError:
            raise InvalidRequest("structured_outputs needs llguidance on the server.", _PARAM) from None
        ends = _reasoning_ends(policy) if request.reasoning_ended is False else ()
        vocabulary = self._opened(llguidance)
        matcher = llguidance.LLMatcher(
            vocabulary, self._grammar(wanted, llguidance.LLMatcher, vocabulary), log_level=0
        )
        _check(matcher)
        table = self._model.tokenizer.table
        return [
            Constraint(
                matcher.deep_copy(), TextWatch(table, ends, skip_special_tokens=False) if ends else None
            )
            for _ in range(request.sampling_params.n)
        ]

    def _opened(self, llguidance: Any) -> Any:
        with self._lock:
            if self._vocabulary is None:
                try:
                    described = self._model.tokenizer.as_json()
                except ModelLoadError as error:
                    raise EngineError(error.message) from None
                self._vocabulary = llguidance.LLTokenizer(
                    described,
                    n_vocab=self._vocab_size,
                    eos_token=sorted(self._model.eos_ids),
                )
            return self._vocabulary

    def _grammar(self, wanted: StructuredOutputs, make: Any, vocabulary: Any) -> str:
        if wanted.disable_additional_properties:
            raise InvalidRequest("disable_additional_properties is not supported by this engine.", _PARAM)
        grammar: str
        if wanted.json is not None or wanted.json_object:
            schema = wanted.json if wanted.json is not None else {"type": "object"}
            try:
                grammar = make.grammar_from_json_schema(schema, overrides=_whitespace(wanted))
            except (ValueError, TypeError) as error:
                raise _malformed(str(error)) from None
        elif wanted.regex is not None:
            grammar = make.grammar_from_regex(wanted.regex)
        elif wanted.choice is not None:
            grammar = make.grammar_from_lark("start: " + " | ".join(map(json.dumps, wanted.choice)))
        elif wanted.grammar is not None:
            grammar = make.grammar_from_lark(wanted.grammar)
        elif wanted.structural_tag is not None:
            written = structural_tag_grammar(wanted.structural_tag, self._literal(vocabulary))
            grammar = make.grammar_from_lark(written)
        else:
            raise InvalidRequest("structured_outputs sets no constraint.", _PARAM)
        return grammar

    def _literal(self, vocabulary: Any) -> Callable[[str], str]:
        """Return what writes a text for a grammar, in which a special token is not the text it looks like."""
        tokenizer = self._model.tokenizer
        added = ((text, tokenizer.token_to_id(text)) for text in tokenizer.added_tokens if text)
        special = {
            text: i
            for text, i in sorted(added, key=lambda pair: -len(pair[0]))
            if i is not None and i < self._vocab_size and vocabulary.is_special_token(i)
        }

        def literal(text: str) -> str:
            parts = []
            while text:
                places = [(text.find(mark), -len(mark), mark) for mark in special if mark in text]
                at, _, mark = min(places, default=(len(text), 0, ""))
                if at:
                    parts.append(json.dumps(text[:at]))
                if mark:
                    parts.append(f"<[{special[mark]}]>")
                text = text[at + len(mark) :]
            return " ".join(parts)

        return literal


def _whitespace(wanted: StructuredOutputs) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if wanted.disable_any_whitespace:
        options["whitespace_flexible"] = False
    if wanted.whitespace_pattern is not None:
        options["whitespace_pattern"] = wanted.whitespace_pattern
    return options


def _reasoning_ends(policy: Policy) -> tuple[str, ...]:
    """Return the texts of which one ends the reasoning that comes before a constrained output."""
    family = REASONING.get(policy.reasoning_parser or "")
    if family is None:
        raise InvalidRequest("structured_outputs behind reasoning needs a parser that finds its end.", _PARAM)
    return family.closes


def _check(matcher: Any) -> None:
    if matcher.is_error():
        raise _malformed(matcher.get_error())


def _malformed(reason: str) -> InvalidRequest:
    return InvalidRequest(f"structured_outputs: {reason.strip().splitlines()[0][:_MAX_REASON]}", _PARAM)


@final
class Constraint:
    """What one row may write: its grammar, and where it begins to hold."""

    def __init__(self, matcher: Any, before: TextWatch | None) -> None:
        self._matcher = matcher
        self._before = before

    @property
    def is_finished(self) -> bool:
        """Whether nothing may follow what has been written."""
        return self._before is None and bool(self._matcher.is_stopped())

    def allowed(self) -> torch.Tensor | None:
        """Return which tokens may come next, (vocabulary,); ``None`` before the constraint holds."""
        import torch

        if self._before is not None:
            return None
        mask = bytearray(self._matcher.compute_logit_bias())
        _check(self._matcher)
        return torch.frombuffer(mask, dtype=torch.uint8).bool()

    def take(self, token_id: int) -> None:
        """Move behind a token that was chosen."""
        if self._before is not None:
            if self._before.take(token_id) is not None:
                self._before = None
            return
        self._matcher.consume_token(token_id)
        _check(self._matcher)


def masked(constraints: Sequence[Constraint], is_open: Callable[[int], bool]) -> Processor:
    """Return a processor that forbids, in rows that are still open, what their constraints forbid."""
    import torch

    def mask(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        for row, constraint in enumerate(constraints):
            allowed = constraint.allowed() if is_open(row) else None
            if allowed is not None:
                scores[row].masked_fill_(~allowed.to(scores.device), -torch.inf)
        return scores

    return mask
