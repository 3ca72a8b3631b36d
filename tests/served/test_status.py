"""What the server says of itself, and what it needs."""

import re
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from served.conftest import OpenServer
from served.server import Server, serve

POSTS = {
    "/v1/chat/completions/render",
    "/v1/completions/render",
    "/v1/chat/completions/derender",
    "/v1/completions/derender",
    "/tokenize",
    "/detokenize",
}
ENGINE_POSTS = {"/v1/chat/completions", "/v1/completions", "/inference/v1/generate"}
GETS = {"/v1/models", "/version", "/health", "/ping", "/ready", "/metrics"}


def test_health_and_ping(server: Server) -> None:
    for reply in (server.get("/health"), server.get("/ping"), server.post("/ping", b"")):
        assert (reply.status, reply.body) == (200, b"")


def test_version(server: Server) -> None:
    assert server.get("/version").json == {"version": version("trio-render")}


def test_models(server: Server, open_server: OpenServer) -> None:
    listed = server.get("/v1/models")
    assert listed.headers["content-type"] == "application/json"
    assert listed.json["object"] == "list"
    (card,) = listed.json["data"]
    assert (card["id"], card["object"], card["max_model_len"]) == ("m", "model", 8192)
    assert isinstance(card["created"], int)
    short = open_server("smollm2", "--max-model-len=64").get("/v1/models").json
    assert short["data"][0]["max_model_len"] == 64


# ------------------------------------------------------------ openapi.json


@pytest.fixture
def document(server: Server) -> dict[str, Any]:
    reply = server.get("/openapi.json")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    loaded: dict[str, Any] = reply.json
    return loaded


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a document, from the outside in."""
    match value:
        case dict():
            yield value
            for item in value.values():
                yield from objects(item)
        case list():
            for item in value:
                yield from objects(item)


def test_openapi_names_every_endpoint(document: dict[str, Any], server: Server) -> None:
    assert re.fullmatch(r"3\.1\.\d+", document["openapi"])
    assert document["info"] == {"title": "trio_render", "version": version("trio-render")}
    operations = {(path, method) for path, item in document["paths"].items() for method in item}
    assert operations == {(path, "post") for path in POSTS} | {(path, "get") for path in GETS}
    for path, method in operations:
        expected = 400 if method == "post" else 200
        assert server.request(method.upper(), path).status == expected


def test_openapi_names_what_needs_an_engine_where_there_is_one(tiny: Server) -> None:
    paths = tiny.get("/openapi.json").json["paths"]
    assert {path for path, item in paths.items() if "post" in item} == POSTS | ENGINE_POSTS
    assert all(tiny.post(path, {}).status == 400 for path in ENGINE_POSTS)


def test_openapi_operations_are_well_formed(document: dict[str, Any]) -> None:
    for item in document["paths"].values():
        for method, operation in item.items():
            assert operation["summary"]
            assert operation["responses"].keys() == {"200", "4XX", "5XX"}
            assert all(response["description"] for response in operation["responses"].values())
            assert (method == "post") == ("requestBody" in operation)
            parts = [*operation["responses"].values(), *filter(None, [operation.get("requestBody")])]
            for part in parts:
                if "content" in part:
                    assert part["content"].keys() == {"application/json"}
                    assert part["content"]["application/json"]["schema"]


def test_openapi_references_resolve(document: dict[str, Any]) -> None:
    references = {item["$ref"] for item in objects(document) if "$ref" in item}
    assert len(references) > 10
    for reference in references:
        target: Any = document
        assert reference.startswith("#/components/schemas/")
        for step in reference.removeprefix("#/").split("/"):
            assert step in target, reference
            target = target[step]
    used = {reference.rsplit("/", 1)[1] for reference in references}
    assert document["components"]["schemas"].keys() == used, "a schema that nothing refers to"


JSON_TYPES = {"array", "boolean", "integer", "null", "number", "object", "string"}


def test_openapi_schemas_are_json_schemas(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
        required = set(schema.get("required", []))
        assert required <= schema["properties"].keys(), name
        for part in objects(schema):
            kinds = part.get("type", [])
            if isinstance(kinds, str | list):
                assert {kinds} if isinstance(kinds, str) else set(kinds) <= JSON_TYPES
    assert "messages" in schemas["ChatRequest"]["required"]


# ------------------------------------------------------------ start and memory

READY_WITHIN_S = 30
RESIDENT_MB = 215


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_large_vocabulary_starts_quickly_and_small(model_folders: Path, log: Path) -> None:
    since = time.monotonic()
    with serve(model_folders / "deepseek", log=log) as server:
        assert time.monotonic() - since < READY_WITHIN_S
        process = Path(f"/proc/{server.process.pid}")
        resident = re.search(r"^VmRSS:\s+(\d+) kB$", (process / "status").read_text(), re.MULTILINE)
        assert resident
        assert int(resident[1]) / 1024 < RESIDENT_MB
        mapped = (process / "maps").read_text()
        assert "tokenizers" in mapped, "the maps don't show native modules"
        assert "torch" not in mapped
