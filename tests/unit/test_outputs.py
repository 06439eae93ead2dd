"""What a command writes replaces nothing that it reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuvee import manifest
from cuvee.errors import CuveeError
from cuvee.manifest.outputs import check_output, code_file, same_place


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> manifest.Manifest:
    """Return a manifest with a file, a folder and an index of rows, and work in its folder."""
    monkeypatch.chdir(tmp_path)
    Path("saved").mkdir()
    for name in ("a.jsonl", "saved/state.json", "a.rows.npy", "load.py"):
        Path(name).write_text("{}")
    sources = [
        {"name": "a", "path": "a.jsonl", "weight": 1, "rows": "a.rows.npy"},
        {"name": "b", "path": "saved", "weight": 1},
    ]
    Path("mix.json").write_text(json.dumps({"version": 2, "seed": 1, "exhaustion": "stop", "sources": sources}))
    return manifest.load("mix.json")


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("a.jsonl", "--output must not replace data, but got 'a.jsonl' of source 'a'"),
        ("./saved/../a.jsonl", "of source 'a'"),
        ("saved/state.json", "--output must not replace data, but got 'saved/state.json' of source 'b'"),
        ("a.rows.npy", "--output must not replace an index, but got 'a.rows.npy' of source 'a'"),
        ("load.py", "--output must be another file than the loader, but got 'load.py'"),
    ],
)
def test_what_is_read_is_not_replaced(read: manifest.Manifest, output: str, says: str) -> None:
    with pytest.raises(CuveeError) as caught:
        check_output(Path(output), "--output", read, {"the loader": code_file("load.py:rows")})
    assert says in str(caught.value)


@pytest.mark.parametrize("output", ["new.json", "saved/new.json", "elsewhere/a.jsonl"])
def test_a_new_file_may_be_written(read: manifest.Manifest, output: str) -> None:
    check_output(Path(output), "--output", read, {"the loader": code_file("load.py:rows")})


def test_a_link_is_the_place_it_leads_to(read: manifest.Manifest) -> None:
    Path("link").symlink_to("a.jsonl")
    Path("nowhere").symlink_to("b.jsonl")
    assert same_place(Path("link"), Path("a.jsonl"))
    assert same_place(Path("nowhere"), Path("b.jsonl"))
    assert not same_place(Path("link"), Path("b.jsonl"))
    with pytest.raises(CuveeError, match="must not replace data, but got 'link' of source 'a'"):
        check_output(Path("link"), "--write", read)


@pytest.mark.parametrize(
    ("reference", "file"), [("load.py", "load.py"), ("load.py:rows", "load.py"), ("a:b/load.py:rows", "a:b/load.py")]
)
def test_the_file_of_code_is_what_stands_before_its_function(reference: str, file: str) -> None:
    assert code_file(reference) == Path(file)
