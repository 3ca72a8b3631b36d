"""An OpenAPI 3.1 document, generated from the wire types."""

from __future__ import annotations

from types import UnionType
from typing import Any, get_args

import msgspec

from trio_render.protocol.chat import ChatCompletion, ChatRequest
from trio_render.protocol.completion import Completion, CompletionRequest
from trio_render.protocol.derender import DerenderChatRequest, DerenderCompletionRequest
from trio_render.protocol.generate import GenerateBody, GenerateRequest, GenerateResponse
from trio_render.protocol.stream import (
    ChatChunk,
    CompletionChunk,
    DerenderChatChunk,
    DerenderCompletionChunk,
    DerenderedChatChunk,
    DerenderedCompletionChunk,
    GenerateChunk,
)
from trio_render.protocol.tokenize import (
    DetokenizeRequest,
    DetokenizeResponse,
    ModelList,
    TokenizeChatRequest,
    TokenizeRequest,
    TokenizeResponse,
)

__all__ = ["openapi_document"]

_POSTS: dict[str, tuple[str, Any, Any]] = {
    "/v1/chat/completions/render": ("Render a chat into token ids", ChatRequest, GenerateRequest),
    "/v1/completions/render": ("Render prompts into token ids", CompletionRequest, list[GenerateRequest]),
    "/v1/chat/completions/derender": (
        "Derender token ids into a chat completion, or a chunk of them into the next chunk of one",
        DerenderChatRequest | DerenderChatChunk,
        ChatCompletion | DerenderedChatChunk,
    ),
    "/v1/completions/derender": (
        "Derender token ids into a completion, or a chunk of them into the next chunk of one",
        DerenderCompletionRequest | DerenderCompletionChunk,
        Completion | DerenderedCompletionChunk,
    ),
    "/tokenize": ("Text or chat to token ids", TokenizeRequest | TokenizeChatRequest, TokenizeResponse),
    "/detokenize": ("Token ids to text", DetokenizeRequest, DetokenizeResponse),
}
_ENGINE_POSTS: dict[str, tuple[str, Any, Any]] = {
    "/v1/chat/completions": (
        "Answer a chat, whole or as server-sent events",
        ChatRequest,
        ChatCompletion | ChatChunk,
    ),
    "/v1/completions": (
        "Complete prompts, whole or as server-sent events",
        CompletionRequest,
        Completion | CompletionChunk,
    ),
    "/inference/v1/generate": (
        "Token ids to token ids, whole or as server-sent events",
        GenerateBody,
        GenerateResponse | GenerateChunk,
    ),
}
_GETS: dict[str, tuple[str, Any]] = {
    "/v1/models": ("The served models", ModelList),
    "/version": ("The server's version", dict[str, str]),
    "/health": ("200 while the server is up", None),
    "/ping": ("The same", None),
    "/ready": ("200 when requests can be answered, 503 while weights load", dict[str, str]),
    "/metrics": ("Figures in Prometheus' text format", None),
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "integer"},
            },
        }
    },
}


def openapi_document(version: str, *, with_engine: bool) -> dict[str, Any]:
    """Return the document as plain data, with the endpoints that need an engine or without them."""
    posts = {**_POSTS, **(_ENGINE_POSTS if with_engine else {})}
    # msgspec refuses unions of two structs in schemas, so they become an anyOf here.
    types = [type_ for _, *pair in posts.values() for type_ in pair] + [type_ for _, type_ in _GETS.values()]
    flat = [arm for type_ in types if type_ is not None for arm in _arms(type_)]
    schemas, components = msgspec.json.schema_components(flat, ref_template="#/components/schemas/{name}")
    by_type = dict(zip(map(repr, flat), schemas, strict=True))

    def schema(type_: Any) -> dict[str, Any]:
        arms = [by_type[repr(arm)] for arm in _arms(type_)]
        return arms[0] if len(arms) == 1 else {"anyOf": arms}

    paths: dict[str, Any] = {}
    for path, (summary, request, response) in posts.items():
        paths[path] = {
            "post": {
                "summary": summary,
                "requestBody": {"required": True, "content": _json(schema(request))},
                "responses": _responses(schema(response)),
            }
        }
    for path, (summary, response) in _GETS.items():
        paths[path] = {
            "get": {
                "summary": summary,
                "responses": _responses(None if response is None else schema(response)),
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "trio_render", "version": version},
        "paths": paths,
        "components": {"schemas": {**components, "Error": _ERROR}},
    }


def _arms(type_: Any) -> tuple[Any, ...]:
    return get_args(type_) if isinstance(type_, UnionType) else (type_,)


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _responses(schema: dict[str, Any] | None) -> dict[str, Any]:
    success = (
        {"description": "Success"} if schema is None else {"description": "Success", "content": _json(schema)}
    )
    error = {"description": "Error", "content": _json({"$ref": "#/components/schemas/Error"})}
    return {"200": success, "4XX": error, "5XX": error}
