"""Indexes of the rows that a source keeps: what they hold, and that they are refused with other data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cuvee.errors import SourceError
from cuvee.sources.kept import Index, keep_rows, read_index

DATA = [{"text": str(i)} for i in range(10)]
ROWS = np.array([1, 4, 9])


@pytest.mark.parametrize("size", [None, 10])
@pytest.mark.parametrize("loaded", [None, False, True])
def test_an_index_says_of_which_data_it_is(tmp_path: Path, size: int | None, loaded: bool | None) -> None:
    path = tmp_path / "a.rows.npy"
    path.write_bytes(Index(rows=ROWS, size=size, loaded=loaded).content())
    found = read_index(path, name="a")
    assert (found.rows.tolist(), found.size, found.loaded) == ([1, 4, 9], size, loaded)
    assert np.load(path).tolist() == [1, 4, 9]
    assert np.load(path, mmap_mode="r").tolist() == [1, 4, 9]


def test_an_index_that_says_nothing_of_its_data_is_taken(tmp_path: Path) -> None:
    np.save(tmp_path / "a.rows.npy", ROWS)
    assert read_index(tmp_path / "a.rows.npy", name="a").size is None
    kept = keep_rows(DATA, tmp_path / "a.rows.npy", name="a", loaded=False)
    assert [kept[row] for row in range(len(kept))] == [DATA[1], DATA[4], DATA[9]]


@pytest.mark.parametrize(
    ("index", "loaded", "message"),
    [
        ({"size": 11}, None, r"'.*' must be used with the 11 rows that they number, but got 10; make the index anew"),
        ({"size": 20, "loaded": True}, True, r"but got 10; give the same loader function \(--dataset-loader-fn\)"),
        ({"size": 20, "loaded": False}, True, "but got 10; make the index anew"),
        ({"size": 10, "loaded": True}, False, "must be used with the loader function whose rows they number, but got"),
        ({"loaded": True}, False, "must be used with the loader function whose rows they number, but got none; give"),
    ],
)
def test_an_index_of_other_data_is_told(tmp_path: Path, index: dict, loaded: bool | None, message: str) -> None:
    (tmp_path / "a.rows.npy").write_bytes(Index(rows=ROWS, **index).content())
    with pytest.raises(SourceError, match=f"source 'a': rows .*{message}"):
        keep_rows(DATA, tmp_path / "a.rows.npy", name="a", loaded=loaded)


@pytest.mark.parametrize(
    ("index", "loaded"),
    [({"size": 10}, None), ({"size": 10, "loaded": True}, True), ({"size": 10, "loaded": False}, True)],
)
def test_an_index_of_this_data_is_taken(tmp_path: Path, index: dict, loaded: bool | None) -> None:
    (tmp_path / "a.rows.npy").write_bytes(Index(rows=ROWS, **index).content())
    assert len(keep_rows(DATA, tmp_path / "a.rows.npy", name="a", loaded=loaded)) == 3


@pytest.mark.parametrize("behind", [b"more", b"\x93NUMPY", Index(rows=ROWS).content()])
def test_what_follows_the_numbers_must_be_their_origin(tmp_path: Path, behind: bytes) -> None:
    np.save(tmp_path / "a.rows.npy", ROWS)
    (tmp_path / "a.rows.npy").write_bytes((tmp_path / "a.rows.npy").read_bytes() + behind)
    with pytest.raises(SourceError, match=r"rows must be a \.npy file of row numbers, int64 and rising, but got"):
        keep_rows(DATA, tmp_path / "a.rows.npy", name="a")
