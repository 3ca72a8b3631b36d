"""Text of streams, token by token: characters over tokens, decode windows, spaces, special tokens."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import CHAT_DERENDER, COMPLETION_DERENDER, InProcessServer
from known_faults.bodies import completion_choice, text_of
from known_faults.streams import deltas, stream, streamed
from known_faults.texts import ENCODED, TEXTS
from opened_models import NAMES, opened
from streaming import chunk_of, every_cut, joined_text, pieces_of, run_stream

from trio_render.derender.detokenize import detokenize


def test_vllm_mlx_109_letters_of_two_bytes(smollm2: InProcessServer) -> None:
    """Each token was decoded on its own, so both halves of a Czech letter became U+FFFD."""
    ids = [143, 233, 5415, 82, 1025, 91, 2756]
    assert streamed(smollm2, ids) == ["", "ď", "á", "b", "els", "k", "é"]


def test_cog_llama_template_75_emoji_of_three_tokens(smollm2: InProcessServer) -> None:
    """The stream showed U+FFFD for every part of an emoji."""
    assert streamed(smollm2, [10813, 242, 218]) == ["", "", "😀"]


def test_mlx_vlm_1076_emoji_of_byte_fallback_tokens(mistral: InProcessServer) -> None:
    """The known part was cut off a growing decode, and half a character taken for final text."""
    ids = [28705, 243, 162, 143, 185, 29096, 3296]
    assert streamed(mistral, ids) == ["", "", "", "", "🌶", "️", " hot"]


def test_mlx_vlm_1129_text_is_not_held_up_to_the_end_of_a_word(smollm2: InProcessServer) -> None:
    """Text came in bursts at word ends, with empty deltas before."""
    assert streamed(smollm2, [504, 3575, 314, 7042, 30]) == ["The", " capital", " is", " Paris", "."]


@pytest.mark.parametrize("finish", ["length", "stop", "tool_calls"])
def test_lattice_751_incomplete_character_at_the_end(smollm2: InProcessServer, finish: str) -> None:
    """Stream and batch answers for the same tokens ended differently."""
    ids = [26843, 40303]
    assert "".join(streamed(smollm2, ids, finish_reason=finish)) == text_of(smollm2, ids) == "Hi"


def test_llama_cpp_14937_token_limit_inside_a_character(mistral: InProcessServer) -> None:
    """Reaching the limit inside a character killed the process in its JSON writer."""
    pieces = [[15359], [28705], [233], [176]]
    choices = stream(mistral, COMPLETION_DERENDER, pieces, finish_reason="length")
    assert "".join(deltas(choices)) == "Hi "
    assert choices[-1]["finish_reason"] == "length"


def test_tokenizers_1705_bytes_that_are_no_character(mistral: InProcessServer) -> None:
    """The stream decoder raised an error in the middle of a normal list of ids."""
    assert "".join(streamed(mistral, [243, 162, 18641])) == "\ufffd\ufffd abc"


def test_vllm_24159_broken_bytes_before_a_good_token(smollm2: InProcessServer) -> None:
    """Recovery depended on the wording of a library's error."""
    assert streamed(smollm2, [10813, 242, 20306]) == ["", "", "\ufffd»"]


def test_vllm_48853_prompt_that_ends_inside_a_character(mistral: InProcessServer) -> None:
    """The first delta held the prompt's text, or lost the character and the letters after it."""
    prompt = [22557, 1526, 28705, 243, 162, 143]
    assert streamed(mistral, [185, 3614], prompt_ids=prompt) == ["🌶", " ok"]


FAMILY = [25730, 104, 46088, 25730, 105, 46088, 25730, 103, 46088, 25730, 102]


@pytest.mark.parametrize("path", [CHAT_DERENDER, COMPLETION_DERENDER])
def test_vllm_47301_family_emoji_cut_in_every_way(deepseek: InProcessServer, path: str) -> None:
    """A window that was rebuilt from old ids lost characters across its edge."""
    for cuts in every_cut(len(FAMILY)):
        assert "".join(deltas(stream(deepseek, path, pieces_of(FAMILY, cuts)))) == "👨‍👩‍👧‍👦"


def test_sglang_34740_a_run_of_lone_bytes(smollm2: InProcessServer) -> None:
    """The window never moved, the state grew with every call, and call 1026 was refused."""
    texts = streamed(smollm2, [242] * 1100)
    assert "".join(texts) == "\ufffd" * 1100
    assert min(map(len, texts)) == 1


def test_sglang_34852_broken_bytes_come_out_before_good_text(smollm2: InProcessServer) -> None:
    """The client got nothing while the output ended with U+FFFD."""
    texts = streamed(smollm2, [*[242] * 50, 10907])
    assert texts == [*["\ufffd"] * 50, " ok"]


INST = [1, 733, 16289, 28793, 12014, 733, 28748, 16289, 28793]


@pytest.mark.parametrize(("prompt", "texts"), [(INST, [" Hello", " world"]), (None, ["Hello", " world"])])
def test_vllm_29953_first_space_with_and_without_a_prompt(
    mistral: InProcessServer, prompt: list[int] | None, texts: list[str]
) -> None:
    """The first word's space was handled differently from the tokenizer's own decoder."""
    assert streamed(mistral, [22557, 1526], prompt_ids=prompt) == texts


@pytest.mark.parametrize(("prompt", "text"), [(INST, "  two"), (None, " two")])
def test_llama2_c_41_space_of_the_first_piece(
    mistral: InProcessServer, prompt: list[int] | None, text: str
) -> None:
    """A stream has to know whether it continues a prompt."""
    assert "".join(streamed(mistral, [259, 10861], prompt_ids=prompt)) == text


@pytest.mark.parametrize(
    ("ids", "text"),
    [([4563], " ..."), ([1673], " ."), ([12420, 637, 100], "don 't"), ([81, 3297, 278], "a , b")],
)
def test_transformers_36622_spaces_before_punctuation(
    smollm2: InProcessServer, ids: list[int], text: str
) -> None:
    """The clean-up rule took the space."""
    assert "".join(streamed(smollm2, ids)) == text


@pytest.mark.parametrize(("skip", "text"), [(True, "Hi there"), (False, "Hi</s> there")])
def test_llama_cpp_24008_space_next_to_a_special_token(
    mistral: InProcessServer, skip: bool, text: str
) -> None:
    """The piece after a control token got a space that the decoder doesn't print, or lost its own."""
    assert "".join(streamed(mistral, [15359, 2, 736], request={"skip_special_tokens": skip})) == text


def test_huggingface_js_466_the_last_piece_is_not_the_end_mark(mistral: InProcessServer) -> None:
    """The stream's last piece was the literal EOS."""
    request = {"skip_special_tokens": False}
    assert streamed(mistral, [15359, 2], request=request, finish_reason="stop") == ["Hi", ""]
    assert streamed(mistral, [15359, 2], finish_reason="stop") == ["Hi", ""]


@pytest.mark.parametrize(
    ("finish", "included", "skip", "text"),
    [
        ("length", False, False, "Hi<|im_start|>user<|im_end|>"),
        ("stop", False, False, "Hi<|im_start|>user"),
        ("stop", True, False, "Hi<|im_start|>user<|im_end|>"),
        ("stop", False, True, "Hiuser"),
    ],
)
def test_vllm_7033_special_tokens_that_the_client_asks_for(
    smollm2: InProcessServer, finish: str, included: bool, skip: bool, text: str
) -> None:
    """skip_special_tokens=false was not honoured in the text."""
    request: dict[str, Any] = {"skip_special_tokens": skip, "include_stop_str_in_output": included}
    ids = [26843, 1, 4093, 2]
    assert "".join(streamed(smollm2, ids, request=request, finish_reason=finish)) == text
    assert completion_choice(smollm2, ids, request=request, finish_reason=finish)["text"] == text


def cuts_of(n: int) -> Iterator[list[int]]:
    """Every way to cut a few tokens; of more, every place, and all places at once."""
    if n <= 8:
        yield from every_cut(n)
        return
    yield list(range(1, n))
    for place in range(1, n):
        yield [place]


@pytest.mark.parametrize("name", NAMES)
def test_all_texts_of_these_faults_cut_at_every_boundary(model_folders: Path, name: str) -> None:
    """With every tokenizer the deltas are the whole text, and U+FFFD stands only where it does there."""
    model = opened(model_folders / name)
    encoded = [*map(model.tokenizer.encode, TEXTS), *ENCODED[name]]
    for skip in (True, False):
        request = {"skip_special_tokens": skip}
        for ids in encoded:
            whole = detokenize(model.tokenizer.table, ids, skip_special_tokens=skip)
            for cuts in cuts_of(len(ids)):
                chunks = [*map(chunk_of, pieces_of(ids, cuts)), chunk_of([], finish_reason="length")]
                assert joined_text(run_stream(model, "completion", chunks, request)) == whole
