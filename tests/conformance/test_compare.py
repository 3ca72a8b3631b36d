"""The comparison must accept the recorded answers and be able to fail."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from conformance.cases import Answer, Case, Exchange, ServerSettings, group_by_server, load_cases
from conformance.compare import Diff, compare, compare_answers, run_case

CASES = load_cases()


def differs_at(expected: object, got: object, key: str = "") -> str:
    """The path of the difference that must be found."""
    with pytest.raises(Diff) as caught:
        compare(expected, got, key=key)
    return caught.value.path


# ------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ({"a": None}, {}),
        ({}, {"a": None}),
        (1.0, 1),
        (0.1 + 0.2, 0.3),
        ("chatcmpl-$random", "chatcmpl-0f_A-9"),
        ("$int", 1700000000),
        ("$present", ""),
        ("$any", None),
        ({"a": "$any"}, {}),
        ([1, [2, {"a": "b"}]], [1, [2, {"a": "b"}]]),
        ("a.c", "a.c"),
    ],
)
def test_equal_values(expected: object, got: object) -> None:
    compare(expected, got)


@pytest.mark.parametrize(
    ("expected", "got", "path"),
    [
        ({"ids": [1, 2, 3]}, {"ids": [1, 2, 4]}, "$.ids[2]"),
        ({"ids": [1, 2, 3]}, {"ids": [1, 2]}, "$.ids.length"),
        ({"ids": [1, 2]}, {"ids": [1, 2, 3]}, "$.ids.length"),
        (10**17, 10**17 + 1, "$"),
        (0.5, 0.5000001, "$"),
        (float("nan"), 0.0, "$"),
        (1, True, "$"),
        (True, 1, "$"),
        (False, None, "$"),
        (1, "1", "$"),
        ("1", 1, "$"),
        ({"a": 1}, {}, "$.a"),
        ({"a": 1}, {"a": 1, "b": 0}, "$.b"),
        ({"a": 1}, {"a": 1, "b": False}, "$.b"),
        ({"a": {"b": "x"}}, {"a": {"b": "y"}}, "$.a.b"),
        ({"a": None}, {"a": []}, "$.a"),
        ({"a": {}}, {"a": []}, "$.a"),
        ([], {}, "$"),
        ("", None, "$"),
        ("a.c", "abc", "$"),
        ("chatcmpl-$random", "chatcmpl-", "$"),
        ("chatcmpl-$random", "cmpl-12", "$"),
        ("chatcmpl-$random", "chatcmpl-1 2", "$"),
        ("$int", 1.0, "$"),
        ("$int", True, "$"),
        ("$present", None, "$"),
        ({"a": "$present"}, {}, "$.a"),
    ],
)
def test_different_values(expected: object, got: object, path: str) -> None:
    assert differs_at(expected, got) == path


def test_diff_names_both_sides() -> None:
    diff = Diff("$.a", {"b": "\u00e9"}, "x" * 1000)
    assert str(diff).startswith("$.a: expected {'b': '\\xe9'}, got 'xxx")
    assert len(str(diff)) < 400


# ------------------------------------------------------------ objects with their own rules


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ({"temperature": 0.5}, {"temperature": 0.5, "max_tokens": 16, "n": 1, "top_k": 0}),
        ({"temperature": 0.5}, {"temperature": 0.5, "ours": True}),
        ({"n": 2, "output_kind": 1, "skip_clone": True}, {"n": 2}),
        ({"n": 2}, {"n": 2, "output_kind": 2}),
    ],
)
def test_equal_sampling_params(expected: object, got: object) -> None:
    compare(expected, got, key="sampling_params")


@pytest.mark.parametrize(
    ("expected", "got", "path"),
    [
        ({"temperature": 0.5}, {"temperature": 0.6}, "$.temperature"),
        ({"max_tokens": 17}, {}, "$.max_tokens"),
        ({}, {"max_tokens": 17}, "$.max_tokens"),
        ({}, {"seed": 0}, "$.seed"),
        ({}, {"detokenize": False}, "$.detokenize"),
        ({"structured_outputs": {"json": "{}"}}, {}, "$.structured_outputs"),
    ],
)
def test_different_sampling_params(expected: object, got: object, path: str) -> None:
    assert differs_at(expected, got, "sampling_params") == path


def test_structured_outputs() -> None:
    expected = {"structural_tag": '{"a": [1], "b": 2}', "disable_any_whitespace": False, "_backend": "x"}
    key = "structured_outputs"
    compare(expected, {"structural_tag": '{"b":2,"a":[1]}', "_private": 1}, key=key)
    assert differs_at(expected, {"structural_tag": '{"b":2,"a":[3]}'}, key) == "$.structural_tag.a[0]"
    assert differs_at(expected, {"structural_tag": "{"}, key) == "$.structural_tag"
    with_flag = {"structural_tag": expected["structural_tag"], "disable_any_whitespace": True}
    assert differs_at(expected, with_flag, key) == "$.disable_any_whitespace"


def test_chat_template_kwargs() -> None:
    key = "chat_template_kwargs"
    compare({"a": 1, "cohere_format": "x"}, {"a": 1}, key=key)
    assert differs_at({"a": 1}, {"a": 2}, key) == "$.a"
    assert differs_at({"a": 1}, {"a": 1, "b": 2}, key) == "$.b"


def call(index: int, **function: str) -> dict[str, Any]:
    return {"index": index, "function": function}


def test_delta_normalisation() -> None:
    compare({"content": ""}, {}, key="delta")
    compare({}, {"content": "", "reasoning": "", "tool_calls": []}, key="delta")
    whole = {"tool_calls": [{**call(0, name="f", arguments="{}"), "id": "call-$random"}]}
    pieces = [{**call(0, name="f"), "id": "call-7"}, call(0, arguments="{"), call(0, arguments="}")]
    compare(whole, {"tool_calls": pieces}, key="delta")


@pytest.mark.parametrize(
    ("expected", "got", "path"),
    [
        ({"content": "a"}, {"content": "b"}, "$.content"),
        ({"content": "a"}, {}, "$.content"),
        ({}, {"content": "a"}, "$.content"),
        ({"content": "a"}, {"reasoning": "a"}, "$.content"),
        ({"role": "assistant"}, {"role": ""}, "$.role"),
        (
            {"tool_calls": [call(0, name="f")]},
            {"tool_calls": [call(0, name="g")]},
            "$.tool_calls[0].function.name",
        ),
        ({"tool_calls": [call(0, name="f")]}, {"tool_calls": [call(1, name="f")]}, "$.tool_calls[0].index"),
        (
            {"tool_calls": [call(0, arguments="{}")]},
            {"tool_calls": [call(0, arguments="{"), call(1, arguments="}")]},
            "$.tool_calls[0].function.arguments",
        ),
    ],
)
def test_different_deltas(expected: object, got: object, path: str) -> None:
    assert differs_at(expected, got, "delta") == path


# ------------------------------------------------------------ errors

ERROR = {"message": "bad", "type": "BadRequestError", "param": "body.ChatRequest.n", "code": 400}


@pytest.mark.parametrize("changes", [{"message": "other"}, {"param": "body.n"}, {"ours": 1}])
def test_equal_errors(changes: dict[str, Any]) -> None:
    compare({"error": ERROR}, {"error": {**ERROR, **changes}})


def test_position_of_a_syntax_error_is_free() -> None:
    compare({**ERROR, "param": "body.13"}, {**ERROR, "param": "body.14"}, key="error")


def test_unnamed_parameter_may_be_named() -> None:
    compare({**ERROR, "param": None}, {**ERROR, "param": "n"}, key="error")


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"message": None}, "message"),
        ({"message": 1}, "message"),
        ({"type": "NotFoundError"}, "type"),
        ({"code": 404}, "code"),
        ({"code": "400"}, "code"),
        ({"param": "body.m"}, "param"),
        ({"param": None}, "param"),
    ],
)
def test_different_errors(changes: dict[str, Any], key: str) -> None:
    assert differs_at({"error": ERROR}, {"error": {**ERROR, **changes}}) == f"$.error.{key}"


def test_wrong_status() -> None:
    with pytest.raises(Diff, match=r"^status: expected 200, got Answer\(status=400, body='no'\)"):
        compare_answers(Answer(200, None), Answer(400, "no"))


# ------------------------------------------------------------ streams


def answer(state: int, **delta: object) -> Answer:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return Answer(200, {"stream_state": state, "chunk": {"choices": [choice]}})


def stream(*expected: Answer, joined: bool) -> Case:
    states = [None, *["$prev"] * (len(expected) - 1)]
    exchanges = [Exchange({"stream_state": s}, e) for s, e in zip(states, expected, strict=True)]
    settings = ServerSettings("smollm2")
    return Case("id", "group", settings, "POST", "/path", {}, tuple(exchanges), joined)


class Replay:
    """A server that gives prepared answers and remembers the bodies it was sent."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = iter(answers)
        self.bodies: list[bytes | None] = []

    def __call__(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, Any]:
        self.bodies.append(body)
        given = next(self.answers)
        return given.status, given.body


ANY_STATE = "$any"


def expected_answer(**delta: object) -> Answer:
    given = answer(0, **delta)
    return Answer(200, {**given.body, "stream_state": ANY_STATE})


def test_state_is_handed_back() -> None:
    send = Replay(answer(11, content="a"), answer(12, content="b"))
    run_case(stream(expected_answer(content="a"), expected_answer(content="b"), joined=False), send)
    assert send.bodies == [b'{"stream_state": null}', b'{"stream_state": 11}']


def test_text_may_move_between_the_chunks_of_a_joined_stream() -> None:
    expected = (
        expected_answer(content="ab", reasoning="r"),
        expected_answer(tool_calls=[call(0, name="f", arguments="{}")]),
    )
    got = (
        answer(1, content="a", tool_calls=[call(0, name="f", arguments="{")]),
        answer(2, content="b", reasoning="r", tool_calls=[call(0, arguments="}")]),
    )
    run_case(stream(*expected, joined=True), Replay(*got))
    with pytest.raises(Diff, match=r"^step 0: \$\.chunk\.choices\[0\]\.delta\.content"):
        run_case(stream(*expected, joined=True), Replay(*got), chunk_by_chunk=True)
    with pytest.raises(Diff, match=r"^step 0: \$\.chunk\.choices\[0\]\.delta\.content"):
        run_case(stream(*expected, joined=False), Replay(*got))


@pytest.mark.parametrize(
    ("got", "path"),
    [
        (answer(1, content="x"), "joined.choice 0.content"),
        (answer(1, content="a", reasoning="r"), "joined.choice 0.reasoning"),
        (answer(1, content="a", tool_calls=[call(0, name="f")]), "joined.choice 0.calls.0"),
        (answer(1, content="a", role="assistant"), "$.chunk.choices[0].delta.role"),
        (Answer(200, {"stream_state": 1, "chunk": {"choices": []}}), "$.chunk.choices.length"),
        (Answer(200, "text"), "$"),
    ],
)
def test_different_joined_streams(got: Answer, path: str) -> None:
    with pytest.raises(Diff) as caught:
        run_case(stream(expected_answer(content="a"), joined=True), Replay(got))
    assert caught.value.path == path


def test_joined_tool_calls_must_agree() -> None:
    expected = expected_answer(tool_calls=[{**call(0, name="f", arguments="{}"), "id": "call-$random"}])
    good = {**call(0, name="f", arguments="{}"), "id": "call-1"}
    run_case(stream(expected, joined=True), Replay(answer(1, tool_calls=[good])))
    for change in ({"id": "1"}, {"id": None}, {"function": {"name": "f", "arguments": "{ }"}}, {"index": 1}):
        with pytest.raises(Diff, match=r"^joined\.choice 0\.calls"):
            run_case(stream(expected, joined=True), Replay(answer(1, tool_calls=[{**good, **change}])))


# ------------------------------------------------------------ the recorded cases


def fill_in(expected: Any) -> Any:
    """An answer that an expectation with placeholders describes."""
    match expected:
        case dict():
            return {key: fill_in(value) for key, value in expected.items()}
        case list():
            return [fill_in(value) for value in expected]
        case "$int":
            return 7
        case str():
            return expected.replace("$random", "0a")
    return expected


def perfect_server(case: Case) -> Replay:
    return Replay(*[Answer(e.expected.status, fill_in(e.expected.body)) for e in case.exchanges])


def damaged(value: Any) -> Iterator[Any]:
    """Copies of a JSON value, each with one wrong thing somewhere on the first branch."""
    match value:
        case dict():
            yield {**value, "surplus": 1}
            for key, item in value.items():
                yield from ({**value, key: bad} for bad in damaged(item))
        case list():
            yield [*value, 1]
            for i, item in enumerate(value[:1]):
                yield from ([*value[:i], bad, *value[i + 1 :]] for bad in damaged(item))
        case bool():
            yield not value
        case int() | float():
            yield value + 1
        case str():
            yield value + "!"


def test_cases_are_complete() -> None:
    assert len(CASES) == len({case.id for case in CASES}) == 1073
    groups = group_by_server(CASES)
    assert len(groups) == 10
    assert sum(map(len, groups.values())) == len(CASES)
    assert all(case.server == settings for settings, cases in groups.items() for case in cases)
    assert {settings.model for settings in groups} == {"smollm2", "qwen3", "mistral-hf", "deepseek"}


def test_settings_are_readable() -> None:
    names = Counter(str(settings) for settings in group_by_server(CASES))
    assert names["qwen3 qwen3 hermes --enable-auto-tool-choice"] == 1
    assert max(names.values()) == 1


def test_recorded_answers_are_accepted() -> None:
    for case in CASES:
        run_case(case, perfect_server(case))
        run_case(case, perfect_server(case), chunk_by_chunk=True)


def test_another_status_is_never_accepted() -> None:
    for case in CASES:
        last = case.exchanges[-1].expected
        before = [Answer(e.expected.status, fill_in(e.expected.body)) for e in case.exchanges[:-1]]
        with pytest.raises(Diff, match="status: "):
            run_case(case, Replay(*before, Answer(last.status + 1, fill_in(last.body))))


def test_damaged_answers_are_rejected() -> None:
    """Damage to whole, successful answers is found, but where the rules say that it does not matter."""
    free = ("sampling_params", "structured_outputs", "chat_template_kwargs")
    checked = 0
    for case in CASES:
        expected = case.exchanges[0].expected
        if (
            len(case.exchanges) > 1
            or expected.status != 200
            or any(name in repr(expected.body) for name in free)
        ):
            continue
        for bad in damaged(fill_in(expected.body)):
            checked += 1
            try:
                run_case(case, Replay(Answer(200, bad)))
            except Diff:
                continue
            assert is_hidden_by_placeholder(expected.body, bad), (case.id, bad)
    assert checked > 5000


def is_hidden_by_placeholder(expected: Any, bad: Any) -> bool:
    """Whether the two differ only under placeholders."""
    match expected:
        case dict() if isinstance(bad, dict) and expected.keys() == bad.keys():
            return all(is_hidden_by_placeholder(expected[key], bad[key]) for key in expected)
        case list() if isinstance(bad, list) and len(expected) == len(bad):
            return all(map(is_hidden_by_placeholder, expected, bad))
        case str() if "$" in expected:
            return True
    return bool(expected == bad)
