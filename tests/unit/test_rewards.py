"""Rewards: what each is worth by hand and by a plain reference, what is kept of sources unseen, and what is refused."""
# ruff: noqa: TID253

import doctest
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cuvee.rewards
from cuvee.errors import CuveeError, StateError
from cuvee.rewards import (
    Combined,
    Entropy,
    LastEstimate,
    Reward,
    RewardFunction,
    as_reward,
    entropies,
    make_reward,
    register_reward,
    report_column,
    reward_names,
    sequence_entropies,
)

NAN = math.nan
E = math.e

# reward: report, scores of 3 sources worked by hand; the third source is not seen
BY_HAND = {
    "train_loss": ({"loss_sum": [6.0, 9.0, 0.0], "tokens": [4, 3, 0]}, [1.5, 3.0, NAN]),
    "validation_loss": ({"eval_loss": [2.5, 0.0, NAN]}, [2.5, 0.0, NAN]),
    "gradnorm": ({"gradnorm": [0.9999, 0.0, NAN]}, [1.0, 1e4, NAN]),
    "entropy": ({"entropy_sum": [1.5, 0.0, 0.0], "entropy_rows": [2, 5, 0]}, [0.75, 0.0, NAN]),
    "entropy_last_token": ({"last_entropy_sum": [0.5, 5.0, 0.0], "entropy_rows": [2, 5, 0]}, [0.25, 1.0, NAN]),
    "entropy3_varent1": (
        {"entropy_sum": [1.0, 4.0, 0.0], "varentropy_sum": [0.5, 0.0, 0.0], "entropy_rows": [2, 4, 0]},
        [0.75 * 0.5 + 0.25 * 0.25, 0.75, NAN],
    ),
    "learnability": ({"zero_shot_loss": [4.0, 2.0, NAN], "few_shot_loss": [1.0, 3.0, NAN]}, [0.75, -0.5, NAN]),
    "velocity": ({"eval_loss": [2.0, 3.0, NAN]}, [0.0, 0.0, NAN]),
    "combined": (
        {
            "zero_shot_loss": [4.0, 2.0, NAN],
            "few_shot_loss": [1.0, 3.0, 1.0],
            "eval_loss": [2.0, 3.0, NAN],
            "step": 50,
            "total_steps": 100,
        },
        [math.exp(-0.5) * 0.75, math.exp(-0.5) * -0.5, NAN],
    ),
}
REWARDS = sorted(BY_HAND)


def report_for(reward: RewardFunction, rng: np.random.Generator, sources: int = 3) -> dict:
    """Return a report of random values in which each source is missing now and then."""
    seen = rng.random(sources) < 0.6
    rows = np.where(seen, rng.integers(1, 9, sources), 0)
    losses = {
        name: np.where(seen, rng.uniform(0.1, 12, sources), NAN)
        for name in ("eval_loss", "zero_shot_loss", "few_shot_loss", "gradnorm")
    }
    parts = {name: rows * rng.random(sources) for name in ("entropy_sum", "varentropy_sum", "last_entropy_sum")}
    counts = {"tokens": rows, "entropy_rows": rows, "loss_sum": rows * rng.uniform(0, 12, sources)}
    whole = {**losses, **parts, **counts, "step": int(rng.integers(0, 100)), "total_steps": 100}
    return {name: whole[name] for name in reward.needs}


@pytest.mark.parametrize("name", REWARDS)
def test_scores_are_those_worked_by_hand(name: str) -> None:
    report, scores = BY_HAND[name]
    reward = make_reward(name, 3)
    assert isinstance(reward, RewardFunction)
    assert set(reward.needs) == set(report)
    assert np.isnan(reward.scores()).all()
    reward.observe(report)
    assert reward.scores().dtype == np.float64
    np.testing.assert_allclose(reward.scores(), scores, rtol=1e-15)


def test_velocity_compares_with_the_loss_before_of_the_same_source() -> None:
    reward = make_reward("velocity", 2)
    seen = []
    for losses in ([4.0, NAN], [3.0, 5.0], [NAN, 6.0], [1.5, NAN], [0.0, NAN], [2.0, NAN]):
        reward.observe({"eval_loss": losses})
        seen.append(reward.scores().tolist())
    assert seen[0][0] == 0.0
    assert math.isnan(seen[0][1])
    assert seen[1:] == [
        [0.25, 0.0],
        [0.25, 1 - 6.0 / 5.0],
        [0.5, 1 - 6.0 / 5.0],
        [1.0, 1 - 6.0 / 5.0],
        [0.0, -0.19999999999999996],
    ]


def test_velocity_of_training_losses_needs_no_evaluation() -> None:
    reward = make_reward("velocity", 2, loss="train")
    assert set(reward.needs) == {"loss_sum", "tokens"}
    assert set(make_reward("velocity", 2).needs) == {"eval_loss"}
    for sums in ([8.0, 2.0], [6.0, 2.0]):
        reward.observe({"loss_sum": sums, "tokens": [2, 1]})
    assert reward.scores().tolist() == [0.25, 0.0]


def test_combined_goes_from_learnability_to_velocity() -> None:
    reward = Combined(1, beta=2.0)
    report = {"zero_shot_loss": [4.0], "few_shot_loss": [1.0], "total_steps": 100}
    worked = {
        0: 0.75,
        25: math.exp(-0.5) * 0.75 + (1 - math.exp(-0.5)) * 0.5,
        100: math.exp(-2) * 0.75 + (1 - math.exp(-2)) * 0.5,
    }
    for (step, score), loss in zip(worked.items(), (8.0, 4.0, 2.0), strict=True):
        reward.observe({**report, "eval_loss": [loss], "step": step})
        assert reward.scores()[0] == pytest.approx(score, rel=1e-15)
    reward.observe({**report, "eval_loss": [2.0], "step": 100, "total_steps": None})
    assert reward.scores()[0] == 0.75


def test_combined_has_a_score_once_both_parts_have_one() -> None:
    reward = make_reward("combined", 2, loss="train")
    assert set(reward.needs) == {"zero_shot_loss", "few_shot_loss", "loss_sum", "tokens", "step", "total_steps"}
    report = {"zero_shot_loss": [2.0, 2.0], "few_shot_loss": [1.0, 1.0], "step": 0, "total_steps": 9}
    reward.observe({**report, "loss_sum": [3.0, 0.0], "tokens": [2, 0]})
    np.testing.assert_array_equal(reward.scores(), [0.5, NAN])


@pytest.mark.parametrize("name", REWARDS)
def test_a_source_unseen_keeps_its_last_score(name: str) -> None:
    reward = make_reward(name, 3)
    rng = np.random.default_rng(1)
    known = np.full(3, NAN)
    for _ in range(40):
        report = report_for(reward, rng)
        present = np.logical_or.reduce(
            [np.nan_to_num(np.asarray(v, dtype=float)) > 0 for v in report.values() if np.ndim(v)]
        )
        reward.observe(report)
        now = reward.scores()
        if name != "combined":  # its weight of the two parts moves on
            np.testing.assert_array_equal(now[~present], known[~present])
        assert np.isfinite(now[present]).all()
        known = now
    assert np.isfinite(known).all()


@pytest.mark.parametrize("name", REWARDS)
def test_loading_a_state_goes_on_as_if_nothing_had_happened(name: str) -> None:
    rng = np.random.default_rng(2)
    whole, half = make_reward(name, 3), make_reward(name, 3)
    reports = [report_for(whole, rng) for _ in range(12)]
    for report in reports[:5]:
        whole.observe(report)
        half.observe(report)
    resumed = make_reward(name, 3)
    resumed.load_state_dict(json.loads(json.dumps(half.state_dict(), allow_nan=False)))
    np.testing.assert_array_equal(resumed.scores(), whole.scores())
    for report in reports[5:]:
        whole.observe(report)
        resumed.observe(report)
        np.testing.assert_array_equal(resumed.scores(), whole.scores())
    assert resumed.state_dict() == whole.state_dict()


@pytest.mark.parametrize("name", REWARDS)
def test_two_rewards_share_nothing(name: str) -> None:
    rng = np.random.default_rng(3)
    first, second = make_reward(name, 3), make_reward(name, 3)
    first.observe(report_for(first, rng))
    assert np.isnan(second.scores()).all()
    first.scores()[:] = 7.0
    assert not (first.scores() == 7.0).any()


@settings(max_examples=50, deadline=None)
@given(
    rounds=st.lists(
        st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 2**40)), min_size=4, max_size=4), min_size=1, max_size=6
    )
)
def test_train_loss_is_that_of_a_plain_loop(rounds: list) -> None:
    reward = make_reward("train_loss", 4)
    known = [NAN] * 4
    for report in rounds:
        reward.observe({"loss_sum": [loss for loss, _ in report], "tokens": [tokens for _, tokens in report]})
        known = [loss / tokens if tokens else last for (loss, tokens), last in zip(report, known, strict=True)]
        np.testing.assert_array_equal(reward.scores(), known)


@settings(max_examples=50, deadline=None)
@given(
    rounds=st.lists(st.lists(st.one_of(st.just(NAN), st.floats(1e-3, 1e3)), min_size=3, max_size=3), max_size=8),
    few=st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=3),
    beta=st.floats(0, 10),
)
def test_velocity_and_combined_are_those_of_a_plain_loop(rounds: list, few: list, beta: float) -> None:
    velocity, combined = make_reward("velocity", 3), make_reward("combined", 3, beta=beta)
    known: list[tuple[float, float]] = [(NAN, NAN)] * 3  # score, loss
    for step, losses in enumerate(rounds):
        shots = {"few_shot_loss": few, "zero_shot_loss": [2.0] * 3, "step": step, "total_steps": 8}
        velocity.observe({"eval_loss": losses})
        combined.observe({"eval_loss": losses, **shots})
        for source, loss in enumerate(losses):
            before = known[source][1]
            if not math.isnan(loss):
                known[source] = (0.0 if math.isnan(before) else 1 - loss / before, loss)
        scores = [score for score, _ in known]
        a = math.exp(-beta * step / 8)
        np.testing.assert_array_equal(velocity.scores(), scores)
        np.testing.assert_allclose(
            combined.scores(),
            [a * (1 - shot / 2.0) + (1 - a) * score for shot, score in zip(few, scores, strict=True)],
            rtol=1e-12,
            atol=1e-12,
        )


@pytest.mark.parametrize("name", REWARDS)
def test_what_is_not_finite_is_not_measured(name: str) -> None:
    reward = make_reward(name, 3)
    report = dict(BY_HAND[name][0])
    reward.observe(report)
    known = reward.scores()
    counts = ("tokens", "entropy_rows", "step", "total_steps")
    for value in (NAN, math.inf):
        reward.observe({key: old if key in counts else [value] * 3 for key, old in report.items()})
        np.testing.assert_array_equal(reward.scores(), known)


def test_losses_of_nothing_give_no_reward() -> None:
    learnability, velocity = make_reward("learnability", 1), make_reward("velocity", 1)
    learnability.observe({"zero_shot_loss": [0.0], "few_shot_loss": [1.0]})
    assert learnability.scores().tolist() == [0.0]
    for loss in (5e-324, 12.0):  # whose ratio no float64 can hold
        velocity.observe({"eval_loss": [loss]})
    assert velocity.scores().tolist() == [0.0]


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("train_loss", {"loss_sum": None}, r"report\['loss_sum'\] must be an array of 3 numbers, but got None"),
        ("train_loss", {"loss_sum": [1.0, 2.0]}, r"report\['loss_sum'\] must have shape \(3,\).*got \(2,\)"),
        ("train_loss", {"loss_sum": [[1.0, 2.0, 3.0]]}, r"must have shape \(3,\).*got \(1, 3\)"),
        ("train_loss", {"loss_sum": ["a", "b", "c"]}, r"must be an array of 3 numbers, but got \['a', 'b', 'c'\]"),
        ("train_loss", {"loss_sum": {"a": 1.0}}, r"must be an array of 3 numbers"),
        ("train_loss", {"tokens": [1, -1, 1]}, r"report\['tokens'\] must be finite and at least 0, but got .*-1"),
        ("train_loss", {"tokens": [1, NAN, 1]}, r"report\['tokens'\] must be finite and at least 0"),
        ("gradnorm", {"gradnorm": [1.0, -1e-4, 1.0]}, r"norms must be at least 0, but got -0.0001"),
        ("entropy", {"entropy_sum": [9.0, 1.0, 0.0]}, r"must be in \[0, 1\], but got 4.5; add up what"),
        ("entropy3_varent1", {"varentropy_sum": [-1.0, 1.0, 0.0]}, r"must be in \[0, 1\], but got -0.5"),
        ("combined", {"step": None}, r"step must be a number where total_steps is one, but got None"),
        ("combined", {"step": -1}, r"report\['step'\] must be finite and at least 0, but got -1"),
        ("combined", {"total_steps": "many"}, r"report\['total_steps'\] must be an array of 1 numbers"),
        ("combined", {"eval_loss": [1.0]}, r"report\['eval_loss'\] must have shape"),
    ],
)  # fmt: skip
def test_a_wrong_report_is_an_error_and_changes_nothing(name: str, wrong: dict, message: str) -> None:
    reward = make_reward(name, 3)
    reward.observe(BY_HAND[name][0])
    before = reward.state_dict()
    with pytest.raises(CuveeError, match=message):
        reward.observe({**BY_HAND[name][0], **wrong})
    assert reward.state_dict() == before


@pytest.mark.parametrize("name", REWARDS)
def test_a_report_that_lacks_something_names_it(name: str) -> None:
    reward = make_reward(name, 3)
    report = BY_HAND[name][0]
    for missing in report:
        with pytest.raises(CuveeError, match=f"report must hold '{missing}', but got only"):
            reward.observe({key: value for key, value in report.items() if key != missing})
    with pytest.raises(CuveeError, match="report must be a mapping, but got list"):
        reward.observe([1.0, 2.0, 3.0])
    assert np.isnan(reward.scores()).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "must be of version 1, but got 2"),
        ({"reward": "TrainLoss"}, "must be of Velocity, but got one of 'TrainLoss'"),
        ({"scores": [1.0, 2.0]}, r"scores in a reward's state must be 3 numbers or None.*\[1.0, 2.0\]"),
        ({"before": None}, "before in a reward's state must be 3 numbers or None"),
        ({"before": [1.0, "2", None]}, "before in a reward's state must be 3 numbers or None"),
        ({"before": [1.0, math.inf, None]}, "before in a reward's state must be 3 numbers or None"),
    ],
)
def test_a_foreign_state_is_refused_and_changes_nothing(change: dict, message: str) -> None:
    reward = make_reward("velocity", 3)
    reward.observe({"eval_loss": [1.0, 2.0, NAN]})
    before = reward.state_dict()
    with pytest.raises(StateError, match=message):
        reward.load_state_dict({**before, **change})
    with pytest.raises(StateError, match="must be a mapping, but got NoneType"):
        reward.load_state_dict(None)
    assert reward.state_dict() == before


def test_a_foreign_state_of_combined_is_refused_and_changes_nothing() -> None:
    reward = make_reward("combined", 3)
    reward.observe(BY_HAND["combined"][0])
    before = reward.state_dict()
    two = make_reward("combined", 2).state_dict()
    for wrong in (
        {**before, "velocity": two["velocity"]},
        {**before, "share": NAN},
        {**before, "learnability": {}},
        two,
    ):
        with pytest.raises(StateError):
            reward.load_state_dict(wrong)
        assert reward.state_dict() == before


def test_the_enum_has_the_nine_and_all_of_them_are_made() -> None:
    assert [reward.name for reward in Reward] == [
        "ENTROPY", "ENTROPY3_VARENT1", "ENTROPY_LAST_TOKEN", "TRAIN_LOSS", "VALIDATION_LOSS", "GRADNORM",
        "LEARNABILITY", "VELOCITY", "COMBINED",
    ]  # fmt: skip
    assert set(Reward) <= set(reward_names())
    for reward in Reward:
        assert type(make_reward(reward, 2)) is type(make_reward(reward.name, 2)) is type(make_reward(reward.value, 2))
        assert as_reward(reward) is as_reward(reward.name) is as_reward(reward.value) is reward


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_reward("entropi", 2), "reward must be one of .* but got 'entropi'; did you mean 'entropy'"),
        (lambda: make_reward(None, 2), "reward must be one of .* but got None"),
        (lambda: make_reward("entropy", 0), r"sources must be an integer in \[1, .* but got 0"),
        (lambda: make_reward("entropy", ["a"]), r"sources must be an integer .* but got \['a'\]"),
        (
            lambda: make_reward("combined", 2, bete=1),
            r"options .*\['beta', 'loss'\], but got 'bete'; did you",
        ),
        (lambda: make_reward("combined", 2, beta=-1.0), "beta must be a finite number and at least 0, but got -1.0"),
        (lambda: make_reward("velocity", 2, loss="test"), "loss must be one of .* but got 'test'"),
        (lambda: as_reward("loss"), "reward_type must be one of .* but got 'loss'"),
        (lambda: register_reward("My reward"), "reward name must be of lower-case letters.* but got 'My reward'"),
        (
            lambda: register_reward("entropy")(Squared),
            "must not be taken, but got 'entropy', the name of cuvee.rewards",
        ),
        (
            lambda: register_reward("broken")(object),
            r"must have needs, from_training, observe.* but object lacks \['needs', 'from_training', 'observe'",
        ),
    ],
)
def test_wrong_names_and_options_are_clear_errors(call, message: str) -> None:
    with pytest.raises(CuveeError, match=message):
        call()
    assert "broken" not in reward_names()


@register_reward("test_squared")
class Squared(LastEstimate):
    """A user's own reward, in the user's own file."""

    needs = frozenset({"eval_loss", "length"})  # the second is the user's own too

    def __init__(self, sources: int, *, power: float = 2.0) -> None:
        super().__init__(sources)
        self.power = power

    def measure(self, report):
        return report_column(report, "eval_loss", self.sources) ** self.power / report_column(
            report, "length", self.sources
        )


@pytest.mark.parametrize(
    ("name", "options", "from_training"),
    [
        *((name, {}, True) for name in ("entropy", "entropy3_varent1", "entropy_last_token", "train_loss", "gradnorm")),
        *((name, {}, False) for name in ("validation_loss", "learnability", "velocity", "combined")),
        ("velocity", {"loss": "train"}, True),
        ("combined", {"loss": "train"}, False),
    ],
)
def test_a_reward_says_whether_its_scores_are_of_the_rows_trained_on(name, options, from_training: bool) -> None:
    assert make_reward(name, 2, **options).from_training is from_training


def test_a_users_own_reward_is_one_class() -> None:
    reward = make_reward("test_squared", 2, power=3.0)
    assert isinstance(reward, RewardFunction)
    reward.observe({"eval_loss": [2.0, NAN], "length": [4.0, 4.0]})
    np.testing.assert_array_equal(reward.scores(), [2.0, NAN])
    resumed = make_reward("test_squared", 2)
    resumed.load_state_dict(reward.state_dict())
    np.testing.assert_array_equal(resumed.scores(), reward.scores())
    assert register_reward("test_squared")(Squared) is Squared  # as when a notebook's cell runs again


def test_a_reward_without_the_base_class_is_taken_too() -> None:
    class Count:
        needs = ()
        from_training = True

        def __init__(self, sources: int, **options: float) -> None:
            self.n, self.options = np.zeros(sources), options

        def observe(self, report) -> None:
            self.n += 1

        def scores(self):
            return self.n * self.options["scale"]

        def state_dict(self):
            return {"n": self.n.tolist()}

        def load_state_dict(self, state) -> None:
            self.n = np.array(state["n"])

    register_reward("test_count")(Count)
    reward = make_reward("TEST_COUNT", 2, scale=3.0)
    reward.observe({})
    assert reward.scores().tolist() == [3.0, 3.0]


def test_an_own_reward_that_measures_another_shape_is_told() -> None:
    class Short(Entropy):
        def measure(self, report):
            return np.zeros(1)

    with pytest.raises(CuveeError, match=r"Short.measure\(\) must have shape \(3,\).* but got \(1,\)"):
        Short(3).observe({})


def test_examples_in_the_documentation_run() -> None:
    found = doctest.testmod(cuvee.rewards)
    assert found.attempted > 0
    assert found.failed == 0


# --- entropies of logits


def reference(logits: np.ndarray, mask: np.ndarray) -> tuple[list[float], list[float], list[float]]:
    """Mean entropy, mean varentropy and last entropy of each sequence, in nats, in float64 and plain loops."""
    results = []
    for rows, tokens in zip(logits.astype(np.float64), mask, strict=True):
        entropy, varentropy = [], []
        for place in range(len(tokens) - 1):
            if tokens[place] and tokens[place + 1]:
                shifted = rows[place] - rows[place].max()
                log_p = shifted - math.log(math.fsum(np.exp(shifted)))
                kept = np.exp(log_p) > 0
                p, log_p = np.exp(log_p[kept]), log_p[kept]
                entropy.append(-math.fsum(p * log_p))
                varentropy.append(math.fsum(p * (log_p + entropy[-1]) ** 2))
        n = max(len(entropy), 1)
        results.append((math.fsum(entropy) / n, math.fsum(varentropy) / n, entropy[-1] if entropy else 0.0))
    return tuple(list(column) for column in zip(*results, strict=True))


MASKS = {
    "right": [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]],
    "left": [[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]],
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize(
    ("dtype", "scale"), [(torch.float32, 3.0), (torch.float32, 1e4), (torch.bfloat16, 3.0), (torch.float16, 3.0)]
)
def test_entropies_are_those_of_a_float64_reference(mask: list, dtype: torch.dtype, scale: float) -> None:
    logits = (torch.randn((4, 6, 50), generator=torch.Generator().manual_seed(1)) * scale).to(dtype)
    found = sequence_entropies(logits, torch.tensor(mask))
    entropy, varentropy, last = reference(logits.float().numpy(), np.array(mask))
    assert found.positions.tolist() == [max(sum(tokens) - 1, 0) for tokens in mask]
    most = math.log(50)
    for got, wanted, unit in (
        (found.entropy, entropy, most),
        (found.varentropy, varentropy, most**2),
        (found.last, last, most),
    ):
        assert got.dtype == torch.float32
        np.testing.assert_allclose(got.numpy(), np.clip(np.array(wanted) / unit, 0, 1), rtol=2e-5, atol=1e-6)


def test_entropies_worked_by_hand() -> None:
    third = math.log(3)
    flat, sure = [0.0, 0.0, 0.0, 0.0], [1e4, 0.0, -1e4, 0.0]
    half, skew = [0.0, 0.0, -math.inf, -math.inf], [third, 0.0, -math.inf, -math.inf]  # 1/2, 1/2 and 3/4, 1/4
    logits = torch.tensor([[flat, sure, half, skew, flat]])
    entropy, varentropy = entropies(logits, torch.ones((1, 5), dtype=torch.bool))
    skewed = 2 * math.log(2) - 0.75 * third
    np.testing.assert_allclose(entropy[0], [math.log(4), 0.0, math.log(2), skewed, math.log(4)], rtol=1e-6)
    np.testing.assert_allclose(varentropy[0], [0.0, 0.0, 0.0, 3 / 16 * third**2, 0.0], rtol=1e-5, atol=1e-12)
    found = sequence_entropies(logits)
    np.testing.assert_allclose(found.entropy, (1 + 0 + 0.5 + skewed / math.log(4)) / 4, rtol=1e-6)
    np.testing.assert_allclose(found.last, skewed / math.log(4), rtol=1e-6)
    np.testing.assert_allclose(found.varentropy, 3 / 16 * third**2 / math.log(4) ** 2 / 4, rtol=1e-5)


def test_what_is_masked_does_not_matter() -> None:
    logits = torch.randn((2, 5, 7), generator=torch.Generator().manual_seed(2))
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    clean = sequence_entropies(logits, mask)
    logits[0, 2:], logits[1, :2], logits[1, 4] = math.nan, math.nan, math.nan
    dirty = sequence_entropies(logits, mask)
    for part in ("entropy", "varentropy", "last"):
        assert torch.equal(getattr(clean, part), getattr(dirty, part))
    assert sequence_entropies(logits, mask.flip(0)).entropy.isnan().any()


def test_the_vocabulary_is_that_of_the_logits_unless_told() -> None:
    logits = torch.zeros((1, 3, 16))
    assert sequence_entropies(logits).entropy.item() == pytest.approx(1.0)
    assert sequence_entropies(logits, vocab_size=256).entropy.item() == pytest.approx(0.5)
    assert sequence_entropies(logits, vocab_size=2).entropy.item() == 1.0  # never above


def test_entropies_take_part_in_no_gradient_and_short_batches_have_none() -> None:
    logits = torch.randn((2, 3, 5), generator=torch.Generator().manual_seed(3), requires_grad=True)
    assert not sequence_entropies(logits).entropy.requires_grad
    assert sequence_entropies(torch.zeros((2, 1, 5))).last.tolist() == [0.0, 0.0]
    assert sequence_entropies(torch.zeros((0, 4, 5))).entropy.shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros((3, 5)),), r"logits must have shape \(B, T, V\), but got \(3, 5\)"),
        (
            (torch.zeros((2, 3, 5)), torch.ones((2, 4))),
            r"mask must have shape \(2, 3\), as the logits, but got \(2, 4\)",
        ),
        ((torch.zeros((2, 3, 1)),), r"vocab_size must be an integer in \[2, 2\*\*31\), but got 1"),
    ],
)
def test_logits_and_masks_that_do_not_fit_are_errors(arguments: tuple, message: str) -> None:
    with pytest.raises(CuveeError, match=message):
        sequence_entropies(*arguments)


def test_sums_of_sequence_entropies_are_what_the_entropy_rewards_take() -> None:
    logits = torch.randn((6, 4, 9), generator=torch.Generator().manual_seed(4))
    found = sequence_entropies(logits)
    source = np.array([0, 2, 0, 0, 2, 0])
    sums = {
        f"{name}_sum": np.bincount(source, getattr(found, part).double().numpy(), 3)
        for name, part in (("entropy", "entropy"), ("varentropy", "varentropy"), ("last_entropy", "last"))
    }
    report = {**sums, "entropy_rows": np.bincount(source, minlength=3)}
    for name, values in (
        ("entropy", found.entropy),
        ("entropy_last_token", found.last),
        ("entropy3_varent1", 0.75 * found.entropy + 0.25 * found.varentropy),
    ):
        reward = make_reward(name, 3)
        reward.observe({key: report[key] for key in reward.needs})
        by_source = [values[torch.tensor(source == k)].double().mean().item() for k in (0, 2)]
        np.testing.assert_allclose(reward.scores(), [by_source[0], NAN, by_source[1]], rtol=1e-6)


def test_importing_rewards_imports_no_torch(fresh_python) -> None:
    assert fresh_python("import sys, cuvee.rewards; print('torch' in sys.modules)") == "False\n"
