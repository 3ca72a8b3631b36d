"""What a chat template renders of an answer is read back, and tells by itself which parsers read it.

The templates are our own, of one assistant turn each; they write what the published ones named write.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from opened_models import opened
from parsing.literals import value_of
from parsing.reading import Setting, read_streamed, read_whole
from parsing.writers import DEEPSEEK

from trio_render import Policy
from trio_render.model.chat_template import ChatTemplate
from trio_render.parsing.selection import resolve_parsers
from trio_render.workspace import workspace_of

ARGUMENTS = {"city": '北京 "x"', "n": 3, "o": {"a": [1, None, {"k": "ü"}], "b": True}, "s": "a\nb <c> {d}"}
CALLS: list[tuple[str, dict[str, Any]]] = [("get_weather", ARGUMENTS), ("get_time", {"tz": "Asia/Tokyo"})]
SCHEMAS = {
    "get_weather": {"properties": {"n": {"type": "integer"}, "o": {"type": "object"}}},
    "get_time": {"properties": {"tz": {"type": "string"}}},
}
EACH = "{%- for call in calls -%}"
END = "{%- endfor -%}"
OBJECT = '{"name": "{{ call.name }}", "arguments": {{ call.arguments | tojson }}}'
VALUE = "{{ value if value is string else value | tojson }}"
THINK = "<think>\n{{ reasoning }}\n</think>\n\n"


@dataclass(frozen=True)
class Template:
    """A template, whose rendition it resembles, and the parsers that are found in it.

    Attributes:
        beside: renders content beside calls.
        extra: what else the published template holds that tells the family.
    """

    like: str
    source: str
    tools: str | None
    reasoning: str | None = None
    beside: bool = True
    extra: str = ""
    max_calls: int = 2


TEMPLATES = {
    "Qwen3": Template(
        "Qwen/Qwen3-0.6B",
        THINK + "{{ content }}" + EACH + "{{ '\n' }}<tool_call>\n" + OBJECT + "\n</tool_call>" + END,
        "hermes",
        "qwen3",
        extra="<|im_start|>assistant\n",
    ),
    "Qwen2.5": Template(
        "Qwen/Qwen2.5-7B-Instruct",
        "{{ content }}" + EACH + "{{ '\n' }}<tool_call>\n" + OBJECT + "\n</tool_call>" + END,
        "hermes",
        extra="<|im_start|>assistant\n",
    ),
    "Hermes 3": Template(
        "NousResearch/Hermes-3-Llama-3.1-8B",
        EACH + "<tool_call>\n" + OBJECT + "\n</tool_call>" + END,
        "hermes",
        beside=False,
        extra="<|im_start|>",
    ),
    "Qwen3-Coder": Template(
        "Qwen/Qwen3-Coder-30B-A3B-Instruct",
        "{{ content }}\n" + EACH + "{{ '\n' }}<tool_call>\n<function={{ call.name }}>\n"
        "{% for key, value in call.arguments.items() %}<parameter={{ key }}>\n" + VALUE + "\n</parameter>\n"
        "{% endfor %}</function>\n</tool_call>" + END,
        "qwen3_xml",
        extra="<|im_start|>",
    ),
    "Seed-OSS": Template(
        "ByteDance-Seed/Seed-OSS-36B-Instruct",
        "\n<seed:think>{{ reasoning }}</seed:think>\n{{ content }}\n" + EACH
        + "{{ '\n' }}<seed:tool_call>\n<function={{ call.name }}>\n"
        "{% for key, value in call.arguments.items() %}<parameter={{ key }}>" + VALUE + "</parameter>\n"
        "{% endfor %}</function>\n</seed:tool_call>" + END,
        "seed_oss",
        "seed_oss",
    ),
    "GLM-4.6": Template(
        "zai-org/GLM-4.6",
        "\n<think>{{ reasoning }}</think>\n{{ content }}" + EACH + "{{ '\n' }}<tool_call>{{ call.name }}\n"
        "{% for key, value in call.arguments.items() %}<arg_key>{{ key }}</arg_key>\n"
        "<arg_value>" + VALUE + "</arg_value>\n{% endfor %}</tool_call>" + END,
        "glm45",
        "glm45",
        extra="<|observation|>",
    ),
    "Llama 3.3": Template(
        "meta-llama/Llama-3.3-70B-Instruct",
        EACH + '{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}' + END,
        "llama3_json",
        beside=False,
        extra='{{ "<|python_tag|>" + call }}',
        max_calls=1,
    ),
    "Mistral 7B v0.3": Template(
        "mistral-common, v7 template",
        "{{ content }}[TOOL_CALLS][" + EACH + '{{ ", " if not loop.first }}{"name": "{{ call.name }}", '
        '"arguments": {{ call.arguments | tojson }}, "id": "Ab3dE6gH9"}' + END + "]",
        "mistral",
    ),
    "Magistral": Template(
        "mistral-common, v13 template with thinking",
        "[THINK]{{ reasoning }}[/THINK]{{ content }}" + EACH
        + "[TOOL_CALLS]{{ call.name }}[ARGS]{{ call.arguments | tojson }}" + END,
        "mistral",
        "mistral",
    ),
    "DeepSeek-R1": Template(
        "deepseek-ai/DeepSeek-R1",
        "<think>\n{{ reasoning }}\n</think>\n\n{{ content }}" + DEEPSEEK["all"] + EACH
        + "{{ '\n' if not loop.first }}" + DEEPSEEK["call"] + "function" + DEEPSEEK["sep"]
        + "{{ call.name }}\n```json\n{{ call.arguments | tojson }}\n```" + DEEPSEEK["end"] + END
        + DEEPSEEK["end_all"],
        "deepseek_v3",
        "deepseek_r1",
        extra="<\uff5cUser\uff5c>",
    ),
    "DeepSeek-V3.1": Template(
        "deepseek-ai/DeepSeek-V3.1",
        "</think>{{ content }}" + DEEPSEEK["all"] + EACH + DEEPSEEK["call"] + "{{ call.name }}"
        + DEEPSEEK["sep"] + "{{ call.arguments | tojson }}" + DEEPSEEK["end"] + END + DEEPSEEK["end_all"],
        "deepseek_v31",
        "deepseek_r1",
        extra="<\uff5cUser\uff5c>",
    ),
    "Kimi K2 Thinking": Template(
        "moonshotai/Kimi-K2-Thinking",
        "<think>{{ reasoning }}</think>{{ content }}<|tool_calls_section_begin|>" + EACH
        + "<|tool_call_begin|>functions.{{ call.name }}:{{ loop.index0 }}<|tool_call_argument_begin|>"
        "{{ call.arguments | tojson }}<|tool_call_end|>" + END + "<|tool_calls_section_end|>",
        "kimi_k2",
        "kimi_k2",
    ),
    "Granite 3": Template(
        "vLLM, examples/tool_chat_template_granite.jinja",
        "<|tool_call|>[" + EACH + '{{ ", " if not loop.first }}' + OBJECT + END + "]",
        "granite",
        beside=False,
        extra="<|start_of_role|>",
    ),
    "Granite 20B": Template(
        "vLLM, examples/tool_chat_template_granite_20b_fc.jinja",
        EACH + "<function_call> " + OBJECT + END,
        "granite-20b-fc",
        beside=False,
    ),
    "Jamba 1.7": Template(
        "ai21labs/AI21-Jamba-Mini-1.7",
        "{{ content }}<tool_calls>[\n" + EACH + '    {{ ", " if not loop.first }}' + OBJECT + END
        + "\n]</tool_calls>",
        "jamba",
    ),
    "InternLM 2.5": Template(
        "vLLM, examples/tool_chat_template_internlm2_tool.jinja",
        "{{ content }}" + EACH + "<|action_start|><|plugin|>\n" + OBJECT + "<|action_end|>" + END,
        "internlm",
    ),
    "xLAM": Template(
        "vLLM, examples/tool_chat_template_xlam_llama.jinja",
        "[" + EACH + '{{ ", " if not loop.first }}' + OBJECT + END + "]",
        "xlam",
        beside=False,
        extra="You are xLAM",
    ),
    "gpt-oss": Template(
        "openai/gpt-oss-20b",
        "<|channel|>analysis<|message|>{{ reasoning }}<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>{{ content }}<|end|>" + EACH
        + "<|start|>assistant to=functions.{{ call.name }}<|channel|>commentary json<|message|>"
        "{{ call.arguments | tojson }}<|call|>" + END,
        "openai",
        "openai_gptoss",
    ),
    "Olmo 3 Think": Template(
        "allenai/Olmo-3-7B-Think",
        "<think>{{ reasoning }}</think>{{ content }}",
        None,
        "olmo3",
        extra="<|im_start|> https://huggingface.co/allenai",
        max_calls=0,
    ),
}  # fmt: skip


def environment() -> ImmutableSandboxedEnvironment:
    """Jinja as chat templates have it, whose ``tojson`` escapes nothing."""
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    made.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return made


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_a_template_renders_is_read_back(name: str) -> None:
    """Reasoning and content but for the whitespace that the template puts around them."""
    template = TEMPLATES[name]
    calls = CALLS[: template.max_calls]
    reasoning = "I think." if template.reasoning and "{{ reasoning }}" in template.source else ""
    content = "Let me check." if template.beside else ""
    output = (
        environment()
        .from_string(template.source)
        .render(
            reasoning=reasoning,
            content=content,
            calls=[{"name": called, "arguments": arguments} for called, arguments in calls],
        )
    )
    setting = Setting(template.tools, template.reasoning, SCHEMAS)
    reading = read_whole(setting, output)
    assert reading.reasoning.strip() == reasoning
    assert reading.content.strip() == content
    assert [(called, value_of(arguments)) for called, arguments in reading.calls] == calls
    assert read_streamed(setting, output) == reading


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_tells_its_parsers(name: str, model_folders: Path) -> None:
    """``auto`` finds them in the template alone."""
    template = TEMPLATES[name]
    model = replace(
        opened(model_folders / "smollm2"), template=ChatTemplate(template.source + template.extra, {})
    )
    found = resolve_parsers(Policy(reasoning_parser="auto", tool_call_parser="auto"), model)
    assert found == (template.reasoning, template.tools)


@pytest.mark.parametrize(
    ("folder", "parsers"),
    [("smollm2", (None, None)), ("qwen3", ("qwen3", "hermes")), ("mistral-hf", (None, None))],
)
def test_the_test_models_tell_their_parsers(
    folder: str, parsers: tuple[str | None, str | None], model_folders: Path
) -> None:
    """Those of which the templates have tools or reasoning."""
    policy = Policy(reasoning_parser="auto", tool_call_parser="auto")
    workspace = workspace_of(opened(model_folders / folder), policy)
    assert (workspace.policy.reasoning_parser, workspace.policy.tool_call_parser) == parsers


def test_tokens_alone_do_not_tell_reasoning_that_needs_no_marker(model_folders: Path) -> None:
    """A model with the tokens may never reason, and all its answers would be taken for reasoning."""
    qwen = opened(model_folders / "qwen3")
    assert "</think>" in qwen.tokenizer.added_tokens
    model = replace(qwen, template=ChatTemplate("<|im_start|>{{ messages }}<tool_call>", {}))
    found = resolve_parsers(Policy(reasoning_parser="auto", tool_call_parser="auto"), model)
    assert found == (None, "hermes")
