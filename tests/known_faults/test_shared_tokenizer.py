"""One tokenizer that several threads use: no request's settings reach another's."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from in_process import COMPLETION_RENDER, InProcessServer

from trio_render import open_model

N_THREADS = 8
TEXT = "hello world " * 400


def render(server: InProcessServer, limit: int | None) -> int:
    """The number of ids of the text under ``truncate_prompt_tokens``."""
    body = {"model": "m", "prompt": TEXT}
    if limit is not None:
        body["truncate_prompt_tokens"] = limit
    (rendered,) = server.ok(COMPLETION_RENDER, body)
    return len(rendered["token_ids"])


def on_threads(work: Callable[[int], None]) -> None:
    """Run ``work(k)`` on threads that start together; the first failure is raised."""
    together = threading.Barrier(N_THREADS)

    def one(k: int) -> None:
        together.wait()
        work(k)

    with ThreadPoolExecutor(N_THREADS) as pool:
        list(pool.map(one, range(N_THREADS)))


def test_tokenizers_537_each_thread_gets_its_own_length(smollm2: InProcessServer) -> None:
    """Truncation set by one thread cut another's text, or raised 'Already borrowed'."""

    def work(k: int) -> None:
        for n in range(100):
            limit = 10 + k if n % 2 else None
            assert render(smollm2, limit) == (10 + k if limit else 801)

    on_threads(work)


def test_transformers_47085_abandoned_requests_and_a_reload(
    smollm2: InProcessServer, model_folders: Path
) -> None:
    """A pattern that was safe broke after an upgrade: cancelled calls and a reload are mixed in."""

    class Gone(BaseException):
        """As a cancellation is."""

    def gone() -> None:
        raise Gone

    def work(k: int) -> None:
        server = smollm2
        for n in range(40):
            if k == 0 and n == 5:
                server = InProcessServer(open_model(model_folders / "smollm2"))
            if (k + n) % 4 == 0:
                body = {"model": "m", "prompt": TEXT, "truncate_prompt_tokens": 3}
                try:
                    server.post(COMPLETION_RENDER, body, gone)
                except Gone:
                    continue
                raise AssertionError("the checkpoint was never met")
            assert render(server, 10 + k) == 10 + k
            assert render(server, None) == 801

    on_threads(work)


def test_tokenizers_537_offsets_beside_plain_encodes(smollm2: InProcessServer) -> None:
    """The second encoder, which gives offsets, is shared too."""

    def work(k: int) -> None:
        for n in range(20):
            body = {"model": "m", "prompt": TEXT, "truncate_prompt_tokens": 10 + k}
            body["return_token_offsets"] = n % 2 == 0
            (rendered,) = smollm2.ok(COMPLETION_RENDER, body)
            assert len(rendered["token_ids"]) == 10 + k
            assert len(rendered.get("token_offsets") or rendered["token_ids"]) == 10 + k

    on_threads(work)
