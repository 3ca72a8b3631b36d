"""What must not cost more than it needs: broken bytes, huge texts, many candidates, added tokens.

Bounds on time are generous: they tell linear from quadratic, and microseconds from milliseconds.
"""

import gc
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from in_process import (
    CHAT_DERENDER,
    CHAT_RENDER,
    COMPLETION_DERENDER,
    COMPLETION_RENDER,
    DETOKENIZE,
    InProcessServer,
)
from known_faults.bodies import chat_body, completion_body, logprob, logprobs

from trio_render.model.tokenizer import Tokenizer


def best_time(work: Callable[[], object], tries: int = 5) -> float:
    """The shortest of some runs in CPU seconds of this thread, the collector off."""
    times = []
    gc.disable()
    try:
        for _ in range(tries):
            began = time.thread_time()
            work()
            times.append(time.thread_time() - began)
    finally:
        gc.enable()
    return min(times)


def derender_time(server: InProcessServer, ids: list[int]) -> float:
    """How long a completion derender of ``ids`` takes."""
    body = json.dumps(completion_body(ids)).encode()
    return best_time(lambda: server.ok(COMPLETION_DERENDER, body))


def test_sglang_34740_broken_bytes_cost_no_more_than_text(smollm2: InProcessServer) -> None:
    """Each step decoded the whole run of U+FFFD again."""
    plain = derender_time(smollm2, [26843] * 4000)
    broken = derender_time(smollm2, [242] * 4000)
    twice = derender_time(smollm2, [242] * 8000)
    assert twice < 3 * broken + 0.002
    assert broken < 6 * plain + 0.002


@pytest.mark.parametrize("ids", [[242], [10813], [10813, 242]])
def test_sglang_34740_stops_in_broken_bytes(smollm2: InProcessServer, ids: list[int]) -> None:
    """Looking for a stop text among broken bytes grows no faster than they do."""

    def seconds(n: int) -> float:
        request = {"stop": ["\ufffd!"], "min_tokens": 5}
        body = json.dumps(completion_body((ids * n)[:n], request=request, finish_reason="stop")).encode()
        return best_time(lambda: smollm2.ok(COMPLETION_DERENDER, body))

    assert seconds(8000) < 3 * seconds(4000) + 0.002


def test_sglang_34740_logprobs_of_broken_bytes(smollm2: InProcessServer) -> None:
    """Nor do the texts of their logprobs."""

    def seconds(n: int) -> float:
        content = logprobs(*(logprob(10813, -0.5, (10813, -0.5), (242, -1.0)) for _ in range(n)))
        body = json.dumps(completion_body([10813] * n, logprobs=content)).encode()
        return best_time(lambda: smollm2.ok(COMPLETION_DERENDER, body))

    assert seconds(8000) < 3 * seconds(4000) + 0.01


HUGE_TEXTS = {
    "letters": "a" * 6_000_000,
    "spaces": " " * 6_000_000,
    "digits": "7" * 6_000_000,
    "one wide character": "\u65e5" * 2_000_000,
    "words": "hello world " * 500_000,
}


@pytest.fixture
def no_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every encode fail."""

    def encode(self: Tokenizer, text: str) -> Any:
        raise AssertionError(f"encoded {len(text)} characters")

    monkeypatch.setattr(Tokenizer, "encode", encode)
    monkeypatch.setattr(Tokenizer, "encode_with_offsets", encode)


@pytest.mark.usefixtures("no_encoding")
@pytest.mark.parametrize("text", HUGE_TEXTS.values(), ids=HUGE_TEXTS)
@pytest.mark.parametrize("name", ["smollm2", "qwen3", "mistral", "deepseek"])
@pytest.mark.parametrize("path", [COMPLETION_RENDER, CHAT_RENDER])
def test_cheshire_cat_1118_and_vllm_24910_text_that_can_not_fit_is_not_encoded(
    request: pytest.FixtureRequest, path: str, name: str, text: str
) -> None:
    """Long texts overflowed a tokenizer's stack, or held the loop for as long as their encoding took."""
    server: InProcessServer = request.getfixturevalue(name)
    messages = [{"role": "user", "content": text}]
    body = json.dumps({"model": "m", "prompt": text, "messages": messages}).encode()
    began = time.thread_time()
    reply = server.post(path, body)
    seconds = time.thread_time() - began
    assert reply.error["code"] == 400
    assert seconds < 2


def test_cheshire_cat_1118_shorter_texts_still_fit(smollm2: InProcessServer) -> None:
    """The bound refuses no text that its encoding would not refuse."""
    for text in (" " * 60_000, "a" * 8_000, "hello world " * 2_000):
        (rendered,) = smollm2.ok(COMPLETION_RENDER, {"model": "m", "prompt": text})
        assert len(rendered["token_ids"]) < 8192


N_TOKENS = 4000
UNIQUE = 500


@pytest.mark.parametrize("n_candidates", [5, 20])
def test_vllm_4699_many_candidates(deepseek: InProcessServer, n_candidates: int) -> None:
    """Throughput fell by half and more as the number of candidates rose."""
    ids = [1000 + n % UNIQUE for n in range(N_TOKENS)]
    entries = []
    for n, token_id in enumerate(ids):
        others = [(1000 + (n * 7 + k) % UNIQUE, -1.0 - k) for k in range(1, n_candidates)]
        entries.append(logprob(token_id, -0.5, (token_id, -0.5), *others))
    body = json.dumps(chat_body(ids, logprobs=logprobs(*entries))).encode()

    first = InProcessServer(deepseek.model).ok(CHAT_DERENDER, body)["choices"][0]["logprobs"]["content"]
    seconds = best_time(lambda: deepseek.post(CHAT_DERENDER, body))
    again = deepseek.ok(CHAT_DERENDER, body)["choices"][0]["logprobs"]["content"]
    assert again == first
    assert seconds / (N_TOKENS * (n_candidates + 1)) < 20e-6

    texts = {
        token_id: deepseek.ok(DETOKENIZE, {"model": "m", "tokens": [token_id]})["prompt"]
        for token_id in set(ids)
    }
    whole = {token_id: text for token_id, text in texts.items() if "\ufffd" not in text}
    assert len(whole) > UNIQUE // 2
    for token_id, place in zip(ids, first, strict=True):
        if token_id in whole:
            assert place["token"] == whole[token_id]
            assert bytes(place["bytes"]).decode() == whole[token_id]


def test_vllm_5206_added_tokens_cost_what_text_costs(qwen3: InProcessServer) -> None:
    """A slow path for added tokens ran for every token."""
    plain = derender_time(qwen3, [9658, 1414] * 4000)
    mixed = derender_time(qwen3, [248058, 9658, 248059, 1414] * 2000)
    assert mixed < 4 * plain + 0.002
