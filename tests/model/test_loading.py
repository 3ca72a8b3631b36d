"""A model's folder: what is read from which file."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from opened_models import opened

from trio_render import Model, ModelLoadError, open_model


@pytest.fixture
def folder(model_folders: Path, tmp_path: Path) -> Path:
    """A copy of the smallest model's folder, to be changed."""
    return Path(shutil.copytree(model_folders / "smollm2", tmp_path / "model"))


def change(folder: Path, file: str, **values: Any) -> None:
    path = folder / file
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**known, **values}), encoding="utf-8")


def load_error(source: Any, **fields: Any) -> str:
    with pytest.raises(ModelLoadError) as caught:
        open_model(source, **fields)
    return caught.value.message


@pytest.mark.parametrize(
    ("name", "vocab", "length", "eos"),
    [
        ("smollm2", 49152, 8192, {2}),
        ("qwen3", 248320, 32768, {248046}),
        ("mistral-hf", 32000, 32768, {2}),
        ("deepseek", 129280, 32768, {1}),
    ],
)
def test_the_test_models(model_folders: Path, name: str, vocab: int, length: int, eos: set[int]) -> None:
    model = opened(model_folders / name)
    assert (model.vocab_size, model.max_model_len, model.eos_ids) == (vocab, length, frozenset(eos))
    assert model.template is not None
    assert model.name == str(model_folders / name)


def test_the_template_file_goes_before_the_configuration(folder: Path) -> None:
    change(folder, "tokenizer_config.json", chat_template="from the configuration")
    assert template(open_model(folder)) != "from the configuration"
    (folder / "chat_template.jinja").unlink()
    assert template(open_model(folder)) == "from the configuration"
    change(folder, "chat_template.json", chat_template="from JSON")
    assert template(open_model(folder)) == "from JSON"


def template(model: Model) -> str | None:
    return None if model.template is None else model.template.source


def test_of_several_templates_the_default_is_taken(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    named = [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]
    change(folder, "tokenizer_config.json", chat_template=named)
    assert template(open_model(folder)) == "d"
    change(folder, "tokenizer_config.json", chat_template=named[:1])
    assert template(open_model(folder)) is None


def test_a_template_may_be_given_as_text_or_file(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.jinja"
    file.write_text("own", encoding="utf-8")
    assert template(open_model(folder, chat_template=file)) == "own"
    assert template(open_model(folder, chat_template=str(file))) == "own"
    assert template(open_model(folder, chat_template="{{ 1 }}")) == "{{ 1 }}"
    load_error(folder, chat_template="no-such-file")
    load_error(folder, chat_template="{% if %}")


def test_ends_of_sequence_come_from_three_files(folder: Path) -> None:
    change(folder, "config.json", eos_token_id=[5, 6])
    change(folder, "generation_config.json", eos_token_id=7, temperature=0.6, top_k=None, do_sample=True)
    model = open_model(folder)
    assert model.eos_ids == {2, 5, 6, 7}
    assert model.sampling_defaults == {"temperature": 0.6}


def test_the_text_part_of_a_larger_configuration_counts(folder: Path) -> None:
    config = {"vocab_size": 50000, "max_position_embeddings": 77, "eos_token_id": 9}
    (folder / "config.json").write_text(json.dumps({"text_config": config}), encoding="utf-8")
    model = open_model(folder)
    assert (model.vocab_size, model.max_model_len) == (50000, 77)
    assert 9 in model.eos_ids


def test_files_beside_the_tokenizer_may_be_absent(folder: Path) -> None:
    for file in folder.iterdir():
        if file.name != "tokenizer.json":
            file.unlink()
    model = open_model(folder)
    assert model.template is None
    assert model.max_model_len == 2048
    assert model.eos_ids == frozenset()
    assert model.tokenizer.encode("hi") == opened(folder).tokenizer.encode("hi")


def test_the_context_can_be_set(folder: Path) -> None:
    assert open_model(folder, max_model_len=64).max_model_len == 64
    load_error(folder, max_model_len=0)


def test_truncation_and_padding_of_the_file_are_not_used(folder: Path) -> None:
    change(
        folder,
        "tokenizer.json",
        truncation={"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
    )
    assert len(open_model(folder).tokenizer.encode("one two three four")) == 4


@pytest.mark.parametrize("source", ["./no-such-folder", "/no/such/folder"])
def test_a_folder_that_is_not_there(source: str) -> None:
    assert source in load_error(source)


def test_files_that_are_broken(folder: Path, tmp_path: Path) -> None:
    (folder / "config.json").write_text("{", encoding="utf-8")
    assert "config.json" in load_error(folder)
    (folder / "config.json").unlink()
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert load_error(folder)
    file = tmp_path / "weights.bin"
    file.touch()
    assert "weights.bin" in load_error(file)
