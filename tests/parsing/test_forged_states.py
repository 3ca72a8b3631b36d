"""A state that a client made up is refused, or read on from like any other; it never breaks the machine."""

import contextlib
import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing.reading import MAX_STATE_BYTES, SETTINGS
from parsing.test_junk import junk_of

from trio_render import InvalidRequest
from trio_render.parsing.checks import check_state
from trio_render.parsing.machine import Machine
from trio_render.parsing.modes import HANDLERS
from trio_render.parsing.sink import Delta
from trio_render.parsing.state import ParserState

_SHORT = st.one_of(
    st.just(""),
    st.sampled_from(['"', "\\", "{", "}", "<", "[", " ", "\n", "a", "name", "f:0", "functools", "é"]),
    st.text(max_size=5),
)
_TEXT = st.one_of(
    _SHORT, st.builds(lambda text, n: (text * n)[:8192], _SHORT, st.sampled_from([1, 4096, 8192]))
)
_SMALL = st.one_of(st.integers(0, 9), st.integers(0, 15))
_COUNT = st.one_of(st.integers(0, 3), st.integers(0, 2**53))
STATES = st.builds(
    ParserState,
    mode=st.one_of(st.sampled_from(sorted(HANDLERS)), st.text(max_size=16)),
    **dict.fromkeys(("look", "raw", "space", "token", "name", "key", "args"), _TEXT),
    **dict.fromkeys(("variant", "step", "place", "value"), _SMALL),
    depth=_COUNT,
    quote=st.sampled_from(["", "'", '"', "x", "\\", "é"]),
    **{
        name: st.booleans()
        for name in (
            "in_string", "escaped", "comma", "committed", "has_args", "in_list",
            "thought", "reasoned", "started", "seen",
        )
    },
    n_calls=_COUNT,
)  # fmt: skip


def read_on(name: str, state: ParserState, seed: int) -> None:
    """Read junk from a state on; then it must still be one that passes."""
    setting = SETTINGS[name]
    plan = setting.plan()
    rng = random.Random(seed)
    for _ in range(3):
        try:
            check_state(plan, state)
        except InvalidRequest:
            return
        delta = Delta()
        Machine(plan, state, delta).feed(junk_of(setting, rng))
        assert all(index >= 0 for index in delta.calls)
        written = msgspec.msgpack.encode(state)
        assert len(written) <= 2 * MAX_STATE_BYTES
        state = msgspec.msgpack.decode(written, type=ParserState)
    Machine(plan, state, Delta()).feed("", final=True)


@pytest.mark.parametrize("name", SETTINGS)
@settings(max_examples=40, deadline=None)
@given(state=STATES, seed=st.integers(0, 2**32))
def test_a_forged_state_is_refused_or_read_on_from(name: str, state: ParserState, seed: int) -> None:
    """Whatever the fields say."""
    read_on(name, state, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
@settings(max_examples=250, deadline=None)
@given(state=STATES, seed=st.integers(0, 2**32))
def test_many_forged_states_are_refused_or_read_on_from(name: str, state: ParserState, seed: int) -> None:
    """As above, for as long as one likes."""
    read_on(name, state, seed)


def _tampered(state: ParserState, rng: random.Random) -> ParserState:
    """A real state with a few fields changed: nearer to one that passes than any made up."""
    changes: dict[str, Callable[[], object]] = {
        "mode": lambda: rng.choice(sorted(HANDLERS)),
        "variant": lambda: rng.randint(0, 3),
        "step": lambda: rng.randint(0, 6),
        "place": lambda: rng.randint(0, 9),
        "value": lambda: rng.randint(0, 3),
        "depth": lambda: rng.randint(0, 2),
        "quote": lambda: rng.choice(["", "'", '"']),
        "n_calls": lambda: rng.randint(0, 2),
        **{
            name: lambda: rng.random() < 0.5
            for name in ("in_string", "escaped", "comma", "committed", "has_args", "in_list", "started")
        },
        **{
            name: lambda: rng.choice(["", "a", '"', "{", " ", "f:1", "x" * 4096])
            for name in ("look", "raw", "space", "token", "name", "key", "args")
        },
    }
    fields = msgspec.structs.asdict(state)
    for name in rng.sample(sorted(changes), rng.randint(1, 4)):
        fields[name] = changes[name]()
    return ParserState(**fields)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_tampered_state_is_refused_or_read_on_from(name: str) -> None:
    """Seeded: states of real readings, each with some fields changed."""
    setting = SETTINGS[name]
    plan = setting.plan()
    rng = random.Random(name)
    for round_ in range(40):
        state = setting.start()
        with contextlib.suppress(InvalidRequest):
            text = junk_of(setting, rng)
            Machine(plan, state, Delta()).feed(text[: rng.randint(0, len(text))])
        for _ in range(5):
            read_on(name, _tampered(state, rng), round_)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_state_of_another_plan_does_not_break_the_machine(name: str) -> None:
    """A client sends the state of one request with another request."""
    rng = random.Random(name)
    for other in SETTINGS.values():
        state = other.start()
        text = junk_of(other, rng)
        Machine(other.plan(), state, Delta()).feed(text)
        read_on(name, state, 1)
