"""What a template from a request can't do: run for ever, fill the memory, reach the interpreter."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from opened_models import never

from trio_render import InvalidRequest
from trio_render.model.chat_template import ChatTemplate, TemplateInput

GIVEN = TemplateInput([{"role": "user", "content": "hi"}], None, None, True, False, {"one": 1})


def rendered(source: str) -> str:
    return ChatTemplate(source, {}).render(GIVEN, never)


def repeated(
    step: str, times: int = 40, start: str = "{% set x = 'aaaa' %}", end: str = "{{ x|length }}"
) -> str:
    """A template that makes a value from itself, again and again."""
    return start + step * times + end


LISTS = "{% set x = [x, x] %}"
TUPLES = "{% set x = (x, x) %}"

TOO_MUCH_WORK = {
    "loops in loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops with work": "{% for i in range(9999) %}{% for j in range(9999) %}{{ j }}{% endfor %}{% endfor %}",
    "macro calls itself": "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    "recursive loop": "{% for a in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "lists in a loop": "{% for i in range(99999) %}{% set z = range(99999) | list %}{% endfor %}",
    "maps in a loop": "{% for i in range(99999) %}{% set z = range(99999)|map('string')|list %}{% endfor %}",
    "sums in a loop": "{% for i in range(99999) %}{% set z = range(99999) | sum %}{% endfor %}",
    "splits in a loop": "{% for i in range(99999) %}{% set z = ('a,' * 1000).split(',') %}{% endfor %}",
    "power of powers": "{{ 9 ** (9 ** 9) }}",
    "powers": repeated("{% set x = x * x %}", start="{% set x = 99 %}", end="{{ x }}"),
    "rounding": "{{ one | round(10 ** 9, 'ceil') }}",
    "rounding a constant": "{{ 1 | round(1000000000, 'ceil') }}",
    "hash of nested tuples": repeated(TUPLES, end="{{ {}[x] }}"),
    "unique nested tuples": repeated(TUPLES, end="{{ [x, 1] | unique | list | length }}"),
    "nested lists compared": repeated(
        "{% set x = [x, x] %}{% set y = [y, y] %}",
        start="{% set x = 'a' %}{% set y = 'a' %}",
        end="{{ x == y }}",
    ),
}

TOO_LONG = {
    "~": repeated("{% set x = x ~ x %}"),
    "+": repeated("{% set x = x + x %}"),
    "+ of lists": repeated("{% set x = x + x %}", start="{% set x = [1] %}"),
    "*": "{{ 'x' * 10 ** 12 }}",
    "* the other way": "{{ 10 ** 12 * 'x' }}",
    "* of a list": "{{ [0] * 10 ** 12 }}",
    "* of a tuple": "{{ (0, 0) * 10 ** 12 }}",
    "* in steps": repeated("{% set x = x * 9 %}"),
    "center": "{{ 'x'.center(10 ** 12) }}",
    "ljust": "{{ 'x'.ljust(10 ** 12) }}",
    "rjust": "{{ 'x'.rjust(10 ** 12) }}",
    "zfill": "{{ '1'.zfill(10 ** 12) }}",
    "expandtabs": "{{ '\\t'.expandtabs(10 ** 12) }}",
    "center filter": "{{ 'x' | center(10 ** 12) }}",
    "indent filter": "{{ ('\\n' * 99999) | indent(99999) }}",
    "indent by a text": "{{ ('\\n' * 99999) | indent('a' * 99999) }}",
    "replace": repeated("{% set x = x.replace('a', x) %}", 10),
    "replace nothing": repeated("{% set x = x.replace('', x) %}", 10),
    "replace filter": repeated("{% set x = x | replace('a', x) %}", 10),
    "join by a text": repeated("{% set x = x.join(x) %}", 10),
    "join filter by a text": repeated("{% set x = x | join(x) %}", 10),
    "join of long texts": repeated("{% set x = ''.join([x, x]) %}"),
    "join filter of long texts": repeated("{% set x = [x, x] | join %}"),
    "width of %": "{{ '%1000000000d' % 1 }}",
    "width of % from outside": "{{ '%*d' % (10 ** 9, 1) }}",
    "width of format": "{{ '{:1000000000}'.format(1) }}",
    "width of format from outside": "{{ '{:{}}'.format('x', 10 ** 9) }}",
    "width of format by name": "{{ '{:{w}}'.format('x', w=10 ** 9) }}",
    "width of format_map": "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "width of the format filter": "{{ '%1000000000d' | format(1) }}",
    "arguments of %": repeated("{% set x = '%s%s' % (x, x) %}"),
    "arguments of % by name": repeated("{% set x = '%(a)s%(a)s' % {'a': x} %}"),
    "arguments of format": repeated("{% set x = '{0}{0}'.format(x) %}"),
    "arguments of format_map": repeated("{% set x = '{a}{a}'.format_map({'a': x}) %}"),
    "arguments of the format filter": repeated("{% set x = '%s%s' | format(x, x) %}"),
    "translate": repeated("{% set x = x.translate({97: x}) %}", 8),
    "wordwrap by a text": "{% set a = 'a' * 99999 %}{{ a | wordwrap(1, true, a) | length }}",
    "block set": repeated("{% set x %}{{ x }}{{ x }}{% endset %}"),
    "filter block": repeated("{% set x %}{% filter upper %}{{ x }}{{ x }}{% endfilter %}{% endset %}"),
    "macro": "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}" + repeated("{% set x = m(x) %}"),
    "generation block": repeated("{% set x %}{% generation %}{{ x }}{{ x }}{% endgeneration %}{% endset %}"),
    "nested list shown": repeated(LISTS, end="{{ x }}"),
    "nested list to a text": repeated(LISTS, end="{{ x | string | length }}"),
    "nested list as JSON": repeated(LISTS, end="{{ x | tojson | length }}"),
    "nested list printed": repeated(LISTS, end="{{ x | pprint | length }}"),
    "nested list joined to a text": repeated(LISTS, end="{{ x ~ 1 }}"),
    "nested list in upper case": repeated(LISTS, end="{{ x | upper | length }}"),
    "nested list in an error": repeated(LISTS, end="{{ raise_exception(x) }}"),
    "nested dict shown": repeated("{% set x = {'a': x, 'b': x} %}", end="{{ x }}"),
    "sum of lists": repeated("{% set x = [x, x] | sum(start=[]) %}", start="{% set x = [1] %}"),
    "escapes of JSON": repeated("{% set x = x | tojson %}", start="{% set x = '\\\\' %}"),
    "escapes of a list": repeated("{% set x = [x] | string %}", start="{% set x = '\\\\' %}"),
    "attributes": repeated("{% set x = {'a': x, 'b': x} | xmlattr %}"),
    "indent of JSON": "{{ [1] | tojson(indent=10 ** 10) | length }}",
    "bytes *": "{{ ('x'.encode() * 10 ** 10) | length }}",
    "bytes +": repeated("{% set x = x + x %}", start="{% set x = 'a'.encode() %}"),
    "bytes center": "{{ 'x'.encode().center(10 ** 10) | length }}",
    "bytes join": repeated("{% set x = x.join([x, x]) %}", start="{% set x = 'a'.encode() %}"),
}

ROUNDABOUT = {
    "nested tuples, very deep": "{% set n = namespace(x=1) %}{% for i in range(99999) %}"
    "{% set n.x = (n.x,) %}{% endfor %}{{ {}[n.x] }}",
    "namespace in a list": "{% set n = namespace(x='a' * 9000000) %}{{ ([n] * 1000) | join(attribute='x') }}",
    "namespace in a format": "{% set n = namespace(x='a' * 9000000) %}{{ ('{0.x}' * 1000).format(n) }}",
    "namespace in itself": "{% set n = namespace() %}{% set n.x = [n] %}{{ n }}",
    "views of dicts": repeated(
        "{% set x = {'a': x.items(), 'b': x.items().mapping} %}",
        start="{% set x = {'a': 1} %}",
        end="{{ x }}",
    ),
    "ASCII of a format": "{% set x = 'é' * 9000000 %}{{ ('{0!a}' * 100).format(x) | length }}",
    "widths of %": "{{ (('%9999d' * 50000) % ((1,) * 50000)) | length }}",
    "% by a test": "{{ '%999999999d' is odd }}",
    "search from the end": "{{ ('a' * 4000000).rfind('ab' ~ 'a' * 1000000) }}",
    "strip of many": "{{ ('a' * 20000000).strip('b' * 1000000 ~ 'a') | length }}",
    "trim of many": "{{ ('a' * 20000000) | trim('b' * 1000000 ~ 'a') | length }}",
    "the template's own text": "{% set x %}{% for i in range(99999) %}"
    + "d" * 20000
    + "{% endfor %}{% endset %}",
    "spread arguments": "{{ cycler(*('a' * 30000000)) }}",
    "slices": "{% set x = 'a' * 30000000 %}" + "".join(f"{{% set y{i} = x[{i}:] %}}" for i in range(200)),
    "printed under long keys": "{{ {'k' * 100000: range(9999) | list} | pprint | length }}",
    "separators of JSON": "{{ range(9999) | list | tojson(separators=('x' * 100000, ':')) | length }}",
    "indent of other line ends": "{{ ('\\r' * 99999) | indent(99999) | length }}",
    "comments stripped": "{{ ('<!---->' * 300000) | striptags | length }}",
    "links": "{{ ('http://a.b ' * 99999) | urlize(rel='x' * 10000) | length }}",
    "recursive loop over a text": "{% for a in [1] recursive %}"
    "{{ loop('x' * 60000000) if a == 1 else '' }}{% endfor %}",
    "escaped output": "{% autoescape true %}{% set x = '&' * 60000000 %}{{ x }}{% endautoescape %}",
    "escaped sum": "{% set x = '&' * 30000000 %}{{ (('' | safe) + x) | length }}",
    "words": "{{ ('ab ' * 20000000).split() | length }}",
    "number of bytes": "{{ (1).to_bytes(1000000000, 'big') | length }}",
    "width of a time": "{{ strftime_now('%0999999999d') }}",
    "sorted": "{% set x = [1] * 7000000 %}{{ x | sort | length }}",
    "searches": "{% set x = 'a' * 30000000 %}"
    "{% for i in range(99999) %}{% if 'b' in x %}{% endif %}{% endfor %}",
    "keys": "{% for i in range(9999) %}{% set x = dict.fromkeys(range(99999)) %}{% endfor %}",
}

TOO_DEEP = {
    "brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "lists": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "not": "{{ " + "not " * 50_000 + "1 }}",
    "if": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "for": "{% for a in [1] %}" * 50 + "{% endfor %}" * 50,
    "sums": "{{ " + " + ".join(["1"] * 20_000) + " }}",
}

ATTACKS = TOO_MUCH_WORK | TOO_LONG | ROUNDABOUT | TOO_DEEP


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """How each attack ended, in a process of its own."""
    script = Path(__file__).with_name("bounded_rendering.py")
    done = subprocess.run(
        [sys.executable, script],
        input=json.dumps(list(ATTACKS.values())),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return dict(zip(ATTACKS, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("name", ATTACKS)
def test_a_template_without_measure_is_refused_in_time(outcomes: dict[str, str], name: str) -> None:
    assert outcomes[name] == "refused"


# ------------------------------------------------------------ ordinary templates have room


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("{% for i in range(99999) %}.{% endfor %}", 99_999),
        (
            "{% set n = namespace(x='') %}{% for i in range(2000) %}{% set n.x = n.x ~ i %}{% endfor %}"
            "{{ n.x }}",
            6890,
        ),
        ("{{ 'x' * 1000000 }}", 1_000_000),
        ("{{ 'x'.center(100000) }}", 100_000),
        ("{{ ('a,' * 100000).split(',') | join(';') }}", 200_000),
        ("{{ '%9999d' % 1 }}", 9999),
        ("{{ '**%s** and **%s**' % (1, 2) }}", 15),
        ("{{ ([1] * 100000) | tojson | length }}", 6),
        ("{{ '{:{}}'.format('x', 99) }}", 99),
        (
            "{% set n = namespace(x=[]) %}{% for i in range(1000) %}{% set n.x = n.x + [{'a': 'b' * 999}] %}"
            "{% endfor %}{{ n.x | length }}",
            4,
        ),
    ],
)
def test_large_prompts_are_not_refused(source: str, wanted: int) -> None:
    assert len(rendered(source)) == wanted


# ------------------------------------------------------------ the sandbox


@pytest.mark.parametrize(
    "source",
    [
        "{{ __pace.step() }}",
        "{{ __pace.build(-1000000000) }}",
        "{% set p = __pace %}{{ p.step() }}",
        "{{ [__pace] | map('step') | list }}",
        "{{ [-10 ** 9] | map(__pace.build) | list }}",
        "{{ [__pace] | map(attribute='_chars_left') | first + 1 }}",
        "{{ (__pace | attr('build'))(-1000000000) }}",
        "{% set f = __pace.build %}{{ f(-1000000000) }}",
        "{{ self.__init__.__globals__ }}{{ self._TemplateReference__context.parent.keys() }}",
        "{{ dict.__class__.__mro__[0] }}{{ dict.__init__.__globals__['x'] }}",
        "{{ namespace.__init__.__globals__['x'] }}",
        "{{ namespace(__class__=1) }}",
        "{% set ns = namespace() %}{% set ns._Namespace__attrs = 1 %}",
        "{{ cycler.__init__.__globals__.os.popen('x') }}",
        "{{ raise_exception.__globals__.datetime.now() }}",
        "{{ strftime_now.__globals__.jinja2.sandbox }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ '{0.__class__.__mro__}'.format('') }}{{ ''.__class__.x }}",
        "{{ ('{0.__class__}' | format_map)('') }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ messages.clear() }}",
        "{{ messages.__setitem__(0, 1) }}",
        "{% for m in messages %}{{ m.pop('role') }}{% endfor %}",
        "{{ lipsum(100) }}",
        "{% import 'x' as y %}",
        "{% extends 'x' %}",
    ],
)
def test_a_template_can_not_reach_what_is_not_its_own(source: str) -> None:
    with pytest.raises(InvalidRequest):
        rendered(source)


def test_formats_do_not_show_the_insides_of_values() -> None:
    assert "class" not in rendered("{{ '{0.__class__}'.format('') }}")
    assert "class" not in rendered("{{ '{a.__class__}'.format_map({'a': ''}) }}")


@pytest.mark.parametrize(
    "source",
    [
        "{% set __pace = none %}",
        "{% set __pace = 5 %}",
        "{% for __pace in [1] %}",
        "{% macro m(__pace) %}",
        "{% with __pace = 1 %}",
    ],
)
def test_a_template_can_not_get_rid_of_its_bounds(source: str) -> None:
    loops = "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}"
    close = {"for": "{% endfor %}", "macro": "{% endmacro %}{{ m(1) }}", "with": "{% endwith %}", "set": ""}
    with pytest.raises(InvalidRequest):
        rendered(source + loops + close[source.split()[1]])
