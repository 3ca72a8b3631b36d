"""What needs the app around the jobs: bounds on bodies, and one status in every error."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from in_process import (
    CHAT_DERENDER,
    CHAT_RENDER,
    COMPLETION_DERENDER,
    COMPLETION_RENDER,
    DETOKENIZE,
    TOKENIZE,
    InProcessServer,
)
from known_faults.bodies import chat_body, completion_body

from app import create_app
from app.metrics import Metrics
from app.services import Services
from app.settings import Settings
from trio_render import open_derenderer, open_offloader, open_renderer, workspace_of

MAX_BODY = 2 * 1024 * 1024
POSTS = [CHAT_RENDER, COMPLETION_RENDER, CHAT_DERENDER, COMPLETION_DERENDER, TOKENIZE, DETOKENIZE]
USER_HI = [{"role": "user", "content": "Hi"}]
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The app runs on trio."""
    return "trio"


@pytest.fixture
async def client(smollm2: InProcessServer) -> AsyncIterator[Any]:
    """A client of an app that takes bodies up to 2 MiB."""
    settings = Settings(model="smollm2", served_model_names=("m",), max_body=MAX_BODY)
    workspace = workspace_of(smollm2.model, settings.policy)
    async with (
        open_offloader(dict, workspace, backend="thread") as offloader,
        open_renderer(workspace, offloader=offloader) as renderer,
        open_derenderer(workspace, offloader=offloader) as derenderer,
    ):
        metrics = Metrics(offloader.statistics)
        services = Services(settings, smollm2.model, renderer, derenderer, offloader, metrics, created=0)
        yield create_app(services).test_client()


async def answer(client: Any, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Any:
    """Status and parsed body of one request; an empty body is ``None``."""
    response = await client.open(path, method=method, headers=dict(headers), data=body)
    data = await response.get_data()
    return response.status_code, json.loads(data) if data else None


@pytest.mark.parametrize("path", POSTS)
async def test_hypercorn_284_declared_size_over_the_limit(client: Any, path: str) -> None:
    """A declared size of 15 GB kept the server waiting: it is refused before a byte has arrived."""
    headers = {**JSON, "Content-Length": str(15 * 1024**3)}
    async with client.request(path, method="POST", headers=headers) as connection:
        # Nothing is sent, so only an answer that waits for nothing lets this block end.
        pass
    response = await connection.as_response()
    assert response.status_code == 413
    assert json.loads(await response.get_data())["error"]["code"] == 413


@pytest.mark.parametrize("path", POSTS)
async def test_hypercorn_284_chunked_body_over_the_limit(client: Any, path: str) -> None:
    """A body without a declared size is counted as it arrives."""
    async with client.request(path, method="POST", headers=JSON) as connection:
        await connection.send(b" " * MAX_BODY)
        await connection.send(b" ")
        # The body is never complete: the byte over the limit alone brings the answer.
    response = await connection.as_response()
    assert response.status_code == 413


async def test_hypercorn_284_chunked_body_of_the_limit(client: Any) -> None:
    """A body of exactly the limit is read."""
    body = json.dumps({"model": "m", "prompt": "Hi"}).encode()
    async with client.request(TOKENIZE, method="POST", headers=JSON) as connection:
        await connection.send(body.ljust(MAX_BODY))
        await connection.send_complete()
    assert (await connection.as_response()).status_code == 200


FAILURES: list[tuple[str, str, dict[str, str], Any, int]] = [
    ("POST", CHAT_RENDER, JSON, {"model": "m", "messages": []}, 400),
    ("POST", CHAT_RENDER, JSON, {"model": "other", "messages": USER_HI}, 404),
    ("POST", CHAT_RENDER, JSON, b"{", 400),
    ("POST", CHAT_RENDER, {"Content-Type": "text/plain"}, {"model": "m", "messages": USER_HI}, 400),
    ("GET", CHAT_RENDER, {}, b"", 405),
    ("POST", COMPLETION_RENDER, JSON, {"model": "m", "prompt": ""}, 400),
    ("POST", COMPLETION_DERENDER, JSON, completion_body([]), 400),
    ("POST", COMPLETION_DERENDER, JSON, completion_body([2**40]), 400),
    ("POST", CHAT_DERENDER, JSON, {**chat_body([81]), "model": "other"}, 404),
    ("POST", CHAT_DERENDER, JSON, {}, 400),
    ("POST", TOKENIZE, JSON, {"model": "m"}, 400),
    ("POST", DETOKENIZE, JSON, {"model": "m", "tokens": [-1]}, 400),
    ("POST", "/v1/nothing", JSON, {}, 404),
]


@pytest.mark.parametrize(("method", "path", "headers", "body", "status"), FAILURES)
async def test_vllm_386_status_and_code_of_an_error_agree(
    client: Any, method: str, path: str, headers: dict[str, str], body: Any, status: int
) -> None:
    """An error was returned as an ordinary object, so the status said success."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    got, parsed = await answer(client, method, path, headers, data)
    assert (got, parsed["error"]["code"]) == (status, status)
    assert set(parsed) == {"error"}


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        (CHAT_DERENDER, chat_body([81]), "choices"),
        (COMPLETION_DERENDER, completion_body([81]), "choices"),
        (CHAT_RENDER, {"model": "m", "messages": USER_HI}, "token_ids"),
        (TOKENIZE, {"model": "m", "prompt": "a"}, "tokens"),
        (DETOKENIZE, {"model": "m", "tokens": [81]}, "prompt"),
    ],
)
async def test_vllm_386_a_success_has_its_content(client: Any, path: str, body: Any, key: str) -> None:
    """Under status 200 there is an answer, and no error beside it."""
    status, parsed = await answer(client, "POST", path, JSON, json.dumps(body).encode())
    assert status == 200
    assert parsed[key]
    assert "error" not in parsed


@pytest.mark.parametrize(("path", "key"), [("/health", None), ("/v1/models", "data")])
async def test_vllm_386_status_endpoints(client: Any, path: str, key: str | None) -> None:
    """The endpoints that answer from what is known."""
    status, parsed = await answer(client, "GET", path, {}, b"")
    assert status == 200
    assert parsed is None if key is None else [card["id"] for card in parsed[key]] == ["m"]
