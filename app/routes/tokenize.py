"""``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

from ..answering import Work
from ..services import Services

__all__ = ["works"]


def works(services: Services) -> dict[str, Work]:
    """Return what makes an answer of a body, by path."""
    return {
        "/tokenize": lambda body, _: services.renderer.tokenize_json(body),
        "/detokenize": lambda body, _: services.derenderer.detokenize_json(body),
    }
