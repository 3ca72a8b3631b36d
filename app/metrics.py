"""``/metrics``: the offloader's statistics and the requests, in Prometheus' text format.

Figures are of this server process. Nothing is global: each app has its own registry.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import accumulate

import trio
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from trio_render import HistogramSnapshot, LimiterStatistics, OffloaderStatistics
from trio_render.model.tokenizer import SegmentCacheStatistics
from trio_render.offload.background import background_tasks
from trio_render.offload.stats import BUCKETS_S, Histogram

__all__ = ["CONTENT_TYPE", "Metrics", "watched_loop"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TICK_S = 0.1


class Metrics:
    """Counts requests, and formats everything on demand.

    Args:
        statistics: returns the offloader's snapshot.
        segment_cache: returns that of this process' cache of encoded segments, or ``None``.
    """

    def __init__(
        self,
        statistics: Callable[[], OffloaderStatistics],
        segment_cache: Callable[[], SegmentCacheStatistics | None] = lambda: None,
    ) -> None:
        self._statistics = statistics
        self._segment_cache = segment_cache
        self._requests: dict[tuple[str, int], int] = {}
        self.loop_lag = Histogram()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def count_request(self, route: str, status: int) -> None:
        """Count one answered request. ``route`` is a rule, never a path that a client made up."""
        key = (route, status)
        self._requests[key] = self._requests.get(key, 0) + 1

    def text(self) -> bytes:
        """Return the exposition."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics; called by the registry."""
        requests = CounterMetricFamily(
            "trio_render_requests", "Requests answered.", labels=["route", "status"]
        )
        for (route, status), count in sorted(self._requests.items()):
            requests.add_metric([route, str(status)], count)
        yield requests
        lag = HistogramMetricFamily(
            "trio_render_loop_lag_seconds", "How late the event loop came round, sampled ten times a second."
        )
        _add_histogram(lag, [], self.loop_lag.snapshot())
        yield lag
        now = self._statistics()
        yield from _offloader_metrics(now)
        cache = self._segment_cache()
        # Worker processes encode with caches of their own, which nobody sees from here.
        if cache is not None and now.processes is None:
            yield from _segment_metrics(cache)


def _offloader_metrics(now: OffloaderStatistics) -> Iterable[Metric]:
    limits = GaugeMetricFamily("trio_render_limit", "Jobs that may run at a time.", labels=["limiter"])
    borrowed = GaugeMetricFamily("trio_render_running", "Jobs that hold a token.", labels=["limiter"])
    waiting = GaugeMetricFamily("trio_render_waiting", "Jobs that wait for a token.", labels=["limiter"])
    jobs = CounterMetricFamily("trio_render_jobs", "Jobs by what became of them.", labels=["kind", "outcome"])
    wait = HistogramMetricFamily("trio_render_wait_seconds", "Time in the queue.", labels=["kind"])
    run = HistogramMetricFamily("trio_render_run_seconds", "Time at work.", labels=["kind"])

    def add_limiter(name: str, limiter: LimiterStatistics) -> None:
        limits.add_metric([name], limiter.limit)
        borrowed.add_metric([name], limiter.borrowed)
        waiting.add_metric([name], limiter.waiting)

    for kind, statistics in now.kinds.items():
        add_limiter(kind, statistics.limiter)
        for outcome in ("ran", "inline", "cancelled", "refused"):
            jobs.add_metric([kind, outcome], getattr(statistics, outcome))
        _add_histogram(wait, [kind], statistics.wait)
        _add_histogram(run, [kind], statistics.run)
    if now.processes is None:
        add_limiter("gil", now.gil)
    else:
        add_limiter("process", now.processes.limiter)
    yield from (limits, borrowed, waiting, jobs, wait, run)
    if now.processes is not None:
        processes = GaugeMetricFamily("trio_render_processes", "Worker processes.", labels=["state"])
        processes.add_metric(["idle"], now.processes.idle)
        processes.add_metric(["busy"], now.processes.total - now.processes.idle)
        lost = CounterMetricFamily("trio_render_processes_lost", "Worker processes lost.", labels=["how"])
        lost.add_metric(["killed"], now.processes.killed)
        lost.add_metric(["died"], now.processes.died)
        yield from (processes, lost)


def _segment_metrics(cache: SegmentCacheStatistics) -> Iterable[Metric]:
    segments = CounterMetricFamily(
        "trio_render_segments", "Segments of prompts that were looked up.", labels=["outcome"]
    )
    seen = CounterMetricFamily("trio_render_segment_bytes", "Their text in bytes.", labels=["outcome"])
    for outcome, count, size in (
        ("hit", cache.hits, cache.hit_bytes),
        ("miss", cache.misses, cache.miss_bytes),
    ):
        segments.add_metric([outcome], count)
        seen.add_metric([outcome], size)
    held = GaugeMetricFamily("trio_render_segment_cache_bytes", "What the segment cache holds.")
    held.add_metric([], cache.bytes)
    yield from (segments, seen, held)


def _add_histogram(family: HistogramMetricFamily, labels: list[str], snapshot: HistogramSnapshot) -> None:
    bounds = [*map(str, BUCKETS_S), "+Inf"]
    counts = accumulate(snapshot.counts)
    family.add_metric(labels, list(zip(bounds, counts, strict=True)), snapshot.sum_s)


@asynccontextmanager
async def watched_loop(metrics: Metrics) -> AsyncIterator[None]:
    """Sample how late the event loop is, for the length of the block."""

    async def tick() -> None:
        while True:
            due = trio.current_time() + _TICK_S
            await trio.sleep_until(due)
            metrics.loop_lag.observe(trio.current_time() - due)

    async with background_tasks() as group:
        group.start_soon(tick)
        yield
