"""Tensors in requests: forged, broken, or of another kind than the server's."""

import base64
import pickle
from pathlib import Path
from typing import Any

import embeds_payloads as payloads
import pytest
import torch
from embeds_payloads import HIDDEN, base64_of, coo, numbers
from in_process import COMPLETION_RENDER, InProcessServer
from opened_models import opened

from trio_render import Policy

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")

GOOD = payloads.zip_file(numbers(3, HIDDEN))
CODE = payloads.Call(Path.touch, Path("marker"))


@pytest.fixture(scope="module")
def server(model_folders: Path) -> InProcessServer:
    """S of the list, with a hidden size of 64 instead of 576."""
    policy = Policy(served_names=("m",), enable_prompt_embeds=True)
    return InProcessServer(opened(model_folders / "smollm2"), policy)


def message(server: InProcessServer, text: Any) -> str:
    """What is wrong with it. A valid tensor has only the endpoint against it: its answers hold token ids."""
    reply = server.post(COMPLETION_RENDER, {"model": "m", "prompt_embeds": text})
    assert reply.status == 400
    assert reply.error["param"] == "prompt_embeds"
    assert len(reply.raw) < 1024
    answer: str = reply.error["message"]
    return answer


def is_valid(server: InProcessServer, data: bytes) -> bool:
    return message(server, base64_of(data)).startswith("prompt_embeds are valid")


UNREADABLE = {
    "nothing": "",
    "one byte": base64_of(b"\x80"),
    "64 random bytes": base64_of(bytes(range(100, 164))),
    "a text": base64_of(b"hello world"),
    "the first half of a good file": base64_of(GOOD[: len(GOOD) // 2]),
    "a zip without a tensor": base64_of(payloads.zip_file(5)),
    "a pickle of 5": base64_of(pickle.dumps(5)),
    "a dict": base64_of(payloads.zip_file({"a": numbers(3, HIDDEN)})),
    "not base64": "***",
    "a line break": base64.encodebytes(GOOD).decode(),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_vllm_55451_unreadable_payloads(server: InProcessServer, name: str) -> None:
    """Each kind raised another error in the loader, and became a 500."""
    assert not message(server, UNREADABLE[name]).startswith("prompt_embeds are valid")
    assert is_valid(server, GOOD)


@pytest.mark.parametrize("index", [3, 5, -1, 2**40])
def test_vllm_30572_sparse_indices_out_of_range(server: InProcessServer, index: int) -> None:
    """The loader's own check is off by default, so that a forged index wrote outside."""
    forged = payloads.zip_file(coo([[index], [0]], [1.0], (3, HIDDEN)))
    assert message(server, base64_of(forged)) == "The indices of sparse prompt_embeds are out of range."
    assert is_valid(server, payloads.zip_file(coo([[2], [0]], [1.0], (3, HIDDEN))))


ACCEPTED = {
    **{str(dtype): numbers(3, HIDDEN, dtype=dtype) for dtype in payloads.FLOATS},
    "(1, 3, hidden)": numbers(1, 3, HIDDEN),
    "a transposed view": numbers(HIDDEN, 3).t(),
    "a slice": numbers(1000, HIDDEN)[:3],
}
REFUSED = {
    "int64": torch.ones(3, HIDDEN).to(torch.int64),
    "bool": torch.ones(3, HIDDEN).to(torch.bool),
    "(hidden,)": numbers(HIDDEN),
    "(2, 3, hidden)": numbers(2, 3, HIDDEN),
    "(3, hidden + 1)": numbers(3, HIDDEN + 1),
    "(0, hidden)": numbers(0, HIDDEN),
    "all NaN": torch.full((3, HIDDEN), float("nan")),
    "8193 rows": numbers(8193, HIDDEN, dtype=torch.bfloat16),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_vllm_22962_kinds_that_are_cast_or_made_contiguous(server: InProcessServer, name: str) -> None:
    assert is_valid(server, payloads.zip_file(ACCEPTED[name]))


@pytest.mark.parametrize("name", REFUSED)
def test_vllm_22962_kinds_that_are_not_embeddings(server: InProcessServer, name: str) -> None:
    assert not is_valid(server, payloads.zip_file(REFUSED[name]))


def test_vllm_22962_a_file_of_a_device_that_is_not_here(server: InProcessServer) -> None:
    """A file saved on a GPU failed on a server without one."""
    legacy = payloads.legacy_file(numbers(3, HIDDEN))
    assert is_valid(server, legacy.replace(b"\x03\x00\x00\x00cpu", b"\x06\x00\x00\x00cuda:0"))


@pytest.mark.parametrize("form", ["pickle", "zip", "legacy", "in a tensor"])
def test_vllm_12366_payloads_with_code(
    server: InProcessServer, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader unpickles anything by default, and with it runs anything."""
    monkeypatch.chdir(tmp_path)
    inside = payloads.tensor_call(payloads.Stored(192), 0, CODE, (HIDDEN, 1))
    data = {
        "pickle": payloads.pickled(CODE),
        "zip": payloads.zipped(payloads.pickled(CODE), {}),
        "legacy": payloads.legacy_of(CODE),
        "in a tensor": payloads.zipped(payloads.pickled(inside), {"0": bytes(768)}),
    }[form]
    assert not is_valid(server, data)
    assert not (tmp_path / "marker").exists()
    pickle.loads(payloads.pickled(CODE))
    assert (tmp_path / "marker").exists(), "the code works"
