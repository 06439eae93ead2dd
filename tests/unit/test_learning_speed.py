"""The learning-speed policy: two updates by hand, and what noise, the learned and equals get."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from cuvee.bandits import LearningSpeed, make_bandit
from cuvee.bandits.learning_speed import FallingLoss
from cuvee.errors import MixtureError, StateError


def test_two_updates_by_hand() -> None:
    bandit = LearningSpeed([0.5, 0.3, 0.2], slow=0.25, power=2, rehearse=0.4, least=0.02, memory=10)
    assert bandit.update([5.0, 4.0, 6.0], [10, 6, 4]) == pytest.approx([0.5, 0.3, 0.2], abs=1e-15)
    p = bandit.update([3.0, 1.0, 6.0], [10, 6, 4])
    # smoothed over the last quarter: of n more rows after n, n / (n + n / 4) = 0.8 is new
    lowest = np.array([5 + 0.8 * (3 - 5), 4 + 0.8 * (1 - 4), 6.0])  # 3.4, 1.6, 6
    # two points are a line: at log(n / 2) and log(3 n / 2), whatever their weights
    speeds = (np.array([5.0, 4.0, 6.0]) - lowest) / math.log(3)
    assert bandit.speeds == pytest.approx(speeds, rel=1e-9, abs=1e-9)
    prior = np.array([0.5, 0.3, 0.2])
    ratio = np.minimum(speeds / (prior @ speeds), lowest / (prior @ lowest))
    follow = np.minimum(ratio / 0.25, 1) ** 2
    rehearsed = 0.4 * np.array([1.6, 2.4, 0]) / 2.4
    weights = prior * np.maximum(np.maximum(follow, rehearsed), 0.02)
    assert p == pytest.approx(weights / weights.sum(), abs=1e-12)
    # in numbers: the first two follow in full, the third has lost nothing: .5, .3 and .2 * .02, of .804
    assert p == pytest.approx([0.621891, 0.373134, 0.004975], abs=1e-6)


def test_a_third_update_forgets_as_it_says() -> None:
    curve = FallingLoss(1, memory=3.0)
    losses, rows = [5.0, 4.0, 3.5], [8, 8, 16]
    x, y, weights, n, smooth = [], [], [], 0, 5.0
    for loss, more in zip(losses, rows, strict=True):
        curve.add(np.array([loss]), np.array([more]))
        smooth += more / (more + n / 4) * (loss - smooth)
        weights = [weight * (max(n, 1) / (n + more)) ** 3 for weight in weights] + [more]
        x.append(math.log(n + more / 2))
        y.append(smooth)
        n += more
    slope = np.polyfit(x, y, 1, w=np.sqrt(weights))[0]
    assert curve.speeds() == pytest.approx([-slope], rel=1e-9)


def test_equals_keep_their_priors_to_the_bit() -> None:
    prior = [0.5, 0.3, 0.2]
    bandit = LearningSpeed(prior)
    rng = np.random.default_rng(0)
    for update in range(1, 300):
        p = bandit.update(2 + 3 * update**-0.3 + 0.02 * rng.standard_normal(3), [50, 30, 20])
        assert p == pytest.approx(prior, abs=1e-15)


def test_noise_is_left_with_the_least() -> None:
    bandit = LearningSpeed(4, least=0.02)
    for update in range(1, 100):
        p = bandit.update([1 + 4 * update**-0.3] * 3 + [5.545], [8] * 4)
    assert p == pytest.approx([1 / 3.02] * 3 + [0.02 / 3.02], rel=1e-6)


def test_what_was_learned_is_rehearsed() -> None:
    bandit = LearningSpeed(3, rehearse=0.4)
    for update in range(1, 100):
        slow = 2 + 4 * update**-0.3
        p = bandit.update([slow, slow, max(6 - update, 0.1)], [8] * 3)
    assert p[2] == pytest.approx(0.4 / 2.4, rel=1e-6)


def test_a_loss_that_rises_and_falls_again_is_nothing_new() -> None:
    bandit = LearningSpeed(3)
    for update in range(1, 200):
        falling = 2 + 4 * update**-0.3
        p = bandit.update([falling, falling, 5.5 + (update // 10 % 3 > 0)], [8, 8, 4])
    assert p[2] < 0.01


def test_a_source_not_seen_keeps_its_prior() -> None:
    bandit = LearningSpeed([0.6, 0.3, 0.1])
    for update in range(1, 50):
        losses = [2 + 4 * update**-0.3] * 2 + [math.nan]
        p = bandit.update(losses, [8, 4, 0])
    assert p == pytest.approx([0.6, 0.3, 0.1], abs=1e-15)


def test_without_any_fall_the_prior_holds() -> None:
    bandit = LearningSpeed([0.6, 0.4], rehearse=0)
    for _ in range(50):
        p = bandit.update([3.0, 3.0], [6, 4])
    assert p == pytest.approx([0.6, 0.4], abs=1e-15)


def test_floors_and_caps_hold() -> None:
    bandit = LearningSpeed(3, floor=[0, 0, 0.1], cap=0.6)
    for update in range(1, 60):
        p = bandit.update([1 + 4 * update**-0.3] * 2 + [5.5], [8] * 3)
    assert p == pytest.approx([0.45, 0.45, 0.1], abs=1e-12)


def test_a_state_goes_on_with_the_same_bits() -> None:
    rng = np.random.default_rng(1)
    losses, rows = rng.uniform(1, 6, (60, 5)), rng.integers(0, 9, (60, 5))
    whole, first, second = LearningSpeed(5), LearningSpeed(5), LearningSpeed(5)
    for each in zip(losses[:30], rows[:30], strict=True):
        whole.update(*each)
        first.update(*each)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for each in zip(losses[30:], rows[30:], strict=True):
        assert whole.update(*each).tobytes() == second.update(*each).tobytes()
    assert whole.state_dict() == second.state_dict()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warmup": 1}, r"warmup must be .* but got 1"),
        ({"slow": 1.5}, r"slow must be a number in \[0, 1\], but got 1.5"),
        ({"power": -1}, r"power must be .* but got -1"),
        ({"rehearse": math.nan}, r"rehearse must be .* but got nan"),
        ({"memory": 0}, r"memory must be .* but got 0"),
    ],
)
def test_options_out_of_range(options: dict[str, float], message: str) -> None:
    with pytest.raises(MixtureError, match=message):
        LearningSpeed(3, **options)


@pytest.mark.parametrize(
    "broken", [{"curve": 3}, {"curve": {}}, {"updates": -1}, {"sources": 4}, {"probabilities": [1.0]}]
)
def test_a_broken_state_is_refused_and_nothing_changes(broken: dict[str, object]) -> None:
    bandit = LearningSpeed(3)
    for update in range(1, 9):
        bandit.update([5 / update, 5, 5], [4, 4, 4])
    before = bandit.state_dict()
    with pytest.raises(StateError):
        bandit.load_state_dict({**before, **broken})
    assert bandit.state_dict() == before


@pytest.mark.slow
def test_a_long_run_stays_finite_and_its_state_small() -> None:
    rng = np.random.default_rng(3)
    losses, rows = rng.uniform(0, 12, (1000, 4)), rng.integers(0, 2**40, (1000, 4))
    losses[rng.random((1000, 4)) < 0.2] = math.nan
    bandit = LearningSpeed(4)
    for update in range(100_000):
        p = bandit.update(losses[update % 1000] / (1 + update), rows[update % 1000])
    assert abs(math.fsum(p) - 1) <= 1e-12
    assert p.min() > 0
    assert np.isfinite(bandit.speeds).all()
    assert len(json.dumps(bandit.state_dict())) < 2000


@pytest.mark.parametrize("name", ["probabilities", "rows", "lowest", "sums"])
def test_a_state_with_impossible_numbers_is_refused(name: str) -> None:
    bandit = LearningSpeed(3)
    for update in range(1, 9):
        bandit.update([5 / update, 5, 5], [4, 4, 4])
    state = json.loads(json.dumps(bandit.state_dict()))
    inner = state if name == "probabilities" else state["curve"]
    inner[name] = {"rows": [-5, 4, 4], "lowest": [1e308, 0, 0], "sums": [[-1.0] * 3] * 5}.get(name, [9, 9, 9])
    with pytest.raises(StateError, match=r"^state "):
        LearningSpeed(3).load_state_dict(state)


@pytest.mark.parametrize("name", ["learning_speed", "ado", "curriculum"])
def test_more_rows_than_can_be_added_up_are_told(name: str) -> None:
    options = {"stages": [(10, [1, 0])]} if name == "curriculum" else {}
    with pytest.raises(StateError, match=r"^counts must be at most 2\^62 in all"):
        make_bandit(name, 2, **options).update([3.0, 2.0], [2**62, 2**62])
