"""Stop texts and stop tokens: found wherever they lie, cut once, and reported."""

from typing import Any

import pytest
from in_process import InProcessServer
from known_faults.bodies import completion_choice

PARIS = [504, 3575, 314, 7042, 30, 198, 11126, 42, 1867]
PARIS_TEXT = "The capital is Paris.\nUser: next"


def stopped(server: InProcessServer, ids: list[int], **fields: Any) -> tuple[str, Any]:
    """Text and stop reason of ``ids``, finished by a stop unless said otherwise."""
    choice = completion_choice(server, ids, **{"finish_reason": "stop", **fields})
    return choice["text"], choice.get("stop_reason")


def test_text_generation_inference_1039_stop_inside_a_token(smollm2: InProcessServer) -> None:
    """A stop text that ends inside a token was never found."""
    assert stopped(smollm2, PARIS, request={"stop": ["Pari"]}) == ("The capital is ", "Pari")


def test_text_generation_inference_1039_stop_as_one_text(smollm2: InProcessServer) -> None:
    """A single text is a list of one."""
    assert stopped(smollm2, PARIS, request={"stop": "Pari"}) == ("The capital is ", "Pari")


def test_vllm_57052_stop_over_several_tokens_is_cut(smollm2: InProcessServer) -> None:
    """The engine stops on text and never cuts ids: a derender that only decodes shows the stop text."""
    cut = stopped(smollm2, PARIS, request={"stop": ["\nUser:"]})
    assert cut == ("The capital is Paris.", "\nUser:")


def test_vllm_57052_stop_that_is_to_be_included(smollm2: InProcessServer) -> None:
    """include_stop_str_in_output keeps the stop text, and nothing after it."""
    request = {"stop": ["\nUser:"], "include_stop_str_in_output": True}
    assert stopped(smollm2, PARIS, request=request) == ("The capital is Paris.\nUser:", "\nUser:")


def test_vllm_57052_stop_that_only_the_engine_names(smollm2: InProcessServer) -> None:
    """Without the request, the reason that the engine gives says what to cut."""
    assert stopped(smollm2, PARIS, stop_reason="\nUser:") == ("The capital is Paris.", "\nUser:")


def test_vllm_57052_output_that_did_not_stop_is_whole(smollm2: InProcessServer) -> None:
    """With finish_reason length the stop text is text like any other."""
    whole = stopped(smollm2, PARIS, request={"stop": ["\nUser:"]}, finish_reason="length")
    assert whole == (PARIS_TEXT, None)


@pytest.mark.parametrize("stop", [["is Par", "capital"], ["capital", "is Par"]])
def test_vllm_57052_earliest_of_several_stops_wins(smollm2: InProcessServer, stop: list[str]) -> None:
    """The order of the list does not matter where one match is complete before the other."""
    assert stopped(smollm2, PARIS, request={"stop": stop}) == ("The ", "capital")


@pytest.mark.parametrize(
    ("min_tokens", "stop", "text"), [(9, "\nUser:", PARIS_TEXT), (3, "Paris", "The capital is ")]
)
def test_vllm_57052_stops_within_min_tokens_do_not_count(
    smollm2: InProcessServer, min_tokens: int, stop: str, text: str
) -> None:
    """A match must end in text that came after the first ``min_tokens``."""
    assert stopped(smollm2, PARIS, request={"stop": [stop], "min_tokens": min_tokens})[0] == text


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
    """A special stop token together with skipping cut one token too many."""
    assert stopped(smollm2, ids, request=request_) == (text, reason)


def test_vllm_1049_empty_stop_text(smollm2: InProcessServer) -> None:
    """An empty text in the list matched everywhere: the output was empty."""
    assert stopped(smollm2, PARIS, request={"stop": [""]}) == (PARIS_TEXT, None)


def test_vllm_1049_empty_stop_text_beside_a_real_one(smollm2: InProcessServer) -> None:
    """The others in the list still count."""
    assert stopped(smollm2, PARIS, request={"stop": ["", "Pari"]}) == ("The capital is ", "Pari")
