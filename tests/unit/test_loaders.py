"""Loader functions: how they are named, called, and reported when they fail."""

from pathlib import Path

import pytest

from cuvee.errors import SourceError
from cuvee.sources import open_source
from cuvee.sources.loaders import load_function


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "math.jsonl"
    file.write_text('{"question": "1+1", "answer": "2"}\n{"question": "2+2", "answer": "4"}\n')
    return file


def code(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "loader.py"
    file.write_text(text)
    return file


RENAME = """
def renamed(data, name):
    return data.map(lambda row: {"prompt": row["question"], "response": row["answer"], "from": name})
"""


def test_a_function_gets_the_opened_data_and_the_sources_name(tmp_path: Path, data: Path) -> None:
    rows = open_source(data, name="math", loader=load_function(f"{code(tmp_path, RENAME)}:renamed"))
    assert rows[1] == {"question": "2+2", "answer": "4", "prompt": "2+2", "response": "4", "from": "math"}


def test_the_only_function_of_a_file_needs_no_name(tmp_path: Path, data: Path) -> None:
    loader = load_function(str(code(tmp_path, "from json import loads\n" + RENAME)))
    assert loader.function_name == "renamed"
    assert loader(open_source(data, name="math"), "x")[0]["from"] == "x"


def test_a_function_with_default_loader_gets_the_path_and_opens_it(tmp_path: Path, data: Path) -> None:
    text = """
def helper(): ...

def load_training_dataset(dataset_path, *, default_loader, **_):
    data = default_loader(dataset_path)
    return [{"path": dataset_path, "rows": len(data)}]
"""
    rows = open_source("math.jsonl", name="math", folder=tmp_path, loader=load_function(str(code(tmp_path, text))))
    assert rows == [{"path": str(data), "rows": 2}]


def test_any_callable_is_a_loader(data: Path) -> None:
    rows = open_source(data, name="math", loader=lambda rows, name: [{"name": name, "n": len(rows)}])
    assert rows[0] == {"name": "math", "n": 2}


def test_an_error_names_file_line_function_and_source(tmp_path: Path, data: Path) -> None:
    file = code(tmp_path, "def broken(data, name):\n    x = 1\n    return data[0]['nope']\n")
    with pytest.raises(SourceError) as error:
        open_source(data, name="math", loader=load_function(str(file)))
    for part in ("source 'math'", str(file), "'broken'", "KeyError: 'nope'", "line 3"):
        assert part in str(error.value)


def test_an_error_of_the_source_itself_is_not_blamed_on_the_loader(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="must be a file or folder that exists"):
        open_source(tmp_path / "none.jsonl", name="math", loader=lambda data, name: data)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("None", "must have __len__ and __getitem__"),
        ("iter(data)", "must have __len__ and __getitem__"),
        ("{'train': data}", "must be one dataset"),
        ("['a', 'b']", "must return rows that are dicts, but got str: 'a'"),
        ("[{'__cuvee_meta__': 1}]", "reserved field"),
    ],
)
def test_what_a_loader_returns_must_be_rows(tmp_path: Path, data: Path, returned: str, message: str) -> None:
    file = code(tmp_path, f"def make(data, name):\n    return {returned}\n")
    with pytest.raises(SourceError) as error:
        open_source(data, name="math", loader=load_function(str(file)))
    assert message in str(error.value)
    assert "loader 'make' of" in str(error.value)


def test_a_loader_that_returns_no_rows_is_refused_unless_allowed(data: Path) -> None:
    with pytest.raises(SourceError, match="at least one row"):
        open_source(data, name="math", loader=lambda rows, name: [])
    assert open_source(data, name="math", loader=lambda rows, name: [], allow_empty=True) == []


@pytest.mark.parametrize(
    ("text", "suffix", "message"),
    [
        ("def a(data, name): ...\ndef b(data, name): ...\n", "", "which defines: a, b; write"),
        ("x = 1\n", "", "defines: none"),
        ("def a(data, name): ...\n", ":c", "but got 'c'; it defines: a"),
        ("x = 1\n", ":x", "must be a function"),
        ("def a(:\n", "", "line 1: the file must run, but got SyntaxError"),
        ("x = 1\nraise OSError('no')\n", "", "line 2: the file must run, but got OSError: no"),
        ("", ":", "must be FILE.py or FILE.py:function"),
    ],
)
def test_a_reference_that_names_no_function_is_refused(tmp_path: Path, text: str, suffix: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        load_function(f"{code(tmp_path, text)}{suffix}")


@pytest.mark.parametrize("reference", ["none.py", "none.py:load", "loader.txt", "", ":load"])
def test_a_reference_to_no_python_file_is_refused(reference: str) -> None:
    with pytest.raises(SourceError, match="loader must be"):
        load_function(reference)


def test_a_loader_cannot_end_the_program(tmp_path: Path, data: Path) -> None:
    file = code(tmp_path, "import sys\ndef leave(data, name):\n    sys.exit(0)\n")
    with pytest.raises(SourceError, match=r"source 'math': loader 'leave' .* but got SystemExit: 0, line 3"):
        open_source(data, name="math", loader=load_function(str(file)))
    file = code(tmp_path, "import sys\nsys.exit(0)\n")
    with pytest.raises(SourceError, match="line 2: the file must run, but got SystemExit: 0"):
        load_function(str(file))
