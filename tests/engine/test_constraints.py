"""Constrained decoding: what comes fits the constraint, and what can't be expressed is refused."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import llguidance
import pytest
from engine_demo import QUESTION, answer, chunks_of, grammars, ids, joined, request, text, workspace
from opened_models import opened as open_tokenizer
from opened_models import reference

from trio_render import EngineError, InvalidRequest, Model, Policy, open_model
from trio_render.engine.constraints import Constraint, Grammars
from trio_render.protocol.sampling import StructuredOutputs

EOS = 2
PATTERN = "(Paris|R)\u4eca."
SCHEMA = {
    "type": "object",
    "properties": {"capital": {"enum": ["Paris", "Rome"]}, "people": {"type": "integer", "maximum": 99}},
    "required": ["capital", "people"],
    "additionalProperties": False,
}


def constrained(**kind: Any) -> str:
    """The answer's text, which must have ended by itself."""
    row = answer(QUESTION, structured_outputs=StructuredOutputs(**kind), max_tokens=50)
    assert row.finish_reason == "stop"
    return row.text.removesuffix("<|im_end|>")


def tag(name: str, **content: Any) -> dict[str, Any]:
    return {
        "type": "tag",
        "begin": '<call>{"name": "' + name + '", "arguments": ',
        "content": {
            "type": "json_schema",
            "json_schema": SCHEMA,
            "style": "json",
            "any_order": False,
            "max_whitespace_cnt": None,
            "excludes": [],
        }
        | content,
        "end": "}</call>",
    }


def demanded(*tags: dict[str, Any], **fields: Any) -> str:
    format_ = {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": "",
        "at_least_one": True,
        "stop_after_first": True,
    }
    return json.dumps({"type": "structural_tag", "format": format_ | fields})


def triggered(*tags: dict[str, Any], **fields: Any) -> str:
    format_ = {
        "type": "triggered_tags",
        "triggers": ["<call>"],
        "tags": tags,
        "at_least_one": False,
        "stop_after_first": False,
        "excludes": [],
    }
    return json.dumps({"type": "structural_tag", "format": format_ | fields})


# ------------------------------------------------------------ what comes


@pytest.mark.parametrize("schema", [pytest.param(SCHEMA, marks=pytest.mark.slow), json.dumps(SCHEMA)])
def test_json_fits_its_schema(schema: Any) -> None:
    found = json.loads(constrained(json=schema))
    assert found["capital"] in ("Paris", "Rome")
    assert isinstance(found["people"], int)
    assert found.keys() == {"capital", "people"}


def test_whitespace_can_be_forbidden() -> None:
    found = constrained(json=SCHEMA, disable_any_whitespace=True)
    assert json.loads(found)
    assert not re.search(r"\s", found)


def test_regex() -> None:
    assert re.fullmatch(r"[a-d]{3}-[0-9]{2}", constrained(regex=r"[a-d]{3}-[0-9]{2}"))


def test_choice() -> None:
    choices = ["Berlin", 'the "best" city', "Rome"]
    assert constrained(choice=choices) in choices


def test_grammar() -> None:
    assert re.fullmatch("a(xy|yx){2}", constrained(grammar='start: "a" b b\nb: "xy" | "yx"'))


def test_json_object() -> None:
    row = answer(
        "Write JSON: ", structured_outputs=StructuredOutputs(json_object=True), logit_bias={"109": 5.0}
    )
    assert row.text.lstrip().startswith("{")


def test_each_row_has_its_constraint() -> None:
    asked = request(
        QUESTION,
        n=3,
        temperature=1.0,
        seed=4,
        structured_outputs=StructuredOutputs(regex="[a-z]{2}|[0-9]{5}"),
        max_tokens=10,
    )
    texts = [row.text.removesuffix("<|im_end|>") for row in joined(chunks_of(asked))]
    assert all(re.fullmatch("[a-z]{2}|[0-9]{5}", found) for found in texts)


def test_a_demanded_call_is_written() -> None:
    found = constrained(structural_tag=demanded(tag("one"), tag("two")))
    call = json.loads(found.removeprefix("<call>").removesuffix("</call>"))
    assert call["name"] in ("one", "two")
    assert call["arguments"]["capital"] in ("Paris", "Rome")


def test_a_row_ends_where_nothing_may_follow() -> None:
    row = answer(
        QUESTION,
        structured_outputs=StructuredOutputs(choice=["Paris"]),
        ignore_eos=True,
        min_tokens=5,
        max_tokens=9,
    )
    assert (row.text, row.finish_reason, row.stop_reason) == ("Paris", "stop", None)


# ------------------------------------------------------------ what may come


def opened(policy: Policy | None = None, reasoning_ended: bool | None = None, **kind: Any) -> Constraint:
    asked = request(
        QUESTION, outside={"reasoning_ended": reasoning_ended}, structured_outputs=StructuredOutputs(**kind)
    )
    found = grammars().constraints(asked, policy or workspace().policy)
    assert found is not None
    return found[0]


def of_folder(model: Model) -> Constraint:
    """What `PATTERN` demands of the vocabulary of a model from a folder."""
    asked = request([1], structured_outputs=StructuredOutputs(regex=PATTERN))
    found = Grammars(model, model.vocab_size).constraints(asked, workspace().policy)
    assert found is not None
    return found[0]


def allows(constraint: Constraint, token_id: int) -> bool:
    mask = constraint.allowed()
    return mask is None or bool(mask[token_id])


def write(constraint: Constraint, written: str) -> None:
    for token_id in ids(written):
        assert allows(constraint, token_id), text([token_id])
        constraint.take(token_id)


def test_text_is_free_up_to_a_trigger() -> None:
    constraint = opened(structural_tag=triggered(tag("one"), tag("two")))
    write(constraint, "I will call. <cal")
    assert allows(constraint, EOS)
    write(constraint, "l>")
    assert not allows(constraint, EOS)
    assert not allows(constraint, ids("x")[0])
    write(constraint, '{"name": "two", "arguments": {"capital": "Rome", "people": 3}}</call>')
    assert allows(constraint, EOS)
    write(constraint, " and <call>")
    assert not allows(constraint, EOS)


def test_the_vocabulary_of_a_folder_is_its_file_s(model_folders: Path) -> None:
    model = open_tokenizer(model_folders / "deepseek")
    assert not model.tokenizer.keeps_exact
    constraint = of_folder(model)
    wanted = llguidance.LLMatcher(
        llguidance.LLTokenizer(
            reference(model_folders / "deepseek").to_str(), n_vocab=model.vocab_size, eos_token=[1]
        ),
        llguidance.LLMatcher.grammar_from_regex(PATTERN),
    )
    for token_id in model.tokenizer.encode("Paris\u4eca\u5929"):
        mask = constraint.allowed()
        assert mask is not None
        assert bytes(mask.byte().mul(200).numpy()) == bytes(wanted.compute_logit_bias())
        constraint.take(token_id)
        wanted.consume_token(token_id)
    assert constraint.is_finished


def test_a_folder_that_has_changed_since(model_folders: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(model_folders / "deepseek", tmp_path / "model"))
    model = open_model(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(EngineError, match="has changed"):
        of_folder(model)


def test_calls_can_be_limited_to_one() -> None:
    constraint = opened(structural_tag=triggered(tag("one"), stop_after_first=True))
    write(constraint, '<call>{"name": "one", "arguments": {"capital": "Rome", "people": 3}}</call>')
    assert constraint.is_finished
    assert allows(opened(structural_tag=triggered(tag("one"), stop_after_first=True)), EOS)


def test_a_special_token_in_a_tag_is_the_token() -> None:
    special = tag("one") | {"begin": "<|im_start|>one ", "end": "<repo_name>"}
    constraint = opened(structural_tag=triggered(special, triggers=["<|im_start|>"]))
    call = '<|im_start|>one {"capital": "Rome", "people": 3}<repo_name>'
    assert {1, 3} <= set(ids(call)), "both are single tokens"
    write(constraint, call + "hello" + call)
    constraint.take(1)
    assert not allows(constraint, 1)
    with pytest.raises(InvalidRequest, match="behind"):
        opened(structural_tag=triggered(special | {"begin": "a<|im_start|>"}, triggers=["a<|im_start|>"]))


def test_a_constraint_waits_for_the_end_of_reasoning() -> None:
    constraint = opened(Policy(reasoning_parser="qwen3"), reasoning_ended=False, choice=["yes", "no"])
    assert constraint.allowed() is None
    write(constraint, "<think>anything, even yes</think>")
    assert not allows(constraint, ids("x")[0])
    write(constraint, "yes")
    assert constraint.is_finished
    for ended in (True, None):
        held = opened(Policy(reasoning_parser="qwen3"), reasoning_ended=ended, choice=["yes", "no"])
        assert not allows(held, ids("<think>")[0])


# ------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    "kind",
    [
        {"json": {"type": "nothing"}},
        {"json": "{"},
        {"json": SCHEMA, "disable_additional_properties": True},
        {"regex": "[a"},
        {"grammar": "start: nothing"},
        {"structural_tag": "{"},
        {"structural_tag": "[]"},
        {"structural_tag": json.dumps({"type": "structural_tag", "format": {"type": "or"}})},
        {"structural_tag": demanded()},
        {"structural_tag": demanded(tag("one", style="qwen_xml"))},
        {"structural_tag": demanded(tag("one", any_order=True))},
        {"structural_tag": demanded(tag("one", max_whitespace_cnt=2))},
        {"structural_tag": demanded(tag("one"), other=1)},
        {"structural_tag": triggered(tag("one"), triggers=["<other>"])},
        {"structural_tag": triggered(tag("one"), at_least_one=True)},
        {},
    ],
    ids=str,
)
def test_malformed_or_unsupported(kind: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        answer(QUESTION, structured_outputs=StructuredOutputs(**kind))
    assert caught.value.param == "structured_outputs"
    assert len(caught.value.message) < 300


def test_reasoning_without_a_known_end() -> None:
    with pytest.raises(InvalidRequest) as caught:
        opened(Policy(), reasoning_ended=False, choice=["yes"])
    assert caught.value.param == "structured_outputs"


def test_a_server_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(InvalidRequest, match="llguidance") as caught:
        opened(choice=["yes"])
    assert caught.value.param == "structured_outputs"
