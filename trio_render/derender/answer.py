"""What a chat request wants of its answer: parsers, and what of their results is shown."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from ..errors import InvalidRequest, MalformedRequest
from ..model.loading import Model
from ..parsing.checks import check_state
from ..parsing.ids import call_id
from ..parsing.machine import Machine
from ..parsing.plan import ParsePlan
from ..parsing.selection import parse_plan, start_state
from ..parsing.sink import Delta
from ..parsing.state import ParserState
from ..parsing.whole import Call, parse_whole
from ..policy import Policy
from ..protocol.chat import ChatMessage, ChatRequest
from ..protocol.stream import CallPiece, ChatDelta, FunctionPiece
from .stop import StopRules

__all__ = ["AnswerPlan", "check_parser"]


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """A request's wishes.

    Attributes:
        parse: what the answer is read for.
        hides_reasoning: reasoning is not shown, and nothing that would tell it (ids, logprobs) either.
        serial: only the first call is shown.
        forced: the request demands a call, so that content is empty rather than absent.
        named: it demands one function, and the finish reason then says nothing of calls.
    """

    request: ChatRequest
    parse: ParsePlan
    hides_reasoning: bool
    serial: bool
    forced: bool
    named: bool

    @classmethod
    def of(cls, policy: Policy, request: ChatRequest | None) -> AnswerPlan | None:
        """Return the plan; ``None`` for an answer that is plain text.

        Raises:
            InvalidRequest: the server parses answers, and there is no request that says what for.
        """
        if request is None and (policy.reasoning_parser or policy.tool_call_parser):
            raise InvalidRequest(
                "This server parses answers, for which it needs chat_request.", "chat_request"
            )
        parse = parse_plan(policy, request)
        if parse is None or request is None:
            return None
        choice = request.tool_choice
        return cls(
            request=request,
            parse=parse,
            hides_reasoning=policy.reasoning_parser is not None and request.include_reasoning is False,
            serial=request.parallel_tool_calls is False,
            forced=parse.tools_wanted and (choice == "required" or isinstance(choice, dict)),
            named=parse.tools_wanted and isinstance(choice, dict),
        )

    def rules(self, rules: StopRules) -> StopRules:
        """Return stop rules under which markers stay in the text: they may be special tokens."""
        return rules._replace(skip_special_tokens=False)

    def start(self, model: Model, prompt_ids: Sequence[int] | None) -> ParserState:
        """Return where an output after ``prompt_ids`` starts."""
        return start_state(self.parse, model.tokenizer.table, prompt_ids, self.request)

    def message(self, model: Model, prompt_ids: Sequence[int] | None, text: str) -> ChatMessage:
        """Return a whole output's message."""
        said = parse_whole(self.parse, self.start(model, prompt_ids), text)
        calls = [self.shown_call(call) for call in said.calls[: 1 if self.serial else None]]
        return ChatMessage(
            role="assistant",
            content=said.content or ("" if self.forced else None),
            reasoning=None if self.hides_reasoning else said.reasoning or None,
            tool_calls=calls or None,
        )

    def delta(
        self, before: ParserState, text: str, *, started: bool, final: bool
    ) -> tuple[ChatDelta, ParserState]:
        """Return what a piece of a stream adds to its message, and the state behind it.

        Args:
            started: the message's role has been sent.
            final: nothing will follow.
        """
        after = msgspec.structs.replace(before)
        added = Delta()
        Machine(self.parse, after, added).feed(text, final=final)
        calls = [
            CallPiece(
                index=index,
                id=None if call.name is None else self.new_id(call.written_id),
                type=None if call.name is None else "function",
                function=FunctionPiece(name=call.name, arguments=call.arguments or None),
            )
            for index, call in added.calls.items()
            if index == 0 or not self.serial
        ]
        delta = ChatDelta(
            role=None if started else "assistant",
            content=added.text or None,
            reasoning=None if self.hides_reasoning else added.thought or None,
            tool_calls=calls or None,
        )
        return delta, after

    def shown_call(self, call: Call) -> dict[str, Any]:
        """Return a call as it is shown in a message."""
        return {
            "id": self.new_id(call.written_id),
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }

    def new_id(self, written: str | None) -> str:
        """Return a call's id."""
        return call_id("uuid" if self.parse.tools is None else self.parse.tools.ids, written)

    def finish_reason(self, given: str | None, n_calls: int) -> str | None:
        """Return the finish reason to show: an answer that ended by itself and made calls ended in them."""
        return "tool_calls" if given == "stop" and n_calls and not self.named else given


def check_parser(answer: AnswerPlan | None, state: ParserState | None) -> None:
    """Check a state against what it is to be read with.

    Raises:
        MalformedRequest: (``body.stream_state``) no stream that is parsed like this can have left it.
    """
    if answer is None and state is None:
        return
    if answer is not None and state is not None:
        with suppress(InvalidRequest):
            check_state(answer.parse, state)
            return
    raise MalformedRequest("The stream_state is not that of a stream parsed like this.", "body.stream_state")
