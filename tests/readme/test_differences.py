"""The differences from the reference, and the limit, that README.md lists."""

import json
import shutil
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest

import trio_render


@pytest.fixture(scope="module")
def deepseek(model_folders: Path) -> trio_render.Model:
    return trio_render.open_model(model_folders / "deepseek")


def answer(*token_ids: int, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "token_ids": token_ids, "finish_reason": "length"}
    return {"request_id": "x", "choices": [{**choice, **fields.pop("choice", {})}], **fields}


async def derender(model: trio_render.Model, response: dict[str, Any], **fields: Any) -> dict[str, Any]:
    async with trio_render.open_derenderer(model) as derenderer:
        body = json.dumps({"generate_response": response, **fields}).encode()
        derendered: dict[str, Any] = json.loads(await derenderer.chat_json([body]))
        return derendered


async def test_engine_fields_are_passed_through(deepseek: trio_render.Model) -> None:
    prompt_logprobs = [None, {"30": {"logprob": -1.5, "rank": 1, "decoded_token": "shown as sent"}}]
    response = answer(
        28927,
        225,
        prompt_logprobs=prompt_logprobs,
        ec_transfer_params={"a": [1]},
        weight_version="v7",
        choice={"routed_experts": [[1, 2]]},
    )
    derendered = await derender(deepseek, response)
    assert derendered["prompt_logprobs"] == prompt_logprobs
    assert derendered["ec_transfer_params"] == {"a": [1]}
    assert derendered["weight_version"] == "v7"
    assert derendered["choices"][0]["routed_experts"] == [[1, 2]]


async def test_a_character_that_the_prompts_end_cuts_is_shown_whole(deepseek: trio_render.Model) -> None:
    derendered = await derender(deepseek, answer(225, 3), prompt_token_ids=[0, 28927])
    assert derendered["choices"][0]["message"]["content"] == "😀!"


@pytest.fixture(scope="module")
def padded(model_folders: Path, tmp_path_factory: pytest.TempPathFactory) -> trio_render.Model:
    """smollm2 with a model behind it that has 64 more rows than the tokenizer has entries."""
    folder = tmp_path_factory.mktemp("padded") / "smollm2"
    shutil.copytree(model_folders / "smollm2", folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["vocab_size"] += 64
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return trio_render.open_model(folder)


async def test_ids_in_the_padding_of_the_vocabulary_show_nothing(padded: trio_render.Model) -> None:
    derendered = await derender(padded, answer(504, 49152, 3575, 49152 + 63))
    assert derendered["choices"][0]["message"]["content"] == "The capital"
    assert derendered["usage"]["completion_tokens"] == 4
    with pytest.raises(trio_render.MalformedRequest):
        await derender(padded, answer(504, 49152 + 64))


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
async def test_numbers_that_are_not_finite_are_refused(deepseek: trio_render.Model, number: str) -> None:
    async with trio_render.open_renderer(deepseek) as renderer:
        body = f'{{"messages": [{{"role": "user", "content": "Hi"}}], "temperature": {number}}}'
        with pytest.raises(trio_render.MalformedRequest) as refused:
            await renderer.chat_json([body.encode()])
    assert refused.value.param


async def test_one_long_encode_is_waited_for(
    deepseek: trio_render.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit, not a wish: once this fails, README.md may say so."""
    request = trio_render.TokenizeRequest(prompt="a few words and 1234 digits. " * 50_000)
    encode = deepseek.tokenizer.encode
    encoded: list[int] = []

    def cancelled_encode(text: str) -> list[int]:
        anyio.from_thread.run_sync(scope.cancel)
        ids = encode(text)
        encoded.append(len(text))
        return ids

    monkeypatch.setattr(deepseek.tokenizer, "encode", cancelled_encode)
    async with trio_render.open_renderer(deepseek) as renderer:
        with anyio.CancelScope() as scope:
            await renderer.tokenize(request)
        assert encoded == [len(request.prompt)]
        assert renderer.limiter.borrowed_tokens == 0
