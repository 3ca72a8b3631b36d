"""The budget of a render, and what operations are charged."""

from collections.abc import Callable
from typing import Any

import pytest
from opened_models import never

from trio_render.model.template_growth import (
    Pace,
    StrictPace,
    TemplateTooCostly,
    charge_method,
    charge_operator,
    charge_percent,
)


def affordable(pace: Pace, charge: Any, *args: Any) -> bool:
    try:
        charge(pace, *args)
    except TemplateTooCostly:
        return False
    return True


def test_steps_run_out() -> None:
    pace = Pace(never, 10, 0)
    for _ in range(10):
        pace.step()
    with pytest.raises(TemplateTooCostly):
        pace.step()


def test_a_strict_pace_counts_turns_apart() -> None:
    calls: list[int] = []
    pace = StrictPace(lambda: calls.append(1), 64, 0)
    for _ in range(9 * 64):
        pace.turn()
    assert len(calls) == 9
    with pytest.raises(TemplateTooCostly):
        pace.turn()
    pace.step()


def test_characters_run_out_over_all_operations_together() -> None:
    pace = Pace(never, 0, 100)
    pace.build(60)
    pace.build(40)
    with pytest.raises(TemplateTooCostly):
        pace.build(1)


def test_the_checkpoint_is_called_every_64_steps() -> None:
    calls: list[int] = []
    pace = Pace(lambda: calls.append(1), 640, 0)
    for _ in range(640):
        pace.step()
    assert len(calls) == 10


@pytest.mark.parametrize(
    ("operator", "left", "right", "price"),
    [
        ("+", "a" * 30, "b" * 20, 50),
        ("+", [0] * 30, [0] * 20, 50),
        ("+", 1, 2, 0),
        ("*", "ab", 25, 50),
        ("*", 25, "ab", 50),
        ("*", [0, 0], 25, 50),
        ("*", "ab", -25, 0),
        ("*", "ab", True, 2),
        ("%", "%s" + "x" * 48, ("",), 50),
        ("%", 7, 5, 0),
        ("*", 7, 5, 0),
    ],
)
def test_an_operator_is_charged_what_it_builds(operator: str, left: Any, right: Any, price: int) -> None:
    assert affordable(Pace(never, 0, price), charge_operator, operator, left, right)
    if price:
        assert not affordable(Pace(never, 0, price - 1), charge_operator, operator, left, right)


@pytest.mark.parametrize(("left", "right"), [(2, 10**9), (10**6, 10**6), (-3, 10**5)])
def test_powers_have_a_largest_size(left: int, right: int) -> None:
    assert not affordable(Pace(never, 0, 10**9), charge_operator, "**", left, right)


def test_products_have_a_largest_size() -> None:
    assert affordable(Pace(never, 0, 0), charge_operator, "*", 2**2000, 2**2000)
    assert not affordable(Pace(never, 0, 0), charge_operator, "*", 2**4000, 2**4000)


@pytest.mark.parametrize(
    ("name", "target", "args", "built"),
    [
        ("center", "x", (1000,), "x".center(1000)),
        ("ljust", "x", (1000, "-"), "x".ljust(1000, "-")),
        ("rjust", "x", (1000,), "x".rjust(1000)),
        ("zfill", "x", (1000,), "x".zfill(1000)),
        ("expandtabs", "\t\t", (500,), "\t\t".expandtabs(500)),
        ("replace", "aaaa", ("a", "b" * 250), "b" * 1000),
        ("replace", "aaaa", ("", "b" * 250), "aaaa".replace("", "b" * 250)),
        ("join", "-" * 100, (["", *[""] * 10],), "-" * 1000),
        ("join", "-" * 100, ("x" * 11,), ("-" * 100).join("x" * 11)),
        ("upper", "x" * 1000, (), "X" * 1000),
        ("join", "", (["x" * 500, "y" * 500],), "x" * 500 + "y" * 500),
        ("format", "{}{}", ("x" * 500, "y" * 500), "x" * 500 + "y" * 500),
    ],
)
def test_a_method_is_charged_at_least_what_it_builds(
    name: str, target: str, args: tuple[Any, ...], built: str
) -> None:
    assert not affordable(Pace(never, 0, len(built) - 1), charge_method, name, target, args, {})
    assert affordable(Pace(never, 0, 5 * len(built)), charge_method, name, target, args, {})


@pytest.mark.parametrize("text", ["{:10000}", "%10000d", "%*d", "{:<123456}", "{:.99999f}"])
def test_formats_have_a_largest_width(text: str) -> None:
    assert not affordable(Pace(never, 0, 10**9), charge_method, "format", text, (1,), {})
    assert not affordable(Pace(never, 0, 10**9), charge_operator, "%", text, 1)


def test_arguments_by_name_count_too() -> None:
    assert not affordable(Pace(never, 0, 99), charge_method, "indent", "x", (), {"width": 100})


# ------------------------------------------------------------ values weighed through and through


@pytest.mark.parametrize(
    "value",
    [
        "a\n'\\\x00é\u2028",
        "\n" * 10**5,
        [1, -12345, None, True, 0.1, 10**50],
        {"a": ["\x00" * 500, ("b", {"c": []})], "d": {}},
        {"a": 1}.items(),
        [[[["x"] * 10] * 10] * 10],
    ],
)
def test_a_value_weighs_no_less_than_it_is_long(value: Any) -> None:
    pace = StrictPace(never, 10**6, 10**6)
    assert pace.length(value) >= len(str(value))
    assert pace.weigh(value).chars >= len(repr(value))


def nested(pace: StrictPace, times: int, wrap: Callable[[Any], Any]) -> None:
    value: Any = ("x",)
    for _ in range(times):
        value = pace.hold(wrap(value))


def test_what_a_value_holds_twice_weighs_twice() -> None:
    nested(StrictPace(never, 10**6, 10**6), 10, lambda value: [value, value])
    with pytest.raises(TemplateTooCostly):
        nested(StrictPace(never, 10**6, 10**6), 40, lambda value: [value, value])


def test_values_have_a_greatest_depth() -> None:
    nested(StrictPace(never, 10**6, 10**6), 100, lambda value: (value,))
    with pytest.raises(TemplateTooCostly):
        nested(StrictPace(never, 10**6, 10**6), 1000, lambda value: (value,))


def test_a_weight_is_kept_so_that_a_value_is_walked_once() -> None:
    pace = StrictPace(never, 1000, 10**6)
    value = [0] * 900
    assert {pace.length(value) for _ in range(100)} == {pace.length(value)}
    assert affordable(pace, StrictPace.steps, 100)
    assert not affordable(pace, StrictPace.steps, 1)


def test_steps_taken_at_once_reach_the_checkpoint() -> None:
    calls: list[int] = []
    StrictPace(lambda: calls.append(1), 1000, 0).steps(200)
    assert calls


def test_a_format_is_charged_its_fields_times_the_largest_argument() -> None:
    assert not affordable(StrictPace(never, 100, 1999), charge_percent, "%s%s", ("x" * 1000, "y"))
    assert affordable(StrictPace(never, 100, 4000), charge_percent, "%s%s", ("x" * 1000, "y"))
    assert not affordable(StrictPace(never, 100, 1999), charge_percent, "%999d%999d", (1, 1))
