"""Whether a state that came from outside is one that reading an output can lead to."""

from __future__ import annotations

from ..errors import InvalidRequest
from . import args, json_object, json_value, params, python_call, words
from .channels import HEADER_PLACES
from .grammar import Args, JsonObject, Literally, Name, Params, PythonCall, Skip, Step
from .modes import CALL_MODES, CHANNEL_MODES, HANDLERS
from .plan import ParsePlan
from .state import HOLD_CHARS, ParserState

__all__ = ["check_state"]

_PLACES: dict[type[Step], int] = {
    Literally: 1,
    Skip: words.SKIP_PLACES,
    Name: words.NAME_PLACES,
    Args: args.PLACES,
    JsonObject: json_object.PLACES,
    Params: params.PLACES,
    PythonCall: python_call.PLACES,
}
_QUOTES = ("", "'", '"')


def check_state(plan: ParsePlan, state: ParserState) -> None:
    """Refuse a state that no output read by ``plan`` leads to. Its types and lengths have been checked.

    What passes can be read on from: `Machine.feed` ends, and raises nothing.

    Raises:
        InvalidRequest: the state is of another plan, or forged.
    """
    if not (_fits_plan(plan, state) and _fits_call(plan, state) and _is_bounded(state)):
        raise InvalidRequest("The stream's state does not belong to this request.", "stream_state")


def _fits_plan(plan: ParsePlan, state: ParserState) -> bool:
    """Whether the plan has the mode."""
    mode = state.mode
    if mode in CALL_MODES:
        return plan.tools is not None and state.variant < len(plan.variants)
    if mode in CHANNEL_MODES:
        return plan.channels is not None
    if mode == "reasoning":
        return plan.reasoning is not None
    return mode in HANDLERS


def _fits_call(plan: ParsePlan, state: ParserState) -> bool:
    """Whether what is known of a call is what can be known there."""
    if state.committed and not (state.mode in ("steps", "calling") and state.n_calls):
        return False
    if state.mode == "steps":
        return _fits_steps(plan, state)
    if any((state.token, state.key, state.args, state.quote, state.value, state.depth)):
        return False
    if state.mode == "calling":
        return state.committed and state.step == state.place == 0
    if state.mode == "header":
        return state.step == 0 and state.place < HEADER_PLACES
    if state.mode == "variant" and plan.tools is not None:
        return state.step in (0, *plan.tools.opens.values()) and state.place == 0
    return state.step == state.place == 0


def _fits_steps(plan: ParsePlan, state: ParserState) -> bool:
    """Whether the family's calls have the place."""
    steps = plan.steps(state)
    if state.step >= len(steps):
        return False
    step = steps[state.step]
    if state.place >= _PLACES[type(step)]:
        return False
    if isinstance(step, Args | Params):
        return state.committed
    if isinstance(step, PythonCall):
        return state.committed or state.place < python_call.FIRST_COMMITTED
    return True


def _is_bounded(state: ParserState) -> bool:
    """Whether what is held is no longer than the machine lets it be."""
    holds = state.mode in CALL_MODES or state.mode == "header"
    return (
        len(state.raw) <= (HOLD_CHARS if holds and not state.committed else 0)
        and all(len(text) <= HOLD_CHARS for text in (state.look, state.space, state.args, state.key))
        and len(state.token) <= HOLD_CHARS + 1
        and state.value < json_value.VALUES
        and (state.depth > 0 or state.in_string or state.value != json_value.NESTED)
        and state.quote in _QUOTES
    )
