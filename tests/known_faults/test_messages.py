"""Shapes of message content, tool calls in the history, and messages that are to be continued."""

from typing import Any

import pytest
from in_process import CHAT_RENDER, DETOKENIZE, InProcessServer

PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}


def prompt_text(server: InProcessServer, messages: list[dict[str, Any]], **fields: Any) -> str:
    """The prompt text of a chat, decoded from its ids."""
    ids = server.ok(CHAT_RENDER, {"model": "m", "messages": messages, **fields})["token_ids"]
    text: str = server.ok(DETOKENIZE, {"model": "m", "tokens": ids})["prompt"]
    return text


@pytest.mark.parametrize("content", [["a", "b"], [{"type": "zzz", "text": "a"}], 5, [PNG]], ids=str)
def test_llama_cpp_python_2324_content_of_unknown_shape(smollm2: InProcessServer, content: Any) -> None:
    """The template printed the list object, so the model saw brackets and quotes."""
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    error = smollm2.post(CHAT_RENDER, body).error
    assert error["code"] == 400
    assert "messages.0.content" in error["param"]


def test_llama_cpp_python_2324_parts_of_text_are_joined(smollm2: InProcessServer) -> None:
    """A template of texts gets one text, never a list's Python form."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    text = prompt_text(smollm2, [{"role": "user", "content": parts}])
    assert "<|im_start|>user\na\nb<|im_end|>" in text


def test_vllm_54987_plain_text_content(smollm2: InProcessServer) -> None:
    """Every text was turned into a list of parts, which the template could not join."""
    text = prompt_text(smollm2, [{"role": "user", "content": "Hi"}])
    assert "<|im_start|>user\nHi<|im_end|>" in text


def test_vllm_54987_assistant_content_null(smollm2: InProcessServer) -> None:
    """An assistant's null between two user turns is an empty turn."""
    user = {"role": "user", "content": "q"}
    text = prompt_text(smollm2, [user, {"role": "assistant", "content": None}, user])
    assert "<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\nq" in text


def test_vllm_54987_user_message_without_content(smollm2: InProcessServer) -> None:
    """A user message without the key is an empty turn."""
    assert "<|im_start|>user\n<|im_end|>" in prompt_text(smollm2, [{"role": "user"}])


def test_vllm_54987_spaces_are_kept(smollm2: InProcessServer) -> None:
    """Empty content and content of spaces stay what they are."""
    messages = [{"role": "user", "content": ""}, {"role": "user", "content": "  \n "}]
    ids = smollm2.ok(CHAT_RENDER, {"model": "m", "messages": messages})["token_ids"]
    assert ids[-8:] == [11181, 3805, 2, 198, 1, 520, 9531, 198]
    assert "<|im_start|>user\n<|im_end|>\n<|im_start|>user\n  \n <|im_end|>" in prompt_text(smollm2, messages)


def called_with(server: InProcessServer, arguments: str) -> str:
    """The arguments of a call in the history as the prompt shows them."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    text = prompt_text(server, messages)
    return text.partition('"arguments": ')[2].partition("}\n</tool_call>")[0]


def test_vllm_cpp_526_arguments_are_a_mapping_to_the_template(qwen3: InProcessServer) -> None:
    """The template got JSON text where it expects a mapping, so quotes were doubled."""
    assert called_with(qwen3, '{"x":1}') == '{"x": 1}'


@pytest.mark.parametrize("arguments", ["{bad", "", "[]", "null", "42", '"s"'])
def test_vllm_48922_arguments_that_are_no_mapping(qwen3: InProcessServer, arguments: str) -> None:
    """One call cut off by max_tokens made every later turn fail."""
    assert called_with(qwen3, arguments) == "{}"


@pytest.mark.parametrize("number", ["1e999", "-1e999", "Infinity", "NaN"])
def test_vllm_50861_number_that_no_json_can_hold(qwen3: InProcessServer, number: str) -> None:
    """The word Infinity reached the prompt."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": f'{{"x": {number}}}'}}
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [call]}]
    reply = qwen3.post(CHAT_RENDER, {"model": "m", "messages": messages})
    assert reply.status in (200, 400)
    if reply.status == 200:
        text = qwen3.ok(DETOKENIZE, {"model": "m", "tokens": reply.body["token_ids"]})["prompt"]
        assert "Infinity" not in text
        assert "NaN" not in text


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [('{"a":1,"a":2}', '{"a": 2}'), ('{"x": 1, "y": "é<&"}', '{"x": 1, "y": "é<&"}')],
)
def test_vllm_50861_arguments_that_json_readers_change(
    qwen3: InProcessServer, arguments: str, shown: str
) -> None:
    """Of a key that comes twice the last value stays; letters stay unescaped."""
    assert called_with(qwen3, arguments) == shown


def continued(server: InProcessServer, content: str, **flags: bool) -> Any:
    """The reply to a chat whose last message, the assistant's, is to be continued."""
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": content}]
    return server.post(CHAT_RENDER, {"model": "m", "messages": messages, **flags})


def test_transformers_35433_trailing_space_of_the_continued_message(smollm2: InProcessServer) -> None:
    """The last message was not found in the prompt when it ended with a space."""
    reply = continued(smollm2, "The answer is ", add_generation_prompt=False, continue_final_message=True)
    assert reply.body["token_ids"][-8:] == [1, 520, 9531, 198, 504, 2988, 314, 216]


def test_vllm_9446_both_flags_at_once(smollm2: InProcessServer) -> None:
    """Flags that contradict each other failed an assertion; the default counts as a flag."""
    assert continued(smollm2, "x", continue_final_message=True).error["code"] == 400
    both = continued(smollm2, "x", continue_final_message=True, add_generation_prompt=True)
    assert both.error["code"] == 400


def test_vllm_9446_empty_message_to_continue(smollm2: InProcessServer) -> None:
    """The prompt ends where the assistant's text would begin."""
    reply = continued(smollm2, "", add_generation_prompt=False, continue_final_message=True)
    assert reply.body["token_ids"][-4:] == [1, 520, 9531, 198]
