"""How families write tool calls. Names are those of vLLM's ``--tool-call-parser``."""

from __future__ import annotations

from ..grammar import (
    Args,
    Fence,
    JsonObject,
    Literally,
    Name,
    Params,
    PythonCall,
    Skip,
    Tools,
    Variant,
)

__all__ = ["TOOLS"]

_PARAMETERS_TOO = ("arguments", "parameters")


def _listed(*ends: str, arguments: tuple[str, ...] = ("arguments",), strict: bool = False) -> Variant:
    step = JsonObject(arguments=arguments, ends=ends, needs_arguments=strict, strict=strict)
    return Variant(steps=(step,), fence=Fence(), first="[")


_HERMES = Tools(
    opens={"<tool_call>": 0},
    variants=(Variant((JsonObject(ends=("</tool_call>",)),)),),
    closes=("</tool_call>",),
    frames=False,
    tags=(
        ('<tool_call>\n{"name": "%s", "arguments": ', "}\n</tool_call>"),
        ('<tool_call>{"name": "%s", "arguments": ', "}</tool_call>"),
    ),
    # Templates write the object with its quotation marks escaped, or not at all.
    signs=("<tool_call>",),
)


def _function_tags(close: str) -> Variant:
    """Return how a call reads whose name and arguments are tags; ``close`` ends its region."""
    return Variant(
        (
            Literally("<function="),
            Name((">",)),
            Params(
                key_open="<parameter=",
                key_close=">",
                value_open="",
                value_close="</parameter>",
                value_cut=("<parameter=", "</function>", close),
                close=("</function>",),
                trims_newline=True,
            ),
            Literally("</function>"),
        )
    )


_QWEN3_XML = Tools(
    opens={"<tool_call>": 0, "<function=": 1},
    variants=(_function_tags("</tool_call>"),),
    closes=("</tool_call>",),
    tags=(("<tool_call>\n<function=%s>\n", "\n</function>\n</tool_call>"),),
    style="qwen_xml",
    signs=("<tool_call>", "<function="),
)

_DEEPSEEK_BEGIN = "<\uff5ctool\u2581calls\u2581begin\uff5c>"
_DEEPSEEK_END = "<\uff5ctool\u2581calls\u2581end\uff5c>"
_DEEPSEEK_CALL = "<\uff5ctool\u2581call\u2581begin\uff5c>"
_DEEPSEEK_SEP = "<\uff5ctool\u2581sep\uff5c>"
_DEEPSEEK_CALL_END = "<\uff5ctool\u2581call\u2581end\uff5c>"

_LLAMA3_JSON = Tools(
    opens={"<|python_tag|>": 0, "{": -1},
    before={"{": '"'},
    variants=(
        Variant(
            (JsonObject(arguments=("parameters", "arguments"), needs_arguments=True, strict=True),),
            fence=Fence("", (";", ","), ""),
        ),
    ),
    tags=(('{"name": "%s", "parameters": ', "}"),),
    signs=("<|python_tag|>", '"parameters": '),
)

_PYTHONIC = Tools(
    opens={},
    starts={"[": -1},
    variants=(Variant((PythonCall(),), fence=Fence()),),
    signs=("[func_name1(",),
)

TOOLS: dict[str, Tools] = {
    "hermes": _HERMES,
    "qwen3_xml": _QWEN3_XML,
    "qwen3_coder": _QWEN3_XML,
    "seed_oss": Tools(
        opens={"<seed:tool_call>": 0},
        variants=(_function_tags("</seed:tool_call>"),),
        closes=("</seed:tool_call>",),
        signs=("<seed:tool_call>",),
    ),
    "llama3_json": _LLAMA3_JSON,
    "llama4_json": _LLAMA3_JSON,
    "pythonic": _PYTHONIC,
    "llama4_pythonic": Tools(
        opens={"<|python_start|>": 0},
        starts={"[": -1},
        variants=_PYTHONIC.variants,
        closes=("<|python_end|>",),
        signs=("<|python_start|>",),
    ),
    # Up to tokenizer v7 a JSON list, from v11 on a name and its arguments.
    "mistral": Tools(
        opens={"[TOOL_CALLS]": 0},
        variants=(
            _listed("[TOOL_CALLS]"),
            Variant(
                (
                    Name(("[ARGS]", "[CALL_ID]", "{"), stays=("[CALL_ID]", "{"), waits=("[CALL_ID]",)),
                    Skip("[ARGS]", begins="[CALL_ID]"),
                    Args(("[TOOL_CALLS]",)),
                )
            ),
        ),
        ids="nine",
        signs=("[TOOL_CALLS]",),
    ),
    "deepseek_v3": Tools(
        opens={_DEEPSEEK_BEGIN: 0},
        variants=(
            Variant(
                (
                    Literally(_DEEPSEEK_CALL),
                    Skip(_DEEPSEEK_SEP),
                    Name(("```json",)),
                    Args(("```", _DEEPSEEK_CALL_END)),
                    Literally("```", optional=True),
                    Literally(_DEEPSEEK_CALL_END),
                )
            ),
        ),
        closes=(_DEEPSEEK_END,),
        signs=(_DEEPSEEK_BEGIN, "```json"),
    ),
    "deepseek_v31": Tools(
        opens={_DEEPSEEK_BEGIN: 0},
        variants=(
            Variant(
                (
                    Literally(_DEEPSEEK_CALL),
                    Name((_DEEPSEEK_SEP,)),
                    Args((_DEEPSEEK_CALL_END,)),
                    Literally(_DEEPSEEK_CALL_END),
                )
            ),
        ),
        closes=(_DEEPSEEK_END,),
        tags=(
            (
                f"{_DEEPSEEK_BEGIN}{_DEEPSEEK_CALL}%s{_DEEPSEEK_SEP}",
                f"{_DEEPSEEK_CALL_END}{_DEEPSEEK_END}",
            ),
        ),
        signs=(_DEEPSEEK_BEGIN,),
    ),
    "glm45": Tools(
        opens={"<tool_call>": 0},
        variants=(
            Variant(
                (
                    Name(("<arg_key>", "</tool_call>"), stays=("<arg_key>", "</tool_call>")),
                    Params(
                        key_open="<arg_key>",
                        key_close="</arg_key>",
                        value_open="<arg_value>",
                        value_close="</arg_value>",
                        close=("</tool_call>",),
                    ),
                    Literally("</tool_call>"),
                )
            ),
        ),
        signs=("<tool_call>", "<arg_key>"),
    ),
    "kimi_k2": Tools(
        opens={"<|tool_calls_section_begin|>": 0},
        variants=(
            Variant(
                (
                    Literally("<|tool_call_begin|>"),
                    Name(("<|tool_call_argument_begin|>",), written_id=True),
                    Args(("<|tool_call_end|>",)),
                    Literally("<|tool_call_end|>"),
                )
            ),
        ),
        closes=("<|tool_calls_section_end|>",),
        ids="written",
        frames=False,
        signs=("<|tool_calls_section_begin|>",),
    ),
    "granite": Tools(
        opens={"<|tool_call|>": 0, "<tool_call>": 0},
        variants=(_listed(),),
        signs=("<|tool_call|>", "<|start_of_role|>"),
    ),
    "granite-20b-fc": Tools(
        opens={"<function_call>": 0},
        variants=(Variant((JsonObject(),)),),
        frames=False,
        signs=("<function_call>",),
    ),
    "phi4_mini_json": Tools(
        opens={"functools": 0},
        variants=(_listed(arguments=_PARAMETERS_TOO, strict=True),),
        signs=("functools[",),
    ),
    "jamba": Tools(
        opens={"<tool_calls>": 0},
        variants=(_listed("</tool_calls>"),),
        closes=("</tool_calls>",),
        signs=("<tool_calls>",),
    ),
    "internlm": Tools(
        opens={"<|action_start|>": 0},
        variants=(
            Variant(
                (
                    Literally("<|plugin|>"),
                    JsonObject(arguments=("parameters", "arguments"), ends=("<|action_end|>",)),
                )
            ),
        ),
        closes=("<|action_end|>",),
        signs=("<|action_start|>", "<|plugin|>"),
    ),
    "xlam": Tools(
        opens={"<tool_call>": 0, "[TOOL_CALLS]": 0, "```json": 0, "```\n": 0},
        before={"```json": "[", "```\n": "["},
        starts={"[": -1},
        variants=(_listed("</tool_call>", "```", strict=True),),
        closes=("</tool_call>", "```"),
        signs=("xLAM", '"arguments": '),
    ),
}
