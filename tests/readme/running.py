"""Start what the README starts, ask what it asks, and leave out what differs from run to run."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

TRIO_RENDER = Path(sys.executable).parent / "trio-render"


@dataclass(frozen=True)
class Server:
    """A server that accepts requests, and what it took to get there."""

    ready_line: str
    url: str
    pid: int
    ready_s: float

    def wait_for_weights(self) -> None:
        """Wait until ``/ready`` says so."""
        until = time.monotonic() + 120
        while request("GET", f"{self.url}/ready")[0] != HTTPStatus.OK:
            assert time.monotonic() < until
            time.sleep(0.2)

    def resident_mb(self) -> float:
        """Memory in use, in 10**6 bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024 / 1e6  # type: ignore[index]

    def children(self) -> list[int]:
        """The processes that it has started and that run."""
        found = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parent = int(status.read_text().rpartition(")")[2].split()[1])
                found += [int(status.parent.name)] * (parent == self.pid)
        return found

    def has_loaded(self, name: str) -> bool:
        """Say whether a shared library is mapped."""
        return name in Path(f"/proc/{self.pid}/maps").read_text()


@contextmanager
def serving(*arguments: str) -> Iterator[Server]:
    """Run ``trio-render serve`` with these arguments on a free port."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [TRIO_RENDER, *arguments, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            url = re.search(r"http://\S+", line)
            assert url, f"no ready line but {line!r}"
            yield Server(line, url[0], process.pid, time.perf_counter() - began)
        finally:
            process.terminate()
    assert process.returncode == 0


def ask(command: str) -> str:
    """The output of a curl command, run by curl or, without it, by what these few options mean."""
    if shutil.which("curl"):
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=True)
        return done.stdout
    match shlex.split(command):
        case ["curl", "-s", url, "-H", header, "-d", body]:
            name, value = header.split(": ")
            return request("POST", url, body.encode(), {name: value})[1].decode()
    raise AssertionError(f"a form of curl that isn't known here: {command}")


def request(
    method: str, url: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    """Status and body of an HTTP answer, whatever the status."""
    headers = headers or {"Content-Type": "application/json"}
    asked = urllib.request.Request(url, body, headers, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=60) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def masked(text: str) -> Any:
    """A JSON text's value, with random ids, timestamps, and states that hold them made equal."""
    value = json.loads(re.sub(r"[0-9a-f]{32}", "#", text))

    def without_times(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: 0 if k in ("created", "stream_state") else without_times(v) for k, v in value.items()}
        return [without_times(item) for item in value] if isinstance(value, list) else value

    return without_times(value)
