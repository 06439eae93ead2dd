"""What near-duplicates are asked with: columns, names, progress, work folders; and what the core is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cuvee import _core
from cuvee.dedup import contamination, near_duplicates, overlap_matrix
from cuvee.dedup.drop import index_names
from cuvee.dedup.texts import texts_of
from cuvee.errors import CuveeError, SourceError, StateError

SHINGLING = {"size": 5, "characters": False, "lowercase": True}
TURNS = [
    {"chosen": [{"role": "user", "content": f"same {i // 2}"}], "rejected": [{"role": "user", "content": f"other {i}"}]}
    for i in range(6)
]


def as_rows() -> object:
    return TURNS


def as_dataset() -> object:
    return pytest.importorskip("datasets").Dataset.from_list(TURNS)


@pytest.mark.parametrize("make", [as_rows, as_dataset])
def test_a_work_folder_is_of_one_column(tmp_path: Path, make: Callable[[], object]) -> None:
    data = make()
    assert len(near_duplicates(data, column="rejected", work_folder=tmp_path).pairs) == 0
    with pytest.raises(StateError, match="work folder must be that of the same documents and settings"):
        near_duplicates(data, column="chosen", work_folder=tmp_path)
    assert len(near_duplicates(data, column="chosen").pairs) == 3
    seen: list[str] = []
    near_duplicates(data, column="rejected", work_folder=tmp_path, progress=lambda stage, *_: seen.append(stage))
    assert "sketches" not in seen  # it went on


def test_documents_know_their_columns() -> None:
    assert texts_of(TURNS, name="a", column="chosen").columns == ("chosen",)
    assert texts_of([{"prompt": "a", "response": "b"}], name="a").columns == ("prompt", "response")
    assert texts_of([{"id": "a"}], name="a").columns == ("id",)
    assert texts_of(["a"], name="a").columns == ()
    dataset = pytest.importorskip("datasets").Dataset.from_list([{"id": "q1", "choices": ["a"]}])
    assert texts_of(dataset, name="a").columns == texts_of(dataset.data.table, name="a").columns == ("id",)


@pytest.mark.parametrize("form", ["list", "tuple", "array"])
def test_strings_have_no_column(form: str) -> None:
    documents = {"list": ["a"], "tuple": ("a",), "array": ["a"]}[form]
    if form == "array":
        documents = pytest.importorskip("pyarrow").array(documents)
    message = "column must be left out where documents are strings and not rows, but got 'body'"
    with pytest.raises(CuveeError, match=message):
        near_duplicates(documents, column="body")
    for function in (overlap_matrix, contamination):
        with pytest.raises(CuveeError, match=message):
            function({"a": documents}, {"b": documents}, column="body")


def test_a_stream_is_not_read_for_a_column_that_it_cannot_have() -> None:
    stream = iter(["a", "b"])
    with pytest.raises(CuveeError, match="column must be left out"):
        near_duplicates(stream, column="body")
    assert next(stream) == "a"


def test_a_column_is_of_those_that_have_any() -> None:
    found = overlap_matrix({"rows": [{"body": "a b"}], "strings": ["a  b"]}, column="body")
    assert found.counts.tolist() == [[0, 1], [1, 0]]
    assert near_duplicates([], column="body").documents == 0
    with pytest.raises(SourceError, match="documents must be in a list, dataset or stream, but got str"):
        near_duplicates("text", column="body")


@pytest.mark.parametrize("function", [overlap_matrix, contamination])
def test_sources_have_names(function: Callable[..., object]) -> None:
    for name in ("", 1, " a", "a\x1b[31m", None):
        with pytest.raises(CuveeError, match=r"^source name must be printable text without surrounding white"):
            function({"a": ["a"], name: ["a"]}, {"test": ["a"]})
        with pytest.raises(CuveeError, match="evaluation set name must be printable text without surrounding white"):
            function({"a": ["a"]}, {name: ["a"]})


def test_nothing_has_no_overlap() -> None:
    with pytest.raises(CuveeError, match=r"sources must have documents of at least one source, but got \{\}"):
        overlap_matrix({})
    assert overlap_matrix({}, {"test": ["a", "a"]}).counts.tolist() == [[2]]


def test_progress_is_called_and_a_work_folder_is_a_path() -> None:
    with pytest.raises(CuveeError, match=r"progress must be callable with \(stage, done, of how many\), but got 3"):
        near_duplicates(["a", "b"], progress=3)  # type: ignore[arg-type]
    with pytest.raises(CuveeError, match="progress must be callable"):
        contamination({"a": ["a"]}, {"b": ["b"]}, progress="yes")  # type: ignore[arg-type]
    for folder in (3, b"work"):
        with pytest.raises(StateError, match=f"work folder must be a path, but got {folder!r}"):
            near_duplicates(["a", "b"], work_folder=folder)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["web", "a/b", ".hid", "50%"], ["web", "a%2Fb", "%2Ehid", "50%25"]),
        (["A", "a", "a-2", "ª"], ["A", "a-2", "a-2-2", "ª"]),
        (["é", "e\u0301", "É", "E\u0301x"], ["é", "e\u0301-2", "É-3", "E\u0301x"]),
        (["straße", "STRASSE"], ["straße", "STRASSE-2"]),
    ],
)
def test_indexes_have_names_of_their_own(names: list[str], expected: list[str]) -> None:
    assert index_names(names) == [f"{name}.rows.npy" for name in expected]


@pytest.mark.parametrize("char", ["x", "日", "/", "."])
def test_long_names_are_cut_and_stay_apart(char: str) -> None:
    names = [char * 300, char * 299, char * 300 + "a", f"a{char * 300}"]
    found = index_names(names)
    assert len(set(found)) == len(names)
    assert max(len(name.encode()) for name in found) <= 109
    assert index_names(names[::-1]) == found[::-1]


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ([0], "starts must have one entry more than the 2 texts, but got 1"),
        ([0, 4, 2], "starts must rise, but got 4 before 2"),
        ([-1, 0, 1], "starts must be in 0..9, but got -1 to 1"),
        ([0, 5, 10], "starts must be in 0..9, but got 0 to 10"),
    ],
)
def test_the_core_says_which_starts_it_got(starts: list[int], message: str) -> None:
    with pytest.raises((ValueError, IndexError), match=f"^{message}$"):
        _core.shingle_sets(["a", "b"], np.array(starts), np.zeros(9, np.uint64), **SHINGLING)


def test_the_core_says_which_sizes_it_got() -> None:
    both = np.array([[0, 1]])
    with pytest.raises(ValueError, match=r"^sizes must be of 2 sets, but got 3$"):
        _core.shared_hashes(np.zeros(9, np.uint64), np.array([0, 4]), np.array([4, 4, 1]), both)
