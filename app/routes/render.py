"""``/v1/chat/completions/render`` and ``/v1/completions/render``."""

from __future__ import annotations

from ..answering import Work
from ..services import Services

__all__ = ["works"]


def works(services: Services) -> dict[str, Work]:
    """Return what makes an answer of a body, by path."""
    return {
        "/v1/chat/completions/render": services.renderer.chat_json,
        "/v1/completions/render": services.renderer.completion_json,
    }
