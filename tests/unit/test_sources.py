"""Opening sources: every format gives its rows, every fault is told with source, file and line."""

import gzip
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cuvee.errors import SourceError
from cuvee.sources import check_rows, check_schemas, fingerprint_of, lengths_of, open_source, open_sources

datasets = pytest.importorskip("datasets")
hub = pytest.importorskip("huggingface_hub.constants")
pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
zstandard = pytest.importorskip("zstandard")

ROWS = [{"prompt": f"p{i}", "response": f"r {i}\nü", "n": i} for i in range(5)]
TABLE = pa.Table.from_pylist(ROWS)
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("CUVEE_CACHE", str(folder))
    return folder


@dataclass(frozen=True)
class Request:
    name: str
    path: str
    split: str | None = None
    columns: tuple[str, ...] | None = None
    rows: str | None = None


def write_arrow(path: Path, new: Callable, table: pa.Table = TABLE) -> None:
    with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def write_parquet(path: Path, table: pa.Table = TABLE) -> None:
    parquet.write_table(table, path)


WRITERS: dict[str, Callable[[Path], object]] = {
    "a.jsonl": lambda path: path.write_bytes(LINES),
    "bom.jsonl": lambda path: path.write_bytes(b"\xef\xbb\xbf" + LINES),
    "blank-lines.jsonl": lambda path: path.write_bytes(LINES.replace(b"}\n", b"}\r\n\r\n")),
    "no-last-newline.jsonl": lambda path: path.write_bytes(LINES[:-1]),
    "lines.json": lambda path: path.write_bytes(LINES),
    "list.json": lambda path: path.write_text(json.dumps(ROWS, indent=1)),
    "UPPER.JSONL": lambda path: path.write_bytes(LINES),
    "a.jsonl.gz": lambda path: path.write_bytes(gzip.compress(LINES)),
    "list.json.gz": lambda path: path.write_bytes(gzip.compress(json.dumps(ROWS).encode())),
    "a.jsonl.zst": lambda path: path.write_bytes(zstandard.compress(LINES[:30]) + zstandard.compress(LINES[30:])),
    "a.csv": lambda path: pd.DataFrame(ROWS).to_csv(path, index=False),
    "a.csv.gz": lambda path: pd.DataFrame(ROWS).to_csv(path, index=False),
    "a.tsv": lambda path: pd.DataFrame(ROWS).to_csv(path, index=False, sep="\t"),
    "a.parquet": write_parquet,
    "file.arrow": lambda path: write_arrow(path, pa.ipc.new_file),
    "stream.arrow": lambda path: write_arrow(path, pa.ipc.new_stream),
    "name [1]*?.jsonl": lambda path: path.write_bytes(LINES),
    "saved": lambda path: datasets.Dataset(TABLE).save_to_disk(path),
    "saved-splits": lambda path: datasets.DatasetDict(
        train=datasets.Dataset(TABLE), test=datasets.Dataset(TABLE.slice(3))
    ).save_to_disk(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name)
    data = open_source(name, name="source", folder=tmp_path)
    assert list(data) == ROWS
    assert data[2] == ROWS[2]
    again = pickle.loads(pickle.dumps(data))
    assert again[4] == ROWS[4]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", "file.arrow", "saved", "saved-splits"])
def test_columns_and_splits_are_chosen_in_every_format(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name)
    data = open_source(tmp_path / name, name="source", columns=("n", "prompt"), split="train[1:3]")
    assert list(data) == [{"n": 1, "prompt": "p1"}, {"n": 2, "prompt": "p2"}]
    with pytest.raises(SourceError, match=r"a column must be one of .*, but got 'promt'; did you mean 'prompt'\?"):
        open_source(tmp_path / name, name="source", columns=["promt"])
    with pytest.raises(SourceError, match=r"split must be of \[.*'train'\], or a slice of one, but got 'valid'"):
        open_source(tmp_path / name, name="source", split="valid")


def test_splits_of_a_saved_folder_can_be_named_and_joined(tmp_path: Path) -> None:
    WRITERS["saved-splits"](tmp_path / "saved")
    assert list(open_source(tmp_path / "saved", name="source", split="test")) == ROWS[3:]
    assert list(open_source(tmp_path / "saved", name="source", split="test+train[:1]")) == [*ROWS[3:], ROWS[0]]


def test_a_saved_folder_without_train_must_be_told_which_split(tmp_path: Path) -> None:
    part = datasets.Dataset(TABLE)
    datasets.DatasetDict(a=part, b=part).save_to_disk(tmp_path / "saved")
    with pytest.raises(SourceError, match=r"split must be of \['a', 'b'\]"):
        open_source(tmp_path / "saved", name="source")


def test_types_that_settle_late_hold_for_the_whole_file(tmp_path: Path) -> None:
    rows = [{"a": None, "b": 1, "pad": "x" * 1000} for _ in range(11_000)] + [{"a": "late", "b": 0.5, "c": [1]}]
    (tmp_path / "late.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = open_source(tmp_path / "late.jsonl", name="source")
    assert data[-1] == {"a": "late", "b": 0.5, "pad": None, "c": [1]}
    assert data[0] == {"a": None, "b": 1.0, "pad": "x" * 1000, "c": None}
    (tmp_path / "late.csv").write_text("a,b\n" + "1,2\n" * 12_000 + "x,2.5\n")
    assert open_source(tmp_path / "late.csv", name="source")[-1] == {"a": "x", "b": 2.5}


def test_json_whose_nested_parts_differ_from_row_to_row_is_read_as_it_stands(tmp_path: Path) -> None:
    rows = [{"call": {"name": "add", "arguments": {"x": 1}}}, {"call": {"name": "say", "arguments": {"x": "hi"}}}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = open_source(tmp_path / "a.jsonl", name="source")
    assert [json.loads(json.dumps(row)) for row in data] == rows
    assert (
        fingerprint_of(data)
        == fingerprint_of(data.select([1, 0]).select([1, 0]))
        != fingerprint_of(data.select([1, 0]))
    )
    check_schemas({"one": data, "other": data})


def test_a_file_too_long_for_one_go_is_converted_in_chunks_where_types_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cuvee.sources.files._ONE_GO", 0)
    rows = [{"a": None, "pad": "x" * 1000} for _ in range(11_000)]
    (tmp_path / "even.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert open_source(tmp_path / "even.jsonl", name="source")[-1] == rows[-1]
    (tmp_path / "late.jsonl").write_text("\n".join(map(json.dumps, [*rows, {"a": "late"}])))
    assert open_source(tmp_path / "late.jsonl", name="source")[-1] == {"a": "late", "pad": None}


def test_text_of_a_csv_that_looks_like_a_missing_value_stays_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\nNA,1\nNone,\nnull,3\n")
    assert list(open_source(tmp_path / "a.csv", name="source")) == [
        {"a": "NA", "b": 1.0},
        {"a": "None", "b": None},
        {"a": "null", "b": 3.0},
    ]


def test_long_and_quoted_csv_fields_are_read(tmp_path: Path) -> None:
    rows = [{"a": "x" * 200_000, "b": 'say "hi",\nbye'}, {"a": "y", "b": "z"}]
    pd.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    assert list(open_source(tmp_path / "a.csv", name="source")) == rows


def test_changed_content_under_an_old_name_and_date_is_never_read_from_the_cache(tmp_path: Path) -> None:
    for name, pack in (("a.jsonl", bytes), ("a.jsonl.gz", gzip.compress)):
        file = tmp_path / name
        for value in (1, 2):
            file.write_bytes(pack(b'{"a": %d}\n' % value))
            os.utime(file, (1e9, 1e9))
            assert open_source(file, name="source")[0] == {"a": value}


def test_a_long_file_is_checked_with_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cuvee.sources.scan.LONG_FILE", 0)
    monkeypatch.setattr("cuvee.sources.files.LONG_FILE", 0)
    for name in ("a.jsonl", "a.csv.gz", "a.jsonl.zst"):
        WRITERS[name](tmp_path / name)
        assert list(open_source(tmp_path / name, name="source")) == ROWS
    assert capsys.readouterr().out == ""


def test_content_that_was_checked_once_is_not_checked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_bytes(LINES)
    open_source(tmp_path / "a.jsonl", name="source")
    monkeypatch.setattr("cuvee.sources.files.scan_json", lambda *_, **__: pytest.fail("scanned again"))
    assert len(open_source((tmp_path / "a.jsonl").rename(tmp_path / "b.jsonl"), name="source")) == 5


# file name, content, what the error says after "source 's': FILE"
BAD_FILES: list[tuple[str, bytes, str]] = [
    ("a.jsonl", b"", ": a data file must have rows, but got an empty file"),
    ("a.jsonl", LINES + b'{"prompt": "a", \n', ', line 6: must be one JSON object, but got \'{"prompt": "a",\''),
    ("a.jsonl", LINES + b"\n\nnope\n", ", line 8: must be one JSON object, but got 'nope'"),
    ("a.jsonl", b'{"a": 1} {"a": 2}\n', ", line 1: must be one JSON object"),
    ("a.jsonl", b'{"a": 1}\n[1, 2]\n', ", line 2: a row must be a JSON object, but got [1, 2]"),
    ("a.jsonl", b'{"a": 1}\n"text"\n', ', line 2: a row must be a JSON object, but got "text"'),
    ("a.jsonl", b'[{"a": 1}]\n', ', line 1: a row must be a JSON object, but got [{"a": 1}]'),
    ("a.jsonl", b'{"a": 1}\n{"a": "\xff"}\n', ", line 2: must be UTF-8"),
    (
        "a.jsonl",
        b'{"a": 1}\n{"a": "x"}\n',
        ", line 2: field 'a' must be a number as in line 1, but got a string: \"x\"",
    ),
    ("a.jsonl", b'{"a": true}\n{"a": 1}\n', ", line 2: field 'a' must be true or false as in line 1, but got a number"),
    (
        "a.jsonl",
        b'{"a": null}\n{"a": [1]}\n{"a": {}}\n',
        ", line 3: field 'a' must be a list as in line 2, but got an object",
    ),
    (
        "a.jsonl",
        b'{"a": 1, "__cuvee_meta__": {}}\n',
        ", line 1: a row must not have the reserved field '__cuvee_meta__'",
    ),
    ("a.jsonl", b"[" * 100_000, ", line 1: must be one JSON object"),
    (
        "a.jsonl",
        b'{"a": 1}\n\n{"a": 1, "a": 2}\n',
        ', line 3: a row must fit Arrow\'s types, but got \'{"a": 1, "a": 2}\'',
    ),
    ("a.jsonl", b'{"a": "x"}\n{"a": "\\ud800"}\n', ", line 2: a row must fit Arrow's types"),
    ("a.jsonl", b'{"a": 1e400}\n', ", line 1: a row must fit Arrow's types"),
    ("a.jsonl", b"{}\n{}\n", ": rows must have fields, but got {} in all 2"),
    ("a.json", b'[{"a": 1, "b": 2, "b": 3}, {"a": [1e400]}]', ": "),
    ("a.json", b"[1, 2]", ", row 1: a row must be a JSON object, but got 1"),
    ("a.json", b'[{"a": 1},\n {"a": 2]\n', ", line 2: must be a JSON list of objects"),
    ("a.json", b'{"a":\n 1}', ", line 1: must be one JSON object"),
    ("a.json", b'{"data": [{"a": 1}]\n}', ", line 1: must be one JSON object"),
    ("a.jsonl.gz", gzip.compress(LINES)[:-12], ": must be a whole gzip file"),
    ("a.jsonl.gz", gzip.compress(LINES)[:-4] + b"\0\0\0\0", ": must be a whole gzip file"),
    ("a.jsonl.gz", LINES, ": must be a whole gzip file, but got: Not a gzipped file"),
    ("a.jsonl.gz", gzip.compress(LINES + b"nope\n"), ", line 6: must be one JSON object, but got 'nope'"),
    (
        "a.jsonl.zst",
        zstandard.compress(LINES)[:-5],
        ": must be a whole zstd file, but got: the file ends inside a frame",
    ),
    ("a.jsonl.zst", LINES, ": must be a whole zstd file"),
    ("a.jsonl.zst", zstandard.compress(LINES + b"nope\n"), ", line 6: must be one JSON object, but got 'nope'"),
    ("a.csv", b"a,b\n1,2\n3\n", ", line 3: a row must have 2 fields like the header, but got 1: '3'"),
    ("a.csv", b"a,b\n1,2\n3,4,5\n", ", line 3: a row must have 2 fields like the header, but got 3: '3,4,5'"),
    ("a.csv", b'a,b\n"x\ny",2\n"3\n"\n', ", line 4: a row must have 2 fields like the header"),
    ("a.csv", b'a,b\n1,"2\n3,4\n', ", line 2: must be a CSV row, but got unexpected end of data"),
    ("a.csv", b"a,a\n1,2\n", ", line 1: names in a header must be unique, but got 'a' twice"),
    ("a.csv", b"a,__cuvee_meta__\n1,2\n", ", line 1: a row must not have the reserved field"),
    ("a.csv", b"a,b\n1,2\n\xff,2\n", ", line 3: must be UTF-8"),
    ("a.tsv", b"a\tb\n1\n", ", line 2: a row must have 2 fields like the header, but got 1"),
    ("a.parquet", b"PAR1 and no more", ": must be a valid parquet file"),
    ("a.arrow", b"nothing of the kind", ": must be a valid arrow file"),
    ("a.arrow", b"ARROW1\0\0 and no more", ": must be a valid arrow file"),
    ("a.txt", b"text", ": the suffix must be one of .json, .jsonl"),
    ("a.jsnl", b"text", "but got .jsnl; did you mean '.json"),
    ("a", b"text", "but got none"),
    ("a.parquet.gz", b"text", "or of the text formats with .gz or .zst, but got .parquet.gz"),
    ("a.jsonl.bz2", b"text", "but got .jsonl.bz2"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES)
def test_a_bad_file_is_told_with_source_file_and_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    for _ in range(2):  # nothing half done may be found in the cache the second time
        with pytest.raises(SourceError) as error:
            open_source(file, name="s")
        assert str(error.value).startswith(f"source 's': {file}")
        assert message in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
def test_a_binary_file_cut_short_is_refused(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-90])
    with pytest.raises(SourceError, match=r"source 's': .* must be a valid"):
        open_source(tmp_path / name, name="s")


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.jsonl", b"\n\n"), ("a.json", b"[]"), ("a.csv", b"a,b\n"), ("a.jsonl.gz", gzip.compress(b""))],
)
def test_a_file_without_rows_is_refused_unless_allowed(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match="source 's': data must have at least one row, but got none"):
        open_source(tmp_path / name, name="s")
    assert len(open_source(tmp_path / name, name="s", allow_empty=True)) == 0


def test_a_parquet_file_without_rows_is_refused_unless_allowed(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", TABLE.slice(0, 0))
    with pytest.raises(SourceError, match="at least one row"):
        open_source(tmp_path / "a.parquet", name="s")
    assert len(open_source(tmp_path / "a.parquet", name="s", allow_empty=True)) == 0


def test_the_reserved_field_is_refused_in_every_format(tmp_path: Path) -> None:
    table = pa.table({"__cuvee_meta__": [1]})
    write_parquet(tmp_path / "a.parquet", table)
    write_arrow(tmp_path / "a.arrow", pa.ipc.new_stream, table)
    datasets.Dataset(table).save_to_disk(tmp_path / "saved")
    for name in ("a.parquet", "a.arrow", "saved"):
        with pytest.raises(SourceError, match=r"source 's': .*must not have the reserved field '__cuvee_meta__'"):
            open_source(tmp_path / name, name="s")


def test_a_column_asked_for_must_be_in_every_json_row(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"a": 1, "b": 2}\n{"a": 1}\n')
    assert open_source(file, name="s")[1] == {"a": 1, "b": None}
    assert open_source(file, name="s", columns=["a"])[1] == {"a": 1}
    with pytest.raises(SourceError, match=r"line 2: a column must be one of \['a'\], but got 'b'"):
        open_source(file, name="s", columns=["b"])


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("mathh.jsonl", "mathh.jsonl'; did you mean 'math.jsonl'?"),
        ("nowhere/math.jsonl", "nowhere/math.jsonl'; there is no folder '"),
        ("other", "path must be a file or folder that exists, but got '/"),
        ("", "must be one that datasets' save_to_disk wrote, but it has no state.json"),
        ("deep/math", "deep/math'; did you mean 'maths'?"),
        ("https://example.org/a.jsonl", "must be a file or folder that exists"),
    ],
)
def test_a_path_that_leads_nowhere_is_told_with_the_nearest_name(tmp_path: Path, path: str, message: str) -> None:
    (tmp_path / "math.jsonl").write_bytes(LINES)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "maths").write_bytes(LINES)
    with pytest.raises(SourceError) as error:
        open_source(path, name="s", folder=tmp_path)
    assert str(error.value).startswith("source 's': ")
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["data-00000-of-00001.arrow", "dataset_info.json", "state.json"])
def test_a_saved_folder_with_a_part_missing_is_refused(tmp_path: Path, name: str) -> None:
    WRITERS["saved"](tmp_path / "saved")
    (tmp_path / "saved" / name).unlink()
    with pytest.raises(SourceError, match=r"source 's': .*saved"):
        open_source(tmp_path / "saved", name="s")


@pytest.mark.parametrize(
    ("reference", "split", "expected"),
    [
        ("repo/name", None, ("repo/name", None, "train")),
        ("repo/name:main", None, ("repo/name", "main", "train")),
        ("repo/name:main:test[:10%]", None, ("repo/name", "main", "test[:10%]")),
        ("repo/name::test", None, ("repo/name", None, "test")),
        ("repo/na.me-1", "validation", ("repo/na.me-1", None, "validation")),
        ("repo/name:main:test", "test", ("repo/name", "main", "test")),
    ],
)
def test_a_hub_reference_is_loaded_by_repository_config_and_split(
    monkeypatch: pytest.MonkeyPatch, reference: str, split: str | None, expected: tuple
) -> None:
    asked = []

    def load_dataset(path: str, config: str | None, *, split: str) -> datasets.Dataset:
        asked.append((path, config, split))
        return datasets.Dataset(TABLE)

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    assert list(open_source(reference, name="s", split=split, columns=["n"])) == [{"n": i} for i in range(5)]
    assert asked == [expected]


def test_a_hub_reference_with_two_splits_is_refused() -> None:
    with pytest.raises(SourceError, match="split must be given once, but got 'test' and 'train'"):
        open_source("repo/name:main:test", name="s", split="train")


def test_a_hub_reference_offline_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(SourceError, match="source 's': Hub reference 'no-such/data:main'") as error:
        open_source("no-such/data:main", name="s")
    assert "offline, give the path of a local copy" in str(error.value)
    assert "\n" not in str(error.value)


def test_all_sources_are_opened_by_name_and_relative_to_the_folder(tmp_path: Path) -> None:
    WRITERS["a.jsonl"](tmp_path / "a.jsonl")
    WRITERS["a.parquet"](tmp_path / "a.parquet")
    opened = open_sources(
        [Request("one", "a.jsonl", columns=("n",)), Request("two", "a.parquet", split="train[:2]")], folder=tmp_path
    )
    assert {name: len(data) for name, data in opened.items()} == {"one": 5, "two": 2}


def test_all_faulty_sources_are_told_at_once_and_nothing_is_read_before_all_paths_are_good(
    tmp_path: Path, cache: Path
) -> None:
    (tmp_path / "good.jsonl").write_bytes(LINES)
    with pytest.raises(SourceError) as error:
        open_sources(
            [Request("one", "good.jsonl"), Request("two", "no.csv"), Request("three", "no.txt")], folder=tmp_path
        )
    assert [line.split(":")[0] for line in str(error.value).splitlines()] == ["source 'two'", "source 'three'"]
    assert list(cache.iterdir()) == []
    for name in ("bad.jsonl", "worse.jsonl"):
        (tmp_path / name).write_text("nope\n")
    with pytest.raises(SourceError) as error:
        open_sources(
            [Request("a", "bad.jsonl"), Request("b", "good.jsonl"), Request("c", "worse.jsonl")], folder=tmp_path
        )
    assert [line.split(":")[0] for line in str(error.value).splitlines()] == ["source 'a'", "source 'c'"]


def test_sources_of_different_schemas_are_refused_together(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "x", "score": 1}\n')
    (tmp_path / "b.jsonl").write_text('{"prompt": "x", "score": "high"}\n')
    requests = [Request("a", "a.jsonl"), Request("b", "b.jsonl")]
    with pytest.raises(
        SourceError, match="sources 'a' and 'b': column 'score' must have the same type in both, but got int64"
    ):
        open_sources(requests, folder=tmp_path)
    assert open_sources(requests, folder=tmp_path, loader=lambda data, name: data.remove_columns("score")).keys() == {
        "a",
        "b",
    }


@pytest.mark.parametrize("data", [[{"a": 1}], ({"a": 1},), np.arange(3), range(5), datasets.Dataset(TABLE), [("x", 1)]])
def test_any_object_with_len_and_getitem_is_a_source(data: object) -> None:
    check_rows(data, name="s")


class Unreadable:
    def __len__(self) -> int:
        return 1

    def __getitem__(self, row: int) -> dict:
        raise OSError(f"no row {row}")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Unreadable(), "row 0 must be readable, but got OSError: no row 0"),
        (iter([1]), "data must have __len__ and __getitem__, but got builtins.list_iterator; streams cannot be mixed"),
        (None, "data must have __len__ and __getitem__, but got builtins.NoneType"),
        (SimpleNamespace(), "data must have __len__ and __getitem__"),
        (datasets.Dataset(TABLE).to_iterable_dataset(), "streams cannot be mixed by position"),
        ("a.jsonl", "data must give a row for a row number, but got builtins.str"),
        (TABLE, "data must give a row for a row number, but got pyarrow.lib.Table; wrap it in datasets.Dataset"),
        (pd.DataFrame(ROWS), "data must give a row for a row number"),
        ({"a": 1}, r"data must be one dataset, but got builtins.dict of \['a'\]"),
        (datasets.DatasetDict(train=datasets.Dataset(TABLE)), r"of \['train'\]; choose one of them"),
        ([], "data must have at least one row, but got none; leave it out"),
        ([{"__cuvee_meta__": 1}], "a row must not have the reserved field"),
    ],
)
def test_what_cannot_be_a_source_is_refused_with_a_cure(data: object, message: str) -> None:
    with pytest.raises(SourceError, match=f"source 's': .*{message}"):
        check_rows(data, name="s")


def test_nothing_is_written_outside_the_cache_folder(tmp_path: Path, cache: Path) -> None:
    WRITERS["a.jsonl"](tmp_path / "a.jsonl")
    open_source(tmp_path / "a.jsonl", name="s")
    assert [file.name for file in tmp_path.iterdir()] == ["a.jsonl"]
    shutil.rmtree(cache)
    assert len(open_source(tmp_path / "a.jsonl", name="s")) == 5


def test_the_shipped_examples_open_and_have_lengths() -> None:
    folder = Path(__file__).parents[2] / "examples" / "data"
    requests = [Request("f", "functions.jsonl"), Request("r", "reference.parquet"), Request("x", "facts.jsonl")]
    opened = open_sources(requests, folder=folder)
    assert {name: len(data) for name, data in opened.items()} == {"f": 3000, "r": 800, "x": 120}
    for data in opened.values():
        assert data.column_names == ["prompt", "response", "n_tokens"]
        lengths = lengths_of(data)
        assert lengths.min() > 0
        assert np.array_equal(lengths, lengths_of(data, tokenizer=re.compile(r"\w+|[^\w\s]").findall))


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info[:3] != (3, 11, 7), reason="other versions word their documentation otherwise")
def test_the_example_data_are_what_their_script_makes(tmp_path: Path) -> None:
    examples = Path(__file__).parents[2] / "examples"
    subprocess.run([sys.executable, examples / "make_data.py", tmp_path], check=True)
    for file in ("functions.jsonl", "facts.jsonl"):
        assert (tmp_path / file).read_bytes() == (examples / "data" / file).read_bytes()
    assert parquet.read_table(tmp_path / "reference.parquet").equals(
        parquet.read_table(examples / "data" / "reference.parquet")
    )


# --- digits that would be lost


def opened(tmp_path: Path, name: str, text: str) -> list[object]:
    (tmp_path / name).write_text(text)
    return list(open_source(tmp_path / name, name="s"))


WIDE = 2**53 + 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.jsonl",
            f'{{"a": 1}}\n{{"a": {2**63}}}\n',
            f"line 2: field 'a' must hold integers of 64 bits, but got {2**63}",
        ),
        ("a.jsonl", f'{{"a": [1, {-(2**63) - 1}]}}\n', r"line 1: field 'a\[\]' must hold integers of 64 bits"),
        ("a.jsonl", f'{{"a": {{"b": [{{"c": {2**64}}}]}}}}\n', r"line 1: field 'a.b\[\].c' must hold integers of 64"),
        ("a.json", f'[{{"a": 1}}, {{"a": {2**63}}}]', "row 2: field 'a' must hold integers of 64 bits"),
        ("a.jsonl", f'{{"a": {WIDE}}}\n\n{{"a": 1.5}}\n', f"line 1: .* but got {WIDE}, and 1.5 in line 3; write"),
        ("a.jsonl", f'{{"a": 1.5}}\n{{"a": {WIDE}}}\n', f"line 2: .* but got {WIDE}, and 1.5 in line 1; write"),
        ("a.jsonl", f'{{"a": [0.5, {WIDE}]}}\n', f"line 1: .* but got {WIDE}, and 0.5 in line 1; write"),
        ("a.csv", f"a,id\n1,\n2,{WIDE}\n", f"line 3: column 'id' must not .* but got {WIDE} and '' in line 2; fill"),
        ("a.tsv", f"a\tid\n1\t{WIDE}\n2\t1.5\n", f"line 2: column 'id' .* but got {WIDE} and '1.5' in line 3; fill"),
    ],
)
def test_integers_that_would_lose_digits_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(SourceError, match=f"source 's': .*{name}, {message}"):
        opened(tmp_path, name, text)


def test_integers_that_keep_their_digits_are_read(tmp_path: Path) -> None:
    rows = [{"a": 2**63 - 1, "b": [WIDE, 2]}, {"a": -(2**63), "b": [0, 1]}, {"a": None, "b": None}]
    assert opened(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows)) == rows
    assert opened(tmp_path, "b.jsonl", f'{{"a": {2**53}}}\n{{"a": 0.5}}\n') == [{"a": 2.0**53}, {"a": 0.5}]
    assert opened(tmp_path, "a.csv", f"a,id\n1,{WIDE}\n2,3\n") == [{"a": 1, "id": WIDE}, {"a": 2, "id": 3}]
    texts = [{"id": str(WIDE), "b": 1}, {"id": None, "b": 2}, {"id": "x", "b": 3}]
    assert opened(tmp_path, "b.csv", f"id,b\n{WIDE},1\n,2\nx,3\n") == texts


# --- paths that are no data files


def test_odd_paths_are_told(tmp_path: Path) -> None:
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path, message in {
        "a" * 5000 + ".jsonl": "must be a file or folder that exists, but got .*a…'",
        "a/" * 2500 + "b.jsonl": "must be a file or folder that exists, but got .*there is no folder",
        "~nosuchuser/x.jsonl": "but got .*~nosuchuser/x.jsonl'; there is no folder",
        "loop.jsonl": r"but got '.*/loop\.jsonl', a link that leads nowhere$",
        "pipe.jsonl": "must be a regular file, but got a device or pipe",
        "/dev/null": "must be a regular file, but got a device or pipe",
    }.items():
        with pytest.raises(SourceError, match=message) as caught:
            open_source(path, name="s", folder=tmp_path)
        assert len(str(caught.value)) < 1500


def test_a_list_may_begin_after_any_number_of_blanks(tmp_path: Path) -> None:
    assert opened(tmp_path, "a.json", "\n" + " " * 10_000 + '[{"a": 1}]') == [{"a": 1}]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_values_nested_too_deep_are_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match=r"but got .*nested too deep to read"):
        opened(tmp_path, name, "[" * 100_000 if name == "a.json" else '{"a": ' + "[" * 100_000)


def test_columns_of_parquet_have_distinct_names(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", pa.table([[1], [2]], names=["a", "a"]))
    with pytest.raises(SourceError, match="must be unique, but got 'a' twice"):
        open_source(tmp_path / "a.parquet", name="s")
