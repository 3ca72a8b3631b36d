"""``python -m app`` is ``trio-render``."""

from __future__ import annotations

from .cli import main

if __name__ == "__main__":
    main(prog_name="trio-render")
