"""Which limits are best here? A mixed load, sent open loop at several rates, for each setting of limits.

Chats short and long, batches of prompts, heavy derenders and one stream (and prompt embeddings, if asked for)
come at random times, whatever the server does. It ends with a recommendation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from trio_render import open_workspace

from .http_client import Connection, request_bytes
from .limits import Choice, Setting, recommended, settings_to_compare
from .mix import EMBEDS, Mix
from .models import model_directory, wide_model
from .open_loop import Seen, send_mix
from .pictures import heat_maps
from .prober import probing
from .report import Output, median, percentile, print_table
from .servers import served

__all__ = ["Plan", "run"]

_HIDDEN = 4096
_WARM_SHARE = 0.2
_WAIT = re.compile(r'trio_render_wait_seconds_(sum|count)\{kind="(\w+)"\} (\S+)')


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure: rates as multiples of the mix, the settings' parts, and for how long."""

    rates: list[float]
    offloads: list[str]
    limits: list[int]
    gils: list[int]
    processes: int
    seconds: float
    runs: int
    embeds: bool
    limits_out: Path | None


def run(plan: Plan, model: Path | None, output: Output) -> None:
    """Measure, print, and write."""
    settings = list(settings_to_compare(plan.offloads, plan.limits, plan.gils, plan.processes))
    rounds: list[dict[Setting, list[dict[str, Any]]]] = []
    length = len(settings) * len(plan.rates) * plan.runs
    with ExitStack() as stack:
        folder = stack.enter_context(model_directory(model))
        if plan.embeds:
            folder = stack.enter_context(wide_model(folder, _HIDDEN, 1 << 15))
        vocab = open_workspace(folder).model.vocab_size
        mixes = [Mix(rate, plan.seconds, vocab, _HIDDEN if plan.embeds else None) for rate in plan.rates]
        bar = stack.enter_context(click.progressbar(length=length, label="limiter"))
        extra = ("--engine", "none", *(("--enable-prompt-embeds",) if plan.embeds else ()))
        # Round by round: what else the machine does meanwhile comes over all settings, not over one.
        for _ in range(plan.runs):
            rounds.append({})
            for setting in settings:
                with served(setting.offload, folder, (*setting.options, *extra)) as url:
                    rounds[-1][setting] = []
                    for mix in mixes:
                        rounds[-1][setting].append(_measure(url, mix))
                        bar.update(1)
    results = {
        setting: [_medians(mix, [one[setting][n] for one in rounds]) for n, mix in enumerate(mixes)]
        for setting in settings
    }
    choice = recommended(results, rounds)
    _print(plan, results, choice)
    if plan.limits_out is not None:
        plan.limits_out.write_text(json.dumps(choice.setting.limits, indent=1) + "\n")
        print(f"For serve --limits-from: {plan.limits_out}")
    rows = [{"setting": s.limits, "cost": choice.costs[s], "rates": rates} for s, rates in results.items()]
    figures = {"results": rows, "recommendation": choice.setting.limits, "reason": choice.reason}
    output.finish("limiter", asdict(plan), figures, lambda file: _draw(file, choice))


def _measure(url: str, mix: Mix) -> dict[str, Any]:
    before = _waits(url)
    with probing(url) as probes:
        seen = send_mix(url, mix)
    warm = mix.seconds * _WARM_SHARE
    counted = [one for one in seen if one.due_s >= warm]
    figures: dict[str, Any] = {
        "offered": len(counted),
        "answered": sum(map(_is_answered, counted)),
        "refused": sum(one.status == 503 for one in counted),
        "per_s": sum(map(_is_answered, counted)) / (mix.seconds - warm),
        "probe_p99_ms": percentile(probes, 0.99) * 1000,
        "queue_wait_ms": _mean_wait_ms(before, _waits(url)),
    }
    for name, fraction in (("p50_ms", 0.5), ("p99_ms", 0.99)):
        figures[name] = {kind: _latency_ms(counted, kind, fraction) for kind in mix.kinds}
    return figures


def _is_answered(one: Seen) -> bool:
    """A tensor is read and then refused, there being no engine."""
    return one.status == (400 if one.kind == EMBEDS else 200)


def _latency_ms(seen: Sequence[Seen], kind: str, fraction: float) -> float:
    latencies = [one.latency_s for one in seen if one.kind == kind and one.status != 503]
    return percentile(latencies, fraction) * 1000 if latencies else 0.0


def _waits(url: str) -> dict[str, dict[str, float]]:
    """Return by kind of work how many jobs have waited, and for how long in all."""
    with Connection(url) as connection:
        _, text = connection.exchange(request_bytes("GET", "/metrics"))
    waits: dict[str, dict[str, float]] = {}
    for what, kind, value in _WAIT.findall(text.decode()):
        waits.setdefault(kind, {})[what] = float(value)
    return waits


def _mean_wait_ms(
    before: dict[str, dict[str, float]], after: dict[str, dict[str, float]]
) -> dict[str, float]:
    means = {}
    for kind, now in after.items():
        then = before.get(kind, {"sum": 0.0, "count": 0.0})
        count = now["count"] - then["count"]
        if count:
            means[kind] = (now["sum"] - then["sum"]) / count * 1000
    return means


def _medians(mix: Mix, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of runs, figure by figure."""

    def of(values: list[Any]) -> Any:
        if isinstance(values[0], dict):
            keys = set.intersection(*(set(value) for value in values))
            return {key: of([value[key] for value in values]) for key in values[0] if key in keys}
        return median(values)

    return {"rate": mix.rate, **of(runs)}


def _print(plan: Plan, results: dict[Setting, list[dict[str, Any]]], choice: Choice) -> None:
    first = next(iter(results.values()))[0]
    kinds = list(first["p99_ms"])
    rows = [
        [
            setting.name,
            f"{one['rate']:g}",
            f"{one['per_s']:.0f}",
            *(f"{one['p50_ms'][kind]:.0f}/{one['p99_ms'][kind]:.0f}" for kind in kinds),
            f"{one['probe_p99_ms']:.1f}",
            " ".join(f"{wait:.1f}" for wait in one["queue_wait_ms"].values()),
            f"{one['refused']:.0f}",
            f"{choice.costs[setting]:.2f}",
        ]
        for setting, rates in results.items()
        for one in rates
    ]
    waits = " ".join(first["queue_wait_ms"])
    title = f"limiter: open loop, p50/p99 in ms from when a request was due; medians of {plan.runs}"
    columns = ["setting", "rate", "answered/s", *kinds, "probe p99", f"mean wait ms ({waits})", "503", "cost"]
    print_table(title, columns, rows)
    print(f"\n{choice.reason}")


def _draw(file: Path, choice: Choice) -> None:
    panels: dict[str, dict[tuple[int, int], float]] = {}
    for setting, cost in choice.costs.items():
        if setting.shared is None:
            title = (
                setting.offload if setting.offload == "process" else f"{setting.offload}, gil {setting.gil}"
            )
            panels.setdefault(title, {})[setting.derender, setting.render] = cost
    heat_maps(file, panels, "derender limit", "render limit", "p99s as multiples of the best (1: best)")
