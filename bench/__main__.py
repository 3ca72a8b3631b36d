"""``python -m bench NAME``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from .pictures import check_can_draw
from .report import Output

# Benchmarks are imported where they are run: the processes that send requests import this module again.

__all__: list[str] = []

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def main() -> None:
    """Measure trio_render on this machine.

    Each benchmark prints tables and what it ran on, and can write JSON and draw a picture.
    """


def _file(ctx: click.Context, param: click.Parameter, file: Path | None) -> Path | None:
    if file is not None and param.name == "plot_file":
        check_can_draw()
    return file


def _common(function: F) -> F:
    """Add the options that all benchmarks have."""
    path = click.Path(path_type=Path, dir_okay=False)
    options = (
        click.option("--model", type=click.Path(exists=True, path_type=Path), help="A model directory."),
        click.option("--json", "json_file", type=path, help="Write the figures here."),
        click.option(
            "--plot", "plot_file", type=path, callback=_file, help="Draw a picture, PNG or SVG, here."
        ),
        click.option("--quick", is_flag=True, help="Small and short: to see it run, not to quote."),
    )
    for option in options:
        function = option(function)
    return function


_runs = click.option("--runs", default=3, show_default=True, help="Measurements of each; medians are shown.")
_clients = click.option("--clients", default=4, show_default=True, help="Clients at once.")
_url = click.option("--url", help="Measure this server instead of one of ours.")


def _seconds(default: float) -> Callable[[F], F]:
    return click.option("--seconds", default=default, show_default=True, help="Length of one measurement.")


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"{text!r} is not a list of numbers such as 1,2,4.") from None


@main.command("client")
@_clients
@_seconds(3.0)
@_runs
@_common
def client_command(
    clients: int,
    seconds: float,
    runs: int,
    quick: bool,
    model: Path | None,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """The floors: an empty handler, an echo WebSocket, and a loop that decodes, joins and encodes."""
    from . import client

    plan = client.Plan(clients, [500, 4000], 1.0 if quick else seconds, 1 if quick else runs)
    client.run(plan, model, Output(json_file, plot_file))


@main.command("probe")
@click.option("--tokens", default="500,1000,2000,4000", show_default=True, help="Tokens per derender.")
@click.option("--candidates", default="0,5,20", show_default=True, help="Logprob candidates per token.")
@click.option("--modes", default="inline,executor,thread,process,auto", show_default=True)
@_seconds(4.0)
@_runs
@_url
@_common
def probe_command(
    tokens: str,
    candidates: str,
    modes: str,
    seconds: float,
    runs: int,
    url: str | None,
    quick: bool,
    model: Path | None,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """How calm is the event loop beside a client that derenders in a loop?"""
    from . import probe

    sizes, counts = _numbers(tokens), _numbers(candidates)
    if quick:
        sizes, counts, seconds, runs = [500, 4000], [5], 1.5, 1
    plan = probe.Plan(sizes, counts, modes.split(","), seconds, runs, url)
    probe.run(plan, model, Output(json_file, plot_file))


@main.command("hops")
@click.option("--repeats", default=300, show_default=True)
@_common
def hops_command(
    repeats: int, quick: bool, model: Path | None, json_file: Path | None, plot_file: Path | None
) -> None:
    """What does one hop cost, by where it goes and how much it carries?"""
    from . import hops

    hops.run(50 if quick else repeats, model, Output(json_file, plot_file))


@main.command("render")
@_clients
@click.option("--workers", default=1, show_default=True, help="Server processes.")
@click.option("--offload", default="auto", show_default=True, help="As of `serve`.")
@_seconds(4.0)
@_runs
@_url
@_common
def render_command(
    clients: int,
    workers: int,
    offload: str,
    seconds: float,
    runs: int,
    url: str | None,
    quick: bool,
    model: Path | None,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """How many renders a second, short and long, and in a conversation that is sent again every turn?"""
    from . import render

    plan = render.Plan(clients, workers, offload, 1.0 if quick else seconds, 1 if quick else runs, url)
    render.run(plan, model, Output(json_file, plot_file))


@main.command("startup")
@click.option("--demo/--no-demo", default=True, show_default=True, help="Start the demo model, too.")
@_runs
@_common
def startup_command(
    demo: bool,
    runs: int,
    quick: bool,
    model: Path | None,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """How long until a server is ready, and how much memory does it have then?"""
    from . import startup

    plan = startup.Plan(1 if quick else runs, demo and not quick)
    startup.run(plan, model, Output(json_file, plot_file))


@main.command("streams")
@click.option("--streams", "n_streams", default=20, show_default=True, help="Streams at once.")
@click.option("--tokens", default=2048, show_default=True, help="Tokens per stream.")
@click.option("--chunks", default="1,8", show_default=True, help="Tokens per chunk.")
@click.option("--one-stream", default=2000, show_default=True, help="Chunks of the one parsed stream.")
@_runs
@_url
@_common
def streams_command(
    n_streams: int,
    tokens: int,
    chunks: str,
    one_stream: int,
    runs: int,
    url: str | None,
    quick: bool,
    model: Path | None,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """What does a chunk of a stream cost, by each way in, beside the framework itself?"""
    from . import streams

    if quick:
        tokens, runs = 256, 1
    plan = streams.Plan(n_streams, tokens, _numbers(chunks), one_stream, runs, url)
    streams.run(plan, model, Output(json_file, plot_file))


@main.command("embeds")
@click.option("--rows", default="2048,8192", show_default=True, help="Rows per tensor, each 4096 wide.")
@click.option("--beside", default=10, show_default=True, help="Requests beside a paced stream.")
@_runs
@_common
def embeds_command(
    rows: str,
    beside: int,
    runs: int,
    quick: bool,
    model: Path | None,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """What do prompt embeddings cost, and how late are the event loop and a stream beside them?"""
    from . import embeds

    plan = embeds.Plan([512] if quick else _numbers(rows), beside, 1 if quick else runs)
    embeds.run(plan, model, Output(json_file, plot_file))


@main.command("limiter")
@click.option("--rates", default="1,2,3", show_default=True, help="Multiples of the mixed load.")
@click.option("--offloads", default="thread,process", show_default=True, help="Values of `serve --offload`.")
@click.option("--limits", default="1,2,4,8,16", show_default=True, help="Per kind, and shared.")
@click.option("--gil", "gils", default="1", show_default=True, help="Values of `serve --limit-gil`.")
@click.option("--processes", default=2, show_default=True, help="As of `serve`.")
@click.option("--embeds/--no-embeds", default=False, show_default=True, help="Mix in prompt embeddings.")
@click.option(
    "--limits-out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the recommendation here, for `serve --limits-from`.",
)
@_seconds(4.0)
@click.option("--runs", default=2, show_default=True, help="Measurements of each; medians are shown.")
@_common
def limiter_command(
    rates: str,
    offloads: str,
    limits: str,
    gils: str,
    processes: int,
    embeds: bool,
    limits_out: Path | None,
    seconds: float,
    runs: int,
    quick: bool,
    model: Path | None,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Which limits are best on this machine? A mixed load, open loop; half an hour without --quick."""
    from . import limiter

    if quick:
        rates, offloads, limits, seconds, runs = "1", "thread", "1,4", 2.5, 1
    plan = limiter.Plan(
        [float(rate) for rate in _numbers(rates)],
        offloads.split(","),
        _numbers(limits),
        _numbers(gils),
        processes,
        seconds,
        runs,
        embeds,
        limits_out,
    )
    limiter.run(plan, model, Output(json_file, plot_file))


@main.command("all")
@click.option("--quick", is_flag=True, help="Small and short: under 5 minutes on two cores.")
@click.option("--model", type=click.Path(exists=True, path_type=Path), help="A model directory.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder for the figures and the pictures.",
)
@click.pass_context
def all_command(ctx: click.Context, quick: bool, model: Path | None, out: Path | None) -> None:
    """Run every benchmark with its defaults."""
    files: dict[str, Path] = {}
    if out is not None:
        check_can_draw()
        out.mkdir(parents=True, exist_ok=True)
    for name, command in main.commands.items():
        if name == "all":
            continue
        if out is not None:
            files = {"json_file": out / f"{name}.json", "plot_file": out / f"{name}.png"}
        ctx.invoke(command, quick=quick, model=model, **files)


if __name__ == "__main__":
    main(prog_name="python -m bench")
