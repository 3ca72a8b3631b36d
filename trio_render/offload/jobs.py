"""What can be offloaded: a plain function with what the offloader has to know of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .limits import Kind

__all__ = ["Body", "Checkpoint", "Job"]

R = TypeVar("R")

Checkpoint = Callable[[], None]
"""Called by a job at least once per millisecond of work. Raises when the job's caller has gone."""

Body = Sequence[bytes | memoryview]
"""A request's body in pieces, as they arrived."""


@dataclass(frozen=True, slots=True)
class Job(Generic[R]):
    """A function ``(workspace, checkpoint, body, *args) -> R`` of a module, so that a process finds it too.

    Attributes:
        kind: whose limiter it runs under.
        keeps_gil: it is mostly Python, JSON or templates, so it takes a token of the ``gil`` limiter.
        inline_below: bodies smaller than this many bytes cost less than a hop to a thread; see
            ``python -m bench hops``.
        stays: its result is much larger than worth sending between processes, so that the ``process``
            backend runs it in a thread.
    """

    function: Callable[..., R]
    kind: Kind
    keeps_gil: bool = True
    inline_below: int = 0
    stays: bool = False

    def __call__(self, workspace: Any, checkpoint: Checkpoint, body: Body, *args: Any) -> R:
        return self.function(workspace, checkpoint, body, *args)
