"""The test models, each opened once in a test run: a large vocabulary takes seconds."""

from functools import cache
from pathlib import Path

from trio_render import Model, open_model

NAMES = ("smollm2", "qwen3", "mistral-hf", "deepseek")
BYTE_LEVEL = ("smollm2", "qwen3", "deepseek")


@cache
def opened(folder: Path) -> Model:
    """The model in `folder`. Models are immutable, so tests may share them."""
    return open_model(folder)


def never() -> None:
    """The checkpoint of a caller that stays."""
