"""Servers that tests share: each is started once, when the first test asks for it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from served.metrics import until
from served.server import Reply, Server, serve

OpenServer = Callable[..., Server]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "trio"


@pytest.fixture(scope="session")
def open_server(model_folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenServer]:
    """Opens a server of a model folder with options; the same server for the same ones, until the end."""
    logs = tmp_path_factory.mktemp("served")
    opened: dict[tuple[str, ...], Server] = {}
    with ExitStack() as stack:

        def open_(model: str | Path, *options: str) -> Server:
            key = (str(model), *options)
            if key not in opened:
                log = logs / f"{len(opened)}.log"
                opened[key] = stack.enter_context(serve(model_folders / model, *options, log=log))
            return opened[key]

        yield open_


@pytest.fixture
def server(open_server: OpenServer) -> Iterator[Server]:
    """The plain server, whose log must stay quiet."""
    shared = open_server("smollm2")
    yield shared
    shared.assert_quiet()


@dataclass(frozen=True)
class Demo:
    """The demo's server, and what it said while its weights were being loaded."""

    server: Server
    ready: Reply
    refusal: Reply


@pytest.fixture(scope="session")
def started_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """The demo, which answers one request at a time and takes embeddings."""
    log = tmp_path_factory.mktemp("demo") / "server.log"
    with serve("demo", "--enable-prompt-embeds", log=log) as server:
        ready = server.get("/ready")
        refusal = server.post("/v1/completions", {"prompt": "x", "stream": True})
        wait_ready(server)
        yield Demo(server, ready, refusal)


@pytest.fixture
def demo(started_demo: Demo) -> Iterator[Server]:
    """The demo's server, whose log must stay quiet."""
    yield started_demo.server
    started_demo.server.assert_quiet()


@pytest.fixture(scope="session")
def tiny_model(model_folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizer of ``smollm2``, with small random weights."""
    # PyTorch takes seconds to import.
    from tiny_weights import write_tiny_model

    return write_tiny_model(model_folders / "smollm2", tmp_path_factory.mktemp("tiny") / "tiny")


@pytest.fixture
def tiny(open_server: OpenServer, tiny_model: Path) -> Iterator[Server]:
    """A server that generates at random, a token in a millisecond or two, for one request at a time."""
    shared = open_server(tiny_model, "--queue-limit", "3")
    wait_ready(shared)
    yield shared
    shared.assert_quiet()


def wait_ready(server: Server) -> None:
    """Wait until the weights are loaded."""
    until(lambda: server.get("/ready").status == 200, 120)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where a server of one's own writes."""
    return tmp_path / "server.log"
