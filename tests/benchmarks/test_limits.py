"""What the sweep of limits compares, recommends and writes, without measuring anything."""

import json
from pathlib import Path
from typing import Any

import click
import pytest

from app.cli import serve
from app.limits_file import limits_from
from bench.limits import Setting, recommended, settings_to_compare
from bench.mix import Mix, schedule


def rates(p99: float, probe: float = 5.0, answered: int = 100) -> list[dict[str, Any]]:
    return [{"p99_ms": {"chat": p99}, "probe_p99_ms": probe, "answered": answered, "offered": 100}]


def threads(render: int, derender: int) -> Setting:
    return Setting("thread", 1, 2, render=render, derender=derender)


def test_every_pair_and_every_shared_limit_is_compared_once() -> None:
    settings = list(settings_to_compare(["thread", "process"], [1, 2, 4], [1, 2], 2))
    assert len(settings) == len(set(settings)) == 2 * (9 + 3) + 9 + 3
    assert {setting.gil for setting in settings if setting.offload == "process"} == {1}


@pytest.mark.parametrize("setting", [*settings_to_compare(["thread", "process"], [1, 16], [3], 2)], ids=str)
def test_serve_takes_what_is_written(setting: Setting, tmp_path: Path) -> None:
    file = tmp_path / "limits.json"
    file.write_text(json.dumps(setting.limits))
    assert limits_from(file) == setting.limits
    from_file = serve.make_context("serve", ["--model", "m", "--limits-from", str(file)]).params
    from_options = serve.make_context("serve", ["--model", "m", *setting.options]).params
    assert from_file == from_options
    assert from_file["offload"] == setting.offload


def test_the_best_is_recommended() -> None:
    choice = recommended({threads(1, 1): rates(50), threads(2, 2): rates(20), threads(4, 4): rates(60)})
    assert choice.setting == threads(2, 2)
    assert choice.costs[threads(2, 2)] == 1
    assert choice.costs[threads(4, 4)] == pytest.approx(3**0.5)
    assert "--limit-render 2 --limit-derender 2" in choice.reason


def test_of_those_as_good_the_smallest_is_recommended() -> None:
    found = {threads(16, 16): rates(20), threads(2, 1): rates(21), threads(1, 1): rates(40)}
    assert recommended(found).setting == threads(2, 1)


def test_what_differs_from_round_to_round_is_no_reason_for_larger_limits() -> None:
    small, large = threads(1, 1), threads(8, 8)
    results = {small: rates(26), large: rates(20)}
    steady = [{small: rates(26), large: rates(20)}, {small: rates(27), large: rates(21)}]
    assert recommended(results, steady).setting == large
    # The same machine slower for a whole round: that is no difference between settings.
    slower = [steady[0], {small: rates(52, probe=10), large: rates(40, probe=10)}]
    assert recommended(results, slower).setting == large
    noisy = [{small: rates(18), large: rates(30)}, {small: rates(34), large: rates(14)}]
    choice = recommended(results, noisy)
    assert choice.setting == small
    assert "one of 2 settings" in choice.reason


def test_who_answers_less_is_not_recommended() -> None:
    found = {threads(1, 1): rates(5, answered=90), threads(2, 2): rates(20)}
    assert recommended(found).setting == threads(2, 2)


def test_a_figure_of_zero_is_no_fault() -> None:
    assert recommended({threads(1, 1): rates(0, probe=0), threads(2, 2): rates(1)}).setting == threads(1, 1)


def test_a_mix_is_the_same_for_every_server() -> None:
    mix = Mix(rate=1, seconds=2, vocab_size=1000)
    sent = schedule(mix)
    assert sent == schedule(mix)
    assert [one.due_s for one in sent] == sorted(one.due_s for one in sent)
    assert all(0 < one.due_s < 2 for one in sent)
    short = [one.request for one in sent if one.kind == "chat short"]
    assert len(short) == len(set(short)) > 50


def test_a_mix_has_tensors_where_asked_for() -> None:
    assert "prompt embeds" not in Mix(1, 1, 1000).kinds
    kinds = {one.kind for one in schedule(Mix(4, 2, 1000, hidden=8))}
    assert "prompt embeds" in kinds


def test_every_benchmark_has_the_common_options() -> None:
    from bench.__main__ import main

    for name, command in main.commands.items():
        options = {option for parameter in command.params for option in parameter.opts}
        wanted = {"--quick", "--model"} | ({"--out"} if name == "all" else {"--json", "--plot"})
        assert wanted <= options


@pytest.mark.parametrize("arguments", [["probe", "--tokens", "1,x"], ["limiter", "--limits", ""]])
def test_a_list_that_is_none_is_a_usage_error(arguments: list[str]) -> None:
    from bench.__main__ import main

    with pytest.raises(click.UsageError, match="is not a list of numbers"):
        main.main(arguments, standalone_mode=False)
