"""Compares a server's answers with recorded ones, loosely only where implementations may differ.

- ``null`` and absent are the same thing, both ways. Other extra keys fail.
- Numbers agree within 1e-9, integers exactly. Texts agree exactly.
- Placeholders in expectations: ``$random`` inside a text stands for a run of letters and digits, ``$int`` for
  any integer, ``$present`` for anything but null, ``$any`` for anything at all.
- Some objects have rules of their own, chosen by the key they stand under; see `RULES`.
- In a joined case the texts of a stream are compared as a client has them at the end, since a server may hold
  back a possible marker in its own way. All else is compared in the chunk where it belongs.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from conformance.cases import Answer, Case

Object = Mapping[str, Any]
Send = Callable[[str, str, Mapping[str, str], bytes | None], tuple[int, Any]]
"""Sends method, path, headers and body; returns the status and the body, parsed where it is JSON."""

TOLERANCE = 1e-9

PRIVATE_SAMPLING_KEYS = {
    "output_kind",
    "output_text_buffer_length",
    "skip_clone",
    "skip_reading_prefix_cache",
}

SAMPLING_DEFAULTS = {
    "allowed_token_ids": None,
    "detokenize": True,
    "extra_args": None,
    "ignore_eos": False,
    "include_stop_str_in_output": False,
    "logit_bias": None,
    "logprob_token_ids": None,
    "logprobs": None,
    "max_tokens": 16,
    "min_tokens": 0,
    "n": 1,
    "prompt_logprobs": None,
    "repetition_detection": None,
    "seed": None,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "stream_interval": None,
    "structured_outputs": None,
    "thinking_token_budget": None,
    "top_k": 0,
}

PRIVATE_TEMPLATE_KEYS = {"cohere_format"}


class Missing:
    """The type of `MISSING`, which stands for a value that is not there."""

    def __repr__(self) -> str:
        return "(absent)"


MISSING: Final = Missing()


class Diff(AssertionError):
    """The first place where an answer differs from the recorded one."""

    def __init__(self, path: str, expected: object, got: object) -> None:
        super().__init__(f"{path}: expected {shorten(expected)}, got {shorten(got)}")
        self.path = path
        self.expected = expected
        self.got = got


def shorten(value: object, limit: int = 300) -> str:
    text = ascii(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def require(condition: bool, path: str, expected: object, got: object) -> None:
    if not condition:
        raise Diff(path, expected, got)


# ------------------------------------------------------------ values


def compare(expected: object, got: object, path: str = "$", key: str = "") -> None:
    """Raise Diff where `got` differs. `key` is the nearest object key above the values."""
    match expected:
        case None:
            require(got is None or got is MISSING, path, expected, got)
        case bool():
            require(got is expected, path, expected, got)
        case int() | float():
            require(is_same_number(expected, got), path, expected, got)
        case str():
            require(is_same_text(expected, got), path, expected, got)
        case list():
            compare_lists(expected, got, path, key)
        case dict():
            compare_objects(expected, got, path, key)
        case _:
            raise TypeError(f"{path}: not a JSON value: {expected!r}")


def is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_same_number(expected: float, got: object) -> bool:
    if not isinstance(got, int | float) or isinstance(got, bool):
        return False
    if isinstance(expected, int) and isinstance(got, int):
        return expected == got
    return abs(expected - got) <= TOLERANCE


def is_same_text(expected: str, got: object) -> bool:
    if expected == "$any":
        return True
    if expected == "$present":
        return got is not None and got is not MISSING
    if expected == "$int":
        return is_integer(got)
    if not isinstance(got, str):
        return False
    if "$random" not in expected:
        return expected == got
    pattern = "[0-9A-Za-z_-]+".join(map(re.escape, expected.split("$random")))
    return re.fullmatch(pattern, got) is not None


def compare_lists(expected: list[Any], got: object, path: str, key: str) -> None:
    if not isinstance(got, list):
        raise Diff(path, expected, got)
    for i, (one, other) in enumerate(zip(expected, got, strict=False)):
        compare(one, other, f"{path}[{i}]", key)
    require(len(expected) == len(got), f"{path}.length", len(expected), len(got))


def compare_objects(expected: Object, got: object, path: str, key: str) -> None:
    if not isinstance(got, dict):
        raise Diff(path, expected, got)
    RULES.get(key, compare_entries)(expected, got, path)


def compare_entries(expected: Object, got: Object, path: str) -> None:
    for key, value in expected.items():
        compare(value, got.get(key, MISSING), f"{path}.{key}", key)
    for key, value in got.items():
        require(key in expected or value is None, f"{path}.{key}", MISSING, value)


# ------------------------------------------------------------ objects with their own rules


def compare_sampling_params(expected: Object, got: Object, path: str) -> None:
    """Neither private nor extra keys are compared, but a default that is spelled out must be right."""
    compared = without(expected, PRIVATE_SAMPLING_KEYS)
    for key in (SAMPLING_DEFAULTS.keys() & got.keys()) - compared.keys():
        if got[key] is not None:
            compare(SAMPLING_DEFAULTS[key], got[key], f"{path}.{key}", key)
    compare_entries(compared, {key: value for key, value in got.items() if key in compared}, path)


def compare_structured_outputs(expected: Object, got: Object, path: str) -> None:
    compare_entries(plain_structure(expected), plain_structure(got), path)


def plain_structure(params: Object) -> dict[str, Any]:
    """Without private keys, false as absent, and the structural tag as JSON instead of text."""
    plain = {key: value for key, value in params.items() if value is not False and not key.startswith("_")}
    if isinstance(plain.get("structural_tag"), str):
        with suppress(ValueError):  # what is not JSON is compared as it is
            plain["structural_tag"] = json.loads(plain["structural_tag"])
    return plain


def compare_template_arguments(expected: Object, got: Object, path: str) -> None:
    compare_entries(without(expected, PRIVATE_TEMPLATE_KEYS), without(got, PRIVATE_TEMPLATE_KEYS), path)


def compare_deltas(expected: Object, got: Object, path: str) -> None:
    compare_entries(plain_delta(expected), plain_delta(got), path)


def plain_delta(delta: Object) -> dict[str, Any]:
    """Empty texts as absent, and the pieces of each tool call joined."""
    plain = {key: value for key, value in delta.items() if key not in EMPTY or value != EMPTY[key]}
    if isinstance(plain.get("tool_calls"), list):
        plain["tool_calls"] = join_pieces(plain["tool_calls"])
    return plain


def join_pieces(pieces: list[Object]) -> list[dict[str, Any]]:
    """One piece for each index, in the order in which the calls first appear."""
    joined: dict[object, dict[str, Any]] = {}
    for piece in pieces:
        call = joined.setdefault(piece.get("index"), {"function": {}})
        function = call["function"]
        for key, value in (piece.get("function") or {}).items():
            function[key] = join_values(function.get(key), value)
        for key, value in without(piece, {"function"}).items():
            call[key] = value if call.get(key) is None else call[key]
    return list(joined.values())


def join_values(old: object, new: object) -> object:
    if isinstance(old, str) and isinstance(new, str):
        return old + new
    return old if new is None else new


def compare_errors(expected: Object, got: Object, path: str) -> None:
    """The message is free; where the recorded error names no parameter, any may be named."""
    message = got.get("message", MISSING)
    require(isinstance(message, str), f"{path}.message", "a text", message)
    for key in ("type", "code"):
        compare(expected[key], got.get(key, MISSING), f"{path}.{key}")
    if expected["param"] is not None:
        compare(plain_param(expected["param"]), plain_param(got.get("param", MISSING)), f"{path}.param")


def plain_param(param: object) -> object:
    """Without the names of request classes and the position of a JSON syntax error."""
    if not isinstance(param, str):
        return param
    names = [name for name in param.split(".") if not re.fullmatch("[A-Z][A-Za-z]*", name)]
    return re.sub(r"^body\.\d+$", "body.<position>", ".".join(names))


def without(entries: Object, keys: set[str]) -> dict[str, Any]:
    return {key: value for key, value in entries.items() if key not in keys}


EMPTY: dict[str, object] = {"content": "", "reasoning": "", "tool_calls": []}
"""What a delta's key holds when it adds nothing."""

RULES: dict[str, Callable[[Object, Object, str], None]] = {
    "chat_template_kwargs": compare_template_arguments,
    "delta": compare_deltas,
    "error": compare_errors,
    "sampling_params": compare_sampling_params,
    "structured_outputs": compare_structured_outputs,
}

# ------------------------------------------------------------ answers and streams


def compare_answers(expected: Answer, got: Answer, path: str = "") -> None:
    require(got.status == expected.status, f"{path}status", expected.status, got)
    compare(expected.body, got.body, f"{path}$")


@dataclass
class JoinedCall:
    ids: list[str] = field(default_factory=list)
    name: str = ""
    arguments: str = ""

    def add(self, piece: Object) -> None:
        function = piece.get("function") or {}
        if piece.get("id") is not None:
            self.ids.append(piece["id"])
        self.name += function.get("name") or ""
        self.arguments += function.get("arguments") or ""


@dataclass
class JoinedChoice:
    content: str = ""
    reasoning: str = ""
    calls: defaultdict[object, JoinedCall] = field(default_factory=lambda: defaultdict(JoinedCall))

    def add(self, delta: Object) -> None:
        self.content += delta.get("content") or ""
        self.reasoning += delta.get("reasoning") or ""
        for piece in delta.get("tool_calls") or []:
            self.calls[piece.get("index")].add(piece)

    def as_json(self) -> dict[str, Any]:
        calls = {str(index): vars(call) for index, call in self.calls.items()}
        return {"content": self.content, "reasoning": self.reasoning, "calls": calls}


class JoinedStream:
    """Collects the texts and tool calls that a client has after a whole stream."""

    def __init__(self) -> None:
        self.choices: defaultdict[object, JoinedChoice] = defaultdict(JoinedChoice)

    def take(self, answer: Answer) -> Answer:
        """Collect what the answer's deltas say, and return the answer without it."""
        rest = deepcopy(answer.body)
        for index, delta in iterate_deltas(rest):
            self.choices[index].add(delta)
            for key in EMPTY.keys() & delta.keys():
                del delta[key]
        return Answer(answer.status, rest)

    def as_json(self) -> dict[str, Any]:
        return {f"choice {index}": choice.as_json() for index, choice in self.choices.items()}


def iterate_deltas(body: object) -> Iterator[tuple[object, dict[str, Any]]]:
    chunk = body.get("chunk") if isinstance(body, dict) else None
    choices = chunk.get("choices") if isinstance(chunk, dict) else None
    for choice in choices or []:
        if isinstance(choice, dict) and isinstance(choice.get("delta"), dict):
            yield choice.get("index"), choice["delta"]


def run_case(case: Case, send: Send, *, chunk_by_chunk: bool = False) -> None:
    """Send a case's requests and raise Diff at the first answer that is not as recorded.

    With `chunk_by_chunk` the chunks of joined cases must be equal one by one, too.
    """
    join = case.joined and not chunk_by_chunk
    expected_stream, got_stream = JoinedStream(), JoinedStream()
    state: object = None
    for i, exchange in enumerate(case.exchanges):
        expected = exchange.expected
        got = Answer(*send(case.method, case.path, case.headers, exchange.payload(state)))
        state = got.body.get("stream_state") if isinstance(got.body, dict) else None
        if join:
            expected, got = expected_stream.take(expected), got_stream.take(got)
        compare_answers(expected, got, f"step {i}: " if len(case.exchanges) > 1 else "")
    compare(expected_stream.as_json(), got_stream.as_json(), "joined")
