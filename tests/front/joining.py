"""A streamed answer put together again, as the whole answer that it must be."""

from collections.abc import Sequence
from typing import Any

LOGPROB_LISTS = ("content", "tokens", "token_logprobs", "top_logprobs", "text_offset")


def joined(chunks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The whole answer that chunks, as JSON, add up to. Asserts what each chunk must be."""
    whole: dict[str, Any] = {"choices": {}, "usage": None}
    for chunk in chunks:
        indexes = [choice["index"] for choice in chunk["choices"]]
        assert len(set(indexes)) == len(indexes), "clients look at one choice of an index"
        for name in ("id", "created", "model"):
            assert whole.setdefault(name, chunk[name]) == chunk[name]
        if "prompt_token_ids" in chunk:
            assert "prompt_token_ids" not in whole, "prompt ids came twice"
            whole["prompt_token_ids"] = chunk["prompt_token_ids"]
        if not chunk["choices"]:
            whole["usage"] = chunk["usage"]
        for choice in chunk["choices"]:
            _add(whole["choices"].setdefault(choice["index"], {"index": choice["index"]}), choice)
    whole["choices"] = [whole["choices"][index] for index in sorted(whole["choices"])]
    return whole


def _add(whole: dict[str, Any], choice: dict[str, Any]) -> None:
    assert whole.get("finish_reason") is None, "a choice came behind its end"
    for name in ("finish_reason", "stop_reason"):
        if choice.get(name) is not None:
            whole[name] = choice[name]
    if "prompt_token_ids" in choice:
        assert "prompt_token_ids" not in whole, "prompt ids came twice"
        whole["prompt_token_ids"] = choice["prompt_token_ids"]
    if "token_ids" in choice:
        whole.setdefault("token_ids", []).extend(choice["token_ids"])
    if choice.get("logprobs") is not None:
        logprobs = whole.setdefault("logprobs", {})
        for name in LOGPROB_LISTS:
            if name in choice["logprobs"]:
                logprobs.setdefault(name, []).extend(choice["logprobs"][name])
    if "text" in choice:
        whole["text"] = whole.get("text", "") + choice["text"]
    else:
        _add_delta(whole, choice["delta"])


def _add_delta(whole: dict[str, Any], delta: dict[str, Any]) -> None:
    is_first = "message" not in whole
    assert ("role" in delta) == is_first, "the role comes once, with the first chunk"
    message = whole.setdefault("message", {"role": delta.get("role"), "content": None})
    for name in ("content", "reasoning"):
        if delta.get(name):
            message[name] = (message.get(name) or "") + delta[name]
    for piece in delta.get("tool_calls") or []:
        calls = message.setdefault("tool_calls", [])
        if piece["index"] == len(calls):
            calls.append({"name": piece["function"]["name"], "arguments": "", "id": piece["id"]})
        else:
            assert "id" not in piece
            assert "name" not in piece["function"]
        calls[piece["index"]]["arguments"] += piece["function"].get("arguments", "")


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """What of a whole answer its stream has, too: call ids are random, and empty content may be null."""
    choices = []
    for given in answer["choices"]:
        choice = {name: value for name, value in given.items() if value is not None}
        choice.pop("prompt_logprobs", None)
        if "message" in choice:
            message = {name: value for name, value in choice["message"].items() if value}
            message["tool_calls"] = [_call(call) for call in message.get("tool_calls", [])]
            choice["message"] = message
        choices.append(choice)
    names = ("usage", "prompt_token_ids")
    return {"choices": choices, **{name: answer[name] for name in names if answer.get(name) is not None}}


def _call(call: dict[str, Any]) -> tuple[str, str]:
    function = call.get("function", call)
    return function["name"], function["arguments"]
