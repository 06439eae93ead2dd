"""Dependencies point one way: a module may import only what its row says."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "python" / "cuvee"

# Module -> the modules of the package it may import at run time. Annotations (TYPE_CHECKING) do not count.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "manifest": {"errors", "_core"},
    "sources": {"errors", "_core"},
    "mixture": {"errors", "_core", "manifest", "sources", "plan"},
    "control": {"errors", "_core"},
    "plan": {"errors", "_core", "control"},
    "sampler": {"errors", "_core", "plan"},
    "dataset": {"errors", "_core", "plan", "mixture"},
    "ledger": {"errors", "_core"},
}
# These stand at the end of the flow: they may import everything, and nothing imports them.
ENDS = {"__init__", "cli", "integrations"}


def modules() -> list[str]:
    return sorted({path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")})


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(node: ast.AST) -> set[str]:
    """Return the modules of the package that a tree imports at run time, at its top or inside functions."""
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if is_type_checking(child):
            continue
        if isinstance(child, ast.Import):
            found |= {alias.name.split(".")[1] for alias in child.names if alias.name.startswith("cuvee.")}
        elif isinstance(child, ast.ImportFrom) and (child.level or child.module == "cuvee"):
            found |= {child.module.split(".")[0]} if child.level and child.module else {a.name for a in child.names}
        elif isinstance(child, ast.ImportFrom) and (child.module or "").startswith("cuvee."):
            found.add(str(child.module).split(".")[1])
        found |= imports(child)
    return found


def imports_of(module: str) -> set[str]:
    folder = PACKAGE / module
    paths = folder.rglob("*.py") if folder.is_dir() else [PACKAGE / f"{module}.py"]
    return set().union(*(imports(ast.parse(path.read_text())) for path in paths)) - {module}


def test_every_module_has_a_row() -> None:
    assert set(modules()) - ENDS <= set(ALLOWED)


@pytest.mark.parametrize("module", ALLOWED)
def test_module_imports_only_what_it_may(module: str) -> None:
    assert imports_of(module) <= ALLOWED[module]


def test_core_knows_no_python() -> None:
    core = PACKAGE.parents[1] / "csrc" / "core"
    foreign = ("pybind11", "Python.h", "torch", "cuda_runtime")
    for path in sorted(core.iterdir()):
        included = [line for line in path.read_text().splitlines() if line.startswith("#include")]
        assert [line for line in included if any(name in line for name in foreign)] == [], path.name
