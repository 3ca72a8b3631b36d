"""Requests to engines."""

from typing import Any

from trio_render import GenerateRequest, SamplingParams


def generate_request(*, n: int = 1, stream: bool = True, **others: Any) -> GenerateRequest:
    """A request for ``n`` choices, as a renderer makes it."""
    sampling_params = SamplingParams(
        presence_penalty=0.0,
        frequency_penalty=0.0,
        repetition_penalty=1.0,
        temperature=1.0,
        top_p=1.0,
        min_p=0.0,
        stop=[],
        stop_token_ids=[],
        bad_words=[],
        output_kind=1 if stream else 2,
        skip_reading_prefix_cache=False,
        skip_clone=False,
        n=n,
    )
    given = {"request_id": "r", "token_ids": [1, 2, 3], "priority": 0, **others}
    return GenerateRequest(sampling_params=sampling_params, output_mode="tokens", stream=stream, **given)
