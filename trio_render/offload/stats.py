"""What the offloader has done: counters and histograms, handed out as frozen snapshots.

Everything is written by the event loop's thread alone, so there is no lock.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

__all__ = [
    "BUCKETS_S",
    "Histogram",
    "HistogramSnapshot",
    "KindStatistics",
    "LimiterStatistics",
    "WorkCounters",
]

BUCKETS_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Upper bounds of the histograms' buckets in seconds; one more bucket takes the rest."""


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """``counts[n]`` durations were at most ``BUCKETS_S[n]`` and above the bound before it; the last, any."""

    counts: tuple[int, ...]
    sum_s: float

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)


class Histogram:
    """Counts durations."""

    __slots__ = ("_counts", "_sum_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self._sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(BUCKETS_S, seconds)] += 1
        self._sum_s += seconds

    def snapshot(self) -> HistogramSnapshot:
        """Return the counts as they are now."""
        return HistogramSnapshot(tuple(self._counts), self._sum_s)


@dataclass(frozen=True, slots=True)
class LimiterStatistics:
    """A limiter as it is now."""

    limit: float
    borrowed: int
    waiting: int


@dataclass(frozen=True, slots=True)
class KindStatistics:
    """One kind of work: its limiter now, and what has happened since the start.

    Attributes:
        ran: jobs that ended by themselves, with a result or an error.
        inline: of these, how many ran on the event loop because a hop would have cost more.
        cancelled: jobs whose caller went, while they waited or while they ran.
        refused: jobs that met a full queue.
        wait, run: durations in seconds, of jobs that ran.
    """

    limiter: LimiterStatistics
    ran: int
    inline: int
    cancelled: int
    refused: int
    wait: HistogramSnapshot
    run: HistogramSnapshot


@dataclass(slots=True)
class WorkCounters:
    """The counters behind `KindStatistics`."""

    ran: int = 0
    inline: int = 0
    cancelled: int = 0
    refused: int = 0
    wait: Histogram = field(default_factory=Histogram)
    run: Histogram = field(default_factory=Histogram)

    def snapshot(self, limiter: LimiterStatistics) -> KindStatistics:
        """Return the counters as they are now."""
        return KindStatistics(
            limiter=limiter,
            ran=self.ran,
            inline=self.inline,
            cancelled=self.cancelled,
            refused=self.refused,
            wait=self.wait.snapshot(),
            run=self.run.snapshot(),
        )

    def mean_run_s(self, default: float) -> float:
        """Return how long a job has taken on average."""
        snapshot = self.run.snapshot()
        return snapshot.sum_s / snapshot.count if snapshot.count else default
