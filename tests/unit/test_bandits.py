"""Bandits against their published updates, worked by hand for two steps; what they refuse; their states."""

from __future__ import annotations

import doctest
import json
import math
from typing import Any

import numpy as np
import pytest
import scipy.optimize  # noqa: TID253

import cuvee.bandits
from cuvee.bandits import ADO, BANDITS, EXP3, ODM, Curriculum, DoReMi, Fixed, LowEntropyWarning, make_bandit
from cuvee.errors import MixtureError, StateError

OPTIONS: dict[str, dict[str, Any]] = {name: {} for name in BANDITS}
OPTIONS["ado"] = {"warmup": 5, "refit": 2, "ignore": 1}
OPTIONS["curriculum"] = {"stages": [(40, [1, 2, 3]), (90, [3, 0, 1])], "passage": "cosine"}


# --- published updates, two steps by hand
def test_exp3_as_online_mixing_defines_it() -> None:
    bandit = EXP3([0.7, 0.3], eta=0.3, gamma=0.1, normalize="none")
    assert bandit.probabilities == pytest.approx([0.68, 0.32], abs=1e-15)
    w, p = np.array([0.7, 0.3]), np.array([0.68, 0.32])
    for scores in ([2.3, 2.0], [1.1, 4.0]):
        w = w * np.exp(0.3 * (np.array(scores) / p) / 2)
        p = 0.9 * w / w.sum() + 0.1 / 2
        assert bandit.update(scores, [3, 5]) == pytest.approx(p, abs=1e-15)
    # the first step in numbers: w = .7 e^.507353 = 1.162622, .3 e^.9375 = .766077; .9 * 1.162622 / 1.928699 + .05
    first = EXP3([0.7, 0.3], eta=0.3, gamma=0.1, normalize="none").update([2.3, 2.0])
    assert first == pytest.approx([0.592521, 0.407479], abs=1e-6)


def test_exp3_as_the_paper_has_it_learns_from_what_was_pulled() -> None:
    bandit = EXP3(3, eta=0.2, gamma=0.2, normalize="none")  # Auer et al.: eta = gamma
    p = bandit.update([math.nan, 1.0, 0.5], [0, 1, 0])
    w = np.array([1, math.exp(0.2 * (1 / (1 / 3)) / 3), 1])
    assert p == pytest.approx(0.8 * w / w.sum() + 0.2 / 3, abs=1e-15)
    w[0] *= math.exp(0.2 * (0.7 / p[0]) / 3)
    assert bandit.update([0.7, 1.0, 0.5], [1, 0, 0]) == pytest.approx(0.8 * w / w.sum() + 0.2 / 3, abs=1e-15)


def test_bounded_exp3_scales_scores_by_running_quantiles() -> None:
    bandit = EXP3(4, eta=0.3, gamma=0.1, quantiles=(0.25, 0.75), rate=0.1, entropy_floor=0)
    p = bandit.update([10, 20, 40, 30])  # the first scores are the range: rewards 0, 1/3, 1, 2/3
    w = np.exp(0.3 * (np.array([0, 1 / 3, 1, 2 / 3]) / 0.25) / 4)
    assert p == pytest.approx(0.9 * w / w.sum() + 0.025, abs=1e-15)
    # quantiles 10 and 40, none of 4 below 10, all below 40; a unit is 0.1 of the range of both, 50 - 10
    low, high = 10 + 4 * (0.25 - 0), 40 + 4 * (0.75 - 0.75)
    rewards = np.clip((np.array([20, 30, 50, 11]) - low) / (high - low), 0, 1)
    w *= np.exp(0.3 * (rewards / p) / 4)
    assert bandit.update([20, 30, 50, 11]) == pytest.approx(0.9 * w / w.sum() + 0.025, abs=1e-15)


def test_odm_step_by_step() -> None:
    bandit = ODM(2, decay=0.9)

    def eps(turn: int) -> float:
        return min(0.5, math.sqrt(math.log(2) / (2 * turn)))

    rewards, p = np.zeros(2), np.array([0.5, 0.5])
    for turn, losses in ((1, [4.0, 2.0]), (2, [3.0, 2.5])):
        rewards = 0.9 * rewards + 0.1 * np.array(losses) / p
        soft = np.exp(eps(turn) * rewards)
        p = (1 - 2 * eps(turn + 1)) * soft / soft.sum() + eps(turn + 1)
        assert bandit.update(losses) == pytest.approx(p, abs=1e-15)
    # in numbers: eps(1) = .5, eps(2) = .416277, rewards .8 and .4: .416277 + .167446 * softmax(.4, .2)[0] = .549834
    assert ODM(2).update([4.0, 2.0])[0] == pytest.approx(0.508344, abs=1e-6)


def test_odm_learns_while_it_warms_up() -> None:
    warm, cold = ODM([3, 1], warmup=2), ODM([3, 1])
    for _ in range(2):
        assert warm.update([4.0, 1.0]) == pytest.approx([0.75, 0.25], abs=1e-15)
        cold.update([4.0, 1.0])
    after = warm.update([4.0, 1.0])
    assert after[0] > 0.5
    assert after.tolist() != [0.75, 0.25]


def test_doremi_step_by_step() -> None:
    bandit = DoReMi([0.5, 0.3, 0.2], reference=[2.0, 2.0, 2.0])
    p, seen = np.array([0.5, 0.3, 0.2]), []
    for losses in ([2.4, 1.5, 3.0], [2.2, 2.1, 2.0]):
        w = p * np.exp(np.maximum(np.array(losses) - 2, 0))
        p = (1 - 1e-3) * w / w.sum() + 1e-3 / 3
        seen.append(p)
        assert bandit.update(losses) == pytest.approx(p, abs=1e-15)
    assert bandit.average == pytest.approx(np.mean(seen, axis=0), abs=1e-15)
    # in numbers: .5 e^.4 = .745912, .3, .2 e = .543656, of 1.589568
    assert DoReMi([0.5, 0.3, 0.2]).update([0.4, -0.5, 1.0])[0] == pytest.approx(0.469120, abs=2e-6)


@pytest.mark.parametrize("wrong", [0.5, (0.1,), "ab", (0.9, 0.1), ("a", 1)])
def test_quantiles_that_are_none_are_errors(wrong) -> None:
    with pytest.raises(MixtureError, match=r"^quantiles"):
        EXP3(3, quantiles=wrong)


@pytest.mark.parametrize("wrong", [5, None, [(1,)], ["ab"], [("x", [1, 2, 3])], [(1, [1, 2])], "stages"])
def test_stages_that_are_none_are_errors(wrong) -> None:
    with pytest.raises(MixtureError, match=r"^stages"):
        Curriculum(3, stages=wrong)


@pytest.mark.parametrize("wrong", ["abc", None, ["a", 1, 2], [[1, 2, 3]], [1, 2], [1j, 2, 3]])
def test_scores_that_are_none_are_errors(wrong) -> None:
    for name in ("exp3", "ado", "fixed"):
        with pytest.raises(StateError, match=r"^scores must"):
            make_bandit(name, 3).update(wrong, [1, 1, 1])


def test_ado_fits_the_law_that_losses_follow() -> None:
    bandit = ADO([0.5, 0.3, 0.2], warmup=30, refit=5, ignore=0)
    eps, beta, alpha = np.array([1.0, 2.0, 0.0]), np.array([8.0, 4.0, 6.0]), np.array([0.3, 0.5, 0.1])
    for update in range(1, 41):
        bandit.update(eps + beta * (100.0 * update) ** -alpha, [50, 30, 20])
    assert bandit.laws == pytest.approx(np.stack([eps, beta, alpha]), rel=1e-6, abs=1e-6)


def huber(losses: np.ndarray, eps: float, beta: float, alpha: float, rows: np.ndarray) -> float:
    """Return Huber's loss of the logarithm, bent at 1e-3."""
    off = np.abs(np.log(losses) - np.log(eps + beta * rows**-alpha))
    return float(np.where(off > 1e-3, 1e-3 * (off - 0.5e-3), off**2 / 2).sum())


@pytest.mark.parametrize("seed", range(4))
def test_ado_fits_by_hubers_loss_of_the_log(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = 100.0 * np.arange(1, 61)
    laws = np.array([[1.2, 2.1], [8.0, 4.0], [0.31, 0.47]])
    losses = (laws[0] + laws[1] * rows[:, None] ** -laws[2]) * np.exp(random.normal(0, 0.003, (60, 2)))
    losses[random.choice(60, 6, replace=False)] *= 1.8  # spikes
    bandit = ADO(2, warmup=60, refit=1, ignore=0)
    for each in losses:
        bandit.update(each, [50, 50])
    for source in range(2):
        found = huber(losses[:, source], *bandit.laws[:, source], rows)
        assert found <= 1.005 * huber(losses[:, source], *laws[:, source], rows)
        best = scipy.optimize.minimize(
            lambda law, source=source: huber(losses[:, source], *np.abs(law), rows), bandit.laws[:, source],
            method="Nelder-Mead", options={"maxiter": 2000, "xatol": 1e-7, "fatol": 1e-12},
        )  # fmt: skip
        assert found <= 1.01 * best.fun


def test_ado_step_by_step() -> None:
    prior = np.array([0.6, 0.4])
    bandit = ADO(prior, warmup=6, refit=100, ignore=0, least=0.05)
    eps, beta, alpha = np.array([1.0, 2.0]), np.array([8.0, 4.0]), np.array([0.3, 0.5])
    recent, mean = prior.copy(), prior.copy()
    rows, share = 0, np.array([0.75, 0.25])
    for update in range(1, 8):
        rows += 40
        recent = 0.9 * recent + 0.1 * share
        p = bandit.update(eps + beta * float(rows) ** -alpha, [30, 10])
        if update < 6:
            assert p == pytest.approx(prior, abs=1e-15)
            continue
        speed = alpha * beta * float(rows) ** -alpha / rows
        rho = prior * np.sqrt(recent) * speed
        rho = np.maximum(rho / rho.sum(), 0.05)
        rho /= rho.sum()
        assert p == pytest.approx(0.1 * rho + 0.9 * mean, abs=1e-9)
        mean += (rho - mean) / (update + 1)


def test_ado_without_losses_stays_at_the_prior() -> None:
    bandit = ADO([0.6, 0.4], warmup=2, refit=1, ignore=0)
    for _ in range(20):
        p = bandit.update([math.nan, math.nan], [3, 2])
    assert p == pytest.approx([0.6, 0.4], abs=1e-15)


def test_ado_gives_a_source_without_a_law_the_others_speed() -> None:
    bandit = ADO(3, warmup=5, refit=1, ignore=0)
    for update in range(1, 30):
        p = bandit.update([1 + 5 / update**0.3, math.nan, 1 + 5 / update**0.3], [10, 10, 10])
    assert np.isnan(bandit.laws[:, 1]).all()
    assert p == pytest.approx([1 / 3] * 3, abs=1e-9)


def test_a_long_run_keeps_a_small_state() -> None:
    bandit = ADO(2, warmup=5, refit=10**6, ignore=0)
    for update in range(1, 1500):
        bandit.update([1 + 5 / update, 2 + 1 / update], [3, 1])
    curve = bandit.state_dict()["curve"]
    assert len(curve["at"]) <= 128
    assert sum(updates for _, updates in curve["at"]) == 1499


def test_fixed_and_curriculum() -> None:
    assert Fixed([3, 1]).update([9.0, 1.0]).tolist() == [0.75, 0.25]
    for passage, way in (("hold", 0.0), ("linear", 0.25), ("cosine", (1 - math.cos(math.pi / 4)) / 2)):
        bandit = Curriculum([3, 1], stages=[(100, [0, 1])], passage=passage)
        assert bandit.update([0.0, 0.0], [20, 5]) == pytest.approx([0.75 * (1 - way), 0.25 + 0.75 * way], abs=1e-15)
        assert bandit.update([0.0, 0.0], [50, 25]).tolist() == [0, 1]
        assert bandit.update([0.0, 0.0], [50, 25]).tolist() == [0, 1]


# --- a controller that does not blow up
START = [0.67, 0.045, 0.045, 0.02, 0.045, 0.025, 0.15]


@pytest.mark.filterwarnings("ignore::cuvee.bandits.LowEntropyWarning")
@pytest.mark.parametrize("normalize", ["quantile", "none"])
def test_sources_absent_from_most_batches_do_no_harm(normalize: str) -> None:
    random = np.random.default_rng(7)
    bandit = EXP3(START, normalize=normalize)
    p = bandit.probabilities
    last = np.full(7, np.nan)
    for _ in range(20_000):
        counts = random.multinomial(32, p)
        losses = random.uniform(0, 12, 7)
        last = np.where(counts > 0, losses, last)
        before = dict(bandit.state_dict()) if counts.min() == 0 and bandit.updates < 50 else None
        p = bandit.update(last, counts)
        assert np.isfinite(p).all()
        assert abs(math.fsum(p) - 1) <= 1e-12
        assert (p >= 0.1 / 7 * (1 - 1e-12)).all()
        if before is not None:
            moved = np.subtract(bandit.state_dict()["log_weights"], before["log_weights"])[counts == 0]
            assert np.ptp(moved) <= 1e-12  # all by the shift that keeps the largest at 0


def test_constant_rewards_never_overflow() -> None:
    bandit = EXP3(2, eta=0.3, gamma=0.1, normalize="none")
    for _ in range(50_000):
        p = bandit.update([2.3, 2.0])
    assert np.isfinite(p).all()
    assert p[0] / p[1] == pytest.approx(2.3 / 2.0, rel=1e-6)  # where score / p is the same for both


def after(bandit: EXP3, scores: np.ndarray, updates: int) -> np.ndarray:
    for _ in range(updates):
        bandit.update(scores)
    return bandit.probabilities


@pytest.mark.parametrize("normalize", ["quantile", "none"])
def test_one_source_that_earns_all_is_told_of_once(normalize: str) -> None:
    bandit = EXP3(7, normalize=normalize)
    with pytest.warns(LowEntropyWarning, match=r"exp3.*: .* source 0 has .* raise gamma or entropy_floor") as told:
        p = after(bandit, np.array([1.0] + [0.0] * 6), 10_000)
    assert len(told) == 1
    assert told[0].filename == __file__
    assert p.max() <= 1 - 0.1 + 0.1 / 7 + 1e-15
    assert (p >= 0.1 / 7 * (1 - 1e-12)).all()


@pytest.mark.filterwarnings("ignore::cuvee.bandits.LowEntropyWarning")
@pytest.mark.parametrize("share", [0.2, 0.6, 0.9])
def test_entropy_has_a_floor(share: float) -> None:
    bandit = EXP3(7, entropy_floor=share)
    p = after(bandit, np.array([1.0] + [0.0] * 6), 500)
    assert -math.log((p * p).sum()) == pytest.approx(share * math.log(7), abs=1e-12)
    assert -(p * np.log(p)).sum() > share * math.log(7)
    assert bandit.effective_sources == pytest.approx(7**share, rel=1e-9)


def test_a_source_that_was_worst_recovers() -> None:
    bandit = EXP3(3)
    after(bandit, np.array([1.0, 0.5, 0.0]), 20_000)
    assert after(bandit, np.array([0.0, 0.5, 1.0]), 100).argmax() == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exp3", "exp3_bounded", "odm", "doremi"])
@pytest.mark.filterwarnings("ignore::cuvee.bandits.LowEntropyWarning")
def test_a_million_updates_stay_finite(name: str) -> None:
    random = np.random.default_rng(11)
    blocks = random.uniform(0, 12, (1000, 5))
    blocks[random.random((1000, 5)) < 0.2] = np.nan
    bandit = make_bandit(name, 5)
    for update in range(1_000_000):
        bandit.queue(blocks[update % 1000])
    p = bandit.probabilities
    assert np.isfinite(bandit.state_dict()["log_weights"]).all()
    assert abs(math.fsum(p) - 1) <= 1e-12
    assert p.min() > 0


@pytest.mark.parametrize("name", ["exp3", "exp3_bounded", "odm", "doremi", "ado", "learning_speed"])
@pytest.mark.filterwarnings("ignore::cuvee.bandits.LowEntropyWarning")
def test_wild_scores_are_survived(name: str) -> None:
    bandit = make_bandit(name, 4)
    for scores in ([1e308, -1e308, 5e-324, 0.0], [math.inf, -math.inf, math.nan, 1.0], [-1e308] * 4, [1e308] * 4) * 20:
        p = bandit.update(scores)
        assert abs(math.fsum(p) - 1) <= 1e-12
        assert (p > 0).all()


def test_scores_that_are_all_unknown_change_nothing() -> None:
    for name in ("exp3", "exp3_bounded", "doremi"):
        bandit = make_bandit(name, [0.5, 0.3, 0.2])
        first = bandit.update([1.0, 2.0, 3.0])
        assert bandit.update([math.nan] * 3) == pytest.approx(first, abs=1e-3 if name == "doremi" else 1e-15)


# --- floors and caps
@pytest.mark.parametrize("name", ["exp3", "exp3_bounded", "odm", "doremi", "ado", "learning_speed"])
@pytest.mark.filterwarnings("ignore::cuvee.bandits.LowEntropyWarning")
def test_floors_and_caps_per_source(name: str) -> None:
    floor, cap = np.array([0.0, 0.3, 0.05, 0.0]), np.array([0.4, 1.0, 0.2, 0.25])
    bandit = make_bandit(name, 4, floor=floor, cap=cap, **OPTIONS[name])
    for update in range(1, 200):
        p = bandit.update([90.0 / update, 0.1, 30.0 / update, 5.0], [5, 5, 5, 5])
        assert (p >= floor).all()
        assert (p <= cap).all()
        assert abs(math.fsum(p) - 1) <= 1e-12


# --- states
@pytest.mark.filterwarnings("ignore::cuvee.bandits.LowEntropyWarning")
@pytest.mark.parametrize("name", BANDITS)
def test_going_on_from_a_state_is_as_if_nothing_had_stopped(name: str) -> None:
    random = np.random.default_rng(3)
    scores, counts = random.uniform(0.1, 12, (40, 3)), random.integers(0, 9, (40, 3))
    whole, first, second = (make_bandit(name, [3, 2, 1], **OPTIONS[name]) for _ in range(3))
    expected = [whole.update(*each).tolist() for each in zip(scores, counts, strict=True)]
    got = [first.update(*each).tolist() for each in zip(scores[:17], counts[:17], strict=True)]
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.probabilities.tolist() == first.probabilities.tolist()
    got += [second.update(*each).tolist() for each in zip(scores[17:], counts[17:], strict=True)]
    assert got == expected
    assert second.state_dict() == whole.state_dict()


@pytest.mark.parametrize("name", BANDITS)
def test_a_state_of_another_bandit_is_refused(name: str) -> None:
    bandit = make_bandit(name, 3, **OPTIONS[name])
    state = bandit.state_dict()
    for wrong in (None, {}, {**state, "version": 99}, {**state, "algorithm": "ucb"}):
        with pytest.raises(StateError, match="state"):
            bandit.load_state_dict(wrong)
    other = make_bandit(name, [5, 2, 1, 1], **{**OPTIONS[name], **({"stages": []} if name == "curriculum" else {})})
    with pytest.raises(StateError, match="must be"):
        other.load_state_dict(state)
    assert bandit.state_dict() == state


def test_a_state_of_other_settings_or_broken_is_refused() -> None:
    state = EXP3(3).state_dict()
    with pytest.raises(StateError, match="settings"):
        EXP3(3, eta=0.2).load_state_dict(state)
    with pytest.raises(StateError, match="settings"):
        EXP3(3, cap=0.9).load_state_dict(state)
    for name, value in (("probabilities", [1, 1, 1]), ("log_weights", [0, None, 0]), ("summary", [0]), ("updates", -1)):
        with pytest.raises(StateError, match=name.split("_")[0]):
            EXP3(3).load_state_dict({**state, name: value})


# --- what is refused
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"initial": 0}, "initial must be an integer"),
        ({"initial": [1, 0]}, "initial must be finite and positive"),
        ({"initial": [1, math.nan]}, "initial must be finite and positive"),
        ({"initial": []}, "initial must have 1 to 65536"),
        ({"initial": [[1, 2]]}, "initial must have shape"),
        ({"initial": "ab"}, "initial must be numbers"),
        ({"initial": 70_000}, "initial must be an integer"),
        ({"eta": 0}, r"eta must be a number in \(0, inf\)"),
        ({"eta": True}, "eta must be a number"),
        ({"gamma": 1.5}, r"gamma must be a number in \[0, 1\]"),
        ({"normalize": "quantiles"}, "normalize must be one of .* did you mean 'quantile'"),
        ({"floor": 0.6}, "floor must sum to at most 1"),
        ({"cap": [0.2, 0.3]}, "cap to at least 1"),
        ({"floor": [0.5, 0.1], "cap": [0.4, 1]}, "0 <= floor <= cap <= 1"),
        ({"floor": [0.1, 0.1, 0.1]}, "floor must have shape"),
        ({"quantiles": (0.9, 0.1)}, "quantiles"),
        ({"rate": 0}, "rate must be"),
        ({"entropy_floor": 1}, "entropy_floor must be"),
        ({"device": "tpu"}, "device must be"),
    ],
)
def test_settings_out_of_range_are_named(options: dict[str, Any], told: str) -> None:
    with pytest.raises(MixtureError, match=told):
        EXP3(**{"initial": 2, **options})


def test_names_and_options_are_checked() -> None:
    with pytest.raises(MixtureError, match=r"algorithm must be one of .* did you mean 'exp3'"):
        make_bandit("exp", 2)
    with pytest.raises(MixtureError, match=r"option of odm must be one of .* did you mean 'warmup'"):
        make_bandit("odm", 2, warm_up=3)
    with pytest.raises(MixtureError, match=r"stages\[1\] rows"):
        Curriculum(2, stages=[(5, [1, 1]), (5, [1, 1])])
    with pytest.raises(MixtureError, match=r"stages\[0\] weights"):
        Curriculum(2, stages=[(5, [0, 0])])
    assert {make_bandit(name, 3, **OPTIONS[name]).algorithm for name in BANDITS} == set(BANDITS)


@pytest.mark.parametrize("name", BANDITS)
def test_scores_and_counts_are_checked(name: str) -> None:
    bandit = make_bandit(name, 3, **OPTIONS[name])
    before = bandit.state_dict()
    for scores, counts in (
        ([1.0, 2.0], [1, 1, 1]),
        ([[1.0, 2.0, 3.0]], [1, 1, 1]),
        ([1.0, 2.0, 3.0], [1, 1]),
        ([1.0, 2.0, 3.0], [1, -1, 1]),
        ([1.0, 2.0, 3.0], np.array([1, -1, 1])),
        ([1.0, 2.0, 3.0], [1.0, 1.0, 1.0]),
    ):
        with pytest.raises(StateError, match=r"(scores|counts) must"):
            bandit.update(scores, counts)
    assert bandit.state_dict() == before


def test_returned_weights_are_copies() -> None:
    bandit = EXP3(2)
    p = bandit.update([1.0, 2.0])
    kept = p.copy()
    p[:] = 0
    bandit.probabilities[:] = 0
    assert bandit.probabilities.tolist() == kept.tolist()


def test_the_example_in_the_documentation_runs() -> None:
    assert doctest.testmod(cuvee.bandits) == doctest.TestResults(failed=0, attempted=3)


# --- numbers that have no float, weights that have no ratio
@pytest.mark.parametrize("name", BANDITS)
def test_numbers_beyond_floats_are_told(name: str) -> None:
    options = OPTIONS[name]
    with pytest.raises(MixtureError, match=r"^initial must be"):
        make_bandit(name, [10**400, 1, 1], **options)
    with pytest.raises(MixtureError, match=r"^initial must be weights within a factor of 1e300"):
        make_bandit(name, [5e-324, 1e308, 1], **options)
    with pytest.raises(StateError, match=r"^scores must be numbers"):
        make_bandit(name, 3, **options).update([10**400, 1, 1], [1, 1, 1])
    with pytest.raises(StateError, match=r"^counts must be"):
        make_bandit(name, 3, **options).update([1.0, 2.0, 3.0], [1, 2, 2**64])


@pytest.mark.parametrize("bound", [10**400, [[1], [1, 2]], "0.1", True])
def test_bounds_that_are_no_numbers_are_told(bound: Any) -> None:
    with pytest.raises(MixtureError, match=r"^floor must"):
        EXP3(2, floor=bound)


@pytest.mark.parametrize(
    ("name", "value"),
    [("probabilities", [9, 9, 9]), ("recent", [-1, 1, 1]), ("mean", [9, 9, 9]), ("at", 5), ("at", [[-5, 1]] * 4)],
)
def test_ado_refuses_impossible_numbers(name: str, value: Any) -> None:
    bandit = make_bandit("ado", 3, **OPTIONS["ado"])
    for update in range(1, 6):
        bandit.update([5 / update, 4, 3], [4, 4, 4])
    state = json.loads(json.dumps(bandit.state_dict()))
    (state["curve"] if name == "at" else state)[name] = value
    with pytest.raises(StateError, match=r"^state "):
        make_bandit("ado", 3, **OPTIONS["ado"]).load_state_dict(state)
