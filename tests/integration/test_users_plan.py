"""What users asked for, as far as the order is concerned: cases W1, W3, W4, W9, W10, W11 and W14."""

import itertools
import math
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from cuvee import Mixture, MixtureError, Plan, PlanError, Source


def prefix_error(plan: Plan, weights: Sequence[float]) -> float:
    """Return the largest |count - n w| over all prefixes n and sources."""
    source = plan.draws(0, len(plan)).source
    n = np.arange(1, len(source) + 1)
    return max(float(np.abs(np.cumsum(source == k) - n * weight).max()) for k, weight in enumerate(weights))


class TestW1TinyWeight:
    SHARE = 2.158216478890831e-06

    def test_it_is_met_to_the_row(self) -> None:
        sources = [Source("A", rows=12_000_000, weight=1 - self.SHARE), Source("B", rows=3000, weight=self.SHARE)]
        plan = Mixture(sources, samples_per_epoch=10_000_000, seed=17, window=1).plan()
        source = plan.draws(0, len(plan)).source
        where = np.flatnonzero(source == 1)
        assert len(where) in (21, 22)
        assert where[0] <= 463_345
        assert plan.counts(len(plan)).tolist() == [10_000_000 - len(where), len(where)]
        before = np.arange(len(where)) - self.SHARE * where
        assert max(np.abs(before).max(), np.abs(before + 1 - self.SHARE).max()) <= plan.summary()["bound"] + 1e-9
        assert plan.summary()["sources"][1]["first_position"] == where[0]

    def test_dirichlet_weights_over_200_sources(self) -> None:
        weights = np.random.default_rng(1).dirichlet([0.1] * 200)
        sources = [Source(f"s{k}", rows=100_000, weight=w) for k, w in enumerate(weights)]
        plan = Mixture(sources, samples_per_epoch=100_000, window=1).plan()
        bound = plan.summary()["bound"]
        assert bound < 1.68
        assert prefix_error(plan, plan.mixture.weights.tolist()) <= bound + 1e-6


class TestW3EmptyAndZero:
    @pytest.mark.parametrize("order", list(itertools.permutations(["left", "right", "empty"])))
    def test_an_empty_source_is_named_and_left_out(self, order: tuple[str, ...]) -> None:
        data = {"left": [0, 1], "right": [10], "empty": []}
        sources = [Source(name, data[name], 1 / 3) for name in order]
        with pytest.raises(MixtureError, match="'empty'"):
            Mixture(sources, exhaustion="renormalize")
        plan = Mixture(sources, exhaustion="renormalize", allow_empty=True).plan()
        assert sorted(data[draw.name][draw.row] for draw in plan) == [0, 1, 10]
        assert "source 'empty' has no rows" in plan.summary()["warnings"]

    @pytest.mark.parametrize("settings", [{"exhaustion": "renormalize"}, {"samples_per_epoch": "all_seen"}])
    def test_a_source_of_weight_zero_is_not_waited_for(self, settings: dict[str, str]) -> None:
        plan = Mixture([Source("A", rows=5), Source("B", rows=5, weight=0)], **settings).plan()  # type: ignore[arg-type]
        assert plan.counts(len(plan)).tolist() == [5, 0]

    @pytest.mark.parametrize("weights", [[0, 0], [-1, 2], [math.nan, 1], [math.inf, 1]])
    def test_bad_weights_are_printed_at_build_and_update(self, weights: list[float]) -> None:
        bad = weights[0]
        with pytest.raises(MixtureError, match=str(bad)):
            Mixture([Source("A", rows=5, weight=weights[0]), Source("B", rows=5, weight=weights[1])])
        plan = Mixture([Source("A", rows=5), Source("B", rows=5)]).plan()
        before = plan.plan_hash, plan.schedule_hash()
        with pytest.raises(PlanError, match=str(bad)):
            plan.update({"A": weights[0], "B": weights[1]}, at=0)
        assert (plan.plan_hash, plan.schedule_hash(), len(plan.journal)) == (*before, 0)

    @pytest.mark.parametrize("weights", [[0.1] * 10, [0.5] + [0.05] * 10])
    def test_sums_near_one_are_accepted(self, weights: list[float]) -> None:
        assert len(Mixture([Source(f"s{k}", rows=5, weight=w) for k, w in enumerate(weights)]).plan()) == 5 * len(
            weights
        )


def rows_seen(plan: Plan) -> list[set[int]]:
    draws = plan.draws(0, len(plan))
    return [set(draws.row[draws.source == k].tolist()) for k in range(len(plan.names))]


@pytest.mark.parametrize("weight", [1.0, 1 / 3])
@pytest.mark.parametrize("shuffle", [True, False])
class TestW4Exhaustion:
    def mixture(self, sizes: Sequence[int], weight: float, shuffle: bool, **settings: object) -> Mixture:
        sources = [Source("ABC"[k], rows=n, weight=weight) for k, n in enumerate(sizes)]
        return Mixture(sources, shuffle_within_sources=shuffle, **settings)  # type: ignore[arg-type]

    def test_stop(self, weight: float, shuffle: bool) -> None:
        for sizes in itertools.permutations([3, 4, 5]):
            plan = self.mixture(sizes, weight, shuffle, exhaustion="stop").plan()
            counts = plan.counts(len(plan))
            assert 7 <= len(plan) <= 9
            assert counts[sizes.index(3)] == 3
            summary = plan.summary()
            assert np.abs(counts - len(plan) / 3).max() <= summary["bound_any_position"]
            assert summary["termination_reason"] == f"source_exhausted:{'ABC'[sizes.index(3)]}"
            regular = self.mixture(sizes, weight, shuffle, exhaustion="stop", window=1).plan()
            assert regular[len(regular) - 1].source == sizes.index(3)

    def test_renormalize(self, weight: float, shuffle: bool) -> None:
        plan = self.mixture([3, 4, 5], weight, shuffle, exhaustion="renormalize").plan()
        assert len(plan) == 12
        assert rows_seen(plan) == [set(range(3)), set(range(4)), set(range(5))]
        assert plan.summary()["termination_reason"] == "all_sources_exhausted"
        longest_last = self.mixture([3, 4, 3], weight, shuffle, exhaustion="renormalize").plan()
        assert len(longest_last) == 10
        assert longest_last[9].name == "B"

    def test_cycle_until_all_seen(self, weight: float, shuffle: bool) -> None:
        for sizes in itertools.permutations([3, 4, 5]):
            plan = self.mixture(sizes, weight, shuffle, samples_per_epoch="all_seen").plan()
            assert 13 <= len(plan) <= 15
            assert rows_seen(plan) == [set(range(n)) for n in sizes]
            assert plan.summary()["termination_reason"] == "all_sources_exhausted_once"

    def test_unused_rows_are_told(self, weight: float, shuffle: bool) -> None:
        plan = self.mixture([632, 3893], weight, shuffle, exhaustion="stop").plan()
        assert len(plan) in (1263, 1264)
        report = plan.summary()["sources"][1]
        assert report["rows_unused"] == 3893 - (len(plan) - 632)
        assert report["rows_used"] + report["rows_unused"] == 3893


class TestW9Elastic:
    def mixture(self) -> Mixture:
        weights = (0.4, 0.3, 0.2, 0.1)
        sources = [Source(f"s{k}", rows=1000 * (k + 1), weight=w) for k, w in enumerate(weights)]
        return Mixture(sources, samples_per_epoch=12_800)

    def test_the_order_after_a_resume_is_that_of_the_whole_run_however_it_is_sliced(self) -> None:
        whole = self.mixture().plan()
        whole.issue(6400)
        resumed = Plan.load_state_dict(self.mixture(), whole.state_dict())
        assert resumed.issued == 6400
        for batch in (64, 64, 96):  # 2 x 32 and 8 x 8 rows, and 3 x 32
            starts = range(6400, 12_800, batch)
            parts = [resumed.draws(start, min(start + batch, 12_800)) for start in starts]
            rest = whole.draws(6400, 12_800)
            assert np.array_equal(np.concatenate([part.source for part in parts]), rest.source)
            assert np.array_equal(np.concatenate([part.row for part in parts]), rest.row)
        assert resumed.schedule_hash() == whole.schedule_hash()


class TestW10WeightsChanged:
    @staticmethod
    def mixture(window: int) -> Mixture:
        sources = [Source("A", rows=9000), Source("B", rows=9000)]
        return Mixture(sources, exhaustion="renormalize", shuffle_within_sources=False, window=window)

    @pytest.mark.parametrize("window", [1, 60])
    def test_nothing_is_lost_or_repeated(self, window: int) -> None:
        plan = self.mixture(window).plan()
        assert plan.counts(6000).tolist() == [3000, 3000]
        first, old = plan.schedule_hash(0, 6000), plan.plan_hash
        plan.issue(5990)
        saved = plan.state_dict()
        plan.update({"A": 2, "B": 1}, at=6000, reason="more of A")
        assert plan.schedule_hash(0, 6000) == first
        assert (plan.counts(12_000) - plan.counts(6000)).tolist() == [4000, 2000]
        draws = plan.draws(0, 12_000)
        assert draws.row[draws.source == 0].tolist() == list(range(7000))
        assert draws.row[draws.source == 1].tolist() == list(range(5000))
        assert plan.parent == old != plan.plan_hash
        again = Plan.load_state_dict(self.mixture(window), saved)
        again.update({"A": 2, "B": 1}, at=6000, reason="more of A")
        assert again.schedule_hash() == plan.schedule_hash()
        assert again.plan_hash == plan.plan_hash

    def test_what_was_issued_cannot_be_changed(self) -> None:
        plan = self.mixture(60).plan()
        plan.issue(6001)
        with pytest.raises(PlanError, match="not yet issued, but got 6000 with 6001 rows issued; the next one is 6060"):
            plan.update({"A": 2, "B": 1}, at=6000)
        with pytest.raises(PlanError, match="window start, but got 6061; the nearest ones are 6060 and 6120"):
            plan.update({"A": 2, "B": 1}, at=6061)
        assert plan.update({"A": 2, "B": 1}).position == 6060


class TestW11Tokens:
    A, B = 400, 4000

    def sources(self, lengths_a: np.ndarray | None = None) -> list[Source]:
        a = np.full(100_000, self.A) if lengths_a is None else lengths_a
        return [Source("A", rows=100_000, lengths=a), Source("B", rows=10_000, lengths=np.full(10_000, self.B))]

    def totals(self, plan: Plan) -> np.ndarray:
        """Return the trained tokens of A and B after every position, shape (n, 2)."""
        draws = plan.draws(0, len(plan))
        lengths = plan.lengths_of(draws)
        assert lengths is not None
        tokens = np.where(plan.passes(draws), lengths, 0)
        return np.stack([np.cumsum(np.where(draws.source == k, tokens, 0)) for k in (0, 1)], axis=1)

    def test_equal_shares_of_tokens(self) -> None:
        plan = Mixture(self.sources(), unit="tokens", samples_per_epoch=27_500, window=1).plan()
        assert plan.counts(27_500).tolist() == [25_000, 2500]
        totals = self.totals(plan)
        assert totals[-1].tolist() == [10_000_000, 10_000_000]
        assert np.abs(totals[:, 0] - totals[:, 1]).max() <= 4000
        report = plan.summary()
        assert report["tokens"] == {"total": 20_000_000, "exact": True}
        assert [source["tokens"] for source in report["sources"]] == [10_000_000, 10_000_000]

    def test_unit_rows_says_what_it_does_to_tokens(self) -> None:
        report = Mixture(self.sources(), samples_per_epoch=27_500).plan().summary()
        assert report["sources"][0]["token_proportion"] == pytest.approx(1 / 11, abs=1e-4)
        assert any("50.00% of the rows but 9.09% of the tokens" in warning for warning in report["warnings"])

    def test_filtered_rows_do_not_count(self) -> None:
        lengths = np.full(100_000, self.A)
        lengths[::33] = 5000
        mixture = Mixture(
            self.sources(lengths),
            unit="tokens",
            max_length=4096,
            control_interval=64,
            window=1,
            samples_per_epoch=30_000,
        )
        plan = mixture.plan()
        totals = self.totals(plan)
        done = int(np.searchsorted(totals.sum(axis=1), 20_000_000))
        assert abs(totals[done, 0] - 10_000_000) <= 4000 + self.A
        at_ten_million = np.abs(totals[:, 0] - 10_000_000).min()
        assert at_ten_million <= self.A
        assert np.abs(totals[:, 0] - totals[:, 1])[: done + 1].max() <= 8000
        report = plan.summary()["sources"][0]
        draws = plan.draws(0, len(plan))
        assert report["rows_filtered"] == int(np.count_nonzero(~plan.passes(draws)))
        assert report["rows_filtered"] > 500


class TestW14Scale:
    def test_93_million_rows(self) -> None:
        sources = [Source(n, rows=31_000_000, weight=w) for n, w in zip("ABC", (0.5, 0.3, 0.2), strict=True)]
        plan = Mixture(sources, samples_per_epoch=93_000_000).plan()
        given = np.zeros(3, dtype=np.int64)
        for start in range(0, 93_000_000, 8_000_000):
            given += np.bincount(plan.draws(start, min(start + 8_000_000, 93_000_000)).source, minlength=3)
        assert given.tolist() == plan.counts(93_000_000).tolist()
        assert np.abs(plan.counts(93_000_000) - np.array([46.5e6, 27.9e6, 18.6e6])).max() <= 1

    def test_ten_thousand_sources(self) -> None:
        rng = np.random.default_rng(3)
        rows = rng.integers(1, 700_000, 10_000)
        tracemalloc.start()
        sources = [Source(f"source-{k}", rows=int(n), weight=int(n)) for k, n in enumerate(rows)]
        plan = Mixture(sources).plan()
        first = plan[0]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak + plan._epoch.stream.core.nbytes < 64 * 2**20
        assert first.name == f"source-{first.source}"

    def test_resume_far_into_ten_thousand_sources(self) -> None:
        mixture = Mixture([Source(f"source-{k}", rows=350_000) for k in range(10_000)])
        plan = mixture.plan()
        plan.issue(10**9)
        state = plan.state_dict()
        resumed = Plan.load_state_dict(mixture, state)
        assert resumed._epoch.stream.core.segment_count == 1  # nothing was replayed on the way
        assert resumed[10**9] == plan[10**9]

    def test_more_than_2_to_the_24_rows_are_a_permutation(self) -> None:
        plan = Mixture([Source("A", rows=20_000_000)]).plan()
        seen = np.zeros(20_000_000, dtype=np.bool_)
        seen[plan.draws(0, 20_000_000).row] = True
        assert seen.all()

    def test_early_positions_of_a_billion_rows_are_uniform(self) -> None:
        plan = Mixture([Source("A", rows=10**9)]).plan()
        bins = np.bincount(plan.draws(0, 10_000_000).row // 10_000_000, minlength=100)
        chi_square = float(((bins - 100_000) ** 2 / 100_000).sum())
        assert 50 < chi_square < 165  # 99 degrees of freedom: 1e-5 on either side
