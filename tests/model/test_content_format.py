"""Templates that loop over a message's content get parts; all others get one text."""

import jinja2
import pytest

from trio_render.model.content_format import ContentFormat, content_format
from trio_render.model.template_environment import TemplateEnvironment

LOOPS = "{% for message in messages %}BODY{% endfor %}"

PARTS = {
    "attribute": "{% for part in message.content %}{{ part.text }}{% endfor %}",
    "subscript": "{% for part in message['content'] %}{{ part['text'] }}{% endfor %}",
    "assigned first": "{% set c = message.content %}{% for part in c %}{{ part.text }}{% endfor %}",
    "assigned by subscript": "{% set c = message['content'] %}{% for part in c %}{{ part.text }}{% endfor %}",
    "only where it is no text": (
        "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
        "{% for item in message['content'] %}{% if item['type'] == 'text' %}{{ item['text'] }}{% endif %}"
        "{% endfor %}{% endif %}"
    ),
    "selected parts": (
        "{% for p in message['content'] | selectattr('type', 'equalto', 'text') %}{{ p.text }}{% endfor %}"
    ),
    "assigned with a filter": (
        "{% set texts = message.content | selectattr('type', 'equalto', 'text') %}"
        "{% for part in texts %}{{ part.text }}{% endfor %}"
    ),
}

TEXT = {
    "shown": "{{ message.content }}",
    "trimmed": "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|im_end|>' }}",
    "split": "{{ message.content.split('</think>')[-1] }}",
    "tested only": "{% if message.content is string %}{{ message.content }}{% endif %}",
    "loop over calls": "{% for call in message.tool_calls %}{{ call.id }}{% endfor %}{{ message.content }}",
    "another content": "{% for c in documents[0].content %}{{ c }}{% endfor %}{{ message.content }}",
    "loop over lines of it": "{% for line in message.content.split('\n') %}{{ line }}{% endfor %}",
}


def format_of(source: str) -> ContentFormat:
    return content_format(TemplateEnvironment().parse(source))


@pytest.mark.parametrize("idiom", PARTS)
def test_a_loop_over_content_wants_parts(idiom: str) -> None:
    assert format_of(LOOPS.replace("BODY", PARTS[idiom])) == "openai"


@pytest.mark.parametrize("idiom", TEXT)
def test_anything_else_wants_a_text(idiom: str) -> None:
    assert format_of(LOOPS.replace("BODY", TEXT[idiom])) == "string"


@pytest.mark.parametrize(
    "head",
    [
        "{% for message in messages[1:] %}",
        "{% set loop_messages = messages %}{% for message in loop_messages %}",
        "{% set loop_messages = messages[1:] %}{% for message in loop_messages %}",
        "{% set a = messages %}{% set b = a %}{% for message in b %}",
        "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}{% else %}"
        "{% set rest = messages %}"
        "{% endif %}{% for message in rest %}",
        "{% for message in messages | list %}",
        "{% for message in messages if message.role != 'system' %}",
    ],
)
def test_the_messages_may_go_by_another_name(head: str) -> None:
    assert format_of(head + PARTS["attribute"] + "{% endfor %}") == "openai"
    assert format_of(head + TEXT["shown"] + "{% endfor %}") == "string"


def test_the_format_does_not_depend_on_the_environment() -> None:
    source = LOOPS.replace("BODY", PARTS["attribute"])
    assert content_format(jinja2.Environment().parse(source)) == "openai"


@pytest.mark.parametrize(
    "source", ["", "no template", "{{ messages }}", "{% for m in messages %}{% endfor %}"]
)
def test_templates_without_content_want_a_text(source: str) -> None:
    assert format_of(source) == "string"


def test_a_macro_that_loops_over_its_argument_is_not_followed() -> None:
    source = (
        "{% macro show(content) %}{% for part in content %}{{ part.text }}{% endfor %}{% endmacro %}"
        "{% for message in messages %}{{ show(message.content) }}{% endfor %}"
    )
    assert format_of(source) == "string"
