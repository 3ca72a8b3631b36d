"""A compiled chat template: messages -> prompt text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jinja2

from ..errors import InvalidRequest
from .content_format import ContentFormat, content_format
from .template_environment import PACE_NAME, TemplateEnvironment
from .template_strict import StrictEnvironment

__all__ = ["ChatTemplate", "TemplateInput"]

Messages = Sequence[Mapping[str, Any]]

_MAX_STEPS = 2_000_000
_MAX_STRICT_STEPS = 700_000
_MAX_CHARS = 64 * 1024 * 1024
_SHOWN_CHARS = 300
_NO_TEMPLATE = (jinja2.TemplateError, RecursionError, SyntaxError, ValueError, OverflowError, MemoryError)
_CONTINUE_MARK = "CONTINUE_THE_FINAL_MESSAGE_HERE "


class TemplateInput(NamedTuple):
    """What a template sees. ``variables`` may not override the other names."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    documents: list[dict[str, Any]] | None
    add_generation_prompt: bool
    continue_final_message: bool
    variables: Mapping[str, Any]


class ChatTemplate:
    """A template compiled once, safe to render from many threads.

    Args:
        trusted: it is the operator's, who means no harm: what it may build is bounded only roughly,
            which makes it twice as fast. What a request sends must not be trusted.

    Raises:
        InvalidRequest: its source is not a template.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str], *, trusted: bool = False) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)
        plain = TemplateEnvironment()
        environment = plain if trusted else StrictEnvironment()
        self._pace_type = environment.pace_type
        self._max_steps = _MAX_STEPS if trusted else _MAX_STRICT_STEPS
        try:
            tree = plain.parse(source)
            self._template = environment.from_string(source)
        except _NO_TEMPLATE as error:
            raise InvalidRequest(f"The chat template can't be compiled: {_shown(error)}.") from None
        self.content_format: ContentFormat = content_format(tree)

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Special tokens by name (``bos_token``, ...), as the template sees them."""
        return self._special_tokens

    def render(self, given: TemplateInput, checkpoint: Callable[[], None]) -> str:
        """Return the prompt text.

        Raises:
            InvalidRequest: the template refuses the messages, fails in any way, or goes on for too long;
                or there is no final message to continue.

        ``checkpoint`` is called every few steps; what it raises passes through.
        """
        if not given.continue_final_message:
            return self._run(given, given.messages, checkpoint)
        final, messages = _marked(given.messages)
        return _cut_at_mark(self._run(given, messages, checkpoint), final)

    def _run(
        self, given: TemplateInput, messages: list[dict[str, Any]], checkpoint: Callable[[], None]
    ) -> str:
        pace = self._pace_type(checkpoint, self._max_steps, _MAX_CHARS)
        variables = {
            **given.variables,
            **self._special_tokens,
            "messages": messages,
            "tools": given.tools,
            "documents": given.documents,
            "add_generation_prompt": given.add_generation_prompt,
            PACE_NAME: pace,
        }
        pieces: list[str] = []
        size = 0
        try:
            for piece in self._template.generate(variables):
                pieces.append(piece)
                size += len(piece)
                if size > _MAX_CHARS:
                    raise InvalidRequest("The chat template writes too long a prompt.")
        except InvalidRequest:
            raise
        except Exception as error:
            if error is pace.stopped_by:
                raise
            raise InvalidRequest(f"The chat template refused the request: {_shown(error)}") from None
        return "".join(pieces)


def _marked(messages: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Return the final message's text, and the messages with a mark behind it."""
    final = messages[-1].get("content") if messages else None
    if isinstance(final, list):
        texts = [n for n, part in enumerate(final) if "text" in part]
        if texts:
            part = final[texts[-1]]
            text = str(part["text"])
            marked = [*final[: texts[-1]], {**part, "text": text + _CONTINUE_MARK}, *final[texts[-1] + 1 :]]
            return text, [*messages[:-1], {**messages[-1], "content": marked}]
    if not isinstance(final, str):
        raise InvalidRequest("There is no final message to continue.", "continue_final_message")
    return final, [*messages[:-1], {**messages[-1], "content": final + _CONTINUE_MARK}]


def _cut_at_mark(prompt: str, final: str) -> str:
    """Return the prompt up to where the final message ends.

    A template may trim the message: then its spaces, which it would have trimmed too, go with the mark.
    """
    bare = _CONTINUE_MARK.strip()
    place = prompt.rfind(bare)
    if place < 0 or final.strip() not in prompt:
        raise InvalidRequest(
            "The chat template does not show the final message, so it can't be continued.",
            "continue_final_message",
        )
    kept = prompt[:place]
    return kept if prompt.startswith(_CONTINUE_MARK, place) else kept.rstrip()


def _shown(error: BaseException) -> str:
    """Return the start of the error's text. It may quote a value that is as long as a template may build."""
    text = str(error)[:_SHOWN_CHARS] or type(error).__name__
    return text.encode("utf-8", "replace").decode().rstrip(".")
