"""What happens between two steps of ``generate``: tokens go out, and rows stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

from ..derender.detokenize import seed_from_prompt
from ..model.loading import Model
from ..protocol.generate import GenerateRequest
from ..protocol.logprobs import GenerateLogprobs, TokenLogprob
from ..protocol.stream import ChunkChoice, GenerateChunk
from ..protocol.usage import counts_always, counts_at_end, token_counts
from .constraints import Constraint
from .logprobs import PromptPlace, StepLogprobs
from .text_watch import TextWatch

if TYPE_CHECKING:
    import torch

__all__ = ["Row", "Steps"]


@final
class Row:
    """One choice of an answer: what stops it, and what of it has not been sent."""

    def __init__(
        self,
        index: int,
        model: Model,
        request: GenerateRequest,
        room: int,
        constraint: Constraint | None,
    ) -> None:
        params = request.sampling_params
        skip = params.skip_special_tokens
        table = model.tokenizer.table
        self.index = index
        self.n_tokens = 0
        self.is_open = True
        self._constraint = constraint
        self._eos_ids = frozenset[int]() if params.ignore_eos else model.eos_ids
        self._stop_ids = frozenset(params.stop_token_ids)
        self._min_tokens = params.min_tokens
        self._room = room
        self._interval = params.stream_interval or 1
        self._watch: TextWatch | None = None
        if params.stop:
            seed = seed_from_prompt(table, request.token_ids, skip_special_tokens=skip)
            self._watch = TextWatch(
                table, params.stop, skip_special_tokens=skip, seed=seed, free_tokens=params.min_tokens
            )
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []

    def take(self, token_id: int, logprob: TokenLogprob | None) -> ChunkChoice | None:
        """Return what is to be sent now that a token has come."""
        self.n_tokens += 1
        self._token_ids.append(token_id)
        if logprob is not None:
            self._logprobs.append(logprob)
        finish, reason = self._ending(token_id)
        self.is_open = finish is None
        if self.is_open and self.n_tokens > 1 and len(self._token_ids) < self._interval:
            return None
        choice = ChunkChoice(
            index=self.index,
            token_ids=self._token_ids,
            finish_reason=finish,
            stop_reason=reason,
            logprobs=None if logprob is None else GenerateLogprobs(content=self._logprobs),
        )
        self._token_ids, self._logprobs = [], []
        return choice

    def _ending(self, token_id: int) -> tuple[str | None, int | str | None]:
        """Return finish and stop reason: a token before a text, a text before the length, as in vLLM."""
        if self._constraint is not None:
            self._constraint.take(token_id)
        found = None if self._watch is None else self._watch.take(token_id)
        if self.n_tokens >= self._min_tokens:
            if token_id in self._eos_ids:
                return "stop", None
            if token_id in self._stop_ids:
                return "stop", token_id
        if found is not None:
            return "stop", found
        if self._constraint is not None and self._constraint.is_finished:
            return "stop", None
        return ("length", None) if self.n_tokens >= self._room else (None, None)


@final
class Steps:
    """A stopping criterion of ``generate``: called with the ids so far, (rows, length), after each step.

    Args:
        checkpoint: raises when the request's caller has gone; that ends ``generate``.
        tell: sends a piece of the answer.
        prompt_logprobs: go with the first piece.
    """

    def __init__(
        self,
        request: GenerateRequest,
        rows: list[Row],
        logprobs: StepLogprobs | None,
        prompt_tokens: int,
        prompt_logprobs: list[PromptPlace | None] | None,
        checkpoint: Callable[[], None],
        tell: Callable[[GenerateChunk], None],
    ) -> None:
        self._request = request
        self._rows = rows
        self._logprobs = logprobs
        self._prompt_tokens = prompt_tokens
        self._checkpoint = checkpoint
        self._tell = tell
        self._counts_always = counts_always(request.stream_options)
        self._first: dict[str, Any] = {"prompt_logprobs": prompt_logprobs}
        if request.return_token_ids:
            self._first["prompt_token_ids"] = request.token_ids

    def __call__(self, input_ids: torch.Tensor, scores: object, **kwargs: object) -> torch.Tensor:
        """Return which rows have ended, (rows,)."""
        import torch

        self._checkpoint()
        chosen = input_ids[:, -1]
        entries: list[TokenLogprob] | list[None]
        entries = [None] * len(self._rows) if self._logprobs is None else self._logprobs.of(chosen)
        choices = [
            row.take(token_id, entry)
            for row, token_id, entry in zip(self._rows, chosen.tolist(), entries, strict=True)
            if row.is_open
        ]
        pieces = [choice for choice in choices if choice is not None]
        if pieces:
            usage = self._usage() if self._counts_always else None
            self._send(pieces, usage)
        return torch.tensor([not row.is_open for row in self._rows], device=input_ids.device)

    def end(self) -> None:
        """Send what comes behind the last token."""
        if counts_at_end(self._request.stream_options):
            self._send([], self._usage())

    def _send(self, choices: list[ChunkChoice], usage: dict[str, Any] | None) -> None:
        first, self._first = self._first, {}
        self._tell(GenerateChunk(request_id=self._request.request_id, choices=choices, usage=usage, **first))

    def _usage(self) -> dict[str, Any]:
        return token_counts(self._prompt_tokens, sum(row.n_tokens for row in self._rows))
