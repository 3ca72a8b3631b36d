"""Encoding with the cache of segments gives what encoding without it does, and the cache stays bounded."""

from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_models import BYTE_LEVEL, opened

from trio_render import Model, open_model
from trio_render.model.tokenizer import Tokenizer

BOUND = 1 << 20
SMALL = 20_000

SEGMENTS = (
    "",
    " ",
    "\n",
    "user\n",
    "\nassistant\n",
    "Hello world",
    " Hello",
    "Hello ",
    "e\u0301",
    "\u0301 alone",
    "\u1100",
    "\u1161",
    "\u4eca\u5929\u5929\u6c14",
    "\x1d",
    "12345",
    "a" * 300,
    "<|im_",
    "end|>",
)
"""Segments of which many meet again; halves of markers and of characters are among them."""


@cache
def without_cache(folder: Path) -> Model:
    return open_model(folder, segment_cache_bytes=0)


@cache
def with_small_cache(folder: Path) -> Model:
    """A cache in which nothing stays for long."""
    return open_model(folder, segment_cache_bytes=SMALL)


def prompts(tokenizer: Tokenizer) -> st.SearchStrategy[list[str]]:
    markers = [*tokenizer.added_tokens[:30], *tokenizer.added_tokens[-5:]]
    part = st.sampled_from(SEGMENTS) | st.sampled_from(markers) | st.text(max_size=8)
    return st.lists(st.lists(part, max_size=12).map("".join), min_size=1, max_size=6)


def in_two_threads(pool: Executor, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Encode the texts in both orders at once, and return the ids of both."""
    orders = (list(range(len(texts))), list(reversed(range(len(texts)))))
    found = list(pool.map(lambda order: {n: tokenizer.encode(texts[n]) for n in order}, orders))
    assert found[0] == found[1]
    return [found[0][n] for n in range(len(texts))]


@pytest.mark.parametrize("cached", [opened, with_small_cache], ids=["default", "small"])
@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_the_cache_changes_no_ids(model_folders: Path, name: str, cached: object) -> None:
    assert callable(cached)
    bare = without_cache(model_folders / name).tokenizer
    tokenizer = cached(model_folders / name).tokenizer

    @settings(deadline=None, max_examples=100)
    @given(prompts(bare))
    def check(texts: list[str]) -> None:
        wanted = [bare.encode(text) for text in texts]
        assert in_two_threads(pool, tokenizer, texts) == wanted
        assert [tokenizer.encode(text) for text in texts] == wanted

    with ThreadPoolExecutor(2) as pool:
        check()


def test_a_conversation_is_encoded_once(model_folders: Path) -> None:
    tokenizer = open_model(model_folders / "qwen3").tokenizer
    text, new = "", 0
    for turn in range(30):
        part = f"<|im_start|>user\nQuestion {turn}.<|im_end|>\n<|im_start|>assistant\n"
        tokenizer.encode(text + part)
        new = len(part)
        text += f"{part}Answer {turn}.<|im_end|>\n"
    before = tokenizer.segment_cache
    tokenizer.encode(text)
    after = tokenizer.segment_cache
    assert before is not None
    assert after is not None
    missed, hit = after.miss_bytes - before.miss_bytes, after.hit_bytes - before.hit_bytes
    assert missed < new
    assert hit > 20 * missed


def test_ids_belong_to_their_caller(model_folders: Path) -> None:
    tokenizer = opened(model_folders / "qwen3").tokenizer
    text = "<|im_start|>user\nHello<|im_end|>"
    first = tokenizer.encode(text)
    wanted = list(first)
    first.clear()
    assert tokenizer.encode(text) == wanted


def test_the_cache_stays_within_its_bound(model_folders: Path) -> None:
    tokenizer = open_model(model_folders / "smollm2", segment_cache_bytes=BOUND).tokenizer
    for n in range(4000):
        tokenizer.encode(f"<|im_start|>{n} " + f"word{n} " * 60 + "<|im_end|>")
    now = tokenizer.segment_cache
    assert now is not None
    assert now.max_bytes == BOUND
    assert 0 < now.bytes <= BOUND


def test_none_is_none(model_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTOKENS_SEGMENT_CACHE", "8")
    assert open_model(model_folders / "smollm2", segment_cache_bytes=0).tokenizer.segment_cache is None
