"""Characters that are spread over tokens, cut at an end or a beginning, or not characters at all."""

import pytest
from in_process import COMPLETION_DERENDER, DETOKENIZE, InProcessServer
from known_faults.bodies import completion_body, completion_choice, text_after, text_of


def test_vllm_mlx_109_letters_of_two_bytes(smollm2: InProcessServer) -> None:
    """Each token was decoded on its own, so both halves of a Czech letter became U+FFFD."""
    assert text_of(smollm2, [143, 233, 5415, 82, 1025, 91, 2756]) == "ďábelské"


def test_cog_llama_template_75_emoji_of_three_tokens(smollm2: InProcessServer) -> None:
    """Every part of an emoji came as a replacement sign."""
    assert text_of(smollm2, [10813, 242, 218]) == "😀"


def test_cog_llama_template_75_real_replacement_signs_are_kept(smollm2: InProcessServer) -> None:
    """The proposed cure deleted U+FFFD from the text, and with it those that the model wrote."""
    ids = smollm2.ok("/tokenize", {"model": "m", "prompt": "a \ufffd b"})["tokens"]
    assert text_of(smollm2, ids) == "a \ufffd b"


def test_mlx_vlm_1076_emoji_of_byte_fallback_tokens(mistral: InProcessServer) -> None:
    """The known part was cut off a growing decode, and half a character taken for final text."""
    assert text_of(mistral, [28705, 243, 162, 143, 185, 29096, 3296]) == "🌶️ hot"


def test_mlx_vlm_1129_plain_text(smollm2: InProcessServer) -> None:
    """Text was held back up to the end of a word."""
    ids = [504, 3575, 314, 7042, 30]
    prefixes = [text_of(smollm2, ids[: n + 1]) for n in range(len(ids))]
    assert prefixes == [
        "The",
        "The capital",
        "The capital is",
        "The capital is Paris",
        "The capital is Paris.",
    ]


def test_lattice_751_incomplete_character_at_the_end(smollm2: InProcessServer) -> None:
    """Generation stopped inside a character: the incomplete rest is no text."""
    assert text_of(smollm2, [26843, 40303]) == "Hi"


def test_llama_cpp_14937_token_limit_inside_a_character(mistral: InProcessServer) -> None:
    """Reaching the limit inside a character killed the process in its JSON writer."""
    choice = completion_choice(mistral, [15359, 28705, 233, 176], finish_reason="length")
    assert (choice["text"], choice["finish_reason"]) == ("Hi ", "length")


def test_tokenizers_1705_bytes_that_are_no_character(mistral: InProcessServer) -> None:
    """The stream decoder raised an error in the middle of a normal list of ids."""
    assert text_of(mistral, [243, 162, 18641]) == "\ufffd\ufffd abc"


def test_vllm_24159_broken_bytes_before_a_good_token(smollm2: InProcessServer) -> None:
    """Recovery depended on the wording of a library's error."""
    assert text_of(smollm2, [10813, 242, 20306]) == "\ufffd»"


@pytest.mark.parametrize("n_cut", [0, 1, 2, 3])
def test_vllm_48853_prompt_that_ends_inside_a_character(mistral: InProcessServer, n_cut: int) -> None:
    """The first text held the prompt's, or lost the character and the letters after it."""
    prompt, output = [22557, 1526, 28705, 243, 162, 143], [185, 3614]
    cut = len(prompt) - n_cut
    assert text_after(mistral, prompt[:cut], prompt[cut:] + output) == "🌶 ok"


FAMILY = [25730, 104, 46088, 25730, 105, 46088, 25730, 103, 46088, 25730, 102]


def test_vllm_47301_family_emoji(deepseek: InProcessServer) -> None:
    """A window that was rebuilt from old ids lost characters across its edge."""
    text = text_of(deepseek, FAMILY)
    assert (text, len(text)) == ("👨‍👩‍👧‍👦", 7)


@pytest.mark.parametrize("n_prompt", range(1, len(FAMILY)))
def test_vllm_47301_family_emoji_that_begins_in_the_prompt(deepseek: InProcessServer, n_prompt: int) -> None:
    """Wherever the prompt ends, prompt and output together show every character once."""
    after = text_after(deepseek, FAMILY[:n_prompt], FAMILY[n_prompt:])
    before = text_of(deepseek, FAMILY[:n_prompt])
    assert before + after == "👨‍👩‍👧‍👦"


def test_sglang_34852_broken_bytes_come_out_before_good_text(smollm2: InProcessServer) -> None:
    """Nothing came while the output ended with U+FFFD, even when the bytes were known to be broken."""
    assert text_of(smollm2, [242] * 50 + [10907]) == "\ufffd" * 50 + " ok"


def test_sglang_34852_detokenize_shows_the_broken_bytes_too(smollm2: InProcessServer) -> None:
    """A plain decode hides nothing at its end."""
    answer = smollm2.ok(DETOKENIZE, {"model": "m", "tokens": [10907, *[242] * 50]})
    assert answer["prompt"] == " ok" + "\ufffd" * 50


@pytest.mark.parametrize("ids", [[242], [10813], [10813, 242], [243, 162], [10813, 10813]])
def test_sglang_34740_answers_that_are_only_broken(smollm2: InProcessServer, ids: list[int]) -> None:
    """An output without one whole character is an answer like any other."""
    reply = smollm2.post(COMPLETION_DERENDER, completion_body(ids, finish_reason="length"))
    assert reply.status == 200
    assert set(reply.body["choices"][0]["text"]) <= {"\ufffd"}
