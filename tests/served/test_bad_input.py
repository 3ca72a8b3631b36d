"""Requests that can't be answered: the right status, a short body in OpenAI's shape, an unharmed server."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from served.conftest import OpenServer
from served.server import JSON_TYPE, Reply, Server, exchange, payload

RENDER_CHAT = "/v1/chat/completions/render"
RENDER_COMPLETION = "/v1/completions/render"
DERENDER_CHAT = "/v1/chat/completions/derender"
DERENDER_COMPLETION = "/v1/completions/derender"
POSTS = (RENDER_CHAT, RENDER_COMPLETION, DERENDER_CHAT, DERENDER_COMPLETION, "/tokenize", "/detokenize")

VOCABULARY = 49152
SMALL = 1024


def check_error(reply: Reply, status: int) -> dict[str, Any]:
    """The error object of an answer whose form must be right."""
    assert reply.status == status, reply
    assert reply.headers["content-type"] == "application/json"
    assert len(reply.body) < SMALL
    document = reply.json
    assert document.keys() == {"error"}
    error: dict[str, Any] = document["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["code"] == status
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    assert error["type"]
    assert error["param"] is None or isinstance(error["param"], str)
    return error


def check_answers(server: Server, reply: Reply | None = None) -> None:
    good = reply or server.post("/tokenize", {"prompt": "Hello world"})
    assert (good.status, good.json["tokens"]) == (200, [19556, 905])


@pytest.fixture
def refused(server: Server) -> Iterator[Any]:
    """Sends a bad request, and then a good one on the same connection (or a new one, if it was closed)."""
    connection = server.connect()

    def send(
        path: str, body: object, status: int = 400, method: str = "POST", content_type: str | None = None
    ) -> dict[str, Any]:
        headers = JSON_TYPE if content_type is None else {"Content-Type": content_type}
        reply = exchange(connection, method, path, payload(body), headers)
        error = check_error(reply, status)
        check_answers(server, exchange(connection, "POST", "/tokenize", payload({"prompt": "Hello world"})))
        return error

    yield send
    connection.close()


# ------------------------------------------------------------ bodies that are no request


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \r\n",
        b"{",
        b'{"prompt": "x"',
        b"{'prompt': 1}",
        b'{"prompt": "x"} x',
        b"nonsense",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        '{"prompt": "x"}'.encode("utf-16"),
        b"[]",
        b"null",
        b"1",
        b'"text"',
    ],
)
def test_not_a_request(path: str, body: bytes, refused: Any) -> None:
    assert refused(path, body)["param"].startswith("body")


def choice(**fields: object) -> dict[str, Any]:
    return {"index": 0, "token_ids": [1], **fields}


def derender(*choices: object, **fields: object) -> dict[str, Any]:
    return {"generate_response": {"request_id": "r", "choices": list(choices)}, **fields}


def derender_many(*choices: object) -> dict[str, Any]:
    return {"generate_responses": [{"request_id": "r", "choices": list(choices)}]}


def logprobs(**entry: object) -> dict[str, Any]:
    return {"content": [{"logprob": -1.0, "top_logprobs": [], **entry}]}


USER = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        *[(path, {}, None) for path in POSTS],
        (RENDER_CHAT, {"messages": "hi"}, "body.messages"),
        (RENDER_CHAT, {"messages": [1]}, "body.messages.0"),
        (RENDER_CHAT, {"messages": USER, "max_tokens": "many"}, "body.max_tokens"),
        (RENDER_CHAT, {"messages": USER, "max_tokens": 1.5}, "body.max_tokens"),
        (RENDER_CHAT, {"messages": USER, "temperature": []}, "body.temperature"),
        (RENDER_CHAT, {"messages": USER, "stop_token_ids": [1, "x"]}, "body.stop_token_ids.1"),
        (RENDER_CHAT, {"messages": USER, "tools": [{"function": {"name": 1}}]}, "body.tools.0.function.name"),
        (RENDER_COMPLETION, {"prompt": {"text": "hi"}}, None),
        (RENDER_COMPLETION, {"prompt": ["hi", 1]}, None),
        (RENDER_COMPLETION, {"prompt": "hi", "logit_bias": {"x": 1}}, None),
        (DERENDER_CHAT, {"generate_response": 1}, "body.generate_response"),
        (DERENDER_CHAT, derender(choice(token_ids="1")), "body.generate_response.choices.0.token_ids"),
        (DERENDER_COMPLETION, {"generate_responses": {}}, "body.generate_responses"),
        ("/tokenize", {"prompt": 5}, "body.prompt"),
        ("/detokenize", {"tokens": "1,2"}, "body.tokens"),
        ("/detokenize", {"tokens": [1.5]}, "body.tokens.0"),
    ],
)
def test_wrong_types(path: str, body: object, param: str | None, refused: Any) -> None:
    error = refused(path, body)
    if param:
        assert error["param"] == param


def test_a_long_key_is_not_echoed(refused: Any) -> None:
    long = "x" * 5000
    for body in ({"logit_bias": {long: 1}}, {"response_format": {"type": long}}, {long: 1, "n": long}):
        refused(RENDER_COMPLETION, {"prompt": "x", **body})
    refused(RENDER_CHAT, {"messages": USER, "tool_choice": long})


# ------------------------------------------------------------ models


@pytest.mark.parametrize(
    "name",
    [
        "M",
        "../m",
        'a"b',
        "a'b",
        "a\nb\r\n",
        "a\0b",
        "\\" * 1000,
        '"' * 1000,
        "\x01" * 1000,
        "\U0001f600" * 1000,
        "\U000e0001" * 1000,
        "x" * 10_000_000,
    ],
    ids=lambda name: ascii(name[:8]),
)
def test_unknown_model(name: str, refused: Any) -> None:
    bodies: dict[str, dict[str, Any]] = {
        RENDER_CHAT: {"messages": USER},
        RENDER_COMPLETION: {"prompt": "hi"},
        DERENDER_CHAT: derender(choice()),
        DERENDER_COMPLETION: derender_many(choice()),
        "/tokenize": {"prompt": "hi"},
        "/detokenize": {"tokens": [1]},
    }
    for path, body in bodies.items():
        assert refused(path, {**body, "model": name}, 404)["param"] == "model"


# ------------------------------------------------------------ numbers


BAD_IDS = [VOCABULARY, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**400, -1, -(2**63), -(2**64)]


@pytest.mark.parametrize("token", BAD_IDS, ids=lambda token: str(token)[:22])
def test_ids_outside_the_vocabulary(token: int, refused: Any) -> None:
    refused("/detokenize", {"tokens": [1, token]})
    refused(RENDER_COMPLETION, {"prompt": [1, token]})
    refused(RENDER_COMPLETION, {"prompt": [[1], [token]]})
    refused(RENDER_CHAT, {"messages": USER, "allowed_token_ids": [token]})
    refused(RENDER_CHAT, {"messages": USER, "logit_bias": {str(token): 1}})
    for one in (derender, derender_many):
        path = DERENDER_CHAT if one is derender else DERENDER_COMPLETION
        refused(path, one(choice(token_ids=[token])))
        refused(path, one(choice(logprobs=logprobs(token_id=token))))
        candidate = {"token_id": token, "logprob": -2.0}
        refused(path, one(choice(logprobs=logprobs(token_id=1, top_logprobs=[candidate]))))


NUMBERS = [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"9" * 5000, b"1e" + b"9" * 400]
FIELDS = ("temperature", "top_p", "min_p", "presence_penalty", "max_tokens", "n", "seed", "top_k", "priority")


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:9].decode())
def test_huge_and_non_finite_numbers(number: bytes, refused: Any) -> None:
    for field in (*FIELDS, "logprobs", "prompt_logprobs", "truncate_prompt_tokens", "prompt"):
        start = b"" if field == "prompt" else b'"prompt": "x", '
        refused(RENDER_COMPLETION, b'{%s"%s": %s}' % (start, field.encode(), number))
    refused("/detokenize", b'{"tokens": [%s]}' % number)
    body = payload(derender(choice(logprobs=logprobs(token_id=1, logprob="HERE")))).replace(b'"HERE"', number)
    refused(DERENDER_CHAT, body)
    refused(DERENDER_CHAT, payload(derender(choice(), prompt_tokens="HERE")).replace(b'"HERE"', number))


# ------------------------------------------------------------ texts

HERE = "HERE"

TEXT_PLACES: list[tuple[str, dict[str, Any]]] = [
    (RENDER_CHAT, {"messages": [{"role": "user", "content": HERE}]}),
    (RENDER_CHAT, {"messages": [{"role": HERE, "content": "x"}]}),
    (RENDER_CHAT, {"messages": [{"role": "user", "content": "x", HERE: 1}]}),
    (RENDER_CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": HERE}]}]}),
    (RENDER_CHAT, {"messages": USER, "chat_template_kwargs": {"a": HERE}}),
    (RENDER_CHAT, {"messages": USER, "chat_template_kwargs": {HERE: 1}}),
    (RENDER_CHAT, {"messages": USER, "tools": [{"type": "function", "function": {"name": HERE}}]}),
    (RENDER_CHAT, {"messages": USER, "request_id": HERE}),
    (RENDER_CHAT, {"messages": USER, "documents": [{"text": HERE}]}),
    (RENDER_COMPLETION, {"prompt": HERE}),
    (RENDER_COMPLETION, {"prompt": ["x", HERE]}),
    (RENDER_COMPLETION, {"prompt": "x", "model": HERE}),
    (RENDER_COMPLETION, {"prompt": "x", "stop": HERE}),
    (RENDER_COMPLETION, {"prompt": "x", "stop": ["y", HERE]}),
    (RENDER_COMPLETION, {"prompt": "x", "bad_words": [HERE]}),
    (RENDER_COMPLETION, {"prompt": "x", "cache_salt": HERE}),
    (RENDER_COMPLETION, {"prompt": "x", "structured_outputs": {"regex": HERE}}),
    (RENDER_COMPLETION, {"prompt": "x", "kv_transfer_params": {HERE: HERE}}),
    (DERENDER_CHAT, derender(choice(), model=HERE)),
    (DERENDER_CHAT, derender(choice(finish_reason=HERE))),
    (DERENDER_CHAT, derender(choice(stop_reason=HERE))),
    (DERENDER_CHAT, derender(choice(logprobs=logprobs(token=HERE)))),
    (DERENDER_COMPLETION, derender_many(choice(finish_reason=HERE))),
    ("/tokenize", {"prompt": HERE}),
    ("/tokenize", {"messages": [{"role": "user", "content": HERE}]}),
    ("/detokenize", {"tokens": [1], "model": HERE}),
]

NOT_TEXTS = [
    rb"\ud800",
    rb"\udc00",
    rb"a\udc00\ud800b",
    rb"\ud800\u0041",
    b"\xed\xa0\x80",
    b"\xff",
    b"\xc0\xaf",
]


@pytest.mark.parametrize(("path", "body"), TEXT_PLACES, ids=lambda part: json.dumps(part)[-48:])
def test_lone_surrogates_and_broken_utf_8(path: str, body: dict[str, Any], refused: Any) -> None:
    for bad in NOT_TEXTS:
        refused(path, payload(body).replace(HERE.encode(), bad))


NESTED_PLACES = [
    (RENDER_CHAT, b"%s"),
    (RENDER_CHAT, b'{"messages": %s}'),
    (RENDER_CHAT, b'{"messages": [{"role": "user", "content": %s}]}'),
    (RENDER_CHAT, b'{"messages": [{"role": "user", "content": "x", "more": %s}]}'),
    (RENDER_CHAT, b'{"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"a": %s}}'),
    (RENDER_CHAT, b'{"messages": [{"role": "user", "content": "x"}], "unknown": %s}'),
    (RENDER_COMPLETION, b'{"prompt": %s}'),
    (RENDER_COMPLETION, b'{"prompt": "x", "stop": %s}'),
    (RENDER_COMPLETION, b'{"prompt": "x", "structured_outputs": {"json": {"a": %s}}}'),
    (RENDER_COMPLETION, b'{"prompt": "x", "kv_transfer_params": {"a": %s}}'),
    (DERENDER_CHAT, b'{"generate_response": %s}'),
    (DERENDER_CHAT, b'{"generate_response": {"request_id": "r", "choices": [], "metrics": {"a": %s}}}'),
    (DERENDER_COMPLETION, b'{"generate_responses": %s}'),
    ("/tokenize", b'{"prompt": %s}'),
    ("/detokenize", b'{"tokens": %s}'),
]


def nested(depth: int, opening: bytes, closing: bytes) -> bytes:
    return opening * depth + b"1" + closing * depth


@pytest.mark.parametrize(("path", "body"), NESTED_PLACES)
def test_deep_nesting(path: str, body: bytes, server: Server, refused: Any) -> None:
    """200 levels may be answered, where any JSON may stand; 100,000 are refused everywhere."""
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        reply = server.post(path, body % nested(200, opening, closing))
        if reply.status != 200:
            check_error(reply, 400)
        refused(path, body % nested(100_000, opening, closing))
        refused(path, body % (opening * 100_000))


# ------------------------------------------------------------ paths, methods, content types


@pytest.mark.parametrize("path", ["/", "/nope", "/tokenize/", "/" + "x" * 999, "/%00%ff", "/..%2f"])
def test_unknown_path(path: str, refused: Any) -> None:
    refused(path, {"prompt": "x"}, 404)
    refused(path, b"", 404, method="GET")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "BREW"])
@pytest.mark.parametrize("path", POSTS)
def test_wrong_method(path: str, method: str, server: Server, refused: Any) -> None:
    refused(path, b"", 405, method=method)
    assert "POST" in server.request(method, path).headers["allow"].split(", ")


def test_posts_to_what_can_only_be_read(refused: Any) -> None:
    for path in ("/health", "/version", "/v1/models", "/openapi.json"):
        refused(path, {}, 405)


@pytest.mark.parametrize("kind", ["text/html", "application/x-www-form-urlencoded", "multipart/mixed", ""])
def test_wrong_content_type(kind: str, refused: Any) -> None:
    for path in POSTS:
        refused(path, {"prompt": "x"}, content_type=kind)


def test_the_same_server_answers_all_this(open_server: OpenServer, server: Server) -> None:
    assert open_server("smollm2") is server
    assert server.process.poll() is None
    check_answers(server)
