"""The test models, each opened once in a test run: a large vocabulary takes seconds."""

from functools import cache
from pathlib import Path

import tokenizers

from trio_render import Model, open_model

NAMES = ("smollm2", "qwen3", "mistral-hf", "deepseek")
BYTE_LEVEL = ("smollm2", "qwen3", "deepseek")


@cache
def opened(folder: Path) -> Model:
    """The model in `folder`. Models are immutable, so tests may share them."""
    return open_model(folder)


@cache
def reference(folder: Path) -> tokenizers.Tokenizer:
    """What the `tokenizers` package makes of `folder`. Nothing may be set on it: tests share it."""
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def never() -> None:
    """The checkpoint of a caller that stays."""
