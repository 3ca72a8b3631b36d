"""Streams over WebSockets, and state that clients carry, against the real server."""

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from served.conftest import OpenServer
from served.server import Server, serve
from served.websocket import Closed, WebSocket

CHAT = "/v1/chat/completions/derender"
COMPLETION = "/v1/completions/derender"
PARIS = [504, 3575, 314, 7042, 30]
HI = [{"role": "user", "content": "Hi"}]


def chunk(*ids: int, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"request_id": "r", "choices": [{"index": index, "token_ids": list(ids), **fields}]}


def text_of(answers: list[dict[str, Any]], index: int = 0) -> str:
    choices = [choice for answer in answers for choice in answer["choices"] if choice["index"] == index]
    return "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in choices)


@pytest.mark.parametrize("path", [CHAT, COMPLETION])
@pytest.mark.parametrize("offload", ["auto", "thread", "process"])
def test_a_stream_is_answered_chunk_by_chunk(open_server: OpenServer, path: str, offload: str) -> None:
    options = () if offload == "auto" else ("--offload", offload)
    server = open_server("smollm2", *options)
    name = "chat_request" if path == CHAT else "completion_request"
    request = {name: {"messages": HI, "prompt": "x", "stop": ["."]}, "prompt_tokens": 7, "model": "m"}
    with WebSocket(server.port, path) as ws:
        ws.send(request)
        answers = [ws.ask(chunk(i)) for i in PARIS[:-1]]
        answers.append(ws.ask(chunk(PARIS[-1], finish_reason="stop")))
        last = ws.ask(
            {"request_id": "r", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 5}}
        )
        ws.close()
        assert ws.close_code() == 1000
    assert text_of(answers) == "The capital is Paris"
    assert answers[-1]["choices"][0]["finish_reason"] == "stop"
    assert answers[-1]["choices"][0]["stop_reason"] == "."
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    assert {answer["id"] for answer in answers} == {"r"}
    assert len({answer["created"] for answer in answers}) == 1
    if path == CHAT:
        assert [a["choices"][0]["delta"].get("role") for a in answers] == ["assistant", *[None] * 4]
    server.assert_quiet()


def test_choices_take_turns_or_share_a_chunk(server: Server) -> None:
    with WebSocket(server.port, COMPLETION) as ws:
        ws.send({})
        answers = []
        for n, token_id in enumerate([10813, 242, 218]):  # an emoji in three tokens, held in each choice
            answers.append(ws.ask(chunk(token_id, index=3)))
            both = [*chunk(PARIS[n])["choices"], *chunk(token_id, index=1)["choices"]]
            answers.append(ws.ask({"request_id": "r", "choices": both}))
    assert [text_of(answers, n) for n in (0, 1, 3)] == ["The capital is", "\U0001f600", "\U0001f600"]


def test_messages_may_be_binary_and_come_all_at_once(server: Server) -> None:
    with WebSocket(server.port, COMPLETION) as ws:
        assert ws.extensions == []  # compression is never agreed on
        for message in [{}, *map(chunk, PARIS)]:
            ws.send(json.dumps(message).encode())
        assert text_of([ws.receive() for _ in PARIS]) == "The capital is Paris."


@pytest.mark.parametrize(
    ("messages", "code", "param"),
    [
        (["{"], 1008, "body.1"),
        ([[]], 1008, "body"),
        ([""], 1008, "body"),
        ([{"model": "other"}], 1008, "model"),
        ([{"prompt_token_ids": [-1]}], 1008, "body.prompt_token_ids"),
        ([{"completion_request": {"prompt": "x", "stop": 5}}], 1008, "body.stop"),
        ([{"completion_request": {"prompt": "x", "stop": "x" * 5000}}], 1008, "stop"),
        ([{}, "{}"], 1008, "body.request_id"),
        ([{}, chunk(-1)], 1008, "body.generate_chunk.choices.0.token_ids"),
        ([{}, chunk(5, index=-1)], 1008, "body.choices.0.index"),
        ([{}, chunk(5, index=2**70)], 1008, "body.choices.0.index"),
        ([b""], 1009, None),
        (["[" + "1," * (2 * 1024 * 1024) + "1]"], 1009, None),
    ],
    ids=range(13),
)
def test_a_mistake_ends_the_socket_with_an_error(
    server: Server, messages: list[Any], code: int, param: str | None
) -> None:
    with WebSocket(server.port, COMPLETION) as ws:
        for message in messages:
            ws.send(message)
        error = ws.receive()["error"]
        assert (error["code"], error["param"]) == (
            404 if param == "model" else 413 if code == 1009 else 400,
            param,
        )
        assert ws.close_code() == code
        ws.socket.settimeout(3)
        with pytest.raises(Closed):
            ws.receive()


def test_other_paths_have_no_sockets(server: Server) -> None:
    for path in ("/health", "/nowhere", "/v1/completions/render"):
        with pytest.raises(ConnectionRefusedError):
            WebSocket(server.port, path)


def test_a_message_over_the_limit_is_not_kept(server: Server) -> None:
    """However much a client sends in one message, the server keeps no more than the limit."""
    status = Path(f"/proc/{server.process.pid}/status")

    def resident_kb() -> int:
        return int(status.read_text().split("VmRSS:")[1].split()[0])

    before = resident_kb()
    with WebSocket(server.port, COMPLETION) as ws:
        ws.socket.sendall(b"\x81\xff" + (200 * 1024 * 1024).to_bytes(8, "big") + b"\0\0\0\0")
        for _ in range(200):
            ws.socket.sendall(b" " * 1024 * 1024)
        assert ws.receive()["error"]["code"] == 413
        assert ws.close_code() == 1009
    assert resident_kb() - before < 60_000


def test_a_client_that_goes_leaves_nothing_behind(server: Server) -> None:
    for n in range(30):
        ws = WebSocket(server.port, COMPLETION)
        ws.send({})
        for _ in range(n):
            ws.send(chunk(*PARIS))
        ws.socket.close()
    deadline = time.monotonic() + 5
    while 'derender"} 0.0' not in metrics_line(server) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert 'derender"} 0.0' in metrics_line(server)
    assert server.get("/health").status == 200


def metrics_line(server: Server) -> str:
    lines = server.get("/metrics").body.decode().splitlines()
    return next(line for line in lines if line.startswith('trio_render_running{limiter="derender"}'))


def test_a_client_that_does_not_start_is_told_so(model_folders: Path, log: Path) -> None:
    with (
        serve(model_folders / "smollm2", "--body-timeout", "0.3", log=log) as own,
        WebSocket(own.port, CHAT) as ws,
    ):
        assert ws.receive()["error"]["code"] == 408
        assert ws.close_code() == 1008


def test_a_stopping_server_lets_streams_end_for_a_while(model_folders: Path, log: Path) -> None:
    with (
        serve(model_folders / "smollm2", "--graceful-timeout", "2", log=log, stop_within_s=4) as own,
        WebSocket(own.port, COMPLETION) as ended,
        WebSocket(own.port, COMPLETION) as cut,
    ):
        for ws in (ended, cut):
            ws.send({})
            ws.ask(chunk(504))
        own.stop(signal.SIGTERM)
        time.sleep(0.3)
        assert text_of([ended.ask(chunk(3575))]) == " capital"
        ended.close()
        assert ended.close_code() == 1000
        began = time.monotonic()
        assert cut.close_code() == 1001
        assert 0.5 < time.monotonic() - began < 2


def test_many_streams_at_once(server: Server) -> None:
    texts: list[str] = []

    def stream() -> None:
        with WebSocket(server.port, CHAT) as ws:
            ws.send({"chat_request": {"messages": HI}})
            texts.append(text_of([ws.ask(chunk(i)) for i in PARIS * 20]))

    threads = [threading.Thread(target=stream) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["The capital is Paris." * 20] * 20


# ------------------------------------------------------------ state that clients carry


def carried(server: Server, path: str, state: Any, piece: dict[str, Any]) -> Any:
    reply = server.post(path, {"stream": True, "generate_chunk": piece, "stream_state": state})
    return reply.json if reply.status == 200 else reply.json["error"]


def test_replicas_that_share_a_key_share_streams(model_folders: Path, tmp_path: Path) -> None:
    key = {"TRIO_RENDER_STREAM_STATE_KEY": "one key for all of them"}
    folder = model_folders / "smollm2"
    with (
        serve(folder, "--workers", "2", log=tmp_path / "1.log", env=key) as one,
        serve(folder, log=tmp_path / "2.log", env=key) as other,
        serve(folder, log=tmp_path / "3.log") as stranger,
    ):
        state, text = None, ""
        for n, token_id in enumerate(PARIS):
            answer = carried((one, other)[n % 2], CHAT, state, chunk(token_id))
            text += text_of([answer["chunk"]])
            state = answer["stream_state"]
        assert text == "The capital is Paris."
        for server, path, given in [
            (stranger, CHAT, state),
            (one, COMPLETION, state),
            (one, CHAT, carried(stranger, CHAT, None, chunk(5))["stream_state"]),
        ]:
            error = carried(server, path, given, chunk(30))
            assert (error["code"], error["param"]) == (400, "body.stream_state")
        assert "one key" not in (tmp_path / "1.log").read_text()
