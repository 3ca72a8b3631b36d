"""Spaces beside tokens, prompts and special tokens; special tokens that are shown or hidden."""

import pytest
from in_process import COMPLETION_DERENDER, DETOKENIZE, TOKENIZE, InProcessServer
from known_faults.bodies import completion_body, completion_choice, text_after, text_of

CHAT_PROMPT = [1, 733, 16289, 28793, 12014, 733, 28748, 16289, 28793]


def test_vllm_29953_first_word_of_an_output(mistral: InProcessServer) -> None:
    """The first word's space was not the one that the tokenizer's own decoder shows."""
    assert text_after(mistral, CHAT_PROMPT, [22557, 1526]) == " Hello world"
    assert text_of(mistral, [22557, 1526]) == "Hello world"


def test_vllm_29953_prompt_ids_inside_the_engines_answer(mistral: InProcessServer) -> None:
    """The prompt counts wherever it is given."""
    body = completion_body([22557, 1526])
    body["generate_responses"][0]["prompt_token_ids"] = CHAT_PROMPT
    assert mistral.ok(COMPLETION_DERENDER, body)["choices"][0]["text"] == " Hello world"


def test_llama2_c_41_piece_of_two_spaces(mistral: InProcessServer) -> None:
    """A whole text drops one leading space; a text that goes on from a prompt drops none."""
    assert text_after(mistral, CHAT_PROMPT, [259, 10861]) == "  two"
    assert text_of(mistral, [259, 10861]) == " two"


@pytest.mark.parametrize(
    ("ids", "text"),
    [([4563], " ..."), ([1673], " ."), ([12420, 637, 100], "don 't"), ([81, 3297, 278], "a , b")],
)
def test_transformers_36622_spaces_before_punctuation(
    smollm2: InProcessServer, ids: list[int], text: str
) -> None:
    """A clean-up rule removed spaces before punctuation."""
    assert text_of(smollm2, ids) == text
    assert smollm2.ok(DETOKENIZE, {"model": "m", "tokens": ids}) == {"prompt": text}
    assert smollm2.ok(TOKENIZE, {"model": "m", "prompt": text})["tokens"] == ids


@pytest.mark.parametrize(("skip", "text"), [(True, "Hi there"), (False, "Hi</s> there")])
def test_llama_cpp_24008_piece_after_a_control_token(mistral: InProcessServer, skip: bool, text: str) -> None:
    """A space appeared or vanished next to a special token."""
    choice = completion_choice(mistral, [15359, 2, 736], request={"skip_special_tokens": skip})
    assert choice["text"] == text


def test_huggingface_js_466_end_of_text_mark(mistral: InProcessServer) -> None:
    """The answer's last piece was the literal EOS text."""
    choice = completion_choice(mistral, [15359, 2], finish_reason="stop")
    assert (choice["text"], choice["finish_reason"]) == ("Hi", "stop")
    assert choice.get("stop_reason") is None
    assert text_of(mistral, [15359, 2], finish_reason="stop") == "Hi"


MARKED = [26843, 1, 4093, 2]


@pytest.mark.parametrize(
    ("finish_reason", "included", "text"),
    [
        ("length", False, "Hi<|im_start|>user<|im_end|>"),
        ("stop", False, "Hi<|im_start|>user"),
        ("stop", True, "Hi<|im_start|>user<|im_end|>"),
    ],
)
def test_vllm_7033_special_tokens_that_the_client_asks_for(
    smollm2: InProcessServer, finish_reason: str, included: bool, text: str
) -> None:
    """skip_special_tokens=false was not honoured in the text."""
    request = {"skip_special_tokens": False, "include_stop_str_in_output": included}
    choice = completion_choice(smollm2, MARKED, finish_reason=finish_reason, request=request)
    assert choice["text"] == text


@pytest.mark.parametrize("request_", [None, {}, {"skip_special_tokens": True}, {"skip_special_tokens": None}])
def test_vllm_7033_special_tokens_are_hidden_otherwise(
    smollm2: InProcessServer, request_: dict[str, object] | None
) -> None:
    """Without that switch they add nothing."""
    assert completion_choice(smollm2, MARKED, request=request_)["text"] == "Hiuser"


def test_vllm_7033_detokenize_shows_all_tokens(smollm2: InProcessServer) -> None:
    """What a prompt is made of has its special tokens in view."""
    answer = smollm2.ok(DETOKENIZE, {"model": "m", "tokens": MARKED})
    assert answer["prompt"] == "Hi<|im_start|>user<|im_end|>"


def test_vllm_7033_added_tokens_that_are_not_special_stay(qwen3: InProcessServer) -> None:
    """Only special tokens are skipped; thinking and tool markers are text."""
    assert text_of(qwen3, [248068, 64, 248069, 65, 248046]) == "<think>a</think>b"
