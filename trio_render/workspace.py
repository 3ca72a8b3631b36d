"""What a job works with: a model, what the operator allows, and the caches that belong to them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .errors import ModelLoadError
from .model.fragments import FragmentCache
from .model.loading import Model, open_model
from .model.tokenizer import SEGMENT_CACHE_BYTES
from .parsing.selection import resolve_parsers
from .policy import Policy

__all__ = ["Body", "Checkpoint", "Workspace", "open_workspace", "workspace_of"]

Body = Sequence[bytes | memoryview]
"""A request's body in pieces, as they arrived."""

Checkpoint = Callable[[], None]
"""Called by a job at least once per millisecond of work. Raises when the job's caller has gone."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Everything that rendering and derendering need. Safe to share between threads."""

    model: Model
    policy: Policy
    fragments: FragmentCache


def workspace_of(model: Model, policy: Policy | None = None) -> Workspace:
    """Return a workspace for an open model, which serves under its own name if the policy gives none.

    Raises:
        ModelLoadError: the policy names a parser that doesn't exist, or enables prompt embeddings where
            PyTorch or the model's hidden size is missing.
    """
    policy = policy or Policy()
    if policy.enable_prompt_embeds:
        _prepare_embeds(model)
    reasoning, tools = resolve_parsers(policy, model)
    if (reasoning, tools) != (policy.reasoning_parser, policy.tool_call_parser):
        policy = replace(policy, reasoning_parser=reasoning, tool_call_parser=tools)
    if not policy.served_names:
        policy = replace(policy, served_names=(model.name,))
    return Workspace(model, policy, FragmentCache(model.tokenizer.table))


def _prepare_embeds(model: Model) -> None:
    """Import PyTorch while nobody waits: it takes seconds, much of them under the GIL, and 200 MB."""
    if model.hidden_size is None:
        raise ModelLoadError("Prompt embeddings need a config.json with the model's hidden_size.")
    try:
        importlib.import_module("torch")
    except ImportError as error:
        raise ModelLoadError(f"Prompt embeddings need PyTorch: {error}.") from error


def open_workspace(
    source: str | Path,
    policy: Policy | None = None,
    max_model_len: int | None = None,
    chat_template: str | None = None,
    segment_cache_bytes: int = SEGMENT_CACHE_BYTES,
) -> Workspace:
    """Open a model and return a workspace for it; arguments as for `open_model`. Blocks.

    With its arguments bound by `functools.partial` this is what `open_offloader` takes as ``load``.

    Raises:
        ModelLoadError: see `open_model`.
    """
    model = open_model(
        source,
        max_model_len=max_model_len,
        chat_template=chat_template,
        segment_cache_bytes=segment_cache_bytes,
    )
    return workspace_of(model, policy)
