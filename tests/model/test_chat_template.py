"""A template renders what transformers renders, and what it may not do ends in InvalidRequest."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conformance.cases import Case, load_cases
from opened_models import never, opened

from trio_render import ChatRequest, InvalidRequest, Model, Policy, RenderError
from trio_render.model.chat_template import ChatTemplate, TemplateInput
from trio_render.protocol.decoding import decode_body
from trio_render.render.chat import chat_text

TRUSTING = Policy(served_names=("m",), trust_request_chat_template=True)


def given(*contents: Any, **fields: Any) -> TemplateInput:
    """User messages for a template, with other fields of its input."""
    values: dict[str, Any] = {
        "messages": [{"role": "user", "content": content} for content in contents],
        "tools": None,
        "documents": None,
        "add_generation_prompt": False,
        "continue_final_message": False,
        "variables": {},
    }
    return TemplateInput(**{**values, **fields})


def rendered(source: str, *contents: Any, **fields: Any) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render(given(*contents, **fields), never)


# ------------------------------------------------------------ the same text as transformers


def is_chat(case: Case) -> bool:
    body = case.exchanges[0].body
    return (
        case.group in ("render_chat", "render_chat_tools") and isinstance(body, dict) and "messages" in body
    )


CHATS = [
    case
    for case in load_cases()
    if is_chat(case) and (case.exchanges[0].expected.status == 200 or "/trust/" in case.id)
]


class Recorder(ChatTemplate):
    """Keeps what a template was given, and what it made of that (null where it refused)."""

    def __init__(self, template: ChatTemplate) -> None:
        super().__init__(template.source, template.special_tokens)
        self.seen: list[tuple[dict[str, Any], str | None]] = []

    def render(self, given: TemplateInput, checkpoint: Callable[[], None]) -> str:
        chat = {
            **given._asdict(),
            "variables": dict(given.variables),
            "template": self.source,
            "special_tokens": dict(self.special_tokens),
        }
        self.seen.append((chat, None))
        text = super().render(given, checkpoint)
        self.seen[-1] = (chat, text)
        return text


def recorded_rendering(model: Model, case: Case) -> tuple[dict[str, Any], str | None]:
    """What the template of a recorded case is given, and our rendering."""
    request = decode_body(json.dumps(case.exchanges[0].body).encode(), ChatRequest)
    if request.chat_template is not None:
        template = ChatTemplate(request.chat_template, model.special_tokens)
    else:
        assert model.template is not None
        template = model.template
    recorder = Recorder(template)
    own = Model(**{name: getattr(model, name) for name in Model.__slots__} | {"template": recorder})
    plain = {name: getattr(request, name) for name in request.__struct_fields__} | {"chat_template": None}
    try:
        chat_text(own, TRUSTING, ChatRequest(**plain), never)
    except RenderError:
        assert len(recorder.seen) <= 1
    return recorder.seen[0] if recorder.seen else ({}, None)


@cache
def renderings(folders: Path) -> dict[str, tuple[str | None, str | None]]:
    """By case: our text and transformers'."""
    ours: dict[str, tuple[dict[str, Any], str | None]] = {}
    for case in CHATS:
        try:
            seen = recorded_rendering(opened(folders / case.server.model), case)
        except InvalidRequest:
            continue  # not a template at all
        if seen[0]:
            ours[case.id] = seen
    script = Path(__file__).with_name("reference_rendering.py")
    done = subprocess.run(
        [sys.executable, script],
        input=json.dumps([chat for chat, _ in ours.values()]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)
    return {id_: (text, their) for (id_, (_, text)), their in zip(ours.items(), theirs, strict=True)}


def test_almost_every_recorded_chat_is_compared(model_folders: Path) -> None:
    compared = renderings(model_folders)
    answered = [case for case in CHATS if case.exchanges[0].expected.status == 200]
    assert len(answered) > 150
    assert not {case.id for case in answered} - compared.keys()
    assert sum(text is not None for text, _ in compared.values()) >= len(answered)


@pytest.mark.parametrize("case", CHATS, ids=lambda case: case.id)
def test_recorded_chat_renders_as_transformers_does(model_folders: Path, case: Case) -> None:
    if case.id not in renderings(model_folders):
        assert case.exchanges[0].expected.status != 200
        return
    ours, theirs = renderings(model_folders)[case.id]
    if case.id.endswith("/template-message-keys"):
        # Newer transformers give messages with reasoning a key more; the reference server was older.
        assert theirs is not None
        theirs = theirs.replace(",thinking", "")
    assert ours == theirs


# ------------------------------------------------------------ variables


def test_the_request_can_not_set_what_belongs_to_the_server() -> None:
    source = "{{ bos_token }}{{ messages[0].content }}{{ add_generation_prompt }}{{ tools }}{{ own }}"
    variables = {
        "bos_token": "x",
        "messages": "x",
        "tools": "x",
        "documents": "x",
        "add_generation_prompt": 1,
        "own": 5,
    }
    assert rendered(source, "hi", variables=variables) == "<s>hiFalseNone5"


def test_the_messages_of_the_caller_stay_as_they_are() -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
    ]
    before = json.dumps(messages)
    source = (
        "{% for m in messages %}{{ m.content if m.content is string else m.content[0].text }}{% endfor %}"
    )
    text = ChatTemplate(source, {}).render(given(messages=messages, continue_final_message=True), never)
    assert text == "ab"
    assert json.dumps(messages) == before


# ------------------------------------------------------------ continue the final message


@pytest.mark.parametrize(
    ("source", "final", "wanted"),
    [
        ("{{ messages[-1].content }}<end>", "an answer", "an answer"),
        ("{{ messages[-1].content }}<end>", "an answer ", "an answer "),
        ("{{ messages[-1].content | trim }}<end>", "an answer  ", "an answer"),
        ("{{ messages[-1].content }}<end>", "", ""),
        ("[{{ messages[-1].content }}][{{ messages[-1].content }}]", "twice", "[twice][twice"),
    ],
)
def test_continued_prompt_ends_with_the_final_message(source: str, final: str, wanted: str) -> None:
    text = rendered(source, final, continue_final_message=True)
    # Where the message is shown twice, the last place counts.
    assert text.replace("CONTINUE_THE_FINAL_MESSAGE_HERE ", "") == wanted


@pytest.mark.parametrize(
    ("source", "final"),
    [
        ("nothing of it", "an answer"),
        ("{{ messages[-1].content | upper }}", "an answer"),
        ("{{ messages[-1].content }}", None),
        ("{{ messages[-1].content }}", []),
        ("{{ messages[-1].content }}", [{"type": "image"}]),
    ],
)
def test_a_message_that_is_not_shown_can_not_be_continued(source: str, final: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        rendered(source, final, continue_final_message=True)
    assert caught.value.param == "continue_final_message"


def test_without_messages_there_is_nothing_to_continue() -> None:
    with pytest.raises(InvalidRequest):
        rendered("x", continue_final_message=True)


# ------------------------------------------------------------ errors


@pytest.mark.parametrize(
    "source",
    [
        "{{ 1 / 0 }}",
        "{{ messages[0].content.nothing.more }}",
        "{{ messages.append(1) }}",
        "{{ nobody() }}",
        "{{ 'a' + 1 }}",
        "{{ raise_exception('no') }}",
        "{{ ''.__class__ }}x{{ ''.__class__.mro() }}",
        "{{ messages | nofilter }}",
        "{% for m in 5 %}{% endfor %}",
        "{{ '%d' % 'x' }}",
        "{{ messages['a' }}",
        "{% if %}",
        "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
        "{% include 'x' %}",
        "{{ 9 | int('a', 'b', 'c', 'd') }}",
        "{{ " + "9" * 5000 + " }}",
    ],
)
def test_a_template_that_fails_is_an_invalid_request(source: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        rendered(source, "hi")
    assert len(caught.value.message) < 400


def test_the_message_of_a_refusal_is_short_and_valid_unicode() -> None:
    with pytest.raises(InvalidRequest) as caught:
        rendered("{{ raise_exception(messages[0].content) }}", "\ud800" + "x" * 10_000)
    assert caught.value.message.encode()
    assert len(caught.value.message) < 400


# ------------------------------------------------------------ checkpoints


class Stop(BaseException):
    """What a checkpoint raises when its caller has gone."""


@pytest.mark.parametrize("raised", [Stop, RuntimeError, InvalidRequest])
@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(1000) %}.{% endfor %}",
        "{% macro m() %}.{% endmacro %}" + "{{ m() }}" * 200,
        "{% for i in range(200) %}{% set x = 'a' ~ i %}{% endfor %}",
        "{% for i in range(20) %}{{ i + 1 * i }}{{ i | string | replace('1', '2') }}{% endfor %}",
    ],
)
def test_the_checkpoint_is_called_and_its_error_leaves_as_itself(
    source: str, raised: type[BaseException]
) -> None:
    error = raised("gone")

    def checkpoint() -> None:
        raise error

    with pytest.raises(raised) as caught:
        ChatTemplate(source, {}).render(given("hi"), checkpoint)
    assert caught.value is error


def test_checkpoints_are_regular() -> None:
    calls = []
    source = "{% for i in range(6400) %}{% endfor %}"
    ChatTemplate(source, {}).render(given("hi"), lambda: calls.append(1))
    assert len(calls) == 100
