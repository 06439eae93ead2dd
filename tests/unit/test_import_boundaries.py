"""Dependencies point one way: manifest and sources -> mixture -> plan -> sampler and dataset -> command line."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "python" / "cuvee"

# The parts of the package, and the modules of each.
PARTS: dict[str, set[str]] = {
    "base": {"_core", "cache", "checks", "errors"},
    "manifest": {"inline", "locations", "manifest", "manifest_model", "policies", "records", "strict_json"},
    "sources": {"files", "fingerprint", "lengths", "loaders", "scan", "schemas", "sources"},
    "mixture": {"length_table", "mixture", "opening", "shares", "source"},
    "plan": {
        "checkpoint",
        "control",
        "epoch",
        "journal",
        "plan",
        "plan_file",
        "stream",
        "summary",
        "updating",
        "verification",
    },
    "loading": {"course", "dataset", "sampler"},
    "ledger": {"ledger"},
    "ends": {"__init__", "cli", "integrations"},  # may use everything; nothing uses them
}
# Part -> the other parts that it may import.
MAY_USE: dict[str, set[str]] = {
    "base": set(),
    "manifest": {"base"},
    "sources": {"base"},
    "mixture": {"base", "manifest", "sources"},
    "plan": {"base", "mixture"},
    "loading": {"base", "mixture", "plan"},
    "ledger": {"base"},
}
# Against the flow, and therefore inside a function: `Mixture.plan` makes a plan.
DEFERRED = {("mixture", "plan")}

PART_OF = {module: part for part, modules in PARTS.items() for module in modules}


def module_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def files_of(part: str) -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if PART_OF.get(module_of(path)) == part]


def run_time_imports(node: ast.AST, *, deferred: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield (module of the package, is it imported inside a function); what only annotations need is left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        for name in imported_names(child):
            yield name, deferred
        yield from run_time_imports(child, deferred=deferred or isinstance(child, ast.FunctionDef))


def imported_names(node: ast.AST) -> list[str]:
    """Return the modules of the package that one import statement names, without the package's own name."""
    if isinstance(node, ast.Import):
        full = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        stem = ("cuvee." if node.level else "") + (node.module or "")
        full = [f"{stem}.{alias.name}".replace("..", ".") for alias in node.names]
    else:
        full = []
    return [name.split(".")[1] for name in full if name.startswith("cuvee.")]


def test_every_module_belongs_to_a_part() -> None:
    assert {module_of(path) for path in PACKAGE.rglob("*.py")} <= set(PART_OF)


@pytest.mark.parametrize("part", MAY_USE)
def test_part_uses_only_what_it_may(part: str) -> None:
    wrong = [
        f"{path.name} imports {name}"
        for path in files_of(part)
        for name, deferred in run_time_imports(ast.parse(path.read_text()))
        if PART_OF.get(name) not in MAY_USE[part] | {part}
        if not (deferred and (part, PART_OF.get(name)) in DEFERRED)
    ]
    assert wrong == []


def test_core_includes_no_python_and_no_cuda() -> None:
    foreign = ("pybind11", "Python.h", "torch", "cuda")
    for path in sorted((PACKAGE.parents[1] / "csrc" / "core").iterdir()):
        included = [line for line in path.read_text().splitlines() if line.startswith("#include")]
        assert [line for line in included if any(name in line for name in foreign)] == [], path.name
