"""The ledger counts exactly, leaves padding out, adds up over ranks, and balances."""

from __future__ import annotations

import copy
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuvee import Ledger, StateError

NAMES = ("a", "b", "c")
ids = st.lists(st.integers(0, 2), max_size=40)


def sources(values) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def filled() -> Ledger:
    ledger = Ledger(NAMES)
    ledger.add_scheduled(sources([0, 0, 1, 2, 0]), passed=np.array([True, False, True, False, True]))
    ledger.add_trained(sources([0, 1]), [7, 5])
    return ledger


def test_counts_are_per_source() -> None:
    ledger = filled()
    assert ledger.scheduled.tolist() == [3, 1, 1]
    assert ledger.filtered.tolist() == [1, 0, 1]
    assert ledger.trained.tolist() == [1, 1, 0]
    assert ledger.tokens.tolist() == [7, 5, 0]
    assert ledger.pending.tolist() == [1, 0, 0]
    assert ledger.counts.dtype == np.int64
    ledger.check()


@given(batches=st.lists(st.tuples(ids, st.integers(0, 2**60)), max_size=8))
def test_totals_equal_a_plain_count(batches) -> None:
    ledger = Ledger(NAMES)
    rows, tokens = [0, 0, 0], [0, 0, 0]
    for values, most in batches:
        given_tokens = [(most // (place + 1)) % 2**40 for place in range(len(values))]
        ledger.add_scheduled(sources(values))
        ledger.add_trained(sources(values), given_tokens)
        for source, count in zip(values, given_tokens, strict=True):
            rows[source] += 1
            tokens[source] += count
    assert ledger.scheduled.tolist() == ledger.trained.tolist() == rows
    assert ledger.tokens.tolist() == tokens
    ledger.check()


def test_batch_of_metadata_leaves_padding_out() -> None:
    rows = [
        {"source": "b", "source_index": 4, "cycle": 0},
        {"source": "a", "source_index": 4, "cycle": 2},
        {"source": "a", "source_index": 4, "cycle": -1},
    ]
    collated = {"source": ["b", "a", "a"], "source_index": [4, 4, 4], "cycle": np.array([0, 2, -1])}
    for metadata in (rows, collated):
        ledger = Ledger(NAMES)
        ledger.add_batch(metadata, [10, 20, 40])
        ledger.add_batch(metadata)
        assert ledger.trained.tolist() == [2, 2, 0]
        assert ledger.tokens.tolist() == [20, 10, 0]


def test_collated_tensors_are_read() -> None:
    import torch
    from torch.utils.data import default_collate

    ledger = Ledger(NAMES)
    collated = default_collate(
        [{"source": name, "source_index": 0, "cycle": cycle} for name, cycle in [("c", 0), ("c", -1)]]
    )
    ledger.add_batch(collated, torch.tensor([3, 4]))
    assert ledger.trained.tolist() == [0, 0, 1]
    assert ledger.tokens.tolist() == [0, 0, 3]


def test_ranks_add_up() -> None:
    ranks = [filled() for _ in range(3)]
    total = ranks[0].merged(ranks[1:])
    assert total.counts.tolist() == (3 * filled().counts).tolist()
    assert ranks[0].counts.tolist() == filled().counts.tolist()
    alone = ranks[0].reduced()  # no distributed run
    assert alone.counts.tolist() == filled().counts.tolist()
    assert alone is not ranks[0]


def test_ledgers_of_other_sources_do_not_add_up() -> None:
    with pytest.raises(StateError, match=r"same sources, but got \['a', 'b', 'c'\] and \['a', 'b'\]"):
        filled().merged([Ledger(("a", "b"))])


def test_more_trained_than_scheduled_is_an_error() -> None:
    ledger = filled()
    ledger.add_trained(sources([1]))
    with pytest.raises(StateError, match=r"source 'b': scheduled rows must be .* but got 1 < 0 \+ 2"):
        ledger.check()


def test_sources_may_join() -> None:
    ledger = filled()
    ledger.add_sources(["late"])
    ledger.add_trained(sources([3]), [9])
    assert ledger.names == ("a", "b", "c", "late")
    assert ledger.tokens.tolist() == [7, 5, 0, 9]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda ledger: ledger.add_batch([{"source": "bb", "cycle": 0}]), "but got 'bb'"),
        (
            lambda ledger: ledger.add_trained(sources([0]), [1.5]),
            r"tokens must be integers of shape \(1,\), but got float64",
        ),
        (lambda ledger: ledger.add_trained(sources([0]), [1, 2]), r"but got int64 of shape \(2,\)"),
        (lambda ledger: ledger.add_trained(sources([3])), "3"),
        (lambda ledger: ledger.add_sources(["a"]), "names must be unique"),
    ],
)
def test_bad_counts_are_refused_and_change_nothing(use, message) -> None:
    ledger = filled()
    with pytest.raises((StateError, IndexError), match=message):
        use(ledger)
    assert ledger.counts.tolist() == filled().counts.tolist()


# --- state, events, table


def test_state_survives_json() -> None:
    state = json.loads(json.dumps(filled().state_dict()))
    before = copy.deepcopy(state)
    ledger = Ledger(NAMES)
    ledger.load_state_dict(state)
    assert ledger.state_dict() == state == before
    ledger.add_trained(sources([0]))
    assert state == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 7}, "version must be 1, but got 7"),
        ({"names": ["a", "b", "x"]}, r"must be \['a', 'b', 'c'\], but got \['a', 'b', 'x'\]"),
        ({"tokens": [1]}, "tokens must hold 3 counts in a list, but got "),
    ],
)
def test_bad_state_is_named(change, message) -> None:
    with pytest.raises(StateError, match=message):
        Ledger(NAMES).load_state_dict(filled().state_dict() | change)


def test_state_of_something_else_is_refused() -> None:
    with pytest.raises(StateError, match=r"but got one without \['names', "):
        Ledger(NAMES).load_state_dict({"version": 1})


def test_events_are_lines_of_json(tmp_path) -> None:
    path = tmp_path / "events.jsonl"
    ledger = filled()
    ledger.write_event(path, step=3)
    ledger.write_event(path, stage="dataset_mix_epoch_end", epoch=0)
    first, last = map(json.loads, path.read_text().splitlines())
    assert (first["stage"], first["step"]) == ("dataset_mix_progress", 3)
    assert first["sources"]["a"] == {
        "scheduled_rows": 3, "filtered_rows": 1, "trained_rows": 1, "target_tokens": 7,
        "scheduled_share": 0.6, "row_share": 0.5, "token_share": 7 / 12,
    }  # fmt: skip
    assert (last["stage"], last["epoch"]) == ("dataset_mix_epoch_end", 0)


def test_shares_of_nothing_are_zero() -> None:
    assert Ledger(NAMES).shares().tolist() == [0.0, 0.0, 0.0]
    assert filled().shares("scheduled").tolist() == [0.6, 0.2, 0.2]


def test_table_shows_every_source() -> None:
    from rich.console import Console

    console = Console(width=120, file=io.StringIO())
    console.print(filled().table())
    text = console.file.getvalue()
    for expected in ("a", "50.00%", "58.33%", "target tokens"):
        assert expected in text


@pytest.mark.parametrize("source", ["x", ["a"], [0.5], [[0]], [2**40], None])
def test_what_are_no_ids_is_refused(source) -> None:
    ledger = filled()
    before = ledger.state_dict()
    for add in (ledger.add_trained, ledger.add_scheduled):
        with pytest.raises(StateError, match=r"source must be ids of sources, .* but got .*add_batch"):
            add(source)
    assert ledger.state_dict() == before


def test_ids_may_be_any_integers() -> None:
    ledger = Ledger(NAMES)
    for values in ([0, 2], np.array([0, 2]), np.array([0, 2], dtype=np.uint8), []):
        ledger.add_trained(values)
    assert ledger.trained.tolist() == [3, 0, 3]


# --- values that no ledger can hold


@pytest.mark.parametrize(
    "tokens",
    [[-1], np.array([2**64 - 1], np.uint64), np.array([2**63], np.uint64), [2**64], [1.0], [True], ["1"], 5],
)
def test_tokens_are_integers_in_range(tokens) -> None:
    ledger = filled()
    with pytest.raises(StateError, match="tokens must be "):
        ledger.add_trained([0], tokens)
    assert (ledger.counts == filled().counts).all()


def test_sums_never_wrap() -> None:
    most = 2**63 - 1
    ledger = Ledger(NAMES)
    ledger.add_trained([0, 1], [most, most])
    assert ledger.tokens.tolist() == [most, most, 0]
    before = ledger.counts.copy()
    for source, tokens in ([[0], [1]], [[2, 2], [most, 1]], [[2, 2, 2], [most, most, 3]]):
        with pytest.raises(StateError, match="tokens must stay below 2\\*\\*63"):
            ledger.add_trained(source, tokens)
        assert (ledger.counts == before).all()
    with pytest.raises(StateError, match="source 'a': tokens must stay below"):
        ledger.merged([ledger])


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64, np.uint64])
def test_ids_of_any_width_count(kind) -> None:
    ledger = Ledger(NAMES)
    ledger.add_trained(np.array([0, 2], kind))
    assert ledger.trained.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    "source", [[3], [-1], np.array([2**40]), np.array([2**63], np.uint64), [0.5], [[0]], ["a"], None]
)
def test_ids_must_index_the_names(source) -> None:
    with pytest.raises(StateError, match="source must be ids"):
        Ledger(NAMES).add_trained(source)
    with pytest.raises(StateError, match="source must be ids"):
        Ledger(NAMES).add_scheduled(source)


@pytest.mark.parametrize("passed", [[True], [1, 0]])
def test_passed_are_booleans(passed) -> None:
    with pytest.raises(StateError, match="passed must be booleans of shape "):
        Ledger(NAMES).add_scheduled([0, 1], passed=passed)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        5,
        {"cycle": [0]},
        {"source": ["a", "b"], "cycle": [0]},
        [{"source": "a"}],
        ["a"],
        {"source": ["a"], "cycle": ["x"]},
    ],
)
def test_metadata_must_be_whole(metadata) -> None:
    with pytest.raises(StateError, match="metadata must "):
        Ledger(NAMES).add_batch(metadata)


@pytest.mark.parametrize("state", [None, 5, [], "state"])
def test_a_state_is_a_mapping(state) -> None:
    with pytest.raises(StateError, match=r"state must be from Ledger\.state_dict"):
        Ledger.from_state(state)


@pytest.mark.parametrize(
    "counts", [None, 5, "123", [1, 2], [1.0, 0, 0], [-1, 0, 0], ["1", 0, 0], [2**63, 0, 0], [None] * 3]
)
def test_a_states_counts_are_integers_in_range(counts) -> None:
    with pytest.raises(StateError, match="state tokens must "):
        Ledger.from_state(filled().state_dict() | {"tokens": counts})


@pytest.mark.parametrize("names", [None, "abc", [1, 2, 3]])
def test_a_states_names_are_texts(names) -> None:
    with pytest.raises(StateError, match="state names must be a list of names"):
        Ledger.from_state(filled().state_dict() | {"names": names})


def test_only_ledgers_merge_and_only_columns_have_shares() -> None:
    with pytest.raises(StateError, match="ledgers to merge must be Ledgers, but got 5"):
        filled().merged([5])
    with pytest.raises(StateError, match=r"column must be one of .* did you mean 'trained'"):
        filled().shares("trainde")


def test_events_are_always_json(tmp_path) -> None:
    file = tmp_path / "events.jsonl"
    filled().write_event(file, loss=float("nan"), norms=[float("inf"), 1.5], note="NaN")
    with pytest.raises(StateError, match="event fields must be JSON values"):
        filled().write_event(file, model=object())
    event = json.loads(file.read_text(), parse_constant=pytest.fail)
    assert (event["loss"], event["norms"], event["note"]) == (None, [None, 1.5], "NaN")
