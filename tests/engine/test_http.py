"""The HTTP engine's answers and errors, from an upstream that answers as the test says."""

import json
import subprocess
import sys
import threading
from typing import Any

import anyio
import pytest
from engine_requests import generate_request
from scripted_upstream import (
    LAST_CHUNK,
    STREAM_HEAD,
    Connection,
    Received,
    event_of,
    piece,
    script,
    scripted_upstream,
    unused_url,
)

from trio_render import EngineError, GenerateChunk, GenerateRequest, InvalidRequest, Overloaded, RenderError
from trio_render.engine.base import Engine
from trio_render.engine.http import open_http_engine
from trio_render.engine.wire import Collected

WHOLE = {"request_id": "up", "choices": [{"index": 0, "token_ids": [5], "finish_reason": "stop"}]}


async def answered(engine: Engine, request: GenerateRequest) -> list[GenerateChunk]:
    async with engine.generate(request) as chunks:
        return [chunk async for chunk in chunks]


async def answered_by(
    answer: Any, request: GenerateRequest, **options: Any
) -> list[GenerateChunk] | RenderError:
    """The answer, or the error that came in its place, of an engine that is free again afterwards."""
    async with (
        scripted_upstream(script(answer)) as upstream,
        open_http_engine(upstream.url, **options) as engine,
    ):
        try:
            return await answered(engine, request)
        except RenderError as error:
            return error
        finally:
            assert engine.statistics().borrowed == 0


def sends(*parts: bytes, close: bool = True) -> Any:
    async def answer(connection: Connection, _: Received) -> None:
        for part in parts:
            await connection.send(part)
        if close:
            await connection.close()

    return answer


def whole(body: Any, status: str = "200 OK", *headers: str) -> Any:
    async def answer(connection: Connection, _: Received) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await connection.send_whole(data, status, *headers)

    return answer


def stream(*events: Any, done: bool = True) -> Any:
    async def answer(connection: Connection, _: Received) -> None:
        await connection.send_stream(*events, done=done)

    return answer


# ------------------------------------------------------------ answers


async def test_a_stream_comes_in_its_pieces() -> None:
    logprobs = {
        "content": [{"token_id": 8, "logprob": -1.0, "top_logprobs": [{"token_id": 8, "logprob": -1.0}]}]
    }
    last = {**piece(8, finish="stop", stop_reason=8, logprobs=logprobs), "unknown": 1}
    usage = {"request_id": "r", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 3}}
    seen: list[Received] = []

    async def answer(connection: Connection, received: Received) -> None:
        seen.append(received)
        await connection.send_stream(piece(5), piece(6, 7, index=1, finish="length"), last, usage)

    request = generate_request(n=2, model="m", cache_salt="s")
    async with scripted_upstream(script(answer)) as upstream:
        async with open_http_engine(f"{upstream.url}/prefix/", api_key="k") as engine:
            chunks = await answered(engine, request)
            again = await answered(engine, request)
        assert upstream.connections == 1
    assert again == chunks
    assert [[c.token_ids for c in chunk.choices] for chunk in chunks] == [[[5]], [[6, 7]], [[8]], []]
    collected = Collected(request)
    for chunk in chunks:
        collected.add(chunk)
    assert [c.token_ids for c in collected.response().choices] == [[5, 8], [6, 7]]
    assert chunks[2].choices[0].logprobs is not None
    assert seen[0].line == "POST /prefix/inference/v1/generate HTTP/1.1"
    assert seen[0].headers["host"] == upstream.url.removeprefix("http://")
    assert seen[0].headers["authorization"] == "Bearer k"
    assert seen[0].json["token_ids"] == [1, 2, 3]
    assert (seen[0].json["stream"], seen[0].json["output_mode"]) == (True, "tokens")
    assert seen[0].json["cache_salt"] == "s"


async def test_an_engine_is_one() -> None:
    async with open_http_engine("http://127.0.0.1:1") as engine:
        same: Engine = engine
        assert (same.phase, same.takes_embeds) == ("ready", False)
        with pytest.raises(InvalidRequest) as caught:
            async with engine.generate(generate_request(), embeds=object()):
                pass
        assert caught.value.param == "prompt_embeds"


async def test_bytes_one_by_one_and_multibyte_text() -> None:
    body = (
        b": hi\r\n\r\n" + event_of(piece(5)) + event_of({**piece(6, finish="stop"), "metrics": {"é": "😀"}})
    )
    body += b"data: [DONE]\r\r"
    chunks = [b"1\r\n%b\r\n" % bytes([byte]) for byte in body]
    got = await answered_by(sends(STREAM_HEAD, *chunks, LAST_CHUNK), generate_request())
    assert isinstance(got, list)
    assert [chunk.choices[0].token_ids for chunk in got] == [[5], [6]]
    assert got[1].metrics == {"é": "😀"}


async def test_all_ends_count_as_the_streams_end() -> None:
    got = await answered_by(stream(piece(5, finish="stop"), done=False), generate_request())
    assert isinstance(got, list)


async def test_a_whole_answer_is_one_piece() -> None:
    body = {
        "request_id": "up",
        "choices": [
            {
                "index": 1,
                "token_ids": [6],
                "finish_reason": "stop",
                "stop_reason": "x",
                "routed_experts": [1],
            },
            {"index": 0, "token_ids": [5], "logprobs": {"content": [{"token_id": 5, "logprob": -1.0}]}},
        ],
        "prompt_logprobs": [None, {"5": {"logprob": -1.0}}],
        "prompt_token_ids": [1, 2],
        "kv_transfer_params": {"a": 1},
        "ec_transfer_params": {"b": 1},
        "metrics": {"c": 1},
        "weight_version": 3,
        "unknown": 1,
    }
    got = await answered_by(whole(body), generate_request(n=2, stream=False))
    assert isinstance(got, list)
    (chunk,) = got
    assert [(c.index, c.token_ids, c.finish_reason, c.stop_reason) for c in chunk.choices] == [
        (1, [6], "stop", "x"),
        (0, [5], "stop", None),
    ]
    assert chunk.choices[1].logprobs is not None
    assert chunk.choices[0].routed_experts == [1]
    assert (chunk.request_id, chunk.prompt_token_ids, chunk.weight_version) == ("up", [1, 2], 3)
    assert chunk.prompt_logprobs == body["prompt_logprobs"]
    assert (chunk.kv_transfer_params, chunk.ec_transfer_params, chunk.metrics) == (
        {"a": 1},
        {"b": 1},
        {"c": 1},
    )


async def test_a_large_whole_answer_is_decoded_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    import trio_render.engine.http as engine_http

    threads: list[int] = []
    decode = engine_http._whole_chunk

    def noted(*args: Any) -> GenerateChunk:
        threads.append(threading.get_ident())
        return decode(*args)

    monkeypatch.setattr(engine_http, "_whole_chunk", noted)
    for n_tokens in (10, 50_000):
        body = {"request_id": "r", "choices": [{"index": 0, "token_ids": [100_000] * n_tokens}]}
        got = await answered_by(whole(body), generate_request(stream=False))
        assert isinstance(got, list)
        assert len(got[0].choices[0].token_ids or ()) == n_tokens
    assert threads[0] == threading.get_ident() != threads[1]


# ------------------------------------------------------------ faults of the upstream


ERROR = {"error": {"message": "too long", "type": "BadRequestError", "param": "max_tokens", "code": 400}}


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("status", ["400 Bad", "413 Large", "422 No"])
async def test_a_refusal_is_the_requests_fault(status: str, streams: bool) -> None:
    got = await answered_by(whole(ERROR, status), generate_request(stream=streams))
    assert isinstance(got, InvalidRequest)
    assert (got.message, got.param) == ("too long", "max_tokens")


@pytest.mark.parametrize(
    ("status", "header", "retry_after"),
    [
        ("503 Busy", "Retry-After: 7", 7.0),
        ("429 Busy", "retry-after: 0.5", 0.5),
        ("429 Busy", "X: 1", 1.0),
        ("503 Busy", "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT", 1.0),
        ("503 Busy", "Retry-After: -1", 1.0),
        ("503 Busy", "Retry-After: nan", 1.0),
        ("503 Busy", "Retry-After: 1e300", 3600.0),
    ],
)
async def test_an_overload_says_when_to_come_back(status: str, header: str, retry_after: float) -> None:
    got = await answered_by(whole(b"{}", status, header), generate_request())
    assert isinstance(got, Overloaded)
    assert got.retry_after == retry_after


@pytest.mark.parametrize(
    "status",
    ["404 No", "401 No", "403 No", "500 Oh", "502 Oh", "400 Bad", "302 There", "204 None", "201 New"],
)
async def test_other_statuses_are_the_engines_fault(status: str) -> None:
    answer = whole(b"<secret>" if status[:3] != "204" else b"", status, "Location: /elsewhere")
    got = await answered_by(answer, generate_request())
    assert isinstance(got, EngineError)
    assert status[:3] in got.message
    assert "secret" not in got.message


async def test_refused_requests_keep_their_connection() -> None:
    async with scripted_upstream(script(whole(ERROR, "503 Busy"))) as upstream:
        async with open_http_engine(upstream.url) as engine:
            for _ in range(5):
                with pytest.raises(Overloaded):
                    await answered(engine, generate_request())
        assert upstream.connections == 1


async def test_an_endless_error_is_read_up_to_a_bound() -> None:
    async def answer(connection: Connection, _: Received) -> None:
        await connection.send(b"HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await connection.send_chunk(b" " * 10_000)

    assert isinstance(await answered_by(answer, generate_request()), EngineError)


async def test_an_error_in_mid_stream_ends_it() -> None:
    error = {"error": {"message": "m" * 1000, "type": "InternalServerError", "param": None, "code": 500}}
    async with (
        scripted_upstream(script(stream(piece(5), error))) as upstream,
        open_http_engine(upstream.url) as engine,
        engine.generate(generate_request()) as chunks,
    ):
        assert (await anext(chunks)).choices[0].token_ids == [5]
        with pytest.raises(EngineError) as caught:
            await anext(chunks)
    assert caught.value.message.endswith(": " + "m" * 300)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
FINISHED = event_of(piece(5, finish="stop"))


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([], id="nothing"),
        pytest.param([b"HTTP/1.1 2"], id="half a head"),
        pytest.param([b"secret\r\n\r\n"], id="no http"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"], id="bad length"),
        pytest.param([HEAD], id="no body"),
        pytest.param([HEAD, b'{"request_id": "secret", "choi'], id="half a body"),
        pytest.param([STREAM_HEAD, b"zz\r\nsecret"], id="bad chunk"),
        pytest.param([STREAM_HEAD, b"5\r\nab"], id="half a chunk"),
        pytest.param([STREAM_HEAD, LAST_CHUNK], id="empty body"),
    ],
)
async def test_broken_answers_are_the_engines_fault(parts: list[bytes], streams: bool) -> None:
    got = await answered_by(sends(*parts), generate_request(stream=streams))
    assert isinstance(got, EngineError)
    assert "secret" not in got.message
    assert len(got.message) < 100


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(b"data: secret\n\n", id="no json"),
        pytest.param(b'data: {"secret": 1}\n\n', id="no chunk"),
        pytest.param(b"data: \xff\n\n", id="no utf-8"),
        pytest.param(b"data: " + b"[" * 100_000 + b"\n\n", id="deep"),
        pytest.param(event_of({"error": "secret"}), id="no error"),
        pytest.param(event_of(piece(5, index=-1)), id="negative index"),
        pytest.param(event_of(piece(5, index=1)), id="too many choices"),
        pytest.param(event_of(piece(5)), id="no finish"),
        pytest.param(b": keep-alive\n\n", id="only comments"),
        pytest.param(b"data: [DONE]\n\n" + FINISHED, id="done too soon"),
    ],
)
async def test_nonsense_in_a_stream_is_the_engines_fault(event: bytes) -> None:
    body = event + b"data: [DONE]\n\n"
    framed = b"%x\r\n%b\r\n" % (len(body), body)
    got = await answered_by(sends(STREAM_HEAD, framed, LAST_CHUNK), generate_request())
    assert isinstance(got, EngineError)
    assert "secret" not in got.message


@pytest.mark.parametrize(
    "body",
    [
        b"secret",
        b"\xff",
        b"[" * 100_000,
        {"request_id": "r", "choices": []},
        {"request_id": "r", "choices": [{"index": 1, "token_ids": [1]}]},
        {"request_id": "r", "choices": [{"index": 2**40, "token_ids": [1]}]},
        {"request_id": "r", "choices": [{"index": 0, "token_ids": ["secret"]}]},
        {"request_id": "r", "choices": [{"index": 0, "token_ids": [1], "finish_reason": None}]},
    ],
    ids=range(8),
)
async def test_nonsense_as_a_whole_answer_is_the_engines_fault(body: Any) -> None:
    got = await answered_by(whole(body), generate_request(stream=False))
    assert isinstance(got, EngineError)
    assert "secret" not in got.message


async def test_a_stream_that_breaks_off_is_the_engines_fault() -> None:
    got = await answered_by(
        sends(STREAM_HEAD, b"%x\r\n%b\r\n" % (len(FINISHED), FINISHED)), generate_request()
    )
    assert isinstance(got, EngineError)


@pytest.mark.parametrize("streams", [True, False])
async def test_an_upstream_may_be_given_a_time_to_be_silent(streams: bool) -> None:
    got = await answered_by(sends(close=False), generate_request(stream=streams), read_timeout_s=0.05)
    assert isinstance(got, EngineError)
    got = await answered_by(
        sends(STREAM_HEAD, close=False), generate_request(stream=streams), read_timeout_s=0.05
    )
    assert isinstance(got, EngineError)


# ------------------------------------------------------------ once more, or not


async def test_no_connection_is_the_engines_fault() -> None:
    async with open_http_engine(unused_url(), retries=2) as engine:
        with anyio.fail_after(1), pytest.raises(EngineError, match="reached"):
            await answered(engine, generate_request())
        assert engine.statistics().borrowed == 0


async def test_a_kept_connection_that_was_closed_is_not_the_callers_concern() -> None:
    """The upstream reads the second request and hangs up: seen from here, it closed while we sent."""

    async def serve(connection: Connection) -> None:
        await connection.request()
        await connection.send_whole(json.dumps(WHOLE).encode())
        await connection.request()

    async with scripted_upstream(serve) as upstream, open_http_engine(upstream.url) as engine:
        for _ in range(3):
            assert await answered(engine, generate_request(stream=False))
        assert upstream.connections == 3


@pytest.mark.parametrize("second", [b"H", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"])
async def test_no_request_is_sent_again_once_a_byte_has_come(second: bytes) -> None:
    requests = 0

    async def serve(connection: Connection) -> None:
        nonlocal requests
        for answer in (whole(WHOLE), sends(second)):
            received = await connection.request()
            requests += 1
            await answer(connection, received)

    async with scripted_upstream(serve) as upstream, open_http_engine(upstream.url) as engine:
        await answered(engine, generate_request(stream=False))
        with pytest.raises(EngineError):
            await answered(engine, generate_request(stream=False))
        assert (requests, upstream.connections) == (2, 1)


@pytest.mark.parametrize(("retries", "connections"), [(0, 1), (1, 1), (5, 1)])
async def test_a_new_connection_that_closes_without_an_answer_is_an_error(
    retries: int, connections: int
) -> None:
    async with scripted_upstream(script(sends())) as upstream:
        async with open_http_engine(upstream.url, retries=retries) as engine:
            with pytest.raises(EngineError):
                await answered(engine, generate_request())
        assert upstream.connections == connections


async def test_without_retries_a_closed_connection_is_an_error() -> None:
    async def serve(connection: Connection) -> None:
        await connection.request()
        await connection.send_whole(json.dumps(WHOLE).encode())
        await connection.request()

    async with scripted_upstream(serve) as upstream, open_http_engine(upstream.url, retries=0) as engine:
        await answered(engine, generate_request(stream=False))
        with pytest.raises(EngineError):
            await answered(engine, generate_request(stream=False))


# ------------------------------------------------------------ opening


@pytest.mark.parametrize(
    "url",
    ["ftp://a", "127.0.0.1:8001", "http://", "http://u:p@a", "http://a?b=c", "http://a/#b", "http://a:x"],
)
async def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|Port"):
        async with open_http_engine(url):
            pass


def test_importing_the_library_imports_no_http_client() -> None:
    code = "import sys, trio_render; print([m for m in ('httpcore', 'httpx', 'torch') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
