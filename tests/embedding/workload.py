"""The requests that both example programs make."""

import trio_render
from trio_render.protocol.logprobs import Candidate, GenerateLogprobs, TokenLogprob

N_RENDERS = 100
DEADLINE_S = 0.1
TRIES = 7


def chats() -> list[trio_render.ChatRequest]:
    """Requests of very different lengths, so that they don't finish in the order they start."""
    return [
        trio_render.ChatRequest(
            messages=[{"role": "user", "content": f"<{n}>" + " word" * (n * 37 % 100) * 20}]
        )
        for n in range(N_RENDERS)
    ]


def answer(token_ids: list[int], logprobs: GenerateLogprobs | None = None) -> trio_render.DerenderChatRequest:
    """An engine's answer of these tokens."""
    choice = trio_render.GenerateChoice(
        index=0, token_ids=token_ids, finish_reason="length", logprobs=logprobs
    )
    response = trio_render.GenerateResponse(request_id="chatcmpl-example", choices=[choice])
    return trio_render.DerenderChatRequest(generate_response=response)


def long_answer(n_tokens: int = 8000, n_candidates: int = 20) -> trio_render.DerenderChatRequest:
    """An answer that takes more than twice `DEADLINE_S` to derender.

    Its candidates have texts instead of ids, which are no one's to have ready.
    """
    places = [
        TokenLogprob(
            token_id=100 + n,
            logprob=-0.5,
            top_logprobs=[
                Candidate(token=f"candidate {k} of place {n}", logprob=-0.5 - k) for k in range(n_candidates)
            ],
        )
        for n in range(n_tokens)
    ]
    ids = [100 + n for n in range(n_tokens)]
    return answer(ids, GenerateLogprobs(content=places))
