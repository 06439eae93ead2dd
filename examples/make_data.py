"""Make the example corpora in `examples/data` from texts that every Python brings along.

    python examples/make_data.py [FOLDER]

One Python version always makes the same files; another may document its library in other words.
"""

import ast
import errno
import http
import inspect
import itertools
import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

Row = dict[str, str | int]
SKIPPED = {"test", "tests", "ensurepip", "idlelib", "lib2to3", "turtledemo", "site-packages", "dist-packages"}


def functions() -> Iterator[Row]:
    """Signatures of the standard library's public functions and methods -> their docstrings."""
    library = Path(sysconfig.get_path("stdlib"))
    for file in sorted(library.rglob("*.py")):
        place = file.relative_to(library).with_suffix("")
        if SKIPPED.isdisjoint(place.parts) and place.parts[0] in sys.stdlib_module_names:
            module = ".".join(part for part in place.parts if part != "__init__")
            yield from functions_in(ast.parse(file.read_bytes()), module)


def functions_in(tree: ast.AST, prefix: str) -> Iterator[Row]:
    """Those of one module or class, in the order they are written."""
    for node in ast.iter_child_nodes(tree):
        name = f"{prefix}.{getattr(node, 'name', '')}"
        if isinstance(node, ast.ClassDef):
            yield from functions_in(node, name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            text = inspect.cleandoc(ast.get_docstring(node) or "")
            if 40 <= len(text) <= 500:
                yield {"prompt": f"What does {name}({ast.unparse(node.args)}) do?", "response": text}


def reference() -> Iterator[Row]:
    """A paragraph of Python's language reference -> the one that follows it."""
    for topic, text in sorted(topics.items()):
        paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
        for first, second in itertools.pairwise(part for part in paragraphs if 80 <= len(part) <= 700):
            yield {"prompt": f"On {topic!r} in Python, continue: {first}", "response": second}


def facts() -> Iterator[Row]:
    """HTTP status codes and error numbers -> what they mean."""
    for status in http.HTTPStatus:
        meaning = f"{status.phrase}. {status.description}".strip()
        yield {"prompt": f"What does HTTP status {status.value} mean?", "response": meaning}
    for number, name in sorted(errno.errorcode.items()):
        yield {"prompt": f"What does the error {name} mean?", "response": os.strerror(number)}


def counted(row: Row) -> Row:
    """Add the number of tokens, which are words and punctuation marks here."""
    text = f"{row['prompt']} {row['response']}"
    return row | {"n_tokens": len(re.findall(r"\w+|[^\w\s]", text))}


def spread(rows: Iterator[Row], count: int) -> list[Row]:
    """Return `count` different rows, evenly spread over all there are."""
    unique = list({row["prompt"]: row for row in rows}.values())
    if len(unique) < count:
        sys.exit(f"rows must be at least {count}, but got {len(unique)}")
    return [counted(unique[place * len(unique) // count]) for place in range(count)]


def main() -> None:
    """Write the three corpora."""
    import pyarrow as pa
    from pyarrow import parquet

    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("functions", spread(functions(), 3000)), ("facts", spread(facts(), 120))):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    table = pa.Table.from_pylist(spread(reference(), 800))
    parquet.write_table(table, folder / "reference.parquet", compression="zstd")


if __name__ == "__main__":
    main()
