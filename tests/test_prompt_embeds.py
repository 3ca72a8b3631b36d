"""Embeddings through a renderer: jobs of their own, under their own limit, on both event loops."""

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import embeds_payloads as payloads
import pytest
import torch
from embeds_payloads import HIDDEN, base64_of, numbers
from gates import wait_idle
from opened_models import opened

from trio_render import (
    CompletionRequest,
    InvalidRequest,
    Limits,
    MalformedRequest,
    Model,
    ModelLoadError,
    Policy,
    Renderer,
    open_offloader,
    open_renderer,
    open_workspace,
    workspace_of,
)

POLICY = Policy(served_names=("m",), enable_prompt_embeds=True)
ONLY_IDS = "token ids only"
SMALL = base64_of(payloads.safetensors_file(numbers(3, HIDDEN)))
LARGE = base64_of(payloads.zip_file(numbers(6000, HIDDEN)))
BAD = LARGE[:400_000] + "*" + LARGE[400_001:]


@pytest.fixture(scope="module")
def model(model_folders: Path) -> Model:
    return opened(model_folders / "smollm2")


@pytest.fixture
async def renderer(model: Model) -> AsyncIterator[Renderer]:
    async with open_renderer(model, policy=POLICY) as opened_renderer:
        yield opened_renderer


def chunks(body: Any, size: int = 65_536) -> list[bytes]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return [text[n : n + size] for n in range(0, len(text), size)]


async def test_a_text_is_a_tensor(renderer: Renderer) -> None:
    wanted = numbers(3, HIDDEN).to(torch.bfloat16)
    assert torch.equal(await renderer.prompt_embeds(SMALL), wanted)
    assert torch.equal(await renderer.prompt_embeds(chunks(SMALL.encode(), 100)), wanted)


async def test_a_batch_comes_in_order(renderer: Renderer) -> None:
    texts = [base64_of(payloads.zip_file(numbers(n, HIDDEN, seed=n))) for n in range(1, 20)]
    tensors = await renderer.prompt_embeds_batch(texts)
    assert all(
        torch.equal(tensor, numbers(n, HIDDEN, seed=n).to(torch.bfloat16))
        for n, tensor in enumerate(tensors, 1)
    )
    assert renderer.offloader.statistics().kinds["prompt_embeds"].ran == 19


async def test_the_first_bad_text_of_a_batch_ends_it(renderer: Renderer) -> None:
    with pytest.raises(InvalidRequest, match="base64"):
        await renderer.prompt_embeds_batch([LARGE, BAD, LARGE])
    await wait_idle(renderer.offloader.limiter("prompt_embeds"))


async def test_a_cancelled_text_is_given_up(renderer: Renderer) -> None:
    with anyio.move_on_after(0):
        await renderer.prompt_embeds(LARGE)
    await wait_idle(renderer.offloader.limiter("prompt_embeds"))


BODIES: dict[str, tuple[Any, str]] = {
    "small": ({"prompt_embeds": SMALL}, ONLY_IDS),
    "large": ({"prompt_embeds": LARGE}, ONLY_IDS),
    "a list": ({"prompt_embeds": [SMALL, LARGE, SMALL]}, ONLY_IDS),
    "with a text": ({"prompt": "hi", "prompt_embeds": LARGE}, ONLY_IDS),
    "with texts": ({"prompt_embeds": [LARGE], "prompt": ["hi", "you"]}, ONLY_IDS),
    "with ids": ({"prompt_embeds": [LARGE], "prompt": [[1], [2, 3]]}, ONLY_IDS),
    "with an empty text": ({"prompt_embeds": SMALL, "prompt": ""}, ONLY_IDS),
    "escaped": (json.dumps({"prompt_embeds": LARGE}).replace("/", "\\/").encode(), ONLY_IDS),
    "twice": (f'{{"prompt_embeds": "{LARGE}", "prompt_embeds": "{SMALL}"}}'.encode(), ONLY_IDS),
    "bad": ({"prompt_embeds": BAD}, "base64"),
    "bad at the end": ({"prompt_embeds": [LARGE, SMALL, BAD]}, "base64"),
    "an empty text": ({"prompt_embeds": ""}, "must not be empty"),
    "a number": ({"prompt_embeds": 5}, "a list of texts"),
    "an object": ({"prompt_embeds": {}}, "a list of texts"),
    "a list of numbers": ({"prompt_embeds": [5]}, "a list of texts"),
    "a list in a list": ({"prompt_embeds": [[SMALL]]}, "a list of texts"),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("size", [10_000, 65_536, 10**9])
async def test_a_body_is_told_what_is_wrong(renderer: Renderer, name: str, size: int) -> None:
    body, message = BODIES[name]
    with pytest.raises(InvalidRequest, match=message) as caught:
        await renderer.completion_json(chunks(body, size))
    assert caught.value.param == "prompt_embeds"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"echo": True}, "echo"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"temperature": -1}, "temperature"),
        ({"prompt": ["a"] * 1024}, "prompt"),
        ({"prompt": 5}, "body.prompt"),
    ],
)
async def test_other_faults_are_named(renderer: Renderer, fields: dict[str, Any], param: str) -> None:
    for text in (SMALL, LARGE):
        with pytest.raises(InvalidRequest) as caught:
            await renderer.completion_json(chunks({"prompt_embeds": text, **fields}))
        assert caught.value.param == param


async def test_other_places_of_the_name_are_none(renderer: Renderer) -> None:
    for body in (
        {"prompt": "hi", "vllm_xargs": {"prompt_embeds": LARGE}},
        {"prompt": "hi " + LARGE[:1000], "prompt_embeds": [], "user": LARGE},
        {"prompt": "hi", "prompt_embeds": None, "user": '"prompt_embeds": "' + LARGE},
    ):
        (answer,) = json.loads(await renderer.completion_json(chunks(body)))
        assert answer["token_ids"]


async def test_an_error_names_the_place_in_the_whole_body(renderer: Renderer) -> None:
    body = json.dumps({"prompt_embeds": LARGE}).encode()[:-1] + b', "n": x}'
    with pytest.raises(MalformedRequest) as caught:
        await renderer.completion_json(chunks(body))
    assert caught.value.param == f"body.{len(body) - 2}"


async def test_a_typed_request_is_told_the_same(renderer: Renderer) -> None:
    with pytest.raises(InvalidRequest, match=ONLY_IDS):
        await renderer.completion(CompletionRequest(prompt_embeds=[SMALL, LARGE]))
    with pytest.raises(InvalidRequest, match="base64"):
        await renderer.completion(CompletionRequest(prompt="hi", prompt_embeds=BAD))


async def test_each_text_is_a_job_of_its_own_kind(renderer: Renderer) -> None:
    with pytest.raises(InvalidRequest, match=ONLY_IDS):
        await renderer.completion_json(chunks({"prompt_embeds": [LARGE, SMALL, LARGE]}))
    kinds = renderer.offloader.statistics().kinds
    assert kinds["prompt_embeds"].ran == 3
    assert kinds["render"].ran == 2, "lifting, and all else"


async def test_they_are_off_by_default(model: Model) -> None:
    async with open_renderer(model) as renderer:
        for call in (
            renderer.prompt_embeds(SMALL),
            renderer.completion_json(chunks({"prompt_embeds": SMALL})),
            renderer.completion(CompletionRequest(prompt_embeds=SMALL)),
        ):
            with pytest.raises(InvalidRequest, match="not enabled") as caught:
                await call
            assert caught.value.param == "prompt_embeds"


@pytest.mark.parametrize("backend", ["process", "inline"])
async def test_every_backend_does_the_same(model_folders: Path, backend: Any) -> None:
    load = partial(open_workspace, model_folders / "smollm2", POLICY)
    workspace = workspace_of(opened(model_folders / "smollm2"), POLICY)
    limits = Limits(prompt_embeds=2)
    opening = open_offloader(load, workspace, backend=backend, limits=limits, processes=1)
    async with opening as offloader, open_renderer(workspace, offloader=offloader) as renderer:
        assert torch.equal(await renderer.prompt_embeds(SMALL), numbers(3, HIDDEN).to(torch.bfloat16))
        for name in ("a list", "with a text", "escaped", "bad at the end"):
            body, message = BODIES[name]
            with pytest.raises(InvalidRequest, match=message):
                await renderer.completion_json(chunks(body))


def test_a_model_of_unknown_width_is_not_opened(tmp_path: Path, model_folders: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((model_folders / "smollm2" / name).read_bytes())
    (tmp_path / "config.json").write_text('{"vocab_size": 49152}')
    with pytest.raises(ModelLoadError, match="hidden_size"):
        open_workspace(tmp_path, POLICY)
    assert open_workspace(tmp_path).model.hidden_size is None
