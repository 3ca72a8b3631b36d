"""The server: a Quart-Trio app over `trio_render`, served by hypercorn's trio worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quart_trio import QuartTrio

    from .services import Services

__all__ = ["create_app"]


def create_app(services: Services | None = None) -> QuartTrio:
    """Return the app.

    Its ``asgi_app`` answers most requests before Quart, whose hooks don't see them: see `app.early`.

    Args:
        services: open services that outlive the app, as `app.serving.serve` hands them over. ``None``: the
            app opens its own in its lifespan, with settings from the environment (``TRIO_RENDER_MODEL``
            and so on), for ``hypercorn -k trio 'app:create_app()'``.

    Raises:
        SettingsError: without ``services``, a setting in the environment is missing or out of range.
    """
    # Quart takes a third of a second to import, which --help need not wait for, and a start overlaps.
    from .application import build_app

    return build_app(services)
