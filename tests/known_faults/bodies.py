"""Request bodies of the derender endpoints, and short ways to one answer's choice."""

from collections.abc import Mapping, Sequence
from typing import Any

from in_process import CHAT_DERENDER, COMPLETION_DERENDER, InProcessServer

Entry = Mapping[str, Any]


def choice(ids: Any, **fields: Any) -> dict[str, Any]:
    """One choice of an engine's answer; ``fields`` as ``finish_reason``, ``stop_reason``, ``logprobs``."""
    return {"index": 0, "token_ids": ids, **fields}


def response(*choices: Entry, **fields: Any) -> dict[str, Any]:
    """An engine's answer."""
    return {"request_id": "r", "choices": list(choices), **fields}


def logprob(token_id: int, value: float = -0.5, *candidates: tuple[int, float]) -> dict[str, Any]:
    """The logprob entry of a sampled token. ``candidates``: ``(token_id, logprob)``, best first."""
    top = [{"token_id": other, "logprob": number} for other, number in candidates]
    return {"token_id": token_id, "logprob": value, "top_logprobs": top}


def logprobs(*entries: Entry) -> dict[str, Any]:
    """``logprobs`` of a choice."""
    return {"content": list(entries)}


def completion_body(ids: Any, *, request: Entry | None = None, **fields: Any) -> dict[str, Any]:
    """A completion derender body with one choice. ``request`` lacks only its prompt."""
    body: dict[str, Any] = {"model": "m", "generate_responses": [response(choice(ids, **fields))]}
    return body if request is None else {**body, "completion_request": {"prompt": "x", **request}}


def chat_body(ids: Any, **fields: Any) -> dict[str, Any]:
    """A chat derender body with one choice."""
    return {"model": "m", "generate_response": response(choice(ids, **fields))}


def completion_choice(server: InProcessServer, ids: Any, **fields: Any) -> dict[str, Any]:
    """Derender ``ids`` as a completion; arguments as for `completion_body`."""
    answer = server.ok(COMPLETION_DERENDER, completion_body(ids, **fields))
    (only,) = answer["choices"]
    result: dict[str, Any] = only
    return result


def chat_choice(server: InProcessServer, ids: Any, **fields: Any) -> dict[str, Any]:
    """Derender ``ids`` as a chat; arguments as for `chat_body`."""
    (only,) = server.ok(CHAT_DERENDER, chat_body(ids, **fields))["choices"]
    result: dict[str, Any] = only
    return result


def text_of(server: InProcessServer, ids: Sequence[int], **fields: Any) -> str:
    """The text of ``ids`` as both derender endpoints give it."""
    text: str = completion_choice(server, ids, **fields)["text"]
    assert chat_choice(server, ids, **fields)["message"]["content"] == text
    return text


def text_after(server: InProcessServer, prompt_ids: Sequence[int], ids: Sequence[int]) -> str:
    """The text of ``ids`` behind a prompt given as ids, as both derender endpoints give it."""
    body = {**completion_body(ids), "prompt_token_ids": [list(prompt_ids)]}
    text: str = server.ok(COMPLETION_DERENDER, body)["choices"][0]["text"]
    chat = server.ok(CHAT_DERENDER, {**chat_body(ids), "prompt_token_ids": list(prompt_ids)})
    assert chat["choices"][0]["message"]["content"] == text
    return text
