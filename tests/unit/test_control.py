"""What steers a stream: the curriculum's shares by slot, token lengths, and the controller that meets token shares."""

import json
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cuvee import Mixture, Plan, PlanError, Source, Stage, StateError
from cuvee.mixture.length_table import LengthTable
from cuvee.plan.control import Curriculum, TokenControl


def shares(curriculum: Curriculum, slot: int) -> list[float]:
    return curriculum.asked(slot, 2).tolist()


class TestCurriculum:
    def mixture(self, stages: Sequence[Stage], interval: int = 100) -> Mixture:
        return Mixture([Source("a", rows=5), Source("b", rows=5)], stages=stages, control_interval=interval)

    def test_own_shares_hold_until_the_first_stage(self) -> None:
        curriculum = Curriculum(self.mixture([Stage(50, {"a": 0, "b": 1})]))
        assert [shares(curriculum, slot) for slot in (0, 49, 50, 10**9)] == [[0.5, 0.5]] * 2 + [[0.0, 1.0]] * 2
        assert [curriculum.next_change(slot) for slot in (0, 49, 50)] == [50, 50, 2**63 - 1]
        assert [curriculum.starts_stage(slot) for slot in (49, 50, 51)] == [False, True, False]

    def test_linear_steps_take_the_share_at_their_middle(self) -> None:
        curriculum = Curriculum(self.mixture([Stage(250, {"a": 0, "b": 1}, "linear")]))
        assert shares(curriculum, 0) == pytest.approx([0.4, 0.6])  # middle of 0..100 of 250
        assert shares(curriculum, 100) == pytest.approx([0.2, 0.8])
        assert shares(curriculum, 200) == pytest.approx([0.05, 0.95])  # a short last step: 200..250
        assert shares(curriculum, 250) == [0.0, 1.0]
        assert [curriculum.moving(slot) for slot in (0, 249, 250)] == [True, True, False]

    def test_cosine_starts_and_ends_gently(self) -> None:
        curriculum = Curriculum(self.mixture([Stage(1000, {"a": 1, "b": 0}, "cosine")]))
        ways = [(shares(curriculum, slot)[0] - 0.5) / 0.5 for slot in range(0, 1000, 100)]
        assert ways == pytest.approx([(1 - math.cos(math.pi * (slot + 50) / 1000)) / 2 for slot in range(0, 1000, 100)])

    def test_an_interpolation_starts_at_the_keyframe_before(self) -> None:
        stages = [Stage(200, {"a": 1, "b": 0}), Stage(400, {"a": 0, "b": 1}, "linear")]
        curriculum = Curriculum(self.mixture(stages))
        assert [shares(curriculum, slot)[0] for slot in (100, 200, 300, 400)] == pytest.approx([0.5, 0.75, 0.25, 0.0])

    def test_updates_hold_until_the_next_keyframe(self) -> None:
        stages = [Stage(200, {"a": 1, "b": 0}, "linear"), Stage(400, {"a": 0, "b": 1})]
        curriculum = Curriculum(self.mixture(stages))
        curriculum.update(64, np.array([0.1, 0.9]))
        curriculum.update(64, np.array([0.3, 0.7]))
        assert [shares(curriculum, slot)[0] for slot in (64, 199, 200, 400)] == [0.3, 0.3, 1.0, 0.0]
        assert not curriculum.moving(64)
        assert curriculum.next_change(0) == 64

    def test_slots_may_be_shifted_against_the_run(self) -> None:
        curriculum = Curriculum(self.mixture([Stage(250, {"a": 0, "b": 1}, "linear")]), shift=100)
        assert shares(curriculum, 0) == pytest.approx([0.2, 0.8])
        assert curriculum.next_change(0) == 150

    def test_sources_that_joined_have_no_share_before(self) -> None:
        assert Curriculum(self.mixture([])).asked(0, 3).tolist() == [0.5, 0.5, 0.0]


class TestLengthTable:
    def table(self, max_length: int | None) -> LengthTable:
        sources = [
            Source("a", rows=3, lengths=[5, 10, 15]),
            Source("none", rows=0),
            Source("b", rows=2, lengths=[100, 0]),
        ]
        return LengthTable(sources, max_length)

    def test_lengths_by_draw(self) -> None:
        source, row = np.array([2, 0, 0], dtype=np.int32), np.array([0, 2, 0], dtype=np.int64)
        assert self.table(None).of(source, row).tolist() == [100, 15, 5]
        assert self.table(10).passes(source, row).tolist() == [False, False, True]
        assert self.table(None).passes(source, row).all()
        assert self.table(10).tokens(source, row).tolist() == [5, 0, 0]
        assert self.table(None).tokens(source, row).tolist() == [20, 0, 100]

    def test_tokens_per_row_count_filtered_rows_as_empty(self) -> None:
        assert self.table(None).tokens_per_row.tolist() == [10.0, 0.0, 50.0]
        assert self.table(10).tokens_per_row.tolist() == [5.0, 0.0, 0.0]


class TestTokenControl:
    def test_without_debts_rates_give_the_shares_on_average(self) -> None:
        control = TokenControl(np.array([400.0, 4000.0, 7.0]), 4096)
        rates = control.rates(np.zeros(3), np.array([0.5, 0.5, 0.0]), np.zeros(3))
        assert rates / rates.sum() == pytest.approx([10 / 11, 1 / 11, 0])

    def test_settling(self) -> None:
        control = TokenControl(np.array([1.0, 1.0]), 4096)
        debts = control.settle(np.array([1.0, -1.0]), np.array([0.25, 0.75]), np.array([10, 10]))
        assert debts.tolist() == [1 + 5 - 10, -1 + 15 - 10]

    def test_rates_follow_the_formula(self) -> None:
        rng = np.random.default_rng(2)
        per_row, debts, residuals = rng.random(4) * 50, rng.normal(size=4) * 90, rng.normal(size=4)
        share = rng.dirichlet([1] * 4)
        rates = TokenControl(per_row, 64).rates(debts, share, residuals)
        base = [Fraction(w) / Fraction(m) for w, m in zip(share, per_row, strict=True)]
        base = [q / sum(base) for q in base]
        rows = [Fraction(t) / Fraction(m) for t, m in zip(debts, per_row, strict=True)]
        owed = [t - q * sum(rows) for t, q in zip(rows, base, strict=True)]
        wanted = [
            q * min(max(1 + (rho - Fraction(r)) / (q * 64), Fraction(1, 2)), Fraction(2))
            for q, rho, r in zip(base, owed, residuals, strict=True)
        ]
        assert rates == pytest.approx([float(rate) for rate in wanted], rel=1e-12)
        assert 0.5 <= (rates / [float(q) for q in base]).min() <= (rates / [float(q) for q in base]).max() <= 2

    def test_tiny_shares_do_not_overflow(self) -> None:
        rates = TokenControl(np.array([1.0, 1.0]), 4096).rates(
            np.array([1e6, -1e6]), np.array([1.0, 1e-320]), np.array([0.5, -0.5])
        )
        assert np.isfinite(rates).all()
        assert (rates >= 0).all()


def lognormal(rows: int, mean: float, seed: int) -> np.ndarray:
    sigma = math.sqrt(math.log(1 + 2**2))  # coefficient of variation 2
    values = np.random.default_rng(seed).lognormal(math.log(mean) - sigma**2 / 2, sigma, rows)
    return np.clip(np.rint(values), 1, 10**7).astype(np.int32)


def by_tokens(rows: int = 50_000, **settings: Any) -> Mixture:
    sources = [
        Source("a", rows=rows, weight=0.4, lengths=lognormal(rows, 300, 1)),
        Source("b", rows=rows, weight=0.3, lengths=lognormal(rows, 1000, 2)),
        Source("c", rows=rows // 10, weight=0.2, lengths=lognormal(rows // 10, 3000, 3)),
        Source("d", rows=rows, weight=0.1, lengths=lognormal(rows, 50, 4)),
    ]
    return Mixture(sources, unit="tokens", **settings)


def token_shares(plan: Plan, stop: int, start: int = 0) -> np.ndarray:
    draws = plan.draws(start, stop)
    lengths = plan.lengths_of(draws)
    assert lengths is not None
    lengths = np.where(plan.passes(draws), lengths, 0)
    tokens = np.bincount(draws.source, weights=lengths, minlength=len(plan.names))
    return tokens / tokens.sum()


class TestTokenPlans:
    def test_share_errors_fall_with_the_position(self) -> None:
        plan = by_tokens(samples_per_epoch=200_000).plan()
        wanted = plan.mixture.weights
        errors = [float(np.abs(token_shares(plan, stop) - wanted).max()) for stop in (10_000, 100_000, 200_000)]
        assert errors[0] < 0.05
        assert errors[1] < 0.005
        assert errors[2] < 0.0025
        assert plan.summary()["bound"] < 1.7
        assert np.abs(plan.counts(200_000) - plan.work(200_000)).max() <= plan.summary()["bound"]

    def test_rows_over_the_limit_count_nothing(self) -> None:
        plan = by_tokens(samples_per_epoch=100_000, max_length=2000).plan()
        assert np.abs(token_shares(plan, 100_000) - plan.mixture.weights).max() < 0.005
        assert not plan.passes(plan.draws(0, 10_000)).all()

    def test_threads_may_build_it_together(self) -> None:
        alone, shared = by_tokens(samples_per_epoch=40_000).plan(), by_tokens(samples_per_epoch=40_000).plan()
        spans = [(start, start + 2500) for start in range(0, 40_000, 2500)]
        with ThreadPoolExecutor(8) as pool:
            hashes = list(pool.map(lambda span: shared.schedule_hash(*span), reversed(spans)))
        assert hashes[::-1] == [alone.schedule_hash(*span) for span in spans]

    @pytest.mark.parametrize("epoch", [0, 2])
    def test_random_access_equals_streaming(self, epoch: int) -> None:
        one, two = by_tokens(samples_per_epoch=20_000).plan(epoch), by_tokens(samples_per_epoch=20_000).plan(epoch)
        whole = one.schedule_hash()
        assert two[19_999] == one[19_999]
        assert [two[i] for i in (0, 4095, 4096, 4097, 12_345)] == [one[i] for i in (0, 4095, 4096, 4097, 12_345)]
        assert two.schedule_hash(threads=2) == whole

    def test_epochs_follow_each_other(self) -> None:
        mixture = by_tokens(samples_per_epoch=10_000)
        plan = mixture.plan()
        for epoch in range(3):
            assert plan.schedule_hash() == mixture.plan(epoch).schedule_hash()
            assert plan.work(0) == pytest.approx(mixture.plan(epoch).work(0))
            plan = plan.next_epoch()

    @pytest.mark.parametrize("position", [0, 100, 4096, 9999, 15_000])
    def test_a_resumed_run_is_the_same_run(self, position: int) -> None:
        mixture = by_tokens(samples_per_epoch=20_000)
        plan = mixture.plan(epoch=1)
        plan.issue(position)
        before = json.dumps(plan.state_dict())
        plan.schedule_hash()  # look ahead
        assert json.dumps(plan.state_dict()) == before
        assert len(before) < 4096
        resumed = Plan.load_state_dict(mixture, json.loads(before))
        assert resumed.schedule_hash(position) == plan.schedule_hash(position)
        assert json.dumps(resumed.state_dict()) == before
        assert resumed.counts(20_000).tolist() == plan.counts(20_000).tolist()
        assert resumed.next_epoch().schedule_hash() == plan.next_epoch().schedule_hash()
        for each in (plan, resumed):
            each.update([1, 1, 1, 1])
        assert resumed.schedule_hash(position) == plan.schedule_hash(position)
        resumed.issue(19_000)
        plan.issue(19_000)
        twice = Plan.load_state_dict(mixture, resumed.state_dict())
        assert twice.schedule_hash(19_000) == plan.schedule_hash(19_000)
        assert twice.summary()["planned_rows"] == 20_000

    def test_positions_a_resumed_run_does_not_hold_are_index_errors(self) -> None:
        mixture = by_tokens(samples_per_epoch=20_000)
        plan = mixture.plan()
        plan.issue(15_000)
        resumed = Plan.load_state_dict(mixture, plan.state_dict())
        with pytest.raises(IndexError):
            resumed.draws(0, 10)

    def test_a_resumed_run_goes_on_over_other_data_from_where_it_was(self) -> None:
        rng = np.random.default_rng(6)
        lengths = {name: rng.integers(1, 1000, 300) for name in "ab"}

        def mixture(rows: int) -> Mixture:
            sources = [Source("a", rows=rows, lengths=lengths["a"][:rows]), Source("b", rows=300, lengths=lengths["b"])]
            return Mixture(sources, unit="tokens", samples_per_epoch=5000, control_interval=100, window=8)

        plan = mixture(300).plan()
        plan.issue(2345)
        resumed = Plan.load_state_dict(mixture(250), plan.state_dict(), accept_changes=["a"])
        draws = resumed.draws(2345, 5000)
        assert sorted(draws.row[draws.source == 0][:250].tolist()) == list(range(250))
        assert token_shares(resumed, 5000, 2345) == pytest.approx([0.5, 0.5], abs=0.02)
        for position in (2345, 2350, 4000):
            resumed.issue(position)
            again = Plan.load_state_dict(mixture(250), resumed.state_dict())
            assert again.schedule_hash(position) == resumed.schedule_hash(position)
            assert again.next_epoch().schedule_hash() == resumed.next_epoch().schedule_hash()
        with pytest.raises(IndexError, match="at least 2345, where the run went on, but got 2000"):
            resumed.state_dict(issued=2000)

    def test_updates_are_shares_of_tokens(self) -> None:
        looked, blind = by_tokens(samples_per_epoch=100_000).plan(), by_tokens(samples_per_epoch=100_000).plan()
        looked.schedule_hash()
        for plan in (looked, blind):
            plan.update({"a": 0, "b": 1, "c": 1, "d": 2}, at=12_800)
            plan.update({"a": 1, "b": 1, "c": 1, "d": 1}, at=60_032)
        assert looked.schedule_hash() == blind.schedule_hash()
        assert token_shares(looked, 60_032, 12_800) == pytest.approx([0, 0.25, 0.25, 0.5], abs=0.01)
        assert token_shares(looked, 100_000, 60_032) == pytest.approx([0.25] * 4, abs=0.01)

    def test_a_source_joins(self) -> None:
        plan = by_tokens(samples_per_epoch=60_000).plan()
        joined = Source("e", rows=1000, lengths=lognormal(1000, 200, 9))
        with pytest.raises(PlanError, match="'e': lengths must be known"):
            plan.update([1] * 5, at=6400, add=[Source("e", rows=10)])
        plan.update([1] * 5, at=6400, add=[joined])
        assert token_shares(plan, 60_000, 6400) == pytest.approx([0.2] * 5, abs=0.01)
        with pytest.raises(StateError, match="add must hold source 'e'"):
            Plan.load_state_dict(plan.mixture, plan.state_dict())
        resumed = Plan.load_state_dict(plan.mixture, plan.state_dict(), add=[joined])
        assert resumed.schedule_hash() == plan.schedule_hash()

    @pytest.mark.parametrize("exhaustion", ["stop", "renormalize"])
    def test_sources_that_empty_leave(self, exhaustion: Any) -> None:
        plan = by_tokens(rows=5000, exhaustion=exhaustion, control_interval=256).plan()
        counts = plan.counts(len(plan))
        if exhaustion == "renormalize":
            assert counts.tolist() == [5000, 5000, 500, 5000]
        else:
            assert (counts == [5000, 5000, 500, 5000]).sum() == 1
        first = min(np.flatnonzero(plan.draws(0, len(plan)).source == 2)[-1], 2000)
        assert token_shares(plan, int(first)) == pytest.approx([0.4, 0.3, 0.2, 0.1], abs=0.06)
        assert plan.summary()["bound"] < 1.7
        assert len(plan.next_epoch()) > 0

    def test_stages_and_interpolation_in_tokens(self) -> None:
        stages = [Stage(60_000, {"a": 0.1, "b": 0.1, "c": 0.1, "d": 0.7}, "linear")]
        plan = by_tokens(samples_per_epoch=160_000, stages=stages).plan()
        assert token_shares(plan, 160_000, 62_000) == pytest.approx([0.1, 0.1, 0.1, 0.7], abs=0.01)
        middle = token_shares(plan, 34_000, 26_000)
        assert middle == pytest.approx([0.25, 0.2, 0.15, 0.4], abs=0.06)

    def test_all_seen_epochs_in_tokens(self) -> None:
        mixture = by_tokens(rows=1000, samples_per_epoch="all_seen", control_interval=128)
        plan = mixture.plan()
        following = plan.next_epoch()
        for each in (plan, following):
            counts = each.counts(len(each))
            assert (counts >= [1000, 1000, 100, 1000]).all()
            assert (counts == [1000, 1000, 100, 1000]).any()
        assert following.schedule_hash() == mixture.plan(1).schedule_hash()
        following.issue(500)
        resumed = Plan.load_state_dict(mixture, following.state_dict())
        assert resumed.schedule_hash() == following.schedule_hash()

    def test_equal_lengths_give_the_order_of_rows(self) -> None:
        sizes = (3000, 2000, 1000)
        even = [Source(f"s{k}", rows=n, weight=3 - k, lengths=np.full(n, 8)) for k, n in enumerate(sizes)]
        tokens = Mixture(even, unit="tokens", samples_per_epoch=30_000, control_interval=512).plan()
        rows = Mixture(even, samples_per_epoch=30_000).plan()
        assert np.abs(tokens.counts(30_000) - rows.counts(30_000)).max() <= 1
