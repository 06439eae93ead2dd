"""The interval of each share is that of what the method recommends of random halves of its runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuvee.search.evidence import interval_of
from cuvee.search.methods import Recommendation
from cuvee.search.plan import SearchPlan
from cuvee.search.receipt import Run
from cuvee.search.rounds import Course
from cuvee.search.space import Space


class Watched(SearchPlan):
    """A search whose method recommends the mean of the mixtures it was told, and keeps what it was told."""

    __slots__ = ("samples",)

    @property
    def course(self) -> Course:  # type: ignore[override]
        return self  # type: ignore[return-value]

    def recommendation(self, told: Sequence[Run]) -> Recommendation:
        self.samples.append(told)
        return Recommendation(weights=np.mean([run.weights for run in told], axis=0))


def watched(seed: int) -> Watched:
    plan = Watched(score=lambda *_: {}, space=Space(["a", "b"]), budget=24, seed=seed)
    object.__setattr__(plan, "samples", [])
    return plan


def runs_of(shares: Sequence[float]) -> list[Run]:
    return [
        Run(number=n, kind="search", weights=(x, 1 - x), losses=(2.0,), training_seed=0, evaluation_seed=1)
        for n, x in enumerate(shares)
    ]


@given(shares=st.lists(st.floats(0, 1), min_size=1, max_size=30), seed=st.integers(0, 9))
@settings(deadline=None)
def test_samples_are_halves_with_the_first_run_and_no_run_twice(shares: list[float], seed: int) -> None:
    plan, runs = watched(seed), runs_of(shares)
    answer = np.mean([run.weights for run in runs], axis=0)
    low, high = interval_of(plan, runs, answer, 12)
    assert (np.array(low) <= answer).all()
    assert (answer <= np.array(high)).all()
    assert len(plan.samples) == 12
    for sample in plan.samples:
        assert len(sample) == 1 + len(runs) // 2 if len(runs) > 1 else len(sample) == 1
        assert [run.number for run in sample] == list(range(len(sample)))
        assert sample[0].weights == runs[0].weights
        left = [run.weights for run in runs]
        for run in sample:  # each is another run of those there are
            left.remove(run.weights)


def test_the_interval_is_as_wide_as_answers_scatter() -> None:
    rng, answers, widths = np.random.default_rng(3), [], []
    for seed in range(200):
        runs = runs_of(rng.uniform(size=40).tolist())
        answer = np.mean([run.weights for run in runs], axis=0)
        answers.append(answer[0])
        if seed < 20:
            low, high = interval_of(watched(seed), runs, answer, 100)
            widths.append(high[0] - low[0])
    scatter = float(np.diff(np.quantile(answers, [0.05, 0.95]))[0])
    assert np.mean(widths) == pytest.approx(scatter, rel=0.2)
