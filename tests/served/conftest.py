"""Servers that tests share: each is started once, when the first test asks for it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from served.server import Server, serve

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

        def open_(model: str, *options: str) -> Server:
            key = (model, *options)
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


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where a server of one's own writes."""
    return tmp_path / "server.log"
