"""Which sources can share a batch."""

import numpy as np
import pytest

from cuvee.errors import SourceError
from cuvee.sources.schemas import check_column, check_schemas, columns_of

datasets = pytest.importorskip("datasets")
pa = pytest.importorskip("pyarrow")


def table(**columns: object) -> datasets.Dataset:
    return datasets.Dataset(pa.table(columns))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (table(a=pa.array([1], pa.int8())), table(a=pa.array([1], pa.int64()))),
        (table(a=pa.array([1], pa.int32())), table(a=pa.array([1.0], pa.float32()))),
        (table(a=["x"]), table(a=pa.array(["y"], pa.large_string()))),
        (table(a=["x"]), table(a=pa.nulls(1))),
        (table(a=[[1]]), table(a=pa.array([[1]], pa.large_list(pa.int8())))),
        (table(a=[[1]]), table(a=[[]])),
        (table(a=[{"x": 1, "y": "p"}]), table(a=[{"x": 2.5}])),
        (table(a=["x"], b=[1]), table(a=["y"], c=["z"])),
        (table(a=["x"]), [{"a": "y"}]),
        (table(a=[1]), [{"a": np.int64(1)}]),
        (table(a=[[1, 2]]), [{"a": [3]}]),
        (table(a=[[1, 2]]), [{"a": np.array([3])}]),
        (table(a=["x"]), [("not", "a", "dict")]),
        (table(a=["x"]), []),
    ],
)
def test_compatible_sources_pass_in_either_order(one: object, other: object) -> None:
    check_schemas({"one": one, "other": other})
    check_schemas({"other": other, "one": one})


@pytest.mark.parametrize(
    ("one", "other", "types"),
    [
        (table(a=[1]), table(a=["x"]), "int64 in 'one' and string in 'other'"),
        (table(a=[True]), table(a=[1]), "bool in 'one' and int64 in 'other'"),
        (table(a=[b"x"]), table(a=["x"]), "binary in 'one' and string in 'other'"),
        (table(a=[["x"]]), table(a=["x"]), "list<item: string> in 'one' and string in 'other'"),
        (table(a=[["x"]]), table(a=[[1]]), "list<item: string> in 'one' and list<item: int64> in 'other'"),
        (table(a=[{"x": 1}]), table(a=[{"x": "p"}]), "struct<x: int64> in 'one' and struct<x: string> in 'other'"),
        (table(a=["x"]), [{"a": 1}], "string in 'one' and int in 'other'"),
        ([{"a": True}], [{"a": 1}], "bool in 'one' and int in 'other'"),
    ],
)
def test_a_column_of_two_kinds_names_both_sources_the_column_and_both_types(
    one: object, other: object, types: str
) -> None:
    with pytest.raises(SourceError) as error:
        check_schemas({"one": one, "other": other})
    assert "sources 'one' and 'other': column 'a' must have the same type in both" in str(error.value)
    assert types in str(error.value)


def test_a_type_first_seen_after_nulls_still_binds_the_later_sources() -> None:
    with pytest.raises(SourceError, match="sources 'b' and 'c': column 'x'"):
        check_schemas({"a": table(x=pa.nulls(1)), "b": table(x=["t"]), "c": table(x=[1])})


def test_sources_without_a_common_column_are_refused() -> None:
    with pytest.raises(SourceError, match=r"must share a column, but got \['a'\] and \['b'\]"):
        check_schemas({"one": table(a=[1]), "other": table(b=[1])})


def test_the_reserved_field_is_refused_by_source() -> None:
    with pytest.raises(SourceError, match="source 'other': a row must not have the reserved field '__cuvee_meta__'"):
        check_schemas({"one": [{"a": 1}], "other": [{"a": 1, "__cuvee_meta__": {}}]})


def test_a_column_that_is_not_there_suggests_the_nearest() -> None:
    with pytest.raises(SourceError, match=r"got 'promt'; did you mean 'prompt'\?"):
        check_column("promt", ["prompt", "response"], where="source 'a'")


def test_columns_of_rows_that_are_no_dicts_are_unknown() -> None:
    assert columns_of([1, 2]) is None
    assert columns_of([]) is None
    assert columns_of(pa.table({"a": [1]})) == {"a": ("number", "int64")}
