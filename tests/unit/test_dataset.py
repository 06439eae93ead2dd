"""Rows come back in the order of the keys, read grouped by source, with the reserved metadata."""
# ruff: noqa: TID253

from __future__ import annotations

import pickle
from typing import Any

import datasets
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuvee import MixedDataset, Mixture, MixtureSampler, PlanError, Source, SourceError, _core
from loading import Rows, mixture, packed

META = "__cuvee_meta__"


def pack(*draws: tuple[int, int, int]) -> list[int]:
    source, row, cycle = zip(*draws, strict=True)
    return _core.pack(np.array(source, np.int32), np.array(row, np.int64), np.array(cycle, np.int32))


def meta(source: str, index: int, cycle: int = 0) -> dict[str, Any]:
    return {"source": source, "source_index": index, "cycle": cycle}


class Logged(list):
    """A list that remembers how it was read."""

    def __init__(self, rows) -> None:
        super().__init__(rows)
        self.reads: list[Any] = []

    def __getitems__(self, indices):
        self.reads.append(list(indices))
        return [self[index] for index in indices]


# --- rows by the sampler's keys


@given(
    draws=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 999), st.integers(0, 2**31 - 1)), min_size=1, max_size=50
    )
)
def test_rows_come_in_the_order_of_the_keys(draws) -> None:
    rows = MixedDataset(mixture()).__getitems__(pack(*draws))
    names = "abcd"
    assert rows == [
        {"name": names[source], "row": row, META: meta(names[source], row, cycle)} for source, row, cycle in draws
    ]


def test_one_key_gives_one_row() -> None:
    assert MixedDataset(mixture())[pack((2, 7, 1))[0]] == {"name": "c", "row": 7, META: meta("c", 7, 1)}


def test_no_key_gives_no_row() -> None:
    assert MixedDataset(mixture()).__getitems__([]) == []


def test_each_source_is_read_once_per_batch() -> None:
    sources = {name: Logged({"i": i} for i in range(9)) for name in "ab"}
    dataset = MixedDataset(Mixture([Source(name, rows) for name, rows in sources.items()]))
    dataset.__getitems__(pack((0, 3, 0), (1, 8, 0), (0, 1, 0), (0, 3, 1)))
    assert sources["a"].reads == [[3, 1, 3]]
    assert sources["b"].reads == [[8]]


def test_arrow_rows_are_read_in_one_batch(monkeypatch) -> None:
    arrow = datasets.Dataset.from_dict({"text": [f"t{i}" for i in range(20)], "row": range(20)})
    dataset = MixedDataset(Mixture([Source("arrow", arrow), Source("plain", Rows("plain", 20))]))
    read = []
    whole = datasets.Dataset.__getitem__
    monkeypatch.setattr(datasets.Dataset, "__getitem__", lambda self, key: read.append(key) or whole(self, key))
    rows = dataset.__getitems__(pack((0, 19, 0), (1, 4, 0), (0, 2, 1)))
    assert rows == [
        {"text": "t19", "row": 19, META: meta("arrow", 19)},
        {"name": "plain", "row": 4, META: meta("plain", 4)},
        {"text": "t2", "row": 2, META: meta("arrow", 2, 1)},
    ]
    assert read == [[19, 2]]


def test_the_source_keeps_its_own_rows() -> None:
    rows = [{"x": 1}, {"x": 2}]
    row = MixedDataset(Mixture([Source("a", rows)]))[pack((0, 1, 0))[0]]
    row["x"] = 99
    assert rows == [{"x": 1}, {"x": 2}]


def test_padding_shows_as_cycle_minus_one() -> None:
    (key,) = pack((1, 5, 3))
    assert MixedDataset(mixture())[~key] == {"name": "b", "row": 5, META: meta("b", 5, -1)}


def test_keys_wider_than_64_bits() -> None:
    far = Rows("far", 2**40)
    dataset = MixedDataset(Mixture([Source("far", far), Source("near", Rows("near", 3))]))
    (key,) = pack((0, 2**40 - 1, 70_000))
    assert key > 2**63
    assert dataset.__getitems__([key, ~key]) == [
        {"name": "far", "row": 2**40 - 1, META: meta("far", 2**40 - 1, cycle)} for cycle in (70_000, -1)
    ]


# --- refusals


@pytest.mark.parametrize("key", [0, 5, 2**40, -1, 1.5, "x", None, np.int64(5)])
def test_plain_index_is_refused_with_the_cure(key) -> None:
    with pytest.raises(SourceError, match=r"keys must be integers made by MixtureSampler, but got .*in_order\(plan\)"):
        MixedDataset(mixture())[key]


def test_the_bad_key_of_a_batch_is_named() -> None:
    with pytest.raises(SourceError, match="but got 'x';"):
        MixedDataset(mixture()).__getitems__([*pack((0, 1, 0)), "x"])


def test_length_is_refused_with_the_cure() -> None:
    dataset = MixedDataset(mixture())
    with pytest.raises(TypeError, match=r"MixtureSampler.*in_order\(plan\)"):
        len(dataset)
    assert dataset


def test_source_without_data_is_refused() -> None:
    with pytest.raises(SourceError, match="source 'b': data must be given to read its rows, but got None"):
        MixedDataset(Mixture([Source("a", Rows("a", 3)), Source("b", rows=3)]))


def test_row_with_the_reserved_field_is_refused() -> None:
    dataset = MixedDataset(Mixture([Source("bad", [{"x": 1}, {"x": 1, META: {}}])]))
    assert dataset[pack((0, 0, 0))[0]]["x"] == 1
    with pytest.raises(SourceError, match=f"source 'bad': rows must not have the field '{META}'"):
        dataset[pack((0, 1, 0))[0]]


def test_metadata_needs_mappings() -> None:
    mix = Mixture([Source("text", ["p", "q"])])
    with pytest.raises(SourceError, match=r"source 'text': rows must be mappings .* but got str; pass metadata=False"):
        MixedDataset(mix)[pack((0, 1, 0))[0]]
    assert MixedDataset(mix, metadata=False).__getitems__(pack((0, 1, 0), (0, 0, 0))) == ["q", "p"]


def test_failing_source_is_named_with_its_rows() -> None:
    dataset = MixedDataset(Mixture([Source("a", [{"x": 0}] * 5)]))
    with pytest.raises(IndexError) as caught:
        dataset.__getitems__(pack((0, 1, 0), (0, 77, 0)))
    assert caught.value.__notes__ == ["source 'a': while reading row 77"]


def test_source_that_joined_must_be_added() -> None:
    dataset = MixedDataset(Mixture([Source("a", Rows("a", 5))]))
    keys = pack((1, 2, 0))
    with pytest.raises(SourceError, match=r"source 1 must be one of \['a'\]; .*add_sources"):
        dataset[keys[0]]
    dataset.add_sources([Source("late", Rows("late", 4))])
    assert dataset[keys[0]] == {"name": "late", "row": 2, META: meta("late", 2)}


# --- in order of a plan


def limited() -> Mixture:
    lengths = np.random.default_rng(1).integers(1, 20, 3000)
    sources = [Source(name, Rows(name, 3000), share, lengths=lengths) for name, share in {"a": 3.0, "b": 1.0}.items()]
    return Mixture(sources, samples_per_epoch=20_000, max_length=12)


@pytest.mark.parametrize("make", [lambda: mixture(samples_per_epoch=10_000), limited])
@given(data=st.data())
def test_item_is_the_row_at_its_place(make, data) -> None:
    mix = make()
    plan = mix.plan(epoch=data.draw(st.integers(0, 2)))
    dataset = MixedDataset(mix)
    view = dataset.in_order(plan)
    keys = packed(plan, passing=True)
    assert len(view) == len(keys)
    places = data.draw(st.lists(st.integers(-len(keys), len(keys) - 1), min_size=1, max_size=30))
    assert view.__getitems__(places) == dataset.__getitems__([keys[place] for place in places])
    assert view[places[0]] == dataset[keys[places[0]]]


def test_view_can_be_iterated() -> None:
    mix = mixture(samples_per_epoch=5000)
    dataset = MixedDataset(mix)
    assert list(dataset.in_order(mix.plan())) == dataset.__getitems__(packed(mix.plan()))


def test_place_outside_the_order_is_an_index_error() -> None:
    view = MixedDataset(mixture()).in_order(mixture(samples_per_epoch=100).plan())
    for index in (100, -101, 2**70):
        with pytest.raises(IndexError, match=rf"index must be in \[-100, 100\), but got {index}"):
            view[index]
    assert view[np.int64(99)] == view[-1]


def test_view_of_other_sources_is_refused() -> None:
    with pytest.raises(PlanError, match=r"plan's sources must be \['a', 'b', 'c', 'd'\], but got \['x', 'y'\]"):
        MixedDataset(mixture()).in_order(mixture({"x": 3, "y": 3}, {"x": 1.0, "y": 1.0}).plan())


def test_view_refuses_a_plan_that_was_updated() -> None:
    mix = mixture()
    plan = mix.plan()
    view = MixedDataset(mix).in_order(plan)
    assert view[0]
    plan.update(dict.fromkeys(mix.names, 1.0), at=128)
    for use in (lambda: view[0], lambda: len(view), lambda: pickle.dumps(view)):
        with pytest.raises(PlanError, match="was updated; make a new view"):
            use()
    assert len(MixedDataset(mix).in_order(plan)) == len(plan)


def test_view_reads_a_source_that_joined() -> None:
    mix = mixture({"a": 100}, {"a": 1.0}, samples_per_epoch=1000)
    plan = mix.plan()
    plan.update({"a": 1.0, "late": 1.0}, at=512, add=[Source("late", Rows("late", 50))])
    dataset = MixedDataset(mix)
    rows = list(dataset.in_order(plan))
    assert {row["name"] for row in rows[:512]} == {"a"}
    assert {row["name"] for row in rows[512:]} == {"a", "late"}
    assert dataset.names == ("a",)


@pytest.mark.parametrize("make", [mixture, limited])
def test_pickles_are_small_and_read_the_same(make) -> None:
    mix = make()
    plan = mix.plan()
    view = MixedDataset(mix).in_order(plan)
    expected = view.__getitems__(range(0, len(view), 97))
    pickled = pickle.dumps(view)
    assert len(pickled) < 4000 + sum(len(source.lengths) * 4 for source in mix.sources if source.lengths is not None)
    assert pickle.loads(pickled).__getitems__(range(0, len(view), 97)) == expected
    dataset = pickle.loads(pickle.dumps(MixedDataset(mix)))
    keys = next(iter(MixtureSampler(plan, batch_size=50)))
    assert dataset.__getitems__(keys) == MixedDataset(mix).__getitems__(keys)


def test_view_of_an_updated_plan_survives_pickling() -> None:
    mix = mixture(samples_per_epoch=3000)
    plan = mix.plan()
    plan.update({"a": 0.0, "b": 1.0, "c": 1.0, "d": 1.0}, at=1024)
    view = MixedDataset(mix).in_order(plan)
    assert list(pickle.loads(pickle.dumps(view))) == list(view)


# --- sources that fail


class Broken(Rows):
    """Rows of which number 3 raises what it is told to."""

    def __init__(self, error: BaseException) -> None:
        super().__init__("a", 10)
        self.error = error

    def __getitem__(self, row):
        if row == 3:
            raise self.error
        return super().__getitem__(row)


def test_a_source_cannot_end_the_epoch() -> None:
    rows = MixedDataset(Mixture([Source("a", Broken(StopIteration()))]))
    with pytest.raises(SourceError, match=r"source 'a': data must return its rows, but got StopIteration .* row 3$"):
        rows.__getitems__(pack((0, 1, 0), (0, 3, 0)))


def test_other_errors_of_a_source_stay_and_say_where() -> None:
    rows = MixedDataset(Mixture([Source("a", Broken(KeyError("x")))]))
    with pytest.raises(KeyError) as caught:
        rows.__getitems__(pack((0, 1, 0), (0, 3, 0)))
    assert caught.value.__notes__ == ["source 'a': while reading row 3"]


@pytest.mark.parametrize("given", [[], [{}, {}, {}], {"a": 1, "b": 2}, iter([{}, {}])])
def test_getitems_must_give_as_many_rows(given) -> None:
    class Wrong(Rows):
        def __getitems__(self, rows):
            return given

    rows = MixedDataset(Mixture([Source("a", Wrong("a", 10))]))
    with pytest.raises(SourceError, match="source 'a': __getitems__ must return a list of 2 rows, but got "):
        rows.__getitems__(pack((0, 1, 0), (0, 3, 0)))


@pytest.mark.parametrize("index", [slice(0, 3), "1", 1.0])
def test_a_view_takes_one_integer(index) -> None:
    mix = mixture()
    with pytest.raises(PlanError, match="index must be an integer, but got "):
        MixedDataset(mix).in_order(mix.plan())[index]
