"""How much runs at a time: one limiter per kind of work, and a tighter one for work that keeps the GIL."""

from __future__ import annotations

from typing import Literal, final, get_args

from anyio import CapacityLimiter

from .stats import LimiterStatistics

__all__ = ["KINDS", "Kind", "Limits", "limiter_statistics"]

Kind = Literal["render", "derender", "prompt_embeds", "engine"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@final
class Limits:
    """The limiters of one offloader. A job takes its kind's token first, then ``gil``'s: never two of one.

    Args:
        render, derender, prompt_embeds, engine: a number, or a limiter of yours that others may share.
        shared: one number or limiter for all four kinds, instead of theirs.
        gil: jobs at a time that keep the GIL (templates, JSON, Python loops). A second one gains no
            throughput and costs the event loop dearly; more than one is for comparison.
    """

    def __init__(
        self,
        *,
        render: CapacityLimiter | int = 2,
        derender: CapacityLimiter | int = 2,
        prompt_embeds: CapacityLimiter | int = 2,
        engine: CapacityLimiter | int = 1,
        shared: CapacityLimiter | int | None = None,
        gil: CapacityLimiter | int = 1,
    ) -> None:
        given: dict[Kind, CapacityLimiter | int] = {
            "render": render,
            "derender": derender,
            "prompt_embeds": prompt_embeds,
            "engine": engine,
        }
        one = None if shared is None else _limiter(shared)
        self._by_kind = {kind: one or _limiter(limit) for kind, limit in given.items()}
        self.gil = _limiter(gil)

    def of(self, kind: Kind) -> CapacityLimiter:
        """Return the limiter of a kind of work."""
        return self._by_kind[kind]

    def set_limit(self, name: Kind | Literal["gil"], total: int) -> None:
        """Change a limit while running. Raised: waiting jobs start. Lowered: as running ones end.

        Raises:
            ValueError: no such limiter, or a limit below 1.
        """
        if total < 1:
            raise ValueError(f"a limit must be at least 1, not {total}")
        if name != "gil" and name not in self._by_kind:
            raise ValueError(f"no limiter {name!r}; there are {', '.join((*KINDS, 'gil'))}")
        limiter = self.gil if name == "gil" else self._by_kind[name]
        limiter.total_tokens = total


def _limiter(given: CapacityLimiter | int) -> CapacityLimiter:
    if isinstance(given, CapacityLimiter):
        return given
    if given < 1:
        raise ValueError(f"a limit must be at least 1, not {given}")
    return CapacityLimiter(given)


def limiter_statistics(limiter: CapacityLimiter) -> LimiterStatistics:
    """Return a limiter as it is now."""
    now = limiter.statistics()
    return LimiterStatistics(now.total_tokens, now.borrowed_tokens, now.tasks_waiting)
