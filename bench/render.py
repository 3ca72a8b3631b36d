"""Renders a second, beside an empty handler that is sent the same requests in the same run.

The handler reads each body and answers with nothing: what is left to win is the rest of its rate.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from .bodies import chat_bodies, completion_bodies, conversation_bodies, source_bodies
from .load import Load, Rate, measure
from .models import model_directory
from .pictures import bars
from .report import Output, median, print_table
from .reuse import NO_REUSE, encode_costs
from .servers import served

__all__ = ["Plan", "run"]

_CHAT = "/v1/chat/completions/render"
_COMPLETION = "/v1/completions/render"
_TURNS = 100
_CONTEXT = ("--max-model-len", "131072")
"""A hundred turns have 18,000 words, and a word may have several tokens."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    clients: int
    workers: int
    offload: str
    seconds: float
    runs: int
    url: str | None = None


def run(plan: Plan, model: Path | None, output: Output) -> None:
    """Measure, print, and write."""
    loads = _loads(plan)
    results: list[dict[str, Any]] = []
    with model_directory(model) as folder:
        with ExitStack() as servers:
            options = ("--workers", str(plan.workers), "--engine", "none", *_CONTEXT)
            ours = plan.url or servers.enter_context(served(plan.offload, folder, options))
            empty = servers.enter_context(served("empty", folder))
            bar = servers.enter_context(click.progressbar(length=len(loads) * plan.runs * 2, label="render"))
            for name, load in loads.items():
                pairs = []
                for _ in range(plan.runs):
                    floor = measure(
                        empty, Load("/empty", load.bodies, load.clients, repeats=True), plan.seconds
                    )
                    bar.update(1)
                    pairs.append((measure(ours, load, plan.seconds), floor))
                    bar.update(1)
                results.append({"work": name, **_summary(pairs)})
        costs = encode_costs(folder, _TURNS, repeats=7 if plan.runs > 1 else 3)
    _print(results, costs, plan)
    rates = {r["work"]: r["per_s"] for r in results}
    shares = {r["work"]: r["share"] for r in results}
    panels = {"requests per second": rates, "share of an empty handler": shares}
    figures = {"results": results, "encode_turn_100": costs}
    output.finish("render", asdict(plan), figures, lambda file: bars(file, panels, ""))


def _loads(plan: Plan) -> dict[str, Load]:
    """Return enough requests for the time: more than a server on a core answers in it."""

    def enough(per_s: int) -> int:
        return max(int(per_s * plan.seconds * plan.workers / plan.clients), 20)

    return {
        "chat, 60 words": Load(_CHAT, partial(chat_bodies, n_words=60, count=enough(6000)), plan.clients),
        "chat, 4,000 words": Load(
            _CHAT, partial(chat_bodies, n_words=4000, count=enough(1200)), plan.clients
        ),
        "chat, 24,000 characters of source": Load(
            _CHAT, partial(source_bodies, chars=24_000, count=enough(1000)), plan.clients
        ),
        "completion, 64 prompts x 200 words": Load(
            _COMPLETION,
            partial(completion_bodies, n_prompts=64, n_words=200, count=enough(300)),
            plan.clients,
        ),
        f"conversation of {_TURNS} turns": Load(
            _CHAT,
            partial(conversation_bodies, conversations=-(-enough(800) // _TURNS), n_turns=_TURNS),
            plan.clients,
        ),
    }


def _summary(pairs: list[tuple[Rate, Rate]]) -> dict[str, float]:
    return {
        "per_s": median([ours.per_s for ours, _ in pairs]),
        "p50_ms": median([ours.p50_ms for ours, _ in pairs]),
        "p99_ms": median([ours.p99_ms for ours, _ in pairs]),
        "empty_per_s": median([floor.per_s for _, floor in pairs]),
        "share": median([ours.per_s / floor.per_s for ours, floor in pairs]),
    }


def _print(results: list[dict[str, Any]], costs: list[dict[str, Any]], plan: Plan) -> None:
    print_table(
        f"render: {plan.clients} clients, {plan.workers} server process(es), medians of {plan.runs} x"
        f" {plan.seconds:g} s",
        ["work", "per second", "p50 ms", "p99 ms", "empty handler", "of empty"],
        [
            [
                r["work"],
                f"{r['per_s']:.0f}",
                f"{r['p50_ms']:.2f}",
                f"{r['p99_ms']:.2f}",
                f"{r['empty_per_s']:.0f}",
                f"{r['share']:.2f}",
            ]
            for r in results
        ],
    )
    whole = {c["words"]: c["us"] for c in costs if c["way"] == NO_REUSE}
    print_table(
        f"encoding turn {_TURNS} of a conversation, without a server",
        ["words", "what has been seen", "tokens", "microseconds", "times cheaper"],
        [
            [
                c["words"],
                c["way"],
                f"{c['tokens']:.0f}",
                f"{c['us']:.0f}",
                f"{whole[c['words']] / c['us']:.1f}",
            ]
            for c in costs
        ],
    )
