"""OpenAI's own client, at the demo model."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI
from served.server import Server

FRANCE: Any = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture
def client(demo: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=demo.url + "/v1", api_key="none", max_retries=0) as opened:
        yield opened


@pytest.fixture
async def async_client(demo: Server) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=demo.url + "/v1", api_key="none", max_retries=0) as opened:
        yield opened


def test_a_chat(client: OpenAI) -> None:
    asked: Any = {"model": "m", "messages": FRANCE, "temperature": 0}
    answer = client.chat.completions.create(**asked)
    [choice] = answer.choices
    assert "Paris" in choice.message.content
    assert (choice.message.role, choice.finish_reason, answer.model) == ("assistant", "stop", "m")
    chunks = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    *others, last = chunks
    assert "".join(chunk.choices[0].delta.content or "" for chunk in others) == choice.message.content
    assert [chunk.choices[0].delta.role for chunk in others] == ["assistant", *[None] * (len(others) - 1)]
    reasons = [chunk.choices[0].finish_reason for chunk in others]
    assert reasons == [*[None] * (len(others) - 1), "stop"]
    assert [chunk.usage for chunk in others] == [None] * len(others)
    assert (last.choices, last.usage) == ([], answer.usage)
    assert len({chunk.id for chunk in chunks}) == 1


# The client leaves a generator to the event loop's hooks, which only asyncio's take without a warning.
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_chat_asynchronously(async_client: AsyncOpenAI) -> None:
    asked: Any = {"model": "m", "messages": FRANCE, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    answer = await async_client.chat.completions.create(**asked)
    text, entries = "", []
    async with await async_client.chat.completions.create(**asked, stream=True) as stream:
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            assert chunk.choices[0].logprobs is not None
            entries += chunk.choices[0].logprobs.content or []
    [choice] = answer.choices
    assert text == choice.message.content
    assert [entry.token for entry in entries] == [entry.token for entry in choice.logprobs.content]
    assert all(len(entry.top_logprobs) == 2 for entry in entries)
    assert "".join(entry.token for entry in entries).startswith(text)


def test_a_completion_with_logprobs(client: OpenAI) -> None:
    asked: Any = {"model": "m", "prompt": "The capital of France is", "temperature": 0, "max_tokens": 6}
    [choice] = client.completions.create(**asked, logprobs=2).choices
    assert "Paris" in choice.text
    logprobs = choice.logprobs
    assert logprobs is not None
    assert "".join(logprobs.tokens or []) == choice.text
    assert [max(places.values()) for places in logprobs.top_logprobs or []] == logprobs.token_logprobs
    text, tokens, offsets = "", [], []
    for chunk in client.completions.create(**asked, logprobs=2, stream=True):
        text += chunk.choices[0].text
        assert chunk.choices[0].logprobs is not None
        tokens += chunk.choices[0].logprobs.tokens or []
        offsets += chunk.choices[0].logprobs.text_offset or []
    assert (text, tokens, offsets) == (choice.text, logprobs.tokens, logprobs.text_offset)


def test_several_choices_with_a_seed(client: OpenAI) -> None:
    asked: Any = {"model": "m", "prompt": "Once upon", "n": 2, "seed": 7, "max_tokens": 6, "temperature": 1.0}
    texts = [choice.text for choice in client.completions.create(**asked).choices]
    assert len(set(texts)) == 2, "choices of one seed must differ"
    assert [choice.text for choice in client.completions.create(**asked).choices] == texts
    joined = {0: "", 1: ""}
    for chunk in client.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            joined[choice.index] += choice.text
    assert joined == dict(enumerate(texts))


def test_stop_strings_and_echo(client: OpenAI) -> None:
    asked: Any = {"model": "m", "prompt": "The capital of France is", "temperature": 0, "max_tokens": 12}
    [whole] = client.completions.create(**asked).choices
    [stopped] = client.completions.create(**asked, stop=["Pari"]).choices
    assert stopped.text == whole.text.partition("Pari")[0]
    assert stopped.finish_reason == "stop"
    chunks = list(client.completions.create(**asked, stop=["Pari"], echo=True, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == asked["prompt"] + stopped.text
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_several_prompts(client: OpenAI) -> None:
    prompts = ["The capital of France is", "One, two, three,", "Roses are red, violets are"]
    asked: Any = {"model": "m", "prompt": prompts, "temperature": 0, "max_tokens": 4}
    answer = client.completions.create(**asked)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    joined = dict.fromkeys(range(3), "")
    for chunk in client.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            joined[choice.index] += choice.text
    assert joined == {choice.index: choice.text for choice in answer.choices}
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12


@pytest.mark.parametrize("stream", [False, True])
def test_errors(client: OpenAI, stream: bool) -> None:
    with pytest.raises(BadRequestError) as refused:
        client.chat.completions.create(model="m", messages=FRANCE, temperature=3, stream=stream)
    assert (refused.value.param, refused.value.code) == ("temperature", "400")
    with pytest.raises(NotFoundError):
        client.completions.create(model="other", prompt="x", stream=stream)
