"""Log probabilities: as the engine sends them (ids) and as OpenAI's two formats show them (texts)."""

from __future__ import annotations

import msgspec

__all__ = ["Candidate", "ChatLogprobs", "CompletionLogprobs", "GenerateLogprobs", "TokenLogprob"]


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A token that could have been sampled. ``token`` may be ``"token_id:N"``, as older hosts write it."""

    logprob: float | None
    token_id: int | None = None
    token: str | None = None


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One place of the output: the sampled token and its candidates, best first."""

    logprob: float | None
    token_id: int | None = None
    token: str | None = None
    top_logprobs: list[Candidate] = []


class GenerateLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """``logprobs`` of a choice in an engine's answer, one entry per token id."""

    content: list[TokenLogprob] | None = None


class _ChatCandidate(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    logprob: float | None
    bytes: list[int] | None


class _ChatTokenLogprob(_ChatCandidate, frozen=True, kw_only=True):
    top_logprobs: list[_ChatCandidate]


class ChatLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """``choices[].logprobs`` of a chat answer."""

    content: list[_ChatTokenLogprob]


class CompletionLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """``choices[].logprobs`` of a completion answer. ``text_offset`` counts characters of ``tokens``."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]
