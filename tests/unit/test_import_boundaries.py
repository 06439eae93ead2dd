"""Dependencies point one way: manifest, sources -> mixture -> plan -> sampler, dataset -> training -> commands."""

import ast
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "python" / "cuvee"

# Each file or folder of the package, and those that it may import.
BASE = {"_core", "cache", "checks", "errors"}
MAY_USE: dict[str, set[str]] = {
    "errors": set(),
    "checks": {"errors"},
    "cache": set(),
    "manifest": BASE,
    "sources": BASE,
    "mixture": BASE | {"manifest", "sources"},
    "plan": BASE | {"mixture"},
    "course": BASE | {"mixture", "plan"},
    "sampler": BASE | {"mixture", "plan", "course", "ledger", "delivery"},
    "dataset": BASE | {"mixture", "plan", "sources"},
    "ledger": BASE,
    "delivery": BASE | {"plan", "course", "dataset"},
    "steps": BASE | {"mixture", "plan", "course", "sampler", "delivery", "ledger"},
    "losses": BASE,
    "exact_sums": BASE,
    "ranks": BASE,
    "token_signals": BASE,
    "bandits": BASE,
    "rewards": BASE | {"token_signals"},
    "categorize": BASE | {"sources"},
    "odm": BASE | {"ranks", "categorize", "bandits", "rewards", "mixture", "plan", "dataset", "sources"},
    "dedup": BASE | {"manifest", "sources", "mixture"},
    "search": BASE | {"manifest", "sources", "mixture", "report", "train", "dedup"},
    "run_log": BASE | {"ledger", "plan"},
    "online": BASE | {"plan", "course", "steps", "mixture", "exact_sums", "ranks", "bandits", "rewards", "losses"},
    "mix_run": BASE | {"ranks", "plan", "steps", "delivery", "ledger", "losses", "run_log"},
    "report": BASE | {"mixture", "run_log"},
    "train": BASE
    | {
        "manifest",
        "sources",
        "mixture",
        "plan",
        "steps",
        "ledger",
        "run_log",
        "mix_run",
        "integrations",
        "bandits",
        "rewards",
        "online",
    },
}
ENDS = {"__init__", "__main__", "cli", "integrations"}  # may use everything; nothing uses them
# Against the flow, and therefore inside a function: `Mixture.plan` makes a plan.
DEFERRED = {("mixture", "plan")}


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def run_time_imports(node: ast.AST, package: str, *, deferred: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield (part of the package, is it imported inside a function); what only annotations need is left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        for name in imported_parts(child, package):
            yield name, deferred
        yield from run_time_imports(child, package, deferred=deferred or isinstance(child, ast.FunctionDef))


def imported_parts(node: ast.AST, package: str) -> list[str]:
    """Return the parts of the package that one import statement of a module in `package` names."""
    if isinstance(node, ast.Import):
        full = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        stem = resolve_name("." * node.level + (node.module or ""), package)
        full = [f"{stem}.{alias.name}" for alias in node.names]
    else:
        full = []
    return [name.split(".")[1] for name in full if name.startswith("cuvee.")]


def imports_of(path: Path) -> Iterator[tuple[str, bool]]:
    package = ".".join(("cuvee", *path.relative_to(PACKAGE).parts[:-1]))
    yield from run_time_imports(ast.parse(path.read_text()), package)


def test_every_module_belongs_to_a_part() -> None:
    assert {part_of(path) for path in PACKAGE.rglob("*.py")} <= set(MAY_USE) | ENDS


@pytest.mark.parametrize("part", MAY_USE)
def test_part_uses_only_what_it_may(part: str) -> None:
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if part_of(path) == part]
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in files
        for name, deferred in imports_of(path)
        if name not in MAY_USE[part] | {part} and not (deferred and (part, name) in DEFERRED)
    ]
    assert files
    assert wrong == []


def test_core_includes_no_python_and_no_cuda() -> None:
    foreign = ("pybind11", "Python.h", "torch", "cuda")
    for path in sorted((PACKAGE.parents[1] / "csrc" / "core").iterdir()):
        included = [line for line in path.read_text().splitlines() if line.startswith("#include")]
        assert [line for line in included if any(name in line for name in foreign)] == [], path.name
