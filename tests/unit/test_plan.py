"""Plans: reading, epochs, updates, the journal, state and resume, summaries."""

import base64
import copy
import itertools
import json
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from cuvee import Change, Draw, Journal, Mixture, Plan, PlanError, Source, Stage, StateError
from cuvee.plan.change import Accepted, AddedSource
from cuvee.plan.checkpoint import digest_of

EMPTY = '{"name":"d","rows":0,"max_epochs":null,"fingerprint":null,"lengths":null}'


def mixture(**settings: Any) -> Mixture:
    return Mixture([Source("a", rows=100, weight=0.7), Source("b", rows=50, weight=0.3)], **settings)


def in_tokens() -> Mixture:
    sources = [Source(name, rows=200, lengths=np.arange(1, 201)[::step]) for name, step in (("a", 1), ("b", -1))]
    return Mixture(sources, unit="tokens", control_interval=128, samples_per_epoch=1000)


def order(plan: Plan) -> list[tuple[int, int, int]]:
    draws = plan.draws(0, len(plan))
    return list(zip(draws.source.tolist(), draws.row.tolist(), draws.cycle.tolist(), strict=True))


SETTINGS: dict[str, dict[str, Any]] = {
    "cycle": {"samples_per_epoch": 333},
    "all_seen": {"samples_per_epoch": "all_seen"},
    "stop": {"exhaustion": "stop"},
    "renormalize": {"exhaustion": "renormalize"},
    "stages": {
        "samples_per_epoch": 333,
        "control_interval": 50,
        "stages": [Stage(80, {"a": 1, "b": 9}), Stage(300, {"a": 1, "b": 1}, "linear"), Stage(500, {"a": 0, "b": 1})],
    },
}


class TestReading:
    @pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
    def test_every_way_to_read_gives_the_same_draws(self, settings: dict[str, Any]) -> None:
        plan = mixture(**settings).plan(epoch=1)
        whole = order(plan)
        assert [(draw.source, draw.row, draw.cycle) for draw in plan] == whole
        assert [tuple(plan[i])[:3] for i in range(len(plan))] == whole
        assert [tuple(plan[i])[:3] for i in reversed(range(len(plan)))] == whole[::-1]
        for cut in (1, 63, 64, 65, len(plan) - 1):
            parts = [plan.draws(0, cut), plan.draws(cut, len(plan))]
            assert np.concatenate([part.row for part in parts]).tolist() == [row for _, row, _ in whole]
        fresh = mixture(**settings).plan(epoch=1)
        assert [tuple(fresh[i])[:3] for i in (len(plan) - 1, 5, 6, 7, 0)] == [whole[i] for i in (-1, 5, 6, 7, 0)]

    def test_threads_may_read_and_update_at_once(self) -> None:
        plan = mixture(samples_per_epoch=64_000, window=1).plan()

        def read(first: int) -> list[Draw]:
            return [plan[i] for i in range(first, first + 3000)]

        with ThreadPoolExecutor(4) as pool:
            reads = [pool.submit(read, first) for first in range(0, 9000, 3000)]
            for position in range(20_000, 40_000, 500):
                plan.update([position, 20_000], at=position)
            assert [draw for each in reads for draw in each.result()] == [plan[i] for i in range(9000)]
        replayed = Plan.load_state_dict(plan.mixture, plan.state_dict())
        assert [plan[i] for i in range(19_000, 41_000)] == [replayed[i] for i in range(19_000, 41_000)]

    def test_counts_are_of_one_moment_while_sources_join(self) -> None:
        plan = mixture(samples_per_epoch=6400).plan(epoch=1)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(1) as pool:
                joining = pool.submit(
                    lambda: [plan.update([1] * (k + 3), at=3200, add=[Source(f"s{k}", rows=5)]) for k in range(100)]
                )
                while not joining.done():
                    assert plan.counts(3200).sum() == 3200
                    assert plan.work(3200).sum() == pytest.approx(3200)
                assert len(joining.result()) == 100
        finally:
            sys.setswitchinterval(interval)

    @pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint64, np.int16])
    def test_integers_of_any_type_name_a_position(self, kind: type[np.integer[Any]]) -> None:
        plan = mixture().plan()
        whole = list(plan)
        for first in (0, 100):
            for i in (first, 3, 120, 2, 0):
                assert plan[kind(i)] == whole[i]

    def test_draws_are_arrays_of_the_promised_types(self) -> None:
        draws = mixture().plan().draws(10, 30)
        assert (draws.source.dtype, draws.row.dtype, draws.cycle.dtype) == (np.int32, np.int64, np.int32)
        assert len(draws) == len(draws.row) == len(draws.cycle) == 20
        assert all(
            column.flags.c_contiguous and column.flags.aligned for column in (draws.source, draws.row, draws.cycle)
        )

    def test_a_draw_knows_its_source_by_name(self) -> None:
        draw = mixture().plan()[np.int64(3)]  # type: ignore[index]
        assert isinstance(draw, Draw)
        assert draw.name == ("a", "b")[draw.source]

    @pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
    def test_counts_are_the_draws_before(self, settings: dict[str, Any]) -> None:
        plan = mixture(**settings).plan(epoch=1)
        source = plan.draws(0, len(plan)).source
        for position in (0, 1, 64, 77, len(plan)):
            assert plan.counts(position).tolist() == np.bincount(source[:position], minlength=2).tolist()

    @pytest.mark.parametrize("threads", [1, 2, None])
    def test_schedule_hash_is_xxh3_of_the_draws(self, threads: int | None) -> None:
        plan = mixture().plan()
        draws = plan.draws(7, 140)
        table = np.zeros(133, dtype=[("source", "<u4"), ("cycle", "<u4"), ("row", "<u8")])
        table["source"], table["cycle"], table["row"] = draws.source, draws.cycle, draws.row
        assert plan.schedule_hash(7, 140, threads=threads) == xxhash.xxh3_128_hexdigest(table.tobytes())

    def test_a_slice_is_refused_with_the_way_to_many_draws(self) -> None:
        plan = mixture().plan()
        with pytest.raises(TypeError, match=r"position must be an integer, .*; plan\.draws\(0, 5\) returns many"):
            plan[0:5]
        with pytest.raises(TypeError, match=r"plan\.draws\(2, len\(plan\)\)"):
            plan[2:]
        with pytest.raises(TypeError, match=r"but got 'x'$"):
            plan["x"]

    @pytest.mark.parametrize(
        ("read", "says"),
        [
            (lambda plan: plan[150], r"\[0, 150\), but got 150"),
            (lambda plan: plan[-1], "got -1"),
            (lambda plan: plan.draws(-1, 5), "start=-1"),
            (lambda plan: plan.draws(5, 4), "start=5, stop=4"),
            (lambda plan: plan.draws(0, 151), "stop=151"),
            (lambda plan: plan.counts(152), "got 152"),
            (lambda plan: plan.work(-2), "got -2"),
            (lambda plan: plan.schedule_hash(0, 153), "stop=153"),
            (lambda plan: plan.issue(154), "got 154"),
        ],
    )
    def test_positions_outside_are_index_errors(self, read: Callable[[Plan], object], says: str) -> None:
        with pytest.raises(IndexError, match=says):
            read(mixture().plan())

    def test_positions_are_integers(self) -> None:
        with pytest.raises(TypeError):
            mixture().plan().draws(0.0, 5)  # type: ignore[arg-type]

    @pytest.mark.parametrize("threads", [0, -1, 1.0, True])
    def test_threads_are_checked(self, threads: Any) -> None:
        with pytest.raises(PlanError, match=f"threads .* got {threads}"):
            mixture().plan().draws(0, 5, threads=threads)


class TestEpochs:
    def test_cycle_is_one_stream(self) -> None:
        long = mixture(samples_per_epoch=1000).plan()
        short = mixture(samples_per_epoch=100, window=1).plan()
        stream = mixture(samples_per_epoch=1000, window=1).plan()
        assert order(stream)[:100] == order(short)
        assert order(stream)[100:200] == order(short.next_epoch())
        assert order(short.next_epoch()) == order(mixture(samples_per_epoch=100, window=1).plan(epoch=1))
        assert long.counts(1000).tolist() == stream.counts(1000).tolist()

    def test_counts_start_at_zero_and_work_at_what_is_carried(self) -> None:
        plan = mixture(samples_per_epoch=101).plan()
        following = plan.next_epoch()
        assert following.counts(0).tolist() == [0, 0]
        assert following.work(0) == pytest.approx(plan.work(101) - plan.counts(101))
        assert following.work(0)[0] == pytest.approx(-0.3)

    def test_a_source_owed_less_than_a_row_gets_one_every_few_epochs(self) -> None:
        rare = Mixture([Source("a", rows=100, weight=997), Source("b", rows=100, weight=3)], samples_per_epoch=100)
        given = [int(rare.plan(epoch=e).counts(100)[1]) for e in range(20)]
        assert sum(given) == 6
        assert max(given) == 1
        assert any("owed 0.3 rows per epoch" in warning for warning in rare.plan().summary()["warnings"])

    def test_no_row_repeats_before_all_were_used_across_epochs(self) -> None:
        seen: list[int] = []
        plan = mixture(samples_per_epoch=37).plan()
        for _ in range(12):
            draws = plan.draws(0, 37)
            seen += draws.row[draws.source == 0].tolist()
            plan = plan.next_epoch()
        for first in range(0, len(seen) - 100, 100):
            assert sorted(seen[first : first + 100]) == list(range(100))

    def test_all_seen_epochs_follow_each_other(self) -> None:
        uneven = Mixture([Source("a", rows=7, weight=5), Source("b", rows=13, weight=3)], samples_per_epoch="all_seen")
        plan, start = uneven.plan(), 0
        for epoch in range(5):
            counts = plan.counts(len(plan))
            assert (counts >= [7, 13]).all()
            assert (counts == [7, 13]).any()
            assert order(plan) == order(uneven.plan(epoch=epoch))
            start += len(plan)
            plan = plan.next_epoch()

    @pytest.mark.parametrize("exhaustion", ["stop", "renormalize"])
    def test_fresh_epochs_are_shuffled_anew(self, exhaustion: Any) -> None:
        first = mixture(exhaustion=exhaustion).plan()
        second = first.next_epoch()
        assert len(first) == len(second)
        assert order(first) != order(second) == order(mixture(exhaustion=exhaustion).plan(epoch=1))

    def test_max_epochs_ends_the_stream(self) -> None:
        sources = [Source("a", rows=10, max_epochs=2), Source("b", rows=10, max_epochs=3)]
        capped = Mixture(sources, samples_per_epoch=20)
        plan = capped.plan()
        lengths = []
        for _ in range(3):
            lengths.append(len(plan))
            last, plan = plan, plan.next_epoch() if len(lengths) < 3 else plan
        assert lengths == [20, 20, 10]
        assert last.summary()["termination_reason"] == "all_sources_exhausted"
        with pytest.raises(PlanError, match=r"position 50 .* epoch 3"):
            last.next_epoch()
        with pytest.raises(PlanError, match="epoch 3"):
            capped.plan(epoch=3)

    def test_a_used_up_source_is_not_waited_for(self) -> None:
        sources = [Source("a", rows=10, max_epochs=1), Source("b", rows=10)]
        plan = Mixture(sources, samples_per_epoch="all_seen").plan()
        assert plan.counts(len(plan)).tolist() == [10, 10]
        assert plan.next_epoch().counts(10).tolist() == [0, 10]
        assert len(plan.next_epoch().next_epoch()) == 10

    def test_many_fresh_epochs_with_stages(self) -> None:
        staged = Mixture(
            [Source("a", rows=3), Source("b", rows=2)], exhaustion="stop", stages=[Stage(9, {"a": 1, "b": 0})]
        )
        assert staged.plan(epoch=2000).counts(3).tolist() == [3, 0]

    @pytest.mark.parametrize("epoch", [-1, 1.0, True, "1"])
    def test_bad_epoch(self, epoch: Any) -> None:
        with pytest.raises(PlanError, match=f"epoch .* got {epoch!r}"):
            mixture().plan(epoch=epoch)

    def test_positions_stay_below_2_to_the_63(self) -> None:
        far = mixture(samples_per_epoch=2**61)
        assert len(far.plan(epoch=2)) == 2**61
        with pytest.raises(PlanError, match="2\\*\\*63"):
            far.plan(epoch=3)

    def test_a_fresh_epoch_of_too_many_rows_is_refused(self) -> None:
        sources = [Source(name, rows=2**62) for name in ("a", "b", "c")]
        with pytest.raises(PlanError, match=r"before position 2\*\*63 - 2\*\*17, but got sources of 138350\d+ rows"):
            Mixture(sources, exhaustion="renormalize").plan()
        small = [*sources, Source("d", rows=10)]
        assert len(Mixture(small, exhaustion="stop").plan()) == 40

    def test_far_positions_are_as_good_as_near_ones(self) -> None:
        sources = [Source("a", rows=10**9, weight=0.7), Source("b", rows=10**9, weight=0.3)]
        plan = Mixture(sources, samples_per_epoch=2**40).plan(epoch=3)
        draws = plan.draws(2**40 - 1000, 2**40)
        assert np.bincount(draws.source).tolist() == pytest.approx([700, 300], abs=2)
        assert plan.counts(2**40).sum() == 2**40
        assert np.abs(plan.counts(2**40) - plan.work(2**40)).max() < 0.51


class TestUpdate:
    def test_nothing_before_it_changes(self) -> None:
        plan = mixture(samples_per_epoch=1000).plan()
        before = order(plan)
        entry = plan.update({"a": 1, "b": 4}, at=320, reason="more b")
        assert order(plan)[:320] == before[:320]
        assert (plan.counts(1000) - plan.counts(320)).tolist() == [136, 544]
        assert (entry.position, dict(entry.weights or {}), entry.reason) == (320, {"a": 1, "b": 4}, "more b")
        assert list(plan.journal) == [entry]

    def test_weights_may_be_given_in_source_order(self) -> None:
        by_name, by_order = mixture().plan(), mixture().plan()
        by_name.update({"a": 0.25, "b": 0.75}, at=64)
        by_order.update(np.array([0.25, 0.75]), at=64)
        assert by_name.plan_hash == by_order.plan_hash

    @pytest.mark.parametrize("kind", [Fraction, np.longdouble, np.float32, np.int8])
    def test_weights_may_be_numbers_of_any_type(self, kind: Callable[[int], Any], tmp_path: Path) -> None:
        plan, plain = mixture().plan(), mixture().plan()
        plan.journal.attach(tmp_path / "journal.jsonl")
        plan.update({"a": kind(1), "b": kind(3)}, at=64)
        plain.update({"a": 1, "b": 3}, at=64)
        assert order(plan) == order(plain) == order(mixture().plan(journal=tmp_path / "journal.jsonl"))

    def test_default_is_the_first_window_not_yet_issued(self) -> None:
        plan = mixture(samples_per_epoch=1000).plan()
        assert plan.update([1, 1]).position == 0
        plan.issue(1)
        assert plan.update([1, 2]).position == 64
        plan.issue(128)
        assert plan.update([1, 3]).position == 128
        plan.issue(1000)
        assert plan.update([1, 4]).position == 1000

    def test_a_random_run_of_updates_is_replayed_from_its_journal(self) -> None:
        rng = np.random.default_rng(5)
        plan = mixture(samples_per_epoch=5000).plan()
        for position in sorted(rng.choice(78, 20).tolist()):
            plan.update(rng.random(2), at=64 * position)
        again = mixture(samples_per_epoch=5000).plan()
        for entry in plan.journal:
            assert entry.weights is not None
            again.update(entry.weights, at=entry.position)
        assert again.schedule_hash() == plan.schedule_hash()
        assert Plan.load_state_dict(plan.mixture, plan.state_dict()).schedule_hash() == plan.schedule_hash()

    @pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
    def test_reading_ahead_does_not_matter(self, settings: dict[str, Any]) -> None:
        looked, blind = mixture(**settings).plan(), mixture(**settings).plan()
        for issued in (0, 10, 10, 48):
            order(looked)
            for plan in (looked, blind):
                plan.issue(issued)
                plan.update([issued + 50, 100])
        assert looked.schedule_hash() == blind.schedule_hash()
        assert order(looked.next_epoch()) == order(blind.next_epoch())

    def test_the_later_of_two_at_one_position_replaces_the_earlier(self) -> None:
        plan, other = mixture().plan(), mixture().plan()
        plan.update([1, 9], at=64)
        plan.update([9, 1], at=64)
        other.update([9, 1], at=64)
        assert order(plan) == order(other)
        assert len(plan.journal) == 2
        assert plan.plan_hash != other.plan_hash

    def test_a_source_that_joins_stays_and_starts_at_its_count(self) -> None:
        plan = mixture(samples_per_epoch=1000).plan()
        before = order(plan)
        plan.update({"a": 1, "b": 1, "c": 2}, at=640, add=[Source("c", rows=30)])
        plan.update({"a": 1, "b": 1, "c": 0}, at=640)
        plan.update({"a": 1, "b": 1, "c": 2}, at=704)
        assert plan.names == ("a", "b", "c")
        assert order(plan)[:640] == before[:640]
        assert (plan.counts(704) - plan.counts(640)).tolist() == [32, 32, 0]
        assert (plan.counts(1000) - plan.counts(704)).tolist() == [74, 74, 148]
        assert plan.next_epoch().counts(1000).tolist() == [250, 250, 500]
        draws = plan.draws(704, 1000)
        assert sorted(draws.row[draws.source == 2][:30].tolist()) == list(range(30))

    def test_a_source_that_joins_with_a_cap_leaves_when_it_is_used_up(self) -> None:
        plan = mixture(samples_per_epoch=1000).plan()
        plan.update({"a": 1, "b": 1, "c": 2}, at=64, add=[Source("c", rows=10, max_epochs=3)])
        assert plan.counts(1000)[2] == 30
        with pytest.raises(PlanError, match="not used up at position 635"):
            plan.update({"a": 0, "b": 0, "c": 1}, at=635)
        plan.issue(500)
        resumed = Plan.load_state_dict(plan.mixture, plan.state_dict())
        assert resumed.schedule_hash() == plan.schedule_hash()

    def test_at_the_end_it_belongs_to_the_next_epoch(self) -> None:
        for settings in SETTINGS.values():
            plan = mixture(**settings).plan()
            before = order(plan)
            plan.update({"a": 1, "b": 3}, at=len(plan))
            assert order(plan) == before
            following = plan.next_epoch()
            assert following.counts(64).tolist() == [16, 48]
            other = mixture(**settings).plan().next_epoch()
            other.update({"a": 1, "b": 3}, at=0)
            assert order(other) == order(following)

    @pytest.mark.parametrize("exhaustion", ["stop", "renormalize"])
    def test_fresh_epochs_start_with_the_weights_in_force(self, exhaustion: Any) -> None:
        plan = mixture(exhaustion=exhaustion).plan()
        plan.update({"a": 1, "b": 3}, at=32 if plan.mixture.window == 32 else 64)
        second = plan.next_epoch()
        assert second.counts(32).sum() == 32
        assert second.counts(64)[1] in (47, 48, 49) if len(second) > 64 else True
        assert second.next_epoch().summary()["sources"][1]["weight_requested"] == pytest.approx(0.75)
        entry = second.update({"a": 1, "b": 1})
        assert (entry.epoch, entry.position) == (1, 0)

    @pytest.mark.parametrize(
        ("update", "says"),
        [
            (lambda p: p.update({"a": 1}), "none for 'b'"),
            (lambda p: p.update({"a": 1, "b": 1, "bb": 1}), "'bb'; did you mean 'b'"),
            (lambda p: p.update({"a": 0, "b": 0}), r"got \[0.0, 0.0\]"),
            (lambda p: p.update({"a": -1, "b": 2}), "'a' .* got -1"),
            (lambda p: p.update(5), "weights must be a mapping from source names, .* got 5"),
            (lambda p: p.update(None), "weights must be a mapping from source names, .* got None"),
            (lambda p: p.update([1, 2], add=5), "add must hold Source objects, but got 5"),
            (lambda p: p.update([1, Fraction(-1, 2)]), r"'b' .* got Fraction\(-1, 2\)"),
            (lambda p: p.update([1]), r"2 sources, but got \[1\]"),
            (lambda p: p.update([1, 2, 3]), r"2 sources, but got \[1, 2, 3\]"),
            (lambda p: p.update([1, float("nan")]), "got nan"),
            (lambda p: p.update([1, True]), "got True"),
            (lambda p: p.update([1, 2], at=-1), "got -1"),
            (lambda p: p.update([1, 2], at=1001), r"\[0, 1001\), but got 1001"),
            (lambda p: p.update([1, 2], at=64.0), "got 64.0"),
            (lambda p: p.update([1, 2], at=129), "got 129; the nearest ones are 128 and 192"),
            (lambda p: p.update([1, 2], at=999), "got 999; the nearest ones are 960 and 1000"),
            (lambda p: p.update([1, 2], at=64), "not yet issued, but got 64 with 100 rows issued; the next one is 128"),
            (lambda p: p.update([1, 2], at=128), "before 192, the position of the last update, but got 128"),
            (lambda p: p.update([1, 2, 3], add=[Source("a", rows=1)]), "'a' twice"),
            (lambda p: p.update([1, 2, 3], add=["c"]), "Source objects, but got 'c'"),
            (lambda p: p.update([1, 2, 3], add=[Source("c", rows=0)]), "'c': rows .* got 0"),
        ],
    )
    def test_a_refused_update_changes_nothing(
        self, update: Callable[[Plan], object], says: str, tmp_path: Path
    ) -> None:
        plan = mixture(samples_per_epoch=1000).plan()
        plan.journal.attach(tmp_path / "journal.jsonl")
        plan.update([2, 1], at=64)
        plan.issue(100)
        if "last update" in says:
            plan.update([2, 2], at=192)
        before = (plan.plan_hash, plan.parent, plan.schedule_hash(), plan.names, plan.version, plan.state_dict())
        bytes_before = (tmp_path / "journal.jsonl").read_bytes()
        with pytest.raises(PlanError, match=says):
            update(plan)
        after = (plan.plan_hash, plan.parent, plan.schedule_hash(), plan.names, plan.version, plan.state_dict())
        assert after == before
        assert (tmp_path / "journal.jsonl").read_bytes() == bytes_before

    def test_an_update_must_leave_something_to_draw(self) -> None:
        plan = mixture(exhaustion="renormalize", window=1).plan()
        assert plan.counts(143).tolist() == [100, 43]
        with pytest.raises(PlanError, match=r"used up at position 143 a weight above 0, but got \{'a': 1, 'b': 0\}"):
            plan.update([1, 0], at=143)
        plan.update([1, 0], at=142)
        assert len(plan) == 143

    def test_an_exhausted_stream_takes_no_update(self) -> None:
        plan = Mixture(
            [Source("a", rows=10, max_epochs=1), Source("b", rows=10, max_epochs=1)], samples_per_epoch=20
        ).plan()
        with pytest.raises(PlanError, match="used up"):
            plan.update([1, 1], at=20)

    def test_parent_names_the_plan_before(self) -> None:
        plan = mixture().plan()
        assert plan.parent is None
        first = plan.plan_hash
        plan.update([1, 1], at=64)
        assert plan.parent == first
        second = plan.plan_hash
        plan.update([1, 2], at=128)
        assert plan.parent == second
        assert len({first, second, plan.plan_hash}) == 3
        assert plan.spec_hash == mixture().spec_hash

    def test_plans_do_not_disturb_each_other(self) -> None:
        shared = mixture()
        one, two = shared.plan(), shared.plan()
        before = order(two)
        one.update([1, 9], at=64)
        following = one.next_epoch()
        sibling = one.next_epoch()
        following.update([9, 1], at=0)
        assert order(two) == before == order(shared.plan())
        assert order(sibling) != order(following)
        assert len(one.journal) == 1

    def test_updated_epochs_carry_on_and_plain_ones_do_not(self) -> None:
        plan = mixture(samples_per_epoch=640).plan()
        plan.update([0, 1], at=64)
        assert plan.next_epoch().counts(640).tolist() == [0, 640]
        assert mixture(samples_per_epoch=640).plan(epoch=1).counts(640).tolist() == [448, 192]


class TestJournal:
    def test_the_file_is_written_before_the_change_and_replays(self, tmp_path: Path) -> None:
        file = tmp_path / "journal.jsonl"
        plan = mixture(samples_per_epoch=1000).plan()
        plan.update([1, 1], at=64)
        plan.journal.attach(file)
        assert len(file.read_text().splitlines()) == 1
        plan.update({"a": 1, "b": 1, "c": 1}, at=128, add=[Source("c", rows=5, max_epochs=7)], reason="c is here")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert lines[1]["reason"] == "c is here"
        assert lines[1]["added"] == [{"name": "c", "rows": 5, "max_epochs": 7, "fingerprint": None, "lengths": None}]
        loaded = Journal.load(file)
        assert loaded.digest == plan.journal.digest == xxhash.xxh3_128_hexdigest(file.read_bytes())
        assert list(loaded) == list(plan.journal)

    def test_a_large_journal_is_named_by_size_and_digest(self, tmp_path: Path) -> None:
        plan = mixture(samples_per_epoch=64_000).plan()
        plan.journal.attach(tmp_path / "journal.jsonl")
        for position in range(0, 640 * 64, 640):
            plan.update([position + 1, 7], at=position)
        state = plan.state_dict()
        assert len(json.dumps(state)) < 4096
        assert "lines" not in state["journal"]
        plan.update([1, 1])  # after the checkpoint
        resumed = Plan.load_state_dict(mixture(samples_per_epoch=64_000), state, journal=tmp_path / "journal.jsonl")
        assert len(resumed.journal) == 64
        assert resumed.state_dict() == state
        resumed.update([5, 5], at=64 * 700)
        assert Journal.load(tmp_path / "journal.jsonl").digest == resumed.journal.digest
        with pytest.raises(PlanError, match="another plan wrote"):
            plan.update([1, 1])

    def test_without_its_file_it_is_asked_for(self, tmp_path: Path) -> None:
        plan = mixture(samples_per_epoch=64_000).plan()
        plan.journal.attach(tmp_path / "journal.jsonl")
        for position in range(0, 640 * 64, 640):
            plan.update([position + 1, 7], at=position)
        with pytest.raises(StateError, match=r"'journal.jsonl'.*pass journal=PATH"):
            Plan.load_state_dict(plan.mixture, plan.state_dict())
        (tmp_path / "journal.jsonl").write_text("{}\n" * 2000)
        with pytest.raises(StateError, match="digest"):
            Plan.load_state_dict(plan.mixture, plan.state_dict(), journal=tmp_path / "journal.jsonl")

    def test_a_foreign_file_is_not_overwritten(self, tmp_path: Path) -> None:
        (tmp_path / "journal.jsonl").write_text("something else\n")
        plan = mixture().plan()
        plan.update([1, 1])
        with pytest.raises(StateError, match="begin with the 1 entries"):
            plan.journal.attach(tmp_path / "journal.jsonl")
        assert plan.journal.file is None

    @pytest.mark.parametrize("content", ["my notes\n", "my notes", '{"x"', "another run"])
    def test_no_file_loses_what_the_plan_does_not_know(self, content: str, tmp_path: Path) -> None:
        file = tmp_path / "journal.jsonl"
        file.write_text(content)
        if content == "another run":
            file.unlink()
            other = mixture().plan()
            other.journal.attach(file)
            other.update([3, 1], at=64)
        before = file.read_bytes()
        plan = mixture().plan()
        for updates in range(2):
            with pytest.raises(StateError, match=f"{updates} entries of this run.*pass journal=PATH"):
                plan.journal.attach(file)
            assert plan.journal.file is None
            plan.update([1, 9], at=64)
        if content != "another run":
            with pytest.raises(StateError, match=r"journal\.jsonl"):
                Plan.load_state_dict(mixture(), mixture().plan().state_dict(), journal=file)
        assert file.read_bytes() == before

    @pytest.mark.parametrize("file", ["/dev/full", "/dev/null", "/", "/nowhere/journal.jsonl"])
    def test_a_file_that_is_none_is_refused(self, file: str) -> None:
        plan = mixture().plan()
        for read in (plan.journal.attach, Journal.load, lambda path: mixture().plan(journal=path)):
            with pytest.raises(StateError, match=f"but got '{file}'"):
                read(file)
        assert plan.journal.file is None

    def test_a_torn_last_line_is_cut_once_the_rest_is_known(self, tmp_path: Path) -> None:
        file = tmp_path / "journal.jsonl"
        plan = mixture().plan()
        plan.update([1, 9], at=64)
        plan.journal.attach(file)
        whole = file.read_bytes()
        file.write_bytes(whole + whole[:20])
        with pytest.raises(StateError, match=f"line 2 must be complete.*cut the file to {len(whole)} bytes"):
            mixture().plan(journal=file)
        resumed = Plan.load_state_dict(mixture(), plan.state_dict(), journal=file)
        assert file.read_bytes() == whole + whole[:20]
        resumed.update([1, 3], at=128)
        assert Journal.load(file).digest == resumed.journal.digest
        file.write_bytes(whole[:-9])
        plan.journal.attach(file)
        assert file.read_bytes() == whole

    def test_going_on_from_a_state_works_after_attach_and_in_the_next_epoch(self, tmp_path: Path) -> None:
        file = tmp_path / "journal.jsonl"
        plan = mixture().plan()
        plan.journal.attach(file)
        state = plan.state_dict()
        plan.update([1, 9], at=64)
        resumed = Plan.load_state_dict(mixture(), state, journal=file)
        following = pickle.loads(pickle.dumps(resumed.next_epoch()))
        following.update([9, 1])
        assert list(Journal.load(file)) == list(following.journal)
        with pytest.raises(PlanError, match="another plan wrote"):
            plan.update([1, 1])

    def test_every_flipped_bit_is_noticed(self, tmp_path: Path) -> None:
        file = tmp_path / "journal.jsonl"
        plan = mixture().plan()
        plan.journal.attach(file)
        plan.update([1, 9], at=64, reason="é")
        plan.update([1, 9, 1], at=128, add=[Source("c", rows=5)])
        whole = file.read_bytes()
        for index in range(len(whole)):
            flipped = whole[index] ^ 1 << index % 8
            file.write_bytes(whole[:index] + bytes([flipped]) + whole[index + 1 :])
            with pytest.raises(StateError, match=r"line [12]"):
                mixture().plan(journal=file)

    @pytest.mark.parametrize(
        ("entry", "says"),
        [
            ('{"position":-64,"reason":""}', r"line 1: position .* in \[0, 2\*\*63\), but got -64"),
            ('{"position":9223372036854775808,"reason":""}', "position .* got 9223372036854775808"),
            ('{"position":64.0,"reason":""}', "position .* got 64.0"),
            ('{"position":true,"reason":""}', "position .* got True"),
            ('{"position":"64","reason":""}', "position .* got '64'"),
            ('{"position":64}', "entry must have 'reason'"),
            ('{"position":64,"reason":5}', "reason must be text, but got 5"),
            ('{"position":64,"reason":"","wieghts":{}}', "got 'wieghts'"),
            ('{"position":64,"reason":"","epoch":"x"}', "epoch .* got 'x'"),
            ('{"position":64,"reason":"","weights":{"a":NaN,"b":1}}', "numbers must be finite, but got NaN"),
            ('{"position":64,"reason":"","weights":{"a":-1,"b":1}}', "weight of 'a' .* got -1"),
            ('{"position":64,"reason":"","weights":[1,2]}', r"weights must map .* got \[1, 2\]"),
            ('{"position":64,"reason":"","weights":{"a":1,"a":5,"b":1}}', "names must be unique"),
            ('{"position":64,"reason":"","added":[{"name":"d"}]}', "added source must have 'rows'"),
            ('{"position":0,"reason":"","added":[' + EMPTY + "]}", "rows .* got 0"),
            ("[]", r"entry must be a JSON object, but got \[\]"),
            ("", "entry must be one JSON object"),
            ('{"position":64,"reason":""}', "line 1 must have the digest"),
        ],
    )
    def test_a_wrong_entry_is_named(self, entry: str, says: str, tmp_path: Path) -> None:
        (tmp_path / "journal.jsonl").write_text(f"{entry}\n")
        with pytest.raises(StateError, match=says):
            mixture().plan(journal=tmp_path / "journal.jsonl")

    def test_positions_never_go_back(self, tmp_path: Path) -> None:
        entries = [Change(epoch=None, position=at, weights={"a": 1, "b": 1}) for at in (128, 64)]
        plan = mixture().plan()
        plan.journal.attach(tmp_path / "journal.jsonl")
        for entry in entries:
            plan.journal.append(entry)
        with pytest.raises(StateError, match=r"line 2: position must not lie before .* \(0, 128\), but got \(0, 64\)"):
            Journal.load(tmp_path / "journal.jsonl")

    def test_names_that_an_entry_cannot_have(self) -> None:
        again = AddedSource(name="a", rows=5, max_epochs=None, fingerprint=None, lengths=None)
        unknown = Accepted(name="z", field="rows", was=1, now=2, at_draw=0, cycle=0, cap=2)
        for change, says in (({"added": (again,)}, "unique, but got 'a'"), ({"accepted": (unknown,)}, "but got 'z'")):
            entry = Change(epoch=None, position=64, weights=None, **change)  # type: ignore[arg-type]
            with pytest.raises(StateError, match=f"entry 1: .*{says}"):
                mixture().plan(journal=Journal([entry]))

    def test_a_failed_write_leaves_the_plan_as_it_was(self, tmp_path: Path) -> None:
        plan = mixture().plan()
        plan.journal.attach(tmp_path / "folder.jsonl")
        (tmp_path / "folder.jsonl").unlink()
        (tmp_path / "folder.jsonl").mkdir()
        before = plan.plan_hash, plan.schedule_hash()
        with pytest.raises(OSError, match=r"folder\.jsonl"):
            plan.update([1, 9])
        assert (plan.plan_hash, plan.schedule_hash(), len(plan.journal)) == (*before, 0)

    def test_fresh_epochs_count_positions_by_epoch(self) -> None:
        plan = mixture(exhaustion="renormalize").plan().next_epoch()
        entry = plan.update([1, 1], at=64)
        assert (entry.epoch, entry.position) == (1, 64)
        stream = mixture(samples_per_epoch=128).plan(epoch=2).update([1, 1], at=64)
        assert (stream.epoch, stream.position) == (None, 320)


class TestState:
    @pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
    def test_save_and_load_twice(self, settings: dict[str, Any]) -> None:
        plan = mixture(**settings).plan().next_epoch()
        plan.issue(20)
        plan.update([1, 2])
        state = json.loads(json.dumps(plan.state_dict()))
        kept = json.dumps(state)
        resumed = Plan.load_state_dict(mixture(**settings), state)
        assert json.dumps(state) == kept
        assert resumed.state_dict() == state
        resumed.issue(30)
        twice = Plan.load_state_dict(mixture(**settings), resumed.state_dict())
        assert (twice.epoch, twice.issued, twice.plan_hash) == (1, 30, plan.plan_hash)
        start = 0 if "stages" not in settings else 20
        assert twice.schedule_hash(start) == plan.schedule_hash(start)
        assert order(twice.next_epoch()) == order(plan.next_epoch())

    def test_it_may_go_on_from_before_what_was_issued(self) -> None:
        plan = mixture(samples_per_epoch=1000).plan()
        plan.issue(300)
        plan.update([1, 9])
        resumed = Plan.load_state_dict(plan.mixture, plan.state_dict(issued=200))
        assert (resumed.issued, plan.issued) == (200, 300)
        assert resumed.schedule_hash() == plan.schedule_hash()
        with pytest.raises(IndexError, match="got 1001"):
            plan.state_dict(issued=1001)

    def test_it_is_small(self) -> None:
        sources = [Source(f"source-{k}", rows=10**9 + k, weight=k + 1, fingerprint="0" * 32) for k in range(4)]
        plan = Mixture(sources).plan()
        plan.issue(10**9)
        plan.update([1, 2, 3, 4], reason="step 1")
        assert len(json.dumps(plan.state_dict())) < 4096

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"seed": 1}, "seed must be 42 as in the state, but got 1"),
            ({"window": 32}, "window must be 64 as in the state, but got 32"),
            ({"exhaustion": "stop"}, "exhaustion must be 'cycle' as in the state, but got 'stop'"),
            ({"samples_per_epoch": 149}, "samples_per_epoch must be 150 as in the state, but got 149"),
            ({"stages": [Stage(5, {"a": 1, "b": 1})]}, "stages must be"),
        ],
    )
    def test_a_changed_setting_is_named(self, change: dict[str, Any], says: str) -> None:
        with pytest.raises(StateError, match=says):
            Plan.load_state_dict(mixture(**change), mixture().plan().state_dict(), accept_changes=["a", "b"])

    @pytest.mark.parametrize(
        ("sources", "says"),
        [
            ([Source("a", rows=101, weight=0.7)], r"'a': rows must be 100 .* got 101; pass accept_changes=\['a'\]"),
            ([Source("a", rows=100, weight=0.8)], "'a': weight must be 0.7 .*'b': weight must be 0.3"),
            ([Source("a", rows=100, weight=0.7, fingerprint="x")], "'a': fingerprint must be None .* got 'x'"),
            ([Source("A", rows=100, weight=0.7)], r"sources must be \['a', 'b'\] .* got \['A', 'b'\]"),
            ([Source("a", rows=100, weight=0.7, max_epochs=3)], "'a': cap must be"),
        ],
    )
    def test_a_changed_source_is_named(self, sources: list[Source], says: str) -> None:
        changed = Mixture([*sources, Source("b", rows=50, weight=0.3)], samples_per_epoch=150)
        with pytest.raises(StateError, match=says):
            Plan.load_state_dict(changed, mixture().plan().state_dict())

    @pytest.mark.parametrize(
        ("damage", "says"),
        [
            (lambda state: None, "mapping"),
            (lambda state: {**state, "version": 1}, "version must be 2, but got 1"),
            (lambda state: {}, "version must be 2, but got None"),
            (lambda state: {**state, "spec": {**state["spec"], "order_format": 0}}, "order format must be"),
            (lambda state: {k: v for k, v in state.items() if k != "epoch"}, "damaged one: KeyError.*epoch"),
            (lambda state: {**state, "plan_hash": "0"}, "plan_hash must be .* got 0"),
            (lambda state: {**state, "epoch": 1}, "plan_hash must be"),
            (lambda state: {**state, "journal": {**state["journal"], "lines": ["[]"]}}, "digest"),
        ],
    )
    def test_a_damaged_state_is_refused(self, damage: Callable[[Any], Any], says: str) -> None:
        with pytest.raises(StateError, match=says):
            Plan.load_state_dict(mixture(), damage(mixture().plan().state_dict()))

    @pytest.mark.parametrize(
        ("field", "value", "says"),
        [
            ("spec", "x", "spec must be a mapping, but got 'x'"),
            ("spec", None, "spec must be a mapping, but got None"),
            ("issued", -50, r"issued .* got -50"),
            ("issued", 10**9, "issued .* got 1000000000|digest must be"),
            ("issued", "3", "issued .* got '3'"),
            ("issued", True, "issued .* got True"),
            ("epoch", 1.5, "epoch .* got 1.5"),
            ("given", 5, "given must be a list, but got 5"),
            ("origins", [-1], "origins .* got -1"),
            ("parent", 7, "parent must be text, but got 7"),
            ("journal", 7, "journal must be a mapping, but got 7"),
            ("journal.lines", [5], r"journal.lines must be a list of texts, but got \[5\]"),
            ("stream", 7, "stream must be a mapping, but got 7"),
            ("stream.slot", -1, "stream.slot .* got -1"),
            ("stream.counted", None, "stream.counted .* got None"),
            ("stream.given", "12", "stream.given must be a list, but got '12'"),
            ("stream.base", [0.5], "stream.base .* got 0.5"),
            ("stream.debts", [float("nan"), 0.0], "stream.debts must be a list of finite numbers"),
            ("stream.snapshot", 7, "stream.snapshot must be base64 text, but got 7"),
            ("stream.snapshot", "!", "stream.snapshot must be base64 text, but got '!'"),
        ],
    )
    def test_a_wrong_field_is_named(self, field: str, value: Any, says: str) -> None:
        state: dict[str, Any] = json.loads(json.dumps(in_tokens().plan().state_dict(issued=700)))
        *outer, name = field.split(".")
        (state[outer[0]] if outer else state)[name] = value
        with pytest.raises(StateError, match=says):
            Plan.load_state_dict(in_tokens(), state)

    @pytest.mark.parametrize("field", ["spec", "given"])
    def test_contract_and_draws_are_those_that_were_saved_where_they_matter(self, field: str) -> None:
        state: dict[str, Any] = json.loads(json.dumps(mixture().plan().state_dict(issued=70)))
        if field == "spec":
            state["spec"]["sources"][0]["rows"] = 99
        else:
            state["given"][0] -= 1
        grown = Mixture([Source("a", rows=140, weight=0.7), Source("b", rows=50, weight=0.3)])
        with pytest.raises(StateError, match=f"state {field} must have the hash"):
            Plan.load_state_dict(grown, state, accept_changes=["a"])

    def test_an_issued_position_beyond_the_plan_is_named(self) -> None:
        state = mixture().plan().state_dict() | {"issued": 151}
        with pytest.raises(StateError, match=r"issued must be in \[0, 150\], but got 151"):
            Plan.load_state_dict(mixture(), state | {"digest": digest_of(state)})

    def test_every_flipped_bit_of_a_snapshot_is_noticed(self) -> None:
        state: dict[str, Any] = in_tokens().plan().state_dict(issued=700)
        snapshot = base64.b64decode(state["stream"]["snapshot"])
        for index in range(0, len(snapshot), 3):
            damaged = snapshot[:index] + bytes([snapshot[index] ^ 1]) + snapshot[index + 1 :]
            stream = state["stream"] | {"snapshot": base64.b64encode(damaged).decode()}
            with pytest.raises(StateError, match="state digest must be"):
                Plan.load_state_dict(in_tokens(), state | {"stream": stream})
        stream = state["stream"] | {"snapshot": base64.b64encode(snapshot[:-1]).decode()}
        hostile = state | {"stream": stream}
        with pytest.raises(StateError, match=r"stream\.snapshot must be one of this run"):
            Plan.load_state_dict(in_tokens(), hostile | {"digest": digest_of(hostile)})

    @pytest.mark.parametrize("make", [in_tokens, lambda: mixture(**SETTINGS["stages"])])
    def test_a_resumed_plan_that_a_source_joined_can_be_copied(self, make: Callable[[], Mixture]) -> None:
        joined = Source("c", rows=40, lengths=np.arange(1, 41))
        plan = Plan.load_state_dict(make(), make().plan().state_dict(issued=300))
        plan.update({"a": 1, "b": 1, "c": 2}, add=[joined])
        for twin in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
            assert twin.schedule_hash(300) == plan.schedule_hash(300)
            assert order(twin.next_epoch()) == order(plan.next_epoch())
        again = Plan.load_state_dict(make(), plan.state_dict(), add=[joined])
        assert again.schedule_hash(300) == plan.schedule_hash(300)

    def test_unknown_names_in_accept_changes(self) -> None:
        with pytest.raises(StateError, match=r"got 'a.row'; did you mean 'a.rows'"):
            Plan.load_state_dict(mixture(), mixture().plan().state_dict(), accept_changes=["a.row"])

    def test_sources_that_joined_come_back(self) -> None:
        joined = Source("c", ["x", "y"], fingerprint="c1")
        plan = mixture(samples_per_epoch=1000).plan()
        plan.update({"a": 1, "b": 1, "c": 1}, at=64, add=[joined])
        state = plan.state_dict()
        without_data = Plan.load_state_dict(plan.mixture, state)
        assert without_data.schedule_hash() == plan.schedule_hash()
        assert without_data.sources[2].data is None
        assert Plan.load_state_dict(plan.mixture, state, add=[joined]).sources[2].data == ["x", "y"]
        with pytest.raises(StateError, match="'c': fingerprint must be 'c1' as in the journal, but got 'c2'"):
            Plan.load_state_dict(plan.mixture, state, add=[Source("c", ["x", "y"], fingerprint="c2")])

    def test_plans_can_be_pickled(self) -> None:
        for settings in SETTINGS.values():
            plan = mixture(**settings).plan().next_epoch()
            plan.update([1, 2], at=64)
            twin = pickle.loads(pickle.dumps(plan))
            assert (twin.plan_hash, twin.parent, twin.issued) == (plan.plan_hash, plan.parent, plan.issued)
            assert twin.schedule_hash() == plan.schedule_hash()


class TestAcceptedChanges:
    def grown(self, rows: int = 140, **settings: Any) -> Mixture:
        return Mixture([Source("a", rows=rows, weight=0.7), Source("b", rows=50, weight=0.3)], **settings)

    def test_a_changed_fingerprint_keeps_the_order_and_is_recorded(self) -> None:
        plan = mixture().plan()
        plan.issue(70)
        changed = Mixture([Source("a", rows=100, weight=0.7, fingerprint="new"), Source("b", rows=50, weight=0.3)])
        resumed = Plan.load_state_dict(changed, plan.state_dict(), accept_changes=["a.fingerprint"])
        assert order(resumed) == order(plan)
        accepted = resumed.journal[0].accepted[0]
        assert (accepted.name, accepted.field, accepted.was, accepted.now) == ("a", "fingerprint", None, "new")
        assert resumed.parent == plan.plan_hash != resumed.plan_hash
        again = Plan.load_state_dict(changed, resumed.state_dict())
        assert len(again.journal) == 1

    @pytest.mark.parametrize("rows", [140, 60])
    @pytest.mark.parametrize("settings", [{"samples_per_epoch": 150}, {}, {"exhaustion": "renormalize"}])
    def test_a_changed_row_count_starts_a_fresh_cycle(self, rows: int, settings: dict[str, Any]) -> None:
        plan = mixture(**settings).plan()
        plan.issue(70)
        given = int(plan.counts(70)[0])
        resumed = Plan.load_state_dict(self.grown(rows, **settings), plan.state_dict(), accept_changes=["a"])
        assert order(resumed)[:70] == order(plan)[:70]
        stream = list(
            itertools.chain(order(resumed)[70:], *([] if "exhaustion" in settings else [order(resumed.next_epoch())]))
        )
        fresh = [(row, cycle) for source, row, cycle in stream if source == 0]
        assert sorted(row for row, _ in fresh[:rows]) == list(range(rows))
        assert {cycle for _, cycle in fresh[:rows]} == {1}
        assert resumed.counts(70)[0] == given
        again = Plan.load_state_dict(self.grown(rows, **settings), resumed.state_dict())
        assert order(again) == order(resumed)
        if "exhaustion" in settings:
            assert len(resumed) == given + rows + 50

    def test_only_the_allowed_field_is_allowed(self) -> None:
        plan = mixture().plan()
        with pytest.raises(StateError, match="'a': rows must be 100"):
            Plan.load_state_dict(self.grown(), plan.state_dict(), accept_changes=["a.fingerprint", "b"])


class TestStages:
    def test_a_stage_changes_the_shares_at_its_position_exactly(self) -> None:
        plan = mixture(samples_per_epoch=2000, stages=[Stage(777, {"a": 0.2, "b": 0.8})]).plan()
        assert plan.counts(777).tolist() == [544, 233]
        assert (plan.counts(1777) - plan.counts(777)).tolist() == pytest.approx([200, 800], abs=1)

    @pytest.mark.parametrize("interpolation", ["linear", "cosine"])
    def test_interpolation_moves_in_steps_and_arrives(self, interpolation: Any) -> None:
        stages = [Stage(20_000, {"a": 0.1, "b": 0.9}, interpolation)]
        plan = mixture(samples_per_epoch=30_000, control_interval=640, stages=stages).plan()
        shares = np.diff([plan.counts(p)[0] for p in range(0, 30_001, 2000)]) / 2000
        middles = (np.arange(10) + 0.5) / 10
        way = middles if interpolation == "linear" else (1 - np.cos(np.pi * middles)) / 2
        assert shares[:10] == pytest.approx(0.7 - 0.6 * way, abs=0.01)
        assert shares[10:] == pytest.approx(0.1, abs=2.5e-3)
        assert np.abs(plan.counts(30_000) - plan.work(30_000)).max() <= plan.summary()["bound"]

    def test_an_update_holds_until_the_next_stage(self) -> None:
        stages = [Stage(2000, {"a": 1, "b": 0}, "linear"), Stage(3000, {"a": 0, "b": 1})]
        plan = mixture(samples_per_epoch=4000, control_interval=64, stages=stages).plan()
        plan.update({"a": 1, "b": 1}, at=1024)
        spans = [plan.counts(stop) - plan.counts(start) for start, stop in [(1024, 2000), (2000, 3000), (3000, 4000)]]
        assert [span.tolist() for span in spans] == [[488, 488], [1000, 0], [0, 1000]]

    def test_at_one_position_the_update_wins(self) -> None:
        plan = mixture(samples_per_epoch=4000, stages=[Stage(1000, {"a": 0, "b": 1})]).plan()
        plan.update({"a": 1, "b": 0}, at=1000)
        assert (plan.counts(4000) - plan.counts(1000)).tolist() == [3000, 0]

    def test_stages_count_positions_of_the_run_over_epochs(self) -> None:
        stages = [Stage(400, {"a": 0, "b": 1})]
        cycle = mixture(samples_per_epoch=300, stages=stages).plan(epoch=1)
        assert (cycle.counts(300) - cycle.counts(100)).tolist() == [0, 200]
        fresh = mixture(exhaustion="renormalize", stages=[Stage(160, {"a": 1, "b": 9})])
        second = fresh.plan().next_epoch()
        assert order(second) == order(fresh.plan(epoch=1))
        assert second.counts(10)[0] in (6, 7, 8)
        assert (second.counts(50) - second.counts(10)).tolist() == pytest.approx([4, 36], abs=1)
        assert fresh.plan(epoch=2).counts(50).tolist() == pytest.approx([5, 45], abs=2)

    def test_a_stage_that_leaves_nothing_ends_the_plan(self) -> None:
        stages = [Stage(120, {"a": 0, "b": 1})]
        plan = mixture(exhaustion="renormalize", window=1, stages=stages).plan()
        assert len(plan) == 134
        early = Mixture([Source("a", rows=100), Source("b", rows=10)], exhaustion="renormalize", stages=stages).plan()
        assert len(early) == 110
        ended = Mixture([Source("a", rows=200), Source("b", rows=10)], exhaustion="renormalize", stages=stages).plan()
        assert len(ended) == 120
        assert ended.summary()["sources"][0]["rows_unused"] == 90


class TestSummary:
    def test_it_is_json_and_adds_up(self) -> None:
        for settings in SETTINGS.values():
            plan = mixture(**settings).plan(epoch=1)
            report = json.loads(json.dumps(plan.summary()))
            rows = report["sources"]
            assert sum(source["rows_selected"] for source in rows) == report["planned_rows"] == len(plan)
            assert sum(source["observed_proportion"] for source in rows) == pytest.approx(1)
            assert report["bound"] < 1.7
            draws = plan.draws(0, len(plan))
            assert sum(source["duplicates"] for source in rows) == int(np.count_nonzero(draws.cycle))
            first = [int(np.flatnonzero(draws.source == k)[0]) if (draws.source == k).any() else None for k in (0, 1)]
            assert [source["first_position"] for source in rows] == first

    def test_rows_used_unused_and_repeated(self) -> None:
        report = Mixture([Source("a", rows=10), Source("b", rows=100)], samples_per_epoch=50).plan().summary()
        keys = ("rows_selected", "rows_used", "rows_unused", "rows_repeated", "duplicates", "cycles", "expected_rows")
        assert [[source[key] for key in keys] for source in report["sources"]] == [
            [25, 10, 0, 10, 15, 2.5, 25.0],
            [25, 25, 75, 0, 0, 0.25, 25.0],
        ]

    @pytest.mark.parametrize(
        ("sources", "rows", "warning"),
        [
            ([Source("a", rows=9), Source("x", rows=9, weight=0.003)], 100, "source 'x' is owed 0.3 rows per epoch"),
            ([Source("a", rows=999), Source("x", rows=5)], 120, "each row of source 'x' is drawn 12 times on average"),
            ([Source("a", rows=999), Source("x", rows=5, weight=0)], 10, "source 'x' is never drawn in this epoch"),
        ],
    )
    def test_warnings(self, sources: list[Source], rows: int, warning: str) -> None:
        assert warning in Mixture(sources, samples_per_epoch=rows).plan().summary()["warnings"]

    def test_termination_reasons(self) -> None:
        reasons = {
            name: mixture(**settings).plan().summary()["termination_reason"] for name, settings in SETTINGS.items()
        }
        assert reasons == {
            "cycle": "samples_per_epoch",
            "all_seen": "all_sources_exhausted_once",
            "stop": "source_exhausted:a" if len(mixture(exhaustion="stop").plan()) < 150 else "source_exhausted:b",
            "renormalize": "all_sources_exhausted",
            "stages": "samples_per_epoch",
        }

    def test_rebased_is_what_leaving_sources_moved(self) -> None:
        plan = mixture(samples_per_epoch=1000).plan()
        assert plan.summary()["rebased"] == {"a": 0.0, "b": 0.0}
        plan.update([0, 1], at=192)
        rebased = plan.summary()["rebased"]
        assert rebased["a"] == 0.0
        assert abs(rebased["b"]) < 1
        assert plan.work(1000).tolist() == pytest.approx([134.4, 866])


def test_entries_dropped_on_going_on_are_kept_beside_the_journal(tmp_path: Path) -> None:
    file = tmp_path / "run.j"
    plan = mixture(samples_per_epoch=1000).plan()
    state = plan.state_dict()
    plan.journal.attach(file)
    plan.update({"a": 1, "b": 3}, at=64)
    before = file.read_bytes()

    resumed = Plan.load_state_dict(plan.mixture, state, journal=file)
    assert file.read_bytes() == before  # loading drops nothing
    resumed.update({"a": 3, "b": 1}, at=128)
    (aside,) = tmp_path.glob("run.j.dropped-*")
    assert aside.read_bytes() == before
    assert [change.position for change in Journal.load(file)] == [128]
    resumed.update({"a": 1, "b": 1}, at=192)
    assert len(list(tmp_path.glob("run.j.dropped-*"))) == 1
