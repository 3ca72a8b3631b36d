"""``python -m bench NAME``."""

from __future__ import annotations

from pathlib import Path

import click

from . import embeds, hops, probe, streams

__all__: list[str] = []


@click.group()
def main() -> None:
    """Measure trio_render on this machine. Each benchmark prints a table and can write JSON."""


_json = click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the figures here.")
_model = click.option("--model", type=click.Path(exists=True, path_type=Path), help="A model directory.")


@main.command("probe")
@click.option("--tokens", default="500,1000,2000,4000", help="Tokens per derender.", show_default=True)
@click.option("--candidates", default=5, help="Logprob candidates per token.", show_default=True)
@click.option("--modes", default="inline,executor,thread,process,auto", show_default=True)
@click.option("--seconds", default=4.0, help="Length of one measurement.", show_default=True)
@click.option("--runs", default=5, help="Measurements of each; the medians are shown.", show_default=True)
@click.option("--quick", is_flag=True, help="One short run of 500 and 4000 tokens.")
@_model
@_json
def probe_command(
    tokens: str,
    candidates: int,
    modes: str,
    seconds: float,
    runs: int,
    quick: bool,
    model: Path | None,
    json_file: Path | None,
) -> None:
    """How calm is the event loop beside a client that derenders in a loop?"""
    sizes = [500, 4000] if quick else [int(n) for n in tokens.split(",")]
    plan = probe.Plan(sizes, candidates, modes.split(","), 1.5 if quick else seconds, 1 if quick else runs)
    probe.run(plan, model, json_file)


@main.command("hops")
@click.option("--repeats", default=300, show_default=True)
@_model
@_json
def hops_command(repeats: int, model: Path | None, json_file: Path | None) -> None:
    """What does one hop cost, by where it goes and how much it carries?"""
    hops.run(repeats, model, json_file)


@main.command("streams")
@click.option("--streams", "n_streams", default=20, help="Streams at once.", show_default=True)
@click.option("--tokens", default=2048, help="Tokens per stream.", show_default=True)
@click.option("--chunks", default="1,8", help="Tokens per chunk.", show_default=True)
@click.option("--runs", default=3, help="Measurements of each; the medians are shown.", show_default=True)
@click.option("--quick", is_flag=True, help="One run of 256 tokens.")
@_model
@_json
def streams_command(
    n_streams: int,
    tokens: int,
    chunks: str,
    runs: int,
    quick: bool,
    model: Path | None,
    json_file: Path | None,
) -> None:
    """What does a chunk of a stream cost, beside the framework itself?"""
    sizes = [int(n) for n in chunks.split(",")]
    plan = streams.Plan(n_streams, 256 if quick else tokens, sizes, 1 if quick else runs)
    streams.run(plan, model, json_file)


@main.command("embeds")
@click.option("--rows", default="2048,8192", help="Rows per tensor, each 4096 wide.", show_default=True)
@click.option("--runs", default=5, help="Measurements of each; the medians are shown.", show_default=True)
@_model
@_json
def embeds_command(rows: str, runs: int, model: Path | None, json_file: Path | None) -> None:
    """What do prompt embeddings cost, and how late is the event loop beside them?"""
    embeds.run([int(n) for n in rows.split(",")], runs, model, json_file)


if __name__ == "__main__":
    main(prog_name="python -m bench")
