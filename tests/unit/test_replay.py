"""A run's plan made again from contract and journal: the same draws, hashes and sources."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuvee import Change, Journal, Mixture, Plan, PlanError, Source, Stage, StateError
from cuvee.plan.change import Accepted


def mixture(rows: int = 300, **settings: Any) -> Mixture:
    return Mixture([Source("a", rows=rows, weight=2), Source("b", rows=500)], **{"samples_per_epoch": 1000} | settings)


def in_tokens() -> Mixture:
    lengths = np.arange(1, 501, dtype=np.int32)
    sources = [Source("a", rows=300, lengths=lengths[:300]), Source("b", rows=500, lengths=lengths)]
    return Mixture(sources, unit="tokens", control_interval=128, samples_per_epoch=1000)


def staged() -> Mixture:
    return mixture(stages=[Stage(700, {"a": 1, "b": 9}, "linear")], control_interval=128)


def steered(mix: Mixture) -> list[Plan]:
    """Return the plans of three epochs of a run whose weights changed in each."""
    plans = [mix.plan()]
    for share in (1, 5, 2):
        plans[-1].update({"a": share, "b": 1}, at=128, reason=f"to {share}")
        plans.append(plans[-1].next_epoch())
    return plans[:-1]


def same(one: Plan, other: Plan) -> bool:
    return (one.schedule_hash(), one.names) == (other.schedule_hash(), other.names)


@pytest.mark.parametrize("make", [mixture, in_tokens, staged], ids=["rows", "tokens", "stages"])
def test_every_epoch_of_a_run_is_made_again(make: Any) -> None:
    plans = steered(make())
    for plan in plans:
        assert same(make().plan(plan.epoch, journal=plans[-1].journal), plan)


@pytest.mark.parametrize("exhaustion", ["stop", "renormalize"])
def test_epochs_that_are_fresh_are_made_again(exhaustion: str) -> None:
    mix = mixture(exhaustion=exhaustion, samples_per_epoch=None)
    plans = steered(mix)
    for plan in plans:
        again = mix.plan(plan.epoch, journal=plan.journal)
        assert same(again, plan)
        assert again.plan_hash == plan.plan_hash


def test_hashes_are_those_of_the_run(tmp_path: Path) -> None:
    plan = mixture().plan()
    plan.journal.attach(tmp_path / "journal.jsonl")
    plan.update([1, 5], at=64)
    plan.update([5, 1], at=640)
    again = mixture().plan(journal=tmp_path / "journal.jsonl")
    assert same(again, plan)
    assert (again.plan_hash, again.parent) == (plan.plan_hash, plan.parent)
    assert again.journal.file is None
    again.update([1, 1], at=704)
    assert len(Journal.load(tmp_path / "journal.jsonl")) == 2
    assert len(plan.journal) == 2


def test_the_contract_stays_the_same_object() -> None:
    mix = mixture(samples_per_epoch=None)
    assert mix.plan(journal=Journal()).mixture is mix


def test_an_empty_journal_is_the_plain_plan() -> None:
    assert same(mixture().plan(2, journal=Journal()), mixture().plan(2))
    assert mixture().plan(journal=Journal()).parent is None


def test_sources_that_joined_are_there_again() -> None:
    plan = mixture().plan()
    plan.update([1, 1, 2], at=128, add=[Source("c", rows=40)])
    plan.update([1, 1, 2, 4], at=256, add=[Source("d", rows=9, max_epochs=3)])
    again = mixture().plan(journal=plan.journal)
    assert same(again, plan)
    assert [source.rows for source in again.sources] == [300, 500, 40, 9]
    data = [{"x": row} for row in range(40)]
    with_data = mixture().plan(journal=plan.journal, add=[Source("c", data)])
    assert same(with_data, plan)
    assert with_data.sources[2].data is data
    with pytest.raises(StateError, match="source 'c': rows must be 40 as in the journal, but got 41"):
        mixture().plan(journal=plan.journal, add=[Source("c", rows=41)])


def test_lengths_of_a_source_that_joined_are_asked_for() -> None:
    plan = in_tokens().plan()
    joined = Source("c", rows=3, lengths=[5, 6, 7])
    plan.update([1, 1, 1], at=128, add=[joined])
    assert same(in_tokens().plan(journal=plan.journal, add=[joined]), plan)
    with pytest.raises(StateError, match="add must hold source 'c'"):
        in_tokens().plan(journal=plan.journal)


def test_data_that_changed_are_replayed_from_the_data_as_they_are() -> None:
    first = mixture(samples_per_epoch=None).plan()
    first.update([1, 3], at=128)
    grown = mixture(rows=400, samples_per_epoch=None)
    plan = Plan.load_state_dict(grown, first.state_dict(issued=400), accept_changes=["a"])
    plan.update([2, 1], at=512)
    again = grown.plan(journal=plan.journal)
    assert len(again) == len(plan) == 800
    assert same(again, plan)
    assert again.plan_hash == plan.plan_hash


def test_lengths_that_changed_cannot_be_replayed_in_tokens() -> None:
    changed = in_tokens().sources[1]
    other = Source("b", rows=500, lengths=changed.lengths + 1 if changed.lengths is not None else None)
    mix = Mixture([in_tokens().sources[0], other], unit="tokens", control_interval=128, samples_per_epoch=1000)
    plan = Plan.load_state_dict(mix, in_tokens().plan().state_dict(issued=400), accept_changes=["b"])
    with pytest.raises(StateError, match=r"same lengths throughout.*\['b'\] changed; load a state"):
        mix.plan(journal=plan.journal)


def accepted(**changes: Any) -> Accepted:
    return Accepted(
        **{"name": "a", "field": "rows", "was": 200, "now": 300, "at_draw": 3, "cycle": 1, "cap": 50} | changes
    )


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([{"position": -64}], "line 1: position .* got -64"),
        ([{"position": 640}, {"position": 64}], "line 2: position must not lie before"),
        ([{"position": 65}], "does not fit it: at must be the first slot of a window, but got 65"),
        ([{"weights": None, "accepted": (accepted(now=5),)}], "'a': rows must be 5 as in the journal, but got 300"),
        ([{"weights": None, "accepted": (accepted(at_draw=-3),)}], "at_draw .* got -3"),
        ([{"weights": None, "accepted": (accepted(cap=2**70),)}], "cap .* got 1180591620717411303424"),
        ([{"weights": None, "accepted": (accepted(cycle=2**40),)}], "cycle .* got 1099511627776"),
    ],
)
def test_entries_that_no_run_has_are_named(entries: list[dict[str, Any]], says: str) -> None:
    weights = {"a": 1, "b": 1}
    journal = Journal([Change(**{"epoch": None, "position": 64, "weights": weights} | entry) for entry in entries])
    with pytest.raises(StateError, match=says):
        mixture().plan(journal=journal).draws(0, 1000)


def test_a_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    journal = steered(mixture())[-1].journal
    with pytest.raises(StateError, match=r"exhaustion must be cycle, as in the run .*, but got 'stop'"):
        mixture(exhaustion="stop", samples_per_epoch=None).plan(journal=journal)
    with pytest.raises(PlanError, match="weights in the journal must name the sources 'a', 'c', but got 'b'"):
        Mixture([Source("a", rows=300), Source("c", rows=500)]).plan(journal=journal)
    with pytest.raises(StateError, match=r"journal must be a file that can be read, but got '.*none': no such file"):
        mixture().plan(journal=tmp_path / "none")
