"""Stop texts and stop tokens of streams: the same as of whole answers, and never shown first."""

from typing import Any

import pytest
from in_process import COMPLETION_DERENDER, InProcessServer
from known_faults.bodies import completion_choice
from known_faults.streams import deltas, stream, streamed
from streaming import every_cut, pieces_of

PARIS = [504, 3575, 314, 7042, 30, 198, 11126, 42, 1867]
PARIS_TEXT = "The capital is Paris.\nUser: next"


def stopped(server: InProcessServer, ids: list[int], **fields: Any) -> tuple[str, Any]:
    """Text and stop reason of a whole answer, and of a stream cut in every way, which must be the same."""
    fields = {"finish_reason": "stop", **fields}
    whole = completion_choice(server, ids, **fields)
    for cuts in every_cut(len(ids)):
        choices = stream(server, COMPLETION_DERENDER, pieces_of(ids, cuts), **fields)
        (ended,) = [choice for choice in choices if choice["finish_reason"]]
        assert "".join(deltas(choices)) == whole["text"]
        assert ended.get("stop_reason") == whole.get("stop_reason")
    return whole["text"], whole.get("stop_reason")


def test_text_generation_inference_1039_stop_inside_a_token(smollm2: InProcessServer) -> None:
    """A stop text that ends inside a token was never found."""
    assert stopped(smollm2, PARIS, request={"stop": ["Pari"]}) == ("The capital is ", "Pari")
    texts = streamed(smollm2, PARIS, request={"stop": ["Pari"]}, finish_reason="stop")
    assert texts == ["The", " capital", " is", " ", "", "", "", "", ""]


@pytest.mark.parametrize(
    ("request_", "text", "reason"),
    [
        ({"stop": ["\nUser:"]}, "The capital is Paris.", "\nUser:"),
        (
            {"stop": ["\nUser:"], "include_stop_str_in_output": True},
            "The capital is Paris.\nUser:",
            "\nUser:",
        ),
        ({"stop": ["is Par", "capital"]}, "The ", "capital"),
        ({"stop": ["capital", "is Par"]}, "The ", "capital"),
        ({"stop": ["\nUser:"], "min_tokens": 9}, PARIS_TEXT, None),
        ({"stop": ["Paris"], "min_tokens": 3}, "The capital is ", "Paris"),
        ({"stop": [""]}, PARIS_TEXT, None),
        ({"stop": ["", "Pari"]}, "The capital is ", "Pari"),
    ],
    ids=range(8),
)
def test_vllm_57052_and_1049_stop_texts(
    smollm2: InProcessServer, request_: dict[str, Any], text: str, reason: str | None
) -> None:
    """The engine stops on text and never cuts ids: a derender that only decodes shows the stop text."""
    assert stopped(smollm2, PARIS, request=request_) == (text, reason)


def test_vllm_57052_stop_that_only_the_engine_names(smollm2: InProcessServer) -> None:
    """Without the request nothing is held back, so only what comes with the reason can be cut."""
    pieces = [PARIS[:5], PARIS[5:]]
    choices = stream(smollm2, COMPLETION_DERENDER, pieces, finish_reason="stop", stop_reason="\nUser:")
    assert deltas(choices) == ["The capital is Paris.", ""]
    assert choices[-1]["stop_reason"] == "\nUser:"


def test_vllm_57052_output_that_did_not_stop_is_whole(smollm2: InProcessServer) -> None:
    """With finish_reason length the stop text is text like any other, unless the stream has ended at it."""
    for request in ({"stop": [" next"]}, {"stop": ["next", "Us er"]}):
        texts = streamed(smollm2, PARIS, request=request, finish_reason="length")
        assert "".join(texts) == PARIS_TEXT


def test_vllm_57052_emoji_as_stop(smollm2: InProcessServer) -> None:
    """A stop text of one character that three tokens make."""
    assert stopped(smollm2, [2231, 40303, 218, 1112], request={"stop": ["😀"]})[0] == "ok "


@pytest.mark.parametrize(
    ("ids", "request_", "text", "reason"),
    [
        ([26843, 665, 30], {"stop_token_ids": [30]}, "Hi there", 30),
        ([26843, 2], {"stop": ["<|im_end|>"]}, "Hi", None),
        ([26843, 2], {"ignore_eos": True, "skip_special_tokens": False}, "Hi<|im_end|>", None),
    ],
)
def test_vllm_3672_stop_tokens(
    smollm2: InProcessServer, ids: list[int], request_: dict[str, Any], text: str, reason: int | None
) -> None:
    """A stop text over several tokens was partly shown; a stop token with skipping cut one too many."""
    assert stopped(smollm2, ids, request=request_) == (text, reason)
