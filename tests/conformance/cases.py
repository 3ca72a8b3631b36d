"""The recorded conformance cases: requests together with the answers of a reference server.

The reference server is vLLM 0.33.0 in its GPU-less render mode. Each ``*.jsonl`` file beside this module is
one group of cases, one JSON object per line:

- ``server`` holds the settings that the server was started with, its served model name being ``m``.
- ``request`` is sent as JSON, ``raw`` byte for byte instead. ``headers`` are added to the request.
- A stream has ``steps`` instead, and ``expect`` is a list. A step whose ``stream_state`` is ``"$prev"``
  carries the ``stream_state`` of the answer before.
- ``compare: "joined"`` marks streams whose text is compared as a whole; see ``compare``.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PREVIOUS_STATE = "$prev"


@dataclass(frozen=True, order=True)
class ServerSettings:
    """What a server must be started with to answer a case as recorded."""

    model: str
    reasoning_parser: str = ""
    tool_parser: str = ""
    flags: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = (self.model, self.reasoning_parser, self.tool_parser, *self.flags)
        return " ".join(part for part in parts if part)


@dataclass(frozen=True)
class Answer:
    """A status and a body: parsed JSON, or text where the body is not JSON, or None where it is empty."""

    status: int
    body: Any


@dataclass(frozen=True)
class Exchange:
    """One request body and the answer expected to it. Only streams have more than one exchange."""

    body: Any  # sent as JSON, but for bytes and None
    expected: Answer

    def payload(self, stream_state: object) -> bytes | None:
        """The bytes to send, with the state of the answer before where the case asks for it."""
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        body = self.body
        if isinstance(body, dict) and body.get("stream_state") == PREVIOUS_STATE:
            body = {**body, "stream_state": stream_state}
        return json.dumps(body).encode()


@dataclass(frozen=True)
class Case:
    id: str
    group: str
    server: ServerSettings
    method: str
    path: str
    headers: Mapping[str, str]
    exchanges: tuple[Exchange, ...]
    joined: bool


def parse_settings(recorded: Mapping[str, Any]) -> ServerSettings:
    return ServerSettings(
        model=recorded["model"],
        reasoning_parser=recorded["reasoning_parser"] or "",
        tool_parser=recorded["tool_parser"] or "",
        flags=tuple(sorted(recorded["flags"])),
    )


def parse_exchanges(recorded: Mapping[str, Any]) -> tuple[Exchange, ...]:
    if "steps" in recorded:
        pairs = zip(recorded["steps"], recorded["expect"], strict=True)
        return tuple(Exchange(step, Answer(**expected)) for step, expected in pairs)
    body = recorded["raw"].encode("utf-8", "surrogatepass") if "raw" in recorded else recorded.get("request")
    return (Exchange(body, Answer(**recorded["expect"])),)


def parse_case(line: str) -> Case:
    recorded = json.loads(line)
    exchanges = parse_exchanges(recorded)
    content_type = {} if exchanges[0].body is None else {"Content-Type": "application/json"}
    return Case(
        id=recorded["id"],
        group=recorded["group"],
        server=parse_settings(recorded["server"]),
        method=recorded["method"],
        path=recorded["path"],
        headers={**content_type, **recorded.get("headers", {})},
        exchanges=exchanges,
        joined=recorded.get("compare") == "joined",
    )


def load_cases(folder: Path = Path(__file__).parent) -> list[Case]:
    """All recorded cases, in a stable order."""
    files = sorted(folder.glob("*.jsonl"))
    return [
        parse_case(line) for file in files for line in file.read_text(encoding="utf-8").split("\n") if line
    ]


def group_by_server(cases: Iterable[Case]) -> dict[ServerSettings, list[Case]]:
    """The cases that one server can answer, for each server that is needed."""
    groups: defaultdict[ServerSettings, list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.server].append(case)
    return dict(sorted(groups.items()))
