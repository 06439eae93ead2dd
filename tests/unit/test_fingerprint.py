"""Content identity: any changed byte or value changes it; where and how the data lies does not."""

import os
import shutil
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuvee.errors import SourceError
from cuvee.sources.fingerprint import fingerprint_of

datasets = pytest.importorskip("datasets")
pa = pytest.importorskip("pyarrow")

NESTED = pa.table(
    {
        "number": pa.array([1, None, 3, 4, 5], pa.int64()),
        "small": pa.array([1.5, 2.5, None, 0.0, -0.0], pa.float32()),
        "text": pa.array(["a", None, "", "ü", "long " * 50]),
        "flag": pa.array([True, None, False, True, True]),
        "bytes": pa.array([b"", b"\0", None, b"ab", b"c"]),
        "list": pa.array([[1, 2], [], None, [3], [4, None]], pa.list_(pa.int32())),
        "fixed": pa.array([[1, 2], [3, 4], None, [5, 6], [7, 8]], pa.list_(pa.int8(), 2)),
        "struct": pa.array(
            [{"x": 1, "y": ["p"]}, None, {"x": None, "y": []}, {"x": 2, "y": None}, {"x": 3, "y": ["q"]}]
        ),
        "when": pa.array([datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 6)], pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal("1.25"), None, Decimal("2.50"), Decimal(3), Decimal(4)], pa.decimal128(9, 2)),
        "nothing": pa.nulls(5),
    }
)
ARROW_ONLY = pa.table(  # types that `datasets` does not take
    {
        "map": pa.array([[("k", 1)], [], None, [("l", 2), ("m", 3)], []], pa.map_(pa.string(), pa.int32())),
        "word": pa.array(["p", "q", "p", None, "q"]).dictionary_encode(),
    }
)


def test_a_files_fingerprint_is_the_xxh3_of_its_bytes(tmp_path: Path) -> None:
    content = bytes(range(256)) * 100
    (tmp_path / "a.jsonl").write_bytes(content)
    assert fingerprint_of(tmp_path / "a.jsonl") == xxhash.xxh3_128_hexdigest(content)


def test_moving_touching_and_renaming_a_file_leave_its_fingerprint(tmp_path: Path) -> None:
    before = tmp_path / "a.jsonl"
    before.write_text('{"a": 1}\n')
    fingerprint = fingerprint_of(str(before))
    os.utime(before, (1, 1))
    assert fingerprint_of(before) == fingerprint
    (tmp_path / "deep").mkdir()
    assert fingerprint_of(before.rename(tmp_path / "deep" / "b.txt")) == fingerprint


@given(content=st.binary(min_size=1, max_size=200), data=st.data())
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_changed_byte_changes_a_files_fingerprint(tmp_path: Path, content: bytes, data: st.DataObject) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(content)
    before = fingerprint_of(file)
    place = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[place] ^= data.draw(st.integers(1, 255))
    file.write_bytes(changed)
    assert fingerprint_of(file) != before


def test_a_saved_folder_is_its_data_files_wherever_it_lies_and_whatever_map_cached_in_it(tmp_path: Path) -> None:
    datasets.Dataset(NESTED).save_to_disk(tmp_path / "saved", num_shards=2)
    fingerprint = fingerprint_of(tmp_path / "saved")
    shutil.copytree(tmp_path / "saved", tmp_path / "copy")
    (tmp_path / "copy" / "cache-123.arrow").write_bytes(b"left by map")
    assert fingerprint_of(tmp_path / "copy") == fingerprint
    file = tmp_path / "copy" / "data-00001-of-00002.arrow"
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)
    assert fingerprint_of(tmp_path / "copy") != fingerprint


def test_a_saved_folder_with_splits_covers_them_all(tmp_path: Path) -> None:
    one, two = datasets.Dataset.from_dict({"a": [1]}), datasets.Dataset.from_dict({"a": [2]})
    datasets.DatasetDict({"train": one, "test": two}).save_to_disk(tmp_path / "x")
    datasets.DatasetDict({"train": one, "test": one}).save_to_disk(tmp_path / "y")
    assert fingerprint_of(tmp_path / "x") != fingerprint_of(tmp_path / "y")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "state.json").unlink(), "has no state.json"),
        (lambda folder: (folder / "state.json").write_text("{}"), "must be the state that datasets"),
        (lambda folder: (folder / "data-00000-of-00001.arrow").unlink(), "every file that state.json lists must exist"),
    ],
)
def test_a_broken_saved_folder_is_refused(tmp_path: Path, spoil, message: str) -> None:
    datasets.Dataset.from_dict({"a": [1]}).save_to_disk(tmp_path / "saved")
    spoil(tmp_path / "saved")
    with pytest.raises(SourceError, match=message):
        fingerprint_of(tmp_path / "saved")


def test_a_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no such file"):
        fingerprint_of(tmp_path / "none")


def layouts() -> dict[str, object]:
    """Return the rows of NESTED, laid out in memory in every way that should not matter."""
    padded = pa.concat_tables([NESTED.slice(3), NESTED, NESTED.slice(0, 2)])
    data = datasets.Dataset(padded)
    return {
        "table": NESTED,
        "chunked": pa.concat_tables([NESTED.slice(0, 1), NESTED.slice(1, 3), NESTED.slice(4)]),
        "sliced": padded.slice(2, 5),
        "other column order": NESTED.select(NESTED.column_names[::-1]),
        "dataset": datasets.Dataset(NESTED),
        "contiguous selection": data.select(range(2, 7)),
        "index mapping": data.select([2, 3, 4, 5, 6]).select([0, 1, 2, 3, 4], keep_in_memory=True),
        "index mapping back and forth": data.select([6, 5, 4, 3, 2]).select([4, 3, 2, 1, 0]),
        "numpy format": datasets.Dataset(NESTED).with_format("numpy"),
    }


@pytest.mark.parametrize("layout", layouts())
def test_the_same_rows_have_the_same_fingerprint_in_any_layout(layout: str) -> None:
    assert fingerprint_of(layouts()[layout]) == fingerprint_of(NESTED)


def test_types_that_only_arrow_has_are_read_through_slices_and_chunks() -> None:
    chunked = pa.concat_tables(
        [ARROW_ONLY.slice(4), ARROW_ONLY.slice(0, 1), ARROW_ONLY.slice(1, 3), ARROW_ONLY.slice(4)]
    )
    assert fingerprint_of(chunked.slice(1)) == fingerprint_of(ARROW_ONLY)


def test_widths_of_offsets_and_dictionaries_do_not_matter() -> None:
    plain = pa.table({"a": pa.array(["x", "y", None]), "b": pa.array([[1], [], None], pa.list_(pa.int64()))})
    other = pa.table(
        {
            "a": pa.array(["x", "y", None], pa.large_string()).dictionary_encode(),
            "b": pa.array([[1], [], None], pa.large_list(pa.int64())),
        }
    )
    views = plain.set_column(0, "a", pa.array(["x", "y", None], pa.string_view()))
    assert fingerprint_of(plain) == fingerprint_of(other) == fingerprint_of(views)


def test_what_lies_under_a_null_does_not_matter() -> None:
    validity = pa.py_buffer(b"\x05")
    one, other = (
        pa.Array.from_buffers(pa.int32(), 3, [validity, pa.py_buffer(np.array(values, np.int32))])
        for values in ([1, 7, 3], [1, 8, 3])
    )
    assert fingerprint_of(pa.table({"a": one})) == fingerprint_of(pa.table({"a": other}))


@pytest.mark.parametrize("column", NESTED.column_names + ARROW_ONLY.column_names)
def test_a_changed_row_order_or_null_changes_the_fingerprint(column: str) -> None:
    table = (NESTED if column in NESTED.column_names else ARROW_ONLY).select([column])
    fingerprint = fingerprint_of(table)
    assert fingerprint_of(table.slice(0, 4)) != fingerprint
    if column != "nothing":
        assert fingerprint_of(table.take([1, 0, 2, 3, 4])) != fingerprint
        assert fingerprint_of(table.take([0, 0, 2, 3, 4])) != fingerprint
        assert fingerprint_of(table.take(pa.array([0, 1, 2, 3, None]))) != fingerprint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": ["ab", "c"]}, {"a": ["a", "bc"]}),
        ({"a": [[1, 2], [3]]}, {"a": [[1], [2, 3]]}),
        ({"a": [1], "b": [2]}, {"a": [2], "b": [1]}),
        ({"a": [1]}, {"b": [1]}),
        ({"a": [1]}, {"a": [1.0]}),
        ({"a": [True]}, {"a": pa.array([1], pa.uint8())}),
        ({"a": [""]}, {"a": [None]}),
        ({"a": [{"x": 1}]}, {"a": [{"y": 1}]}),
    ],
)
def test_different_content_has_different_fingerprints(one: dict, other: dict) -> None:
    assert fingerprint_of(pa.table(one)) != fingerprint_of(pa.table(other))


def test_tables_longer_than_a_block_are_read_to_the_end() -> None:
    numbers = np.arange(10_000)
    one = pa.table({"a": numbers})
    assert fingerprint_of(pa.concat_tables([one.slice(0, 4095), one.slice(4095)])) == fingerprint_of(one)
    changed = numbers.copy()
    changed[-1] = 0
    assert fingerprint_of(pa.table({"a": changed})) != fingerprint_of(one)


def test_rows_in_a_list_are_their_json() -> None:
    rows = [{"a": 1, "b": ["x", None]}, {"a": 2, "b": []}]
    assert fingerprint_of(rows) == fingerprint_of(tuple({"b": row["b"], "a": row["a"]} for row in rows))
    assert fingerprint_of(rows) != fingerprint_of(rows[::-1])
    assert fingerprint_of([[1, 2], [3]]) != fingerprint_of([[1], [2, 3]])


def test_arrays_are_their_type_shape_and_values() -> None:
    array = np.arange(6, dtype=np.int32)
    assert (
        fingerprint_of(array)
        == fingerprint_of(np.arange(12, dtype=np.int32)[:6])
        == fingerprint_of(array.astype(">i4"))
    )
    others = [array.reshape(2, 3), array.astype(np.int64), array[::-1]]
    assert len({fingerprint_of(array), *map(fingerprint_of, others)}) == 4


@pytest.mark.parametrize("data", [range(3), [{"a": object()}], [{1: "a", "b": 2}], np.array([object()])])
def test_other_objects_have_no_fingerprint(data: object) -> None:
    assert fingerprint_of(data) is None


def test_the_digest_of_a_table_is_what_the_documentation_says() -> None:
    def number(value: int) -> bytes:
        return value.to_bytes(8, "little")

    def text(value: str) -> bytes:
        return number(len(value)) + value.encode()

    table = pa.table({"b": pa.array(["xy", None, "z"]), "a": pa.array([[7], [], [8, 9]], pa.list_(pa.int8()))})
    lists = number(3) + number(0) + text("list") + number(1) + number(0) + number(2)
    items = number(3) + number(0) + text("int8") + bytes([7, 8, 9])
    words = number(3) + number(1) + b"\x05" + text("string") + number(2) + number(1) + b"xyz"
    content = text("arrow") + number(3) + number(2) + text("a") + text("b") + lists + items + words
    assert fingerprint_of(table) == xxhash.xxh3_128_hexdigest(content)


def test_the_rule_for_tables_does_not_change() -> None:
    assert fingerprint_of(NESTED) == "7fb51a2fcd7bd31794491549224a5d71"
