"""Ids of requests, in the form ``chatcmpl-…`` / ``cmpl-…-0``."""

from __future__ import annotations

import uuid

__all__ = ["request_id"]


def request_id(prefix: str, base: str | None) -> str:
    """Return ``prefix-base``, with a random base where none is given."""
    return f"{prefix}-{base or uuid.uuid4().hex}"
