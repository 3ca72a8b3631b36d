"""Pictures of figures, with matplotlib (the extra ``bench``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

__all__ = ["bars", "check_can_draw", "heat_maps", "lines"]

_INCHES = (6.0, 4.2)
_DPI = 110


def check_can_draw() -> None:
    """Raise a usage error where matplotlib is missing: before measuring, not after."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise click.UsageError("--plot needs matplotlib: pip install 'trio-render[bench]'") from None


def lines(
    file: Path,
    panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]],
    x_label: str,
    y_label: str,
) -> None:
    """Draw panels side by side, each with a line per name: its xs and ys. The y axis is logarithmic."""
    from matplotlib.ticker import LogLocator, ScalarFormatter

    figure, axes = _panels(len(panels))
    for axis, (title, series) in zip(axes, panels.items(), strict=True):
        for name, (xs, ys) in series.items():
            axis.plot(xs, ys, marker="o", label=name)
        axis.set(title=title, xlabel=x_label, ylabel=y_label, yscale="log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(ScalarFormatter())
        axis.yaxis.set_minor_locator(LogLocator(subs="all"))
        axis.yaxis.set_minor_formatter("")
        axis.grid(visible=True, which="both", alpha=0.3)
        axis.legend()
    _save(figure, file)


def bars(file: Path, panels: Mapping[str, Mapping[str, float]], unit: str) -> None:
    """Draw panels side by side, each with a bar per name."""
    figure, axes = _panels(len(panels))
    for axis, (title, values) in zip(axes, panels.items(), strict=True):
        drawn = axis.barh(list(values), list(values.values()))
        axis.bar_label(drawn, [f"{v:,.0f}" if v >= 100 else f"{v:.3g}" for v in values.values()], padding=3)
        axis.set(title=title, xlabel=unit)
        axis.invert_yaxis()
        # Room for the numbers behind the bars.
        axis.set_xlim(0, max(values.values(), default=1) * 1.25 or 1)
    _save(figure, file)


def heat_maps(
    file: Path,
    panels: Mapping[str, Mapping[tuple[int, int], float]],
    x_label: str,
    y_label: str,
    meaning: str,
) -> None:
    """Draw panels side by side, each with a value per (x, y); smaller is better."""
    figure, axes = _panels(len(panels))
    low = min(value for cells in panels.values() for value in cells.values())
    high = max(value for cells in panels.values() for value in cells.values())
    image = None
    for axis, (title, cells) in zip(axes, panels.items(), strict=True):
        xs, ys = sorted({x for x, _ in cells}), sorted({y for _, y in cells})
        grid = [[cells.get((x, y), float("nan")) for x in xs] for y in ys]
        image = axis.imshow(grid, origin="lower", cmap="viridis_r", vmin=low, vmax=high, aspect="auto")
        for (x, y), value in cells.items():
            dark = value > (low + high) / 2
            place = {"ha": "center", "va": "center", "color": "white" if dark else "black"}
            axis.text(xs.index(x), ys.index(y), f"{value:.2f}", **place)
        axis.set(title=title, xlabel=x_label, ylabel=y_label)
        axis.set_xticks(range(len(xs)), map(str, xs))
        axis.set_yticks(range(len(ys)), map(str, ys))
    figure.colorbar(image, ax=axes, label=meaning)
    _save(figure, file)


def _panels(count: int) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    # A figure of its own, without pyplot: no display, nothing global.
    figure = Figure(figsize=(_INCHES[0] * count, _INCHES[1]), layout="constrained", dpi=_DPI)
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def _save(figure: Any, file: Path) -> None:
    figure.savefig(file)
