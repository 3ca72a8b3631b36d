"""Embeddings at a real server: what they cost others, and what broken ones cost it."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import embeds_payloads as payloads
import pytest
import torch
from embeds_payloads import HIDDEN, base64_of, numbers
from malformed_embeds import FILES, TEXTS
from served.conftest import OpenServer
from served.proc import MIB, forget_peak, peak_resident, reads_proc, resident
from served.server import Server, read_raw_reply, request_bytes, run_to_end
from served.test_known_faults import check_probe

RENDER = "/v1/completions/render"
ON = "--enable-prompt-embeds"
GOOD = base64_of(payloads.safetensors_file(numbers(3, HIDDEN)))

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


def maps(server: Server) -> str:
    return Path(f"/proc/{server.process.pid}/maps").read_text()


def refusal(server: Server, embeds: object) -> str:
    reply = server.post(RENDER, {"model": "m", "prompt_embeds": embeds})
    assert reply.status == 400
    assert reply.json["error"]["param"] == "prompt_embeds"
    message: str = reply.json["error"]["message"]
    return message


@pytest.mark.parametrize("offload", ["auto", pytest.param("process", marks=pytest.mark.slow)])
def test_a_server_says_what_is_wrong_and_what_is_not(open_server: OpenServer, offload: str) -> None:
    server = open_server("smollm2", ON, "--offload", offload)
    large = base64_of(payloads.zip_file(numbers(8000, HIDDEN)))
    assert "token ids only" in refusal(server, GOOD)
    assert "token ids only" in refusal(server, [large, GOOD])
    assert "base64" in refusal(server, [large, "***"])
    assert server.post(RENDER, {"model": "m", "prompt": "hi"}).status == 200
    server.assert_quiet()


@reads_proc
def test_only_a_server_that_needs_pytorch_has_it(open_server: OpenServer) -> None:
    assert "libtorch" not in maps(open_server("smollm2"))
    assert "libtorch" in maps(open_server("smollm2", ON))


def test_a_server_without_a_hidden_size_does_not_start(tmp_path: Path, model_folders: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((model_folders / "smollm2" / name).read_bytes())
    (tmp_path / "config.json").write_text('{"vocab_size": 49152}')
    ended = run_to_end("serve", "--port", "0", "--model", str(tmp_path), ON)
    assert ended.returncode == 1
    assert "hidden_size" in ended.stderr


def declared(server: Server, size: int) -> int:
    """The status of a request whose body is said to have ``size`` bytes; 0: the server waits for them."""
    with server.raw(timeout=1) as connection:
        connection.sendall(request_bytes(RENDER, b"", length=size))
        try:
            return read_raw_reply(connection).status
        except TimeoutError:
            return 0


def test_bodies_may_be_larger(open_server: OpenServer, server: Server) -> None:
    """vllm#22962: a file of 230 MB for three rows was read for four seconds."""
    assert declared(server, 65 * MIB) == 413
    larger = open_server("smollm2", ON)
    assert declared(larger, 230_000_000 * 4 // 3) == 413
    body = json.dumps({"prompt": "hi", "user": "x" * (65 * MIB)}).encode()
    assert larger.post(RENDER, body).status == 200
    assert declared(open_server("smollm2", ON, "--max-body", "1M"), 2 * MIB) == 413


@reads_proc
def test_payloads_that_lie_cost_a_server_no_memory(open_server: OpenServer) -> None:
    """At most three times the body and 32 MiB, over what a server has that has answered."""
    server = open_server("smollm2", ON, "--port", "0")
    for _ in range(3):
        refusal(server, GOOD)
    before = resident(server)
    forget_peak(server)
    texts = [base64.b64encode(make()).decode() for make in FILES.values()]
    for text in (*texts, *TEXTS.values()):
        assert "valid" not in refusal(server, text)
        assert peak_resident(server) - before < 3 * len(text) + 32 * MIB
    server.assert_quiet()
    assert "token ids only" in refusal(server, GOOD)


@reads_proc
@pytest.mark.parametrize("kind", ["nan", "legacy", "not base64", "cut"])
def test_large_bad_payloads_cost_a_server_three_bodies(open_server: OpenServer, kind: str) -> None:
    server = open_server("smollm2", ON, "--max-model-len", "200000")
    refusal(server, GOOD)
    before = resident(server)
    forget_peak(server)
    tensor = torch.ones(150_000, HIDDEN, dtype=torch.float32)
    tensor[-1, -1] = float("nan")
    text = {
        "nan": lambda: base64_of(payloads.zip_file(tensor)),
        "legacy": lambda: base64_of(payloads.legacy_file(tensor)),
        "not base64": lambda: base64_of(payloads.zip_file(tensor))[:-4] + "*AAA",
        "cut": lambda: base64_of(payloads.safetensors_file(tensor)[:-6]),
    }[kind]()
    refusal(server, text)
    assert peak_resident(server) - before < 3 * len(text) + 32 * MIB
    server.assert_quiet()


def test_vllm_38157_a_probe_beside_large_tensors(open_server: OpenServer) -> None:
    """Reading tensors on the loop delayed a probe of a healthy server by tens of seconds."""
    server = open_server("smollm2", ON, "--max-model-len", "200000")
    # As many bytes as 8000 x 576 in float32: 23 MiB of base64.
    text = base64_of(payloads.zip_file(numbers(72_000, HIDDEN)))
    check_probe(server, RENDER, json.dumps({"prompt_embeds": [text] * 2}).encode(), 400)
    body = json.dumps({"prompt_embeds": text}).encode()
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda _: server.post(RENDER, body), range(4)))
    assert all("token ids only" in reply.json["error"]["message"] for reply in replies)
