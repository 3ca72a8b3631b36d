"""Every public name: where it lives, that it is documented, that it is final."""

import dataclasses
import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import msgspec
import pytest

import trio_render

NAMES = sorted(trio_render.__all__)
CLASSES = [name for name in NAMES if inspect.isclass(getattr(trio_render, name))]


def is_wire_type(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, msgspec.Struct)


def modules() -> Iterator[ModuleType]:
    yield trio_render
    for info in pkgutil.walk_packages(trio_render.__path__, "trio_render."):
        yield import_module(info.name)


MODULES = {module.__name__: module for module in modules()}


def test_the_list_is_sorted_and_without_repetitions() -> None:
    assert trio_render.__all__ == sorted(set(trio_render.__all__))


def test_the_list_names_everything_public_and_nothing_else() -> None:
    public = {
        name
        for name, value in vars(trio_render).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    assert public == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_documented(name: str) -> None:
    value = getattr(trio_render, name)
    assert value.__doc__
    assert len(value.__doc__.splitlines()[0]) > 20
    assert not value.__doc__.startswith(f"{name}(")  # what dataclasses write by themselves


@pytest.mark.parametrize("name", CLASSES)
def test_public_methods_are_documented(name: str) -> None:
    own = vars(getattr(trio_render, name))
    methods = {
        key: value for key, value in own.items() if not key.startswith("_") and inspect.isfunction(value)
    }
    assert [key for key, value in methods.items() if not value.__doc__] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_says_where_to_import_it_from(name: str) -> None:
    value = getattr(trio_render, name)
    if is_wire_type(value):
        # msgspec looks a struct's annotations up in its module, so it keeps its own.
        assert value.__module__.startswith("trio_render.protocol.")
        assert getattr(import_module(value.__module__), name) is value
    else:
        assert value.__module__ == "trio_render"


@pytest.mark.parametrize("name", CLASSES)
def test_public_classes_are_final_or_made_to_be_caught(name: str) -> None:
    """Or to be implemented, as `Engine` is."""
    value = getattr(trio_render, name)
    if issubclass(value, trio_render.RenderError) or value is trio_render.Engine:
        return
    if is_wire_type(value):
        assert value.__struct_config__.frozen
    elif dataclasses.is_dataclass(value):
        assert value.__dataclass_params__.frozen  # type: ignore[attr-defined]
    else:
        assert getattr(value, "__final__", False)


@pytest.mark.parametrize(
    "name", [name for name in CLASSES if name.endswith(("Error", "Request", "Exceeded"))]
)
def test_errors_are_render_errors(name: str) -> None:
    value = getattr(trio_render, name)
    if issubclass(value, Exception):
        assert issubclass(value, trio_render.RenderError)


@pytest.mark.parametrize("face", [trio_render.Renderer, trio_render.Derenderer])
def test_the_cancellation_of_the_async_faces_is_documented(face: type) -> None:
    assert "cancellation" in (face.__doc__ or "").lower()
    assert all(
        inspect.iscoroutinefunction(value) or key.startswith("open_")
        for key, value in vars(face).items()
        if not key.startswith("_") and inspect.isfunction(value)
    )


@pytest.mark.parametrize("name", MODULES)
def test_a_module_lists_what_it_offers(name: str) -> None:
    module = MODULES[name]
    assert module.__doc__
    if not hasattr(module, "__path__"):
        assert all(hasattr(module, public) for public in module.__all__)


@pytest.mark.parametrize("name", [name for name in MODULES if name != "trio_render"])
def test_what_a_module_lists_is_documented(name: str) -> None:
    module = MODULES[name]
    listed = [getattr(module, public) for public in getattr(module, "__all__", ())]
    own = [value for value in listed if inspect.isclass(value) or inspect.isfunction(value)]
    assert [value.__name__ for value in own if not value.__doc__] == []
