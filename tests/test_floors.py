"""Imports point only downwards, and only some floors know what they know. Read from the source."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import trio_render

PACKAGE = Path(trio_render.__file__).parent
ROOT = PACKAGE.parent

BELOW: dict[str, set[str]] = {
    "errors": set(),
    "policy": {"errors"},
    "protocol": {"errors"},
    "model": {"errors", "policy", "protocol"},
    "offload": {"errors"},
    "fanout": {"errors"},
    "parsing": {"errors", "policy", "protocol", "model"},
    "workspace": {"errors", "policy", "protocol", "model", "parsing"},
    "render": {"errors", "policy", "protocol", "model", "parsing", "workspace"},
    "derender": {"errors", "policy", "protocol", "model", "parsing", "workspace", "render"},
    "opening": {"errors", "policy", "protocol", "model", "workspace", "offload"},
    "renderer": {
        "errors",
        "policy",
        "protocol",
        "model",
        "workspace",
        "render",
        "offload",
        "opening",
        "fanout",
    },
    "streams": {"errors", "policy", "protocol", "model", "workspace", "derender", "offload"},
    "derenderer": {
        *("errors", "policy", "protocol", "model", "workspace", "derender", "offload", "opening", "fanout"),
        "streams",
    },
    "engine": {
        *("errors", "policy", "protocol", "model", "parsing", "workspace", "render", "derender", "offload"),
    },
    "answers": {"errors", "protocol", "offload", "fanout", "streams", "derenderer", "engine"},
    "frontend": {
        *("errors", "protocol", "offload", "render", "renderer", "derenderer", "engine", "answers"),
    },
}
"""What each part may import, itself aside. The package's own module, on top, imports them all."""

SOURCES = sorted(PACKAGE.rglob("*.py"))
APP_SOURCES = sorted((ROOT / "app").rglob("*.py"))
NO_EVENT_LOOP = {"errors", "policy", "protocol", "model", "workspace", "render", "derender"}


def part_of(file: Path) -> str:
    relative = file.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def dotted(file: Path) -> list[str]:
    parts = [*file.relative_to(ROOT).with_suffix("").parts]
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported(tree: ast.AST, file: Path) -> Iterator[str]:
    """The absolute names of the modules that a tree imports, and of what it imports from them."""
    package = dotted(file) if file.name == "__init__.py" else dotted(file)[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def packages(file: Path) -> set[str]:
    """The top-level packages that a file imports anywhere."""
    return {name.split(".")[0] for name in imported(parsed(file), file)}


def named(file: Path) -> str:
    return str(file.relative_to(ROOT))


def test_every_part_has_its_floor() -> None:
    assert {part_of(file) for file in SOURCES} - {"__init__"} == BELOW.keys()


def test_the_floors_have_an_order() -> None:
    seen: set[str] = set()
    for part, below in BELOW.items():
        assert below <= seen, part
        seen.add(part)


@pytest.mark.parametrize("file", SOURCES, ids=named)
def test_imports_point_downwards(file: Path) -> None:
    part = part_of(file)
    if part == "__init__":
        return
    own = [name.split(".") for name in imported(parsed(file), file)]
    parts = {name[1] for name in own if name[0] == "trio_render" and len(name) > 1}
    assert parts <= BELOW[part] | {part}


@pytest.mark.parametrize("file", SOURCES, ids=named)
def test_the_library_knows_no_app_and_no_single_event_loop(file: Path) -> None:
    assert not packages(file) & {"app", "quart", "quart_trio", "hypercorn", "trio", "asyncio", "sniffio"}


@pytest.mark.parametrize("file", SOURCES, ids=named)
def test_the_work_itself_knows_no_event_loop(file: Path) -> None:
    tree = parsed(file)
    if part_of(file) in NO_EVENT_LOOP:
        assert "anyio" not in packages(file)
        assert not any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in ast.walk(tree))
    elif part_of(file) in ("renderer", "derenderer", "fanout", "__init__"):
        assert not packages(file) & {"jinja2", "tokenizers", "fastokens"}


@pytest.mark.parametrize("file", SOURCES, ids=named)
def test_only_some_call_threads(file: Path) -> None:
    names = {name for name in imported(parsed(file), file) if name.startswith("anyio.")}
    if names & {"anyio.to_thread", "anyio.from_thread", "anyio.to_process"}:
        assert part_of(file) in ("offload", "opening", "engine")
    if "anyio.from_thread" in names:
        assert part_of(file) in ("offload", "engine")


@pytest.mark.parametrize("file", SOURCES, ids=named)
def test_models_and_offloading_do_not_know_each_other(file: Path) -> None:
    names = list(imported(parsed(file), file))
    if part_of(file) == "model":
        assert not [name for name in names if name.startswith("trio_render.offload")]
    if part_of(file) == "offload":
        assert not [name for name in names if name.startswith("trio_render.model")]


def is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@pytest.mark.parametrize("file", SOURCES + APP_SOURCES, ids=named)
def test_heavy_packages_are_imported_where_they_are_used(file: Path) -> None:
    tree = parsed(file)
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) or is_for_types_only(function)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in inside:
            heavy = {"torch", "transformers", "accelerate", "gguf", "llguidance"}
            assert not {name.split(".")[0] for name in imported(ast.Module([node], []), file)} & heavy


@pytest.mark.parametrize("file", SOURCES, ids=named)
def test_only_the_model_calls_tokenizers_and_templates(file: Path) -> None:
    if packages(file) & {"tokenizers", "fastokens", "jinja2"}:
        assert part_of(file) == "model"
    if "transformers" in packages(file):
        assert part_of(file) in ("model", "engine")


@pytest.mark.parametrize("file", SOURCES, ids=named)
def test_only_prompt_embeddings_and_engines_call_torch(file: Path) -> None:
    """Some name a type of it."""
    if "torch" in packages(file) and not named(file).endswith("render/prompt_embeds.py"):
        assert part_of(file) in ("engine", "answers", "renderer")


@pytest.mark.parametrize("file", SOURCES, ids=named)
def test_no_module_keeps_state(file: Path) -> None:
    """Nothing at module level is rebound by a function; a cache of decoders is the one that lives there."""
    assert not [node for node in ast.walk(parsed(file)) if isinstance(node, ast.Global)]


def test_the_rules_can_be_broken() -> None:
    """The walk sees relative imports of every kind."""
    file = PACKAGE / "model" / "invented.py"
    tree = ast.parse(
        "from ..render import chat\nfrom . import loading\nfrom .. import renderer\nimport app.cli\n"
    )
    assert set(imported(tree, file)) == {
        "trio_render.render.chat",
        "trio_render.model.loading",
        "trio_render.renderer",
        "app.cli",
    }
