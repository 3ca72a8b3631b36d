"""Fixtures for all tests."""

from pathlib import Path

import model_folders as folders
import pytest


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Every asynchronous test runs on both event loops."""
    backend: str = request.param
    return backend


@pytest.fixture(scope="session")
def model_folders(pytestconfig: pytest.Config) -> Path:
    """The directory of the test tokenizers `smollm2`, `qwen3`, `mistral-hf` and `deepseek`."""
    assert pytestconfig.cache is not None
    return folders.ensure(pytestconfig.cache.mkdir("model-folders"))
