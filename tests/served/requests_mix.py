"""Unique requests of every kind, and the library's own answers to them."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trio_render

Request = tuple[str, bytes]

TEXT = "a quick brown fox jumps over the lazy dog caf\u00e9 \u4eca\u5929 \U0001f600 def f(x): 3.14 <|im_end|>"
WORDS = TEXT.split()


def make_requests(count: int, seed: int) -> list[Request]:
    """``count`` requests, no two alike."""
    mix = _Mix(random.Random(seed))
    kinds = (mix.chat, mix.completion, mix.truncated, mix.logprobs_chat, mix.logprobs, mix.text, mix.ids)
    return [(path, json.dumps(body).encode()) for path, body in (kinds[i % 7](i) for i in range(count))]


class _Mix:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def words(self, i: int, most: int = 300) -> str:
        return f"{i} " + " ".join(self.rng.choices(WORDS, k=self.rng.randrange(1, most)))

    def token_ids(self) -> list[int]:
        return [self.rng.randrange(49152) for _ in range(self.rng.randrange(1, 100))]

    def chat(self, i: int) -> tuple[str, Any]:
        turns = [
            {"role": ("user", "assistant")[n % 2], "content": self.words(i)}
            for n in range(self.rng.randrange(1, 6))
        ]
        return "/v1/chat/completions/render", {"messages": turns, "seed": i}

    def completion(self, i: int) -> tuple[str, Any]:
        prompts = [self.words(i) for _ in range(self.rng.randrange(1, 4))]
        return "/v1/completions/render", {"prompt": prompts, "return_token_offsets": i % 2 == 0}

    def truncated(self, i: int) -> tuple[str, Any]:
        path, body = self.completion(i)
        side = self.rng.choice(["left", "right"])
        return path, {**body, "truncate_prompt_tokens": 1 + i % 97, "truncation_side": side}

    def choice(self) -> dict[str, Any]:
        ids = self.token_ids()
        content = [
            {
                "token_id": id_,
                "logprob": -self.rng.random(),
                "top_logprobs": [
                    {"token_id": self.rng.randrange(49152), "logprob": -2.5 - j} for j in range(5)
                ],
            }
            for id_ in ids
        ]
        return {"index": 0, "token_ids": ids, "logprobs": {"content": content}}

    def logprobs_chat(self, i: int) -> tuple[str, Any]:
        asked = {"messages": [{"role": "user", "content": "x"}], "logprobs": True, "top_logprobs": 5}
        response = {"request_id": f"r{i}", "choices": [self.choice()]}
        return "/v1/chat/completions/derender", {"generate_response": response, "chat_request": asked}

    def logprobs(self, i: int) -> tuple[str, Any]:
        responses = [{"request_id": f"r{i}", "choices": [self.choice()]}]
        asked = {"prompt": "x", "logprobs": 5}
        return "/v1/completions/derender", {"generate_responses": responses, "completion_request": asked}

    def text(self, i: int) -> tuple[str, Any]:
        return "/tokenize", {"prompt": self.words(i), "return_token_strs": i % 2 == 0}

    def ids(self, i: int) -> tuple[str, Any]:
        return "/detokenize", {"tokens": [i, *self.token_ids()]}


async def library_answers(folder: Path, requests: list[Request]) -> list[Any]:
    """What the library answers, one request at a time."""
    model = trio_render.open_model(folder)
    policy = trio_render.Policy(served_names=("m",))
    async with (
        trio_render.open_renderer(model, policy=policy) as renderer,
        trio_render.open_derenderer(model, policy=policy) as derenderer,
    ):
        answer = {
            "/v1/chat/completions/render": renderer.chat_json,
            "/v1/completions/render": renderer.completion_json,
            "/v1/chat/completions/derender": derenderer.chat_json,
            "/v1/completions/derender": derenderer.completion_json,
            "/tokenize": renderer.tokenize_json,
            "/detokenize": derenderer.detokenize_json,
        }
        return [lasting(await answer[path]([body])) for path, body in requests]


def lasting(answer: bytes) -> Any:
    """An answer without what differs each time: the moment, and the ids that the server made up."""
    document = json.loads(answer)
    for part in _objects(document):
        for key in ("created", "request_id"):
            part.pop(key, None)
    return document


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    yield from document if isinstance(document, list) else [document]
