"""Several server processes on one socket: shared, replaced, drained, and honest about failure."""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from served.long_work import DERENDER, RENDER, SMALL_RENDER, derender_body
from served.metrics import until
from served.server import Reply, Server, command, first_line, run_to_end, serve, start

OPTIONS = ("--workers", "2", "--offload", "thread")


@contextmanager
def workers(folder: Path, log: Path, *options: str) -> Iterator[Server]:
    """As `serve`, without its look at the log: a worker that is killed may be news there."""
    arguments = command("serve", "--model", str(folder), "--served-model-name", "m", "--port", "0", *options)
    with start(arguments, log) as process:
        line = first_line(process)
        match = re.match(r"^Ready: http://127\.0\.0\.1:(\d+) .*; 2 processes$", line)
        assert match, line + log.read_text()
        yield Server(process, int(match[1]), line, log)


def children(pid: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True, check=False
    )
    return [int(line) for line in listed.stdout.split()]


def test_requests_in_flight_at_sigterm_are_all_answered(model_folders: Path, log: Path) -> None:
    with serve(model_folders / "smollm2", *OPTIONS, log=log, stop_within_s=30) as server:
        replies: list[Reply] = []
        clients = [
            threading.Thread(target=lambda: replies.append(server.post(DERENDER, derender_body())))
            for _ in range(6)
        ]
        for thread in clients:
            thread.start()
        time.sleep(0.5)
        server.stop()
        for thread in clients:
            thread.join()
        assert [reply.status for reply in replies] == [200] * 6


def test_a_killed_process_is_replaced_and_others_serve_on(model_folders: Path, log: Path) -> None:
    with workers(model_folders / "smollm2", log, *OPTIONS) as server:
        before = children(server.process.pid)
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        statuses = []
        until(lambda: before[0] not in children(server.process.pid), 5)
        began = time.perf_counter()
        while time.perf_counter() - began < 3:
            statuses.append(server.post(RENDER, SMALL_RENDER).status)
        assert set(statuses) == {200}
        until(lambda: len(children(server.process.pid)) == 2, 10)
        server.stop()
        assert server.process.wait(20) == 0


def test_no_server_process_outlives_a_killed_supervisor(model_folders: Path, log: Path) -> None:
    with workers(model_folders / "smollm2", log, *OPTIONS) as server:
        orphans = children(server.process.pid)
        server.process.kill()
        server.process.wait(5)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in orphans), 10)


def test_a_model_that_is_not_there_ends_with_an_error(tmp_path: Path) -> None:
    ended = run_to_end("serve", "--model", str(tmp_path / "nowhere"), "--port", "0", "--workers", "2")
    assert ended.returncode == 1
    assert "did not start" in ended.stderr
