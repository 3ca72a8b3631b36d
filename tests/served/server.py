"""Start the real server as a process of its own, talk to it over 127.0.0.1, and stop it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

READY = re.compile(
    r"^Ready: http://127\.0\.0\.1:(\d+) serves (.+) \(vocabulary \d+, context \d+, .+\)(; \d+ processes)?$"
)

START_WITHIN_S = 120
STOP_WITHIN_S = 10
JSON_TYPE = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Reply:
    """A whole answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def closes(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"


@dataclass
class Server:
    """A running server process. ``log`` is the file that its stderr goes to."""

    process: subprocess.Popen[str]
    port: int
    ready_line: str
    log: Path
    stopping: bool = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self, timeout: float = 60) -> HTTPConnection:
        """A connection that stays open between requests."""
        return HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def raw(self, timeout: float = 30) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = JSON_TYPE
    ) -> Reply:
        """One request on a connection of its own."""
        connection = self.connect()
        try:
            return exchange(connection, method, path, body, headers)
        finally:
            connection.close()

    def post(self, path: str, body: object, headers: Mapping[str, str] = JSON_TYPE) -> Reply:
        return self.request("POST", path, payload(body), headers)

    def get(self, path: str) -> Reply:
        return self.request("GET", path)

    def stop(self, by: signal.Signals = signal.SIGTERM) -> None:
        """Tell the process to stop, once."""
        if not self.stopping:
            self.process.send_signal(by)
        self.stopping = True

    def assert_quiet(self) -> None:
        """Nothing in the log but news."""
        noise = [line for line in self.log.read_text().splitlines() if not is_news(line)]
        assert not noise, "\n".join(noise[:60])


def is_news(line: str) -> bool:
    return re.match(r"\d{4}-\d\d-\d\d [\d:,]+ (INFO|DEBUG) ", line) is not None


def payload(body: object) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def exchange(
    connection: HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = JSON_TYPE,
) -> Reply:
    """Send one request and read its whole answer; the connection stays open if the server lets it."""
    connection.request(method, path, body, dict(headers))
    response = connection.getresponse()
    return Reply(response.status, lower_case(response.getheaders()), response.read())


def lower_case(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}


def request_bytes(path: str, body: bytes, *headers: str, length: object = None) -> bytes:
    """A POST as it goes over the wire. ``length`` overrides the true Content-Length; "" leaves it out."""
    shown = len(body) if length is None else length
    lines = [f"POST {path} HTTP/1.1", "Host: test", "Content-Type: application/json", *headers]
    lines += [] if shown == "" else [f"Content-Length: {shown}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def read_raw_reply(connection: socket.socket) -> Reply:
    """The next answer on a raw connection, and not a byte more."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += read_exactly(connection, 1)
    status, *lines = head.decode().strip().split("\r\n")
    headers = lower_case((name, value) for name, _, value in (line.partition(": ") for line in lines))
    return Reply(int(status.split()[1]), headers, read_exactly(connection, int(headers["content-length"])))


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, f"the server closed the connection after {bytes(data[-200:])!r}"
        data += piece
    return bytes(data)


def is_closed_by_peer(connection: socket.socket) -> bool:
    """Wait for the server to close the connection; False when it says more instead."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "app", *options]


def environment(settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without settings of a developer's own, and with ``settings``."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TRIO_RENDER_")}
    return {**own, **(settings or {})}


def run_to_end(*options: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command line for something that ends by itself."""
    return subprocess.run(
        command(*options), capture_output=True, text=True, timeout=60, env=environment(env), check=False
    )


@contextmanager
def serve(
    model: Path | str,
    *options: str,
    log: Path,
    env: Mapping[str, str] | None = None,
    stop_by: signal.Signals = signal.SIGTERM,
    stop_within_s: float = STOP_WITHIN_S,
) -> Iterator[Server]:
    """A server of ``model`` under the name ``m`` on a free port, until the end of the block.

    It must then stop in time with exit code 0 and nothing but news in its log.
    """
    arguments = command("serve", "--model", str(model), "--served-model-name", "m", "--port", "0", *options)
    with start(arguments, log, env) as process:
        line = first_line(process)
        match = READY.match(line)
        assert match, f"no ready line but {line!r}\n{log.read_text()}"
        server = Server(process, int(match[1]), line, log)
        yield server
        server.stop(stop_by)
        assert process.wait(stop_within_s) == 0
        server.assert_quiet()


@contextmanager
def start(
    arguments: Sequence[str], log: Path, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A child process with its stderr in ``log``, which doesn't outlive the block."""
    with (
        log.open("w") as errors,
        subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment(env)
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    """What the process prints first; "" when it ends, or says nothing for too long, which ends it."""
    assert process.stdout is not None
    watchdog = threading.Timer(START_WITHIN_S, process.kill)
    watchdog.start()
    try:
        return process.stdout.readline().rstrip("\n")
    finally:
        watchdog.cancel()
        watchdog.join()
