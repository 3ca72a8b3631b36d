"""A front end before an engine behind HTTP: what its answers cost the engine."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from opened_models import opened
from scripted_upstream import (
    LAST_CHUNK,
    STREAM_HEAD,
    Connection,
    Received,
    event_of,
    piece,
    script,
    scripted_upstream,
)

from trio_render import EngineError, Frontend, Policy, open_derenderer, open_renderer, workspace_of
from trio_render.engine.http import open_http_engine
from trio_render.protocol.decoding import encode

BODIES: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "Hi"}]},
    "completion": {"prompt": ["a", "b"]},
    "tokens": {"token_ids": [1]},
}


async def open_frontend(stack: AsyncExitStack, model_folders: Path, url: str) -> Frontend:
    workspace = workspace_of(opened(model_folders / "smollm2"), Policy(served_names=("m",)))
    return Frontend(
        await stack.enter_async_context(open_renderer(workspace)),
        await stack.enter_async_context(open_derenderer(workspace)),
        await stack.enter_async_context(open_http_engine(url, connections=1)),
    )


async def take(frontend: Frontend, kind: str, **fields: Any) -> list[Any]:
    start: Any = getattr(frontend, f"start_{kind}")
    async with (await start([encode({**BODIES[kind], "stream": True, **fields})])).open_stream() as chunks:
        return [chunk async for chunk in chunks]


@pytest.mark.parametrize("kind", BODIES)
async def test_a_connection_is_used_again(kind: str, model_folders: Path) -> None:
    """An answer is read to the end of its body, not only to the last of its choices."""

    async def answer(connection: Connection, request: Received) -> None:
        await connection.send_stream(piece(504), piece(3575, finish="length"))

    async with scripted_upstream(script(answer)) as upstream, AsyncExitStack() as stack:
        frontend = await open_frontend(stack, model_folders, upstream.url)
        for _ in range(5):
            chunks = await take(frontend, kind)
            assert chunks[-1].choices[0].finish_reason == "length"
        assert upstream.connections == 1


@pytest.mark.parametrize("kind", ["chat", "completion"])
async def test_an_engine_that_runs_on_is_hung_up_on(kind: str, model_folders: Path) -> None:
    """It knows nothing of the stop string; nobody waits for what is behind it."""

    async def answer(connection: Connection, request: Received) -> None:
        await connection.send(STREAM_HEAD)
        for token_id in (504, 3575, 314):
            await connection.send_chunk(event_of(piece(token_id)))
        await connection.until_hung_up()

    async with scripted_upstream(script(answer)) as upstream, AsyncExitStack() as stack:
        frontend = await open_frontend(stack, model_folders, upstream.url)
        with anyio.fail_after(10):
            chunks = await take(frontend, kind, stop=["capital"])
        assert chunks[-1].choices[0].stop_reason == "capital"


@pytest.mark.parametrize("kind", ["chat", "completion"])
async def test_an_answer_is_whole_without_its_last_bytes(kind: str, model_folders: Path) -> None:
    """All choices have ended: an engine that then dies, or says no more, has lost nothing."""

    async def answer(connection: Connection, request: Received) -> None:
        await connection.send(STREAM_HEAD)
        await connection.send_chunk(event_of(piece(504, finish="length")))
        if "silent" in request.json["request_id"]:
            await connection.until_hung_up()
        await connection.close()

    async with scripted_upstream(script(answer)) as upstream, AsyncExitStack() as stack:
        frontend = await open_frontend(stack, model_folders, upstream.url)
        for name in ("dies", "silent"):
            with anyio.fail_after(10):
                chunks = await take(frontend, kind, request_id=name)
            assert chunks[-1].choices[0].finish_reason == "length"


@pytest.mark.parametrize("kind", ["chat", "tokens"])
async def test_an_engine_that_dies_fails_the_stream_and_no_more(kind: str, model_folders: Path) -> None:
    """See served/test_two_processes for one that is killed."""

    async def answer(connection: Connection, request: Received) -> None:
        await connection.send(STREAM_HEAD)
        await connection.send_chunk(event_of(piece(504)))
        if "dies" in request.json["request_id"]:
            await connection.close()
            return
        await connection.send_chunk(event_of(piece(3575, finish="length")) + b"data: [DONE]\n\n")
        await connection.send(LAST_CHUNK)

    async with scripted_upstream(script(answer)) as upstream, AsyncExitStack() as stack:
        frontend = await open_frontend(stack, model_folders, upstream.url)
        for _ in range(2):
            with pytest.raises(EngineError):
                await take(frontend, kind, request_id="dies")
            assert len(await take(frontend, kind)) == 2
