"""What holds for every bandit, whatever the scores: exact sums, bounds, order of sources, and one tree of sums."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cuvee import _core
from cuvee.bandits import EXP3, make_bandit

pytestmark = pytest.mark.filterwarnings("ignore::cuvee.bandits.LowEntropyWarning")

LEARNERS = ["exp3", "exp3_bounded", "odm", "doremi", "ado", "learning_speed"]
SCORES = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 12)


@given(data=st.data(), name=st.sampled_from(LEARNERS), sources=st.integers(1, 40))
def test_weights_are_a_distribution(data: st.DataObject, name: str, sources: int) -> None:
    options = {"warmup": 1, "refit": 1, "ignore": 0} if name == "ado" else {}
    bandit = make_bandit(name, sources, **options)
    for _ in range(data.draw(st.integers(1, 8))):
        scores = data.draw(arrays(np.float64, sources, elements=SCORES))
        counts = data.draw(arrays(np.int64, sources, elements=st.integers(0, 2**40)))
        p = bandit.update(scores, counts)
        assert p.dtype == np.float64
        assert (p > 0).all()
        assert abs(math.fsum(p) - 1) <= 1e-12


@given(
    scores=arrays(np.float64, (6, 5), elements=st.floats(-50, 50)),
    order=st.permutations(range(5)),
    normalize=st.sampled_from(["quantile", "none"]),
)
def test_the_order_of_sources_does_not_matter(scores: np.ndarray, order: list[int], normalize: str) -> None:
    one, other = EXP3([5, 4, 3, 2, 1], normalize=normalize), EXP3(np.array([5, 4, 3, 2, 1])[order], normalize=normalize)
    for row in scores:
        p, q = one.update(row), other.update(row[order])
    assert q == pytest.approx(p[order], abs=1e-9)


@given(
    scores=arrays(np.float64, (8, 4), elements=st.integers(-100, 100).map(float)),
    unit=st.sampled_from([0.25, 1.0, 1024.0]),
    start=st.sampled_from([0.0, -512.0, 4096.0]),
)
def test_bounded_exp3_knows_no_unit(scores: np.ndarray, unit: float, start: float) -> None:
    one, other = EXP3(4), EXP3(4)
    for row in scores:
        p, q = one.update(row), other.update(row * unit + start)
    assert q == pytest.approx(p, abs=1e-6)


@given(data=st.data(), sources=st.integers(1, 300))
def test_floors_and_caps_are_met_by_one_factor(data: st.DataObject, sources: int) -> None:
    p = data.draw(arrays(np.float64, sources, elements=st.floats(1e-6, 1)))
    p /= math.fsum(p)
    floor = data.draw(arrays(np.float64, sources, elements=st.floats(0, 1 / sources)))
    cap = np.minimum(1, data.draw(arrays(np.float64, sources, elements=st.floats(1 / sources, 1))))
    limited = p.copy()
    _core.limit(limited, floor=floor, cap=cap)
    assert (limited >= floor).all()
    assert (limited <= cap).all()
    assert abs(math.fsum(limited) - 1) <= 1e-12
    free = (limited > floor) & (limited < cap)
    if free.any():
        factors = limited[free] / p[free]
        assert np.ptp(factors) <= 1e-9 * factors.max()
        low, high = (limited == floor) & (floor < cap), (limited == cap) & (floor < cap)
        assert (p[low] * factors.max() <= floor[low] * (1 + 1e-9)).all()
        assert (p[high] * factors.min() >= cap[high] * (1 - 1e-9)).all()


def halved(values: np.ndarray) -> float:
    """Return the sum of up to 1,024 values as a block of threads forms it: halves of the tree are added."""
    slots = np.zeros(1024)
    slots[: len(values)] = values
    while len(slots) > 1:
        slots = slots[: len(slots) // 2] + slots[len(slots) // 2 :]
    return slots.item()


@pytest.mark.parametrize("sources", [1, 2, 3, 7, 128, 1000, 1024, 1025, 5000, 65536])
def test_probabilities_are_those_of_the_fixed_tree_to_the_bit(sources: int) -> None:
    random = np.random.default_rng(sources)
    scores = random.uniform(0, 12, sources)
    state, p, summary = random.normal(0, 3, sources), np.full(sources, 1 / sources), np.zeros(4)
    gains = 0.3 / sources * (scores / p)
    log_w = state + np.clip(gains, -500, 500)
    w = np.array([_core.exp(x) for x in (log_w - log_w.max()).tolist()])
    total = halved(np.array([halved(w[first : first + 1024]) for first in range(0, sources, 1024)]))
    expected = ((1 - 0.1) / total) * w + 0.1 / sources
    rule = _core.WeightRule("exp3", state=state, p=p, summary=summary, eta=0.3, gamma=0.1)
    assert rule.update(scores) == summary[3]
    assert p.tolist() == expected.tolist()
    assert state.tolist() == (log_w - log_w.max()).tolist()


@pytest.mark.skipif(len(_core.ISAS) == 1, reason="this machine runs one instruction set alone")
def test_weights_have_the_same_bits_on_every_instruction_set(fresh_python: Callable[..., str]) -> None:
    code = """
import warnings
import numpy as np
from cuvee.bandits import make_bandit
warnings.simplefilter("ignore")
digest = []
for name in ("exp3", "exp3_bounded", "odm", "doremi"):
    for sources in (1, 3, 8, 127, 1025):
        random = np.random.default_rng(sources)
        limits = {"floor": 0.1 / sources, "cap": min(1.0, max(0.5, 1.5 / sources))}
        bandit = make_bandit(name, sources, **limits)
        for turn in range(20):
            scores = random.normal(1, 3.0**turn, sources)
            scores[random.random(sources) < 0.1] = np.nan
            digest.append(bandit.update(scores, random.integers(0, 3, sources)).tobytes().hex())
print(hash(tuple(digest)))
"""
    found = {fresh_python(code, CUVEE_ISA=isa, PYTHONHASHSEED="0") for isa in _core.ISAS}
    assert len(found) == 1
