"""Prompts given as embeddings, at the demo model: its own embeddings of ids say what the ids say."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from embeds_payloads import base64_of, safetensors_file, zip_file
from gguf import GGUFReader, dequantize
from served.events import streamed
from served.server import Server

from trio_render.model.loading import weights_of

COMPLETION = "/v1/completions"
FRANCE = [504, 3575, 282, 4649, 314]
COUNT = [2705, 28, 827, 28]
ASKED: dict[str, Any] = {"temperature": 0, "max_tokens": 4}

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


@cache
def table() -> torch.Tensor:
    """The demo's embedding table, from its file."""
    found = weights_of("demo")
    assert found is not None
    folder, name = found
    [tensor] = [t for t in GGUFReader(f"{folder}/{name}").tensors if t.name == "token_embd.weight"]
    return torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())


def embedded(token_ids: Sequence[int]) -> str:
    return base64_of(safetensors_file(table()[list(token_ids)].contiguous()))


def texts(server: Server, body: dict[str, Any]) -> list[str]:
    """The answer's texts; streamed they must be the same."""
    reply = server.post(COMPLETION, {**ASKED, **body})
    assert reply.status == 200, reply.body
    choices: list[str] = [choice["text"] for choice in reply.json["choices"]]
    joined = dict.fromkeys(range(len(choices)), "")
    *chunks, last = streamed(server, COMPLETION, {**ASKED, **body, "stream_options": {"include_usage": True}})
    for chunk in chunks:
        for choice in chunk["choices"]:
            joined[choice["index"]] += choice["text"]
    assert list(joined.values()) == choices
    assert last["usage"] == reply.json["usage"]
    return choices


def test_embeddings_of_ids_say_what_the_ids_say(demo: Server) -> None:
    [france, count] = texts(demo, {"prompt": [FRANCE, COUNT]})
    assert "Paris" in france
    assert texts(demo, {"prompt_embeds": embedded(FRANCE)}) == [france]
    assert texts(demo, {"prompt_embeds": [embedded(COUNT), embedded(FRANCE)]}) == [count, france]
    both = {"prompt_embeds": base64_of(zip_file(table()[FRANCE].clone())), "prompt": COUNT}
    assert texts(demo, both) == [france, count]


def test_what_embeddings_cannot_have(demo: Server) -> None:
    good = embedded(FRANCE)
    for fields, param in [
        ({"prompt_embeds": "***"}, "prompt_embeds"),
        ({"prompt_embeds": [good, 5]}, "prompt_embeds"),
        ({"prompt_embeds": good, "echo": True}, "echo"),
        ({"prompt_embeds": good, "prompt_logprobs": 1}, "prompt_logprobs"),
        ({"prompt_embeds": base64_of(safetensors_file(torch.zeros(2, 64)))}, "prompt_embeds"),
        ({"prompt_embeds": base64_of(safetensors_file(torch.full((2, 576), torch.nan)))}, "prompt_embeds"),
    ]:
        for stream in (False, True):
            reply = demo.post(COMPLETION, {**ASKED, **fields, "stream": stream})
            assert (reply.status, reply.json["error"]["param"]) == (400, param)
