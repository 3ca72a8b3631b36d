"""Settings of limits to compare, and which of them to recommend."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean
from typing import Any

__all__ = ["Choice", "Setting", "recommended", "settings_to_compare"]

_Results = Mapping["Setting", Sequence[Mapping[str, Any]]]

_NEAR = 1.1
_ANSWERED = 0.99
_SHORTEST_MS = 0.1


@dataclass(frozen=True, slots=True)
class Setting:
    """Limits and where work runs: one for all kinds, or ``render`` and ``derender``."""

    offload: str
    gil: int
    processes: int
    render: int = 0
    derender: int = 0
    shared: int | None = None

    @property
    def limits(self) -> dict[str, Any]:
        """What `serve --limits-from` takes."""
        place: dict[str, Any] = {"offload": self.offload}
        place |= {"processes": self.processes} if self.offload == "process" else {"limit_gil": self.gil}
        if self.shared is not None:
            return {**place, "limit_shared": self.shared}
        kinds = {"limit_render": self.render, "limit_derender": self.derender}
        return {**place, **kinds, "limit_prompt_embeds": self.derender}

    @property
    def options(self) -> tuple[str, ...]:
        """Options of `serve`."""
        pairs = ((f"--{key.replace('_', '-')}", str(value)) for key, value in self.limits.items())
        return tuple(part for pair in pairs for part in pair)

    @property
    def name(self) -> str:
        """For a table."""
        beside = f", gil {self.gil}" if self.offload != "process" and self.gil != 1 else ""
        if self.shared is not None:
            return f"{self.offload}, shared {self.shared}{beside}"
        return f"{self.offload}, render {self.render}, derender {self.derender}{beside}"

    @property
    def size(self) -> int:
        """How much may run at a time."""
        return self.shared if self.shared is not None else self.render + self.derender


@dataclass(frozen=True, slots=True)
class Choice:
    """A recommendation, and what it costs compared with the best of each figure."""

    setting: Setting
    reason: str
    costs: dict[Setting, float]


def settings_to_compare(
    offloads: Sequence[str], limits: Sequence[int], gils: Sequence[int], processes: int
) -> Iterator[Setting]:
    """Yield every pair of limits per kind, and every shared limit; a GIL limit matters in threads only."""
    for offload in offloads:
        for gil in gils if offload != "process" else (1,):
            for render in limits:
                for derender in limits:
                    yield Setting(offload, gil, processes, render=render, derender=derender)
            for shared in limits:
                yield Setting(offload, gil, processes, shared=shared)


def recommended(results: _Results, rounds: Sequence[_Results] = ()) -> Choice:
    """Return the setting with the smallest limits among those that can't be told from the best.

    Args:
        results: per setting and rate ``p99_ms`` by kind, ``probe_p99_ms``, and ``answered`` of ``offered``.
        rounds: what ``results`` are the medians of. How much these differ says what can be told apart.

    A setting's cost is how many times the best setting's each of its p99s is, as a geometric mean over kinds,
    the probe, and rates. One that answers less than others do is out.
    """
    shares = {
        setting: [one["answered"] / one["offered"] for one in rates] for setting, rates in results.items()
    }
    most = [max(column) for column in zip(*shares.values(), strict=True)]
    able = [
        setting
        for setting, own in shares.items()
        if all(share >= _ANSWERED * best for share, best in zip(own, most, strict=True))
    ] or list(results)
    latencies = [_latencies(results[setting]) for setting in able]
    best = {key: min(one[key] for one in latencies) for key in latencies[0]}
    costs = _costs(results, best)
    near = max(_NEAR, _told_apart([_costs(one, best) for one in rounds]))
    lowest = min(costs[setting] for setting in able)
    alike = [setting for setting in able if costs[setting] <= near * lowest]
    chosen = min(alike, key=lambda setting: (setting.size, setting.gil, costs[setting]))
    return Choice(chosen, _reason(chosen, costs, alike, near, results[chosen][-1]), costs)


def _costs(results: _Results, best: Mapping[tuple[int, str], float]) -> dict[Setting, float]:
    return {
        setting: geometric_mean([value / best[key] for key, value in _latencies(rates).items()])
        for setting, rates in results.items()
    }


def _told_apart(rounds: Sequence[Mapping[Setting, float]]) -> float:
    """Return how many times another's cost must be for that to be no chance: two standard errors; 1: unknown.

    What a whole round has in common is not counted: it was the machine's.
    """
    if len(rounds) < 2:
        return 1.0
    logs = [{setting: math.log(cost) for setting, cost in one.items()} for one in rounds]
    of_round = [fmean(one.values()) for one in logs]
    of_setting = {setting: fmean(one[setting] for one in logs) for setting in logs[0]}
    overall = fmean(of_round)
    squares = [
        (one[setting] - common - own + overall) ** 2
        for one, common in zip(logs, of_round, strict=True)
        for setting, own in of_setting.items()
    ]
    variance = sum(squares) / max((len(rounds) - 1) * (len(of_setting) - 1), 1)
    return math.exp(2 * math.sqrt(2 * variance / len(rounds)))


def _reason(
    chosen: Setting,
    costs: Mapping[Setting, float],
    alike: Sequence[Setting],
    near: float,
    last: Mapping[str, Any],
) -> str:
    figures = ", ".join(f"{kind} {value:.0f} ms" for kind, value in last["p99_ms"].items())
    beside = f"one of {len(alike)} settings" if len(alike) > 1 else "the one setting"
    return (
        f"On this machine: {' '.join(chosen.options)}. It is {beside} with p99s within {near - 1:.0%} of the"
        f" best, which is what can be told apart here, and has the smallest limits of these. Its p99s are"
        f" {costs[chosen]:.2f} times the best seen of each, the worst setting's {max(costs.values()):.2f}; at"
        f" the highest rate {figures}, and the probe's {last['probe_p99_ms']:.1f} ms."
    )


def _latencies(rates: Sequence[Mapping[str, Any]]) -> dict[tuple[int, str], float]:
    """Return all that a setting is judged by; nothing is faster than can be told apart."""
    found = {(n, "probe"): one["probe_p99_ms"] for n, one in enumerate(rates)}
    found |= {(n, kind): value for n, one in enumerate(rates) for kind, value in one["p99_ms"].items()}
    return {key: max(value, _SHORTEST_MS) for key, value in found.items()}
