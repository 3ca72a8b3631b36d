"""Prompts that come back in front of their answers. Source: OpenAI's completions, ``echo``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ..errors import InvalidRequest
from ..model.loading import Model
from ..protocol.completion import Completion, CompletionChoice
from ..protocol.front import Echo
from ..protocol.generate import GenerateChoice, GenerateResponse
from ..protocol.logprobs import Candidate, TokenLogprob
from .logprobs import Place, completion_logprobs

__all__ = ["echo_logprobs", "place_behind", "with_echoes"]

PromptLogprobs = list[dict[str, dict[str, Any]] | None]


def with_echoes(
    model: Model,
    answer: Completion,
    responses: Sequence[GenerateResponse],
    echoes: Sequence[Echo],
    n_candidates: int | None,
    checkpoint: Callable[[], None],
) -> Completion:
    """Return ``answer`` with each response's prompt in front of its choices, and of their logprobs.

    Raises:
        InvalidRequest: prompt logprobs that are none of the prompt.
    """
    choices = iter(answer.choices)
    echoed = []
    for response, echo in zip(responses, echoes, strict=True):
        places = prompt_places(echo.token_ids, response.prompt_logprobs)
        for given in response.choices:
            choice = next(choices)
            logprobs = None
            if given.logprobs is not None:
                content = [*places, *([] if echo.alone else given.logprobs.content or [])]
                logprobs = completion_logprobs(model, content, n_candidates, checkpoint)
            echoed.append(_echoed(choice, echo, given, logprobs))
    return msgspec.structs.replace(answer, choices=echoed)


def _echoed(
    choice: CompletionChoice, echo: Echo, given: GenerateChoice, logprobs: msgspec.Raw | None
) -> CompletionChoice:
    text = echo.text if echo.alone else echo.text + choice.text
    return msgspec.structs.replace(choice, text=text, logprobs=logprobs)


def echo_logprobs(
    model: Model,
    echo: Echo,
    prompt_logprobs: PromptLogprobs | None,
    n_candidates: int | None,
    checkpoint: Callable[[], None],
) -> msgspec.Raw:
    """Return the logprobs of a streamed answer's prompt. Raises as `with_echoes` does."""
    places = prompt_places(echo.token_ids, prompt_logprobs)
    return completion_logprobs(model, places, n_candidates, checkpoint)


def place_behind(model: Model, token_ids: Sequence[int]) -> Place:
    """Return the place of the first token behind an echoed prompt."""
    place = Place(model)
    place.skip(token_ids)
    return place


def prompt_places(token_ids: Sequence[int], given: PromptLogprobs | None) -> list[TokenLogprob]:
    """Return ``given``, an engine's ``prompt_logprobs``, as places of an output; the first has no value."""
    if given is None:
        return [TokenLogprob(token_id=token_id, logprob=None) for token_id in token_ids]
    if len(given) != len(token_ids):
        raise InvalidRequest("prompt_logprobs must have one entry per prompt token.", "prompt_logprobs")
    return [_place(token_id, entry) for token_id, entry in zip(token_ids, given, strict=True)]


def _place(token_id: int, entry: dict[str, dict[str, Any]] | None) -> TokenLogprob:
    if entry is None:
        return TokenLogprob(token_id=token_id, logprob=None)
    own = entry.get(str(token_id), {}).get("logprob")
    try:
        ranked = sorted(entry.items(), key=lambda item: -item[1]["logprob"])
        candidates = [Candidate(token_id=int(key), logprob=value["logprob"]) for key, value in ranked]
    except (KeyError, TypeError, ValueError):
        raise InvalidRequest("An entry of prompt_logprobs is none.", "prompt_logprobs") from None
    return TokenLogprob(token_id=token_id, logprob=own, top_logprobs=candidates)
