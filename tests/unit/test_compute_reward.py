"""The reward of a batch or of a history: its value, what is refused, and that `state` alone remembers."""
# ruff: noqa: TID253

import json
import math

import numpy as np
import pytest
import torch

import tiny
from cuvee.errors import CuveeError, StateError
from cuvee.odm.compute import SUMMED, UNSEEN, compute_reward
from cuvee.rewards import Reward

ENTROPIES = ["ENTROPY", "ENTROPY3_VARENT1", "ENTROPY_LAST_TOKEN"]
MASK = [[1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1]]
TRAINED = {"current_category": 0, "total_categories": 2, "last_sampled_category": 0}


@pytest.fixture(scope="module")
def model():
    made = tiny.model()
    with torch.no_grad():
        made.lm_head.weight *= 8  # far from uniform
    return made.eval()


def batch(*, offset: int = 0, length: int = 6, mask: list | None = None) -> dict:
    ids = (torch.arange(3 * length).reshape(3, length) * 7 + offset) % tiny.VOCABULARY
    mask = torch.ones_like(ids) if mask is None else torch.tensor(mask)
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, tiny.MASKED)}


def token_entropies(model, given: dict) -> tuple[list, list]:
    """Each sequence's entropies and varentropies where one of its tokens is predicted, in float64 nats."""
    with torch.no_grad():
        logits = model(**given).logits.double()
    log_p = torch.log_softmax(logits, dim=-1).numpy()
    entropy = -(np.exp(log_p) * log_p).sum(-1)
    varentropy = (np.exp(log_p) * (log_p + entropy[..., None]) ** 2).sum(-1)
    tokens = given["attention_mask"].sum(dim=1).tolist()
    return ([row[: n - 1] for row, n in zip(values, tokens, strict=True)] for values in (entropy, varentropy))


def loss_of(model, given: dict) -> float:
    with torch.no_grad():
        return model(**given).loss.item()


def test_entropies_are_sums_over_sequences_of_means_over_their_tokens(model) -> None:
    given = batch(mask=MASK)
    entropy, varentropy = token_entropies(model, given)
    most = math.log(tiny.VOCABULARY)
    means = [row.mean() / most for row in entropy]
    mixed = [0.75 * mean + 0.25 * row.mean() / most**2 for mean, row in zip(means, varentropy, strict=True)]
    worked = {
        "ENTROPY": sum(means),
        "ENTROPY3_VARENT1": sum(mixed),
        "ENTROPY_LAST_TOKEN": sum(row[-1] / most for row in entropy),
    }
    assert 0.3 < worked["ENTROPY"] < 2.9
    for name, value in worked.items():
        reward = compute_reward(model, given, reward_type=Reward[name])
        assert type(reward) is float
        assert reward == pytest.approx(value, rel=1e-5)
        assert reward == compute_reward(model, given, reward_type=name.lower())


@pytest.mark.parametrize("name", ENTROPIES)
def test_padding_on_either_side_does_not_matter(model, name: str) -> None:
    bare = {key: value[:, :4] for key, value in batch().items()}
    alone = sum(
        compute_reward(model, {key: row[k : k + 1] for key, row in bare.items()}, reward_type=name) for k in range(3)
    )
    for side in ((0, 3), (3, 0)):
        padded = {key: torch.nn.functional.pad(value, side) for key, value in bare.items()}
        padded["position_ids"] = (padded["attention_mask"].cumsum(1) - 1).clamp(min=0)
        assert compute_reward(model, padded, reward_type=name) == pytest.approx(alone, rel=1e-5)
    del bare["attention_mask"]
    assert compute_reward(model, bare, reward_type=name) == pytest.approx(alone, rel=1e-5)


def test_the_vocabulary_is_the_models_own_unless_told(model) -> None:
    own = compute_reward(model, batch(), reward_type="ENTROPY")
    assert compute_reward(model, batch(), reward_type="ENTROPY", vocab_size=64) == own
    assert compute_reward(model, batch(), reward_type="ENTROPY", vocab_size=64**2) == pytest.approx(own / 2)
    assert compute_reward(model, batch(), reward_type="ENTROPY", vocab_size=2) == 3.0  # at most 1 a sequence
    larger = tiny.model(vocab_size=500)
    uniform = compute_reward(larger, batch(), reward_type="ENTROPY")
    assert 2.9 < uniform <= 3.0  # an untrained model knows nothing


@pytest.mark.parametrize("name", ENTROPIES)
def test_logits_that_are_nan_count_nothing(name: str) -> None:
    broken = tiny.model()
    with torch.no_grad():
        broken.lm_head.weight.fill_(math.nan)
    assert compute_reward(broken, batch(), reward_type=name) == 0.0


def test_training_losses_are_kept_for_the_category_sampled_last() -> None:
    history, state, seen = [], {}, []
    for sampled, loss in ((0, 3.0), (0, 4.0), (1, 2.0), (1, 1.0), (0, math.nan)):
        history += [{"loss": loss, "step": len(history)}, {"learning_rate": 0.1}]
        seen.append([
            compute_reward(
                None, None, reward_type="TRAIN_LOSS", state=state, train_loss_history=history,
                last_sampled_category=sampled, total_categories=3, current_category=category,
            )
            for category in range(3)
        ])  # fmt: skip
    assert seen == [[3, UNSEEN, UNSEEN], [4, UNSEEN, UNSEEN], [4, 2, UNSEEN], [4, 1, UNSEEN], [4, 1, UNSEEN]]
    assert state == {"train_loss": [4.0, 1.0, None]}


def test_gradient_norms_are_kept_for_the_category_sampled_last() -> None:
    state, seen = {}, []
    for sampled, norm in ((0, 3), (1, torch.tensor(4.0)), (1, 2), (0, math.inf), (0, 0)):
        seen.append([
            compute_reward(
                None, None, reward_type="GRADNORM", state=state, gradnorm_history=[{"grad_norm": norm}],
                last_sampled_category=sampled, total_categories=2, current_category=category,
            )
            for category in range(2)
        ])  # fmt: skip
    first, second, third = 1 / 3.0001, 1 / 4.0001, 1 / 2.0001
    expected = [[first, UNSEEN], [first, second], [first, third], [first, third], [1e4, third]]
    np.testing.assert_allclose(seen, expected, rtol=1e-15)


@pytest.mark.parametrize("key", ["loss", "eval_loss"])
def test_validation_losses_are_the_current_categorys(key: str) -> None:
    state: dict = {}
    for losses in ((3, 10), (3, 5), (4, 3)):
        for category, loss in enumerate(losses):
            history = [{key: 99}, {key: loss}, {"learning_rate": 0.1}]
            categories = {"current_category": category, "total_categories": 2, "last_sampled_category": 1}
            known = {"reward_type": "VALIDATION_LOSS", "state": state, "eval_loss_history": history}
            assert compute_reward(None, None, **known, **categories) == loss
    assert state == {"validation_loss": [4.0, 3.0]}


def test_a_training_loss_is_not_taken_for_one_of_validation() -> None:
    for history in ([{"eval_loss": 1.5}, {"loss": 2.0}], [{"eval_loss": 1.5, "loss": 2.0}]):
        assert compute_reward(None, None, reward_type="VALIDATION_LOSS", eval_loss_history=history) == 1.5


def test_without_state_nothing_is_remembered(model) -> None:
    known = {"reward_type": "TRAIN_LOSS", "train_loss_history": [{"loss": 3.0}], "total_categories": 2}
    assert compute_reward(None, None, **known, last_sampled_category=0, current_category=0) == 3.0
    assert compute_reward(None, None, **known, last_sampled_category=1, current_category=0) == UNSEEN
    for offset in (0, 1):
        assert compute_reward(model, batch(offset=offset), reward_type="VELOCITY") == 0.0


def test_learnability_compares_the_losses_of_two_batches(model) -> None:
    zero, few = batch(), batch(length=10, offset=1)
    reward = compute_reward(
        model, None, reward_type="LEARNABILITY", zero_shot_batch=zero, few_shot_batch=few, **TRAINED
    )
    assert reward == pytest.approx(1 - loss_of(model, few) / loss_of(model, zero), rel=1e-12)
    assert compute_reward(model, None, reward_type="LEARNABILITY", zero_shot_batch=zero, few_shot_batch=zero) == 0.0
    nothing = {**zero, "labels": torch.full_like(zero["labels"], tiny.MASKED)}  # the mean of no losses
    assert compute_reward(model, None, reward_type="LEARNABILITY", zero_shot_batch=nothing, few_shot_batch=few) == 0.0


def test_velocity_compares_with_the_loss_before_of_the_same_category(model) -> None:
    state: dict = {}
    batches = [batch(), batch(offset=1), batch(offset=2)]
    losses = [loss_of(model, given) for given in batches]

    def velocity(given: dict, category: int) -> float:
        return compute_reward(
            model, given, reward_type="VELOCITY", state=state, current_category=category, total_categories=2
        )

    assert velocity(batches[0], 1) == 0.0
    assert velocity(batches[1], 0) == 0.0
    state = json.loads(json.dumps(state))  # a checkpoint
    assert velocity(batches[2], 1) == pytest.approx(1 - losses[2] / losses[0], rel=1e-12)
    nothing = {**batches[0], "labels": torch.full_like(batches[0]["labels"], tiny.MASKED)}
    assert velocity(nothing, 1) == 0.0
    assert velocity(batches[1], 1) == pytest.approx(1 - losses[1] / losses[2], rel=1e-12)
    assert velocity(batches[1], 0) == 0.0


def test_combined_goes_from_learnability_to_velocity(model) -> None:
    zero, few, state = batch(), batch(length=10, offset=1), {}
    shots = {"zero_shot_batch": zero, "few_shot_batch": few, "current_category": 0, "total_categories": 2}

    def combined(given: dict, **steps) -> float:
        return compute_reward(model, given, reward_type=Reward.COMBINED, state=state, **shots, **steps)

    learnability = 1 - loss_of(model, few) / loss_of(model, zero)
    assert combined(zero, train_step=0, total_steps=None) == pytest.approx(learnability, rel=1e-12)
    velocity = 1 - loss_of(model, few) / loss_of(model, zero)
    a = math.exp(-2.0 * 30 / 120)
    reward = combined(few, train_step=30, total_steps=120, beta=2.0)
    assert reward == pytest.approx(a * learnability + (1 - a) * velocity, rel=1e-12)
    a = math.exp(-1)  # beta 1; the loss no longer changes
    assert combined(few, train_step=120, total_steps=120) == pytest.approx(a * learnability, rel=1e-12)
    assert combined(few, train_step=5, total_steps=0) == pytest.approx(learnability, rel=1e-12)


def test_two_runs_that_take_turns_do_not_disturb_each_other(model) -> None:
    def calls(run: int, state: dict):
        for step in range(4):
            given = batch(offset=run * 5 + step)
            logged = {"loss": run + step, "grad_norm": run + step + 1.0}
            for name in ("TRAIN_LOSS", "GRADNORM", "VELOCITY", "COMBINED"):
                yield compute_reward(
                    model, given, reward_type=name, state=state, train_loss_history=[logged],
                    gradnorm_history=[logged], last_sampled_category=step % 2, total_categories=2,
                    current_category=(step + run) % 2, zero_shot_batch=given, few_shot_batch=batch(offset=9),
                    train_step=step, total_steps=4,
                )  # fmt: skip

    alone = [list(calls(run, {})) for run in (0, 1)]
    together = list(zip(calls(0, {}), calls(1, {}), strict=True))
    assert [list(run) for run in zip(*together, strict=True)] == alone
    assert len(set(alone[0])) > 4


@pytest.mark.parametrize("name", [*ENTROPIES, "VELOCITY"])
def test_the_model_is_as_it_was_afterwards(name: str) -> None:
    trained = tiny.model(attention_dropout=0.5).train()
    trained.lm_head.eval()
    modes = [module.training for module in trained.modules()]
    torch.manual_seed(7)
    dice = torch.get_rng_state()
    rewards = {compute_reward(trained, batch(), reward_type=name) for _ in range(3)}
    assert len(rewards) == 1  # nothing was dropped out
    assert [module.training for module in trained.modules()] == modes
    assert torch.equal(torch.get_rng_state(), dice)
    assert all(parameter.grad is None for parameter in trained.parameters())
    with pytest.raises(CuveeError, match="batch must be a mapping"):
        compute_reward(trained, [1, 2], reward_type=name)
    with pytest.raises(ValueError, match="input_ids"):  # the model's own
        compute_reward(trained, {"nonsense": 1}, reward_type=name)
    assert [module.training for module in trained.modules()] == modes
    trained(**batch()).loss.backward()  # what the model kept of the call can be trained with


@pytest.mark.parametrize(
    ("reward", "arguments", "message"),
    [
        ("LOSS", {}, r"reward_type must be one of \['entropy', .* but got 'loss'"),
        ("ENTROPY", {"batch": None}, "batch must be a mapping of tensors for ENTROPY, but got None"),
        ("ENTROPY", {"vocab_size": 1}, r"vocab_size must be an integer in \[2, .* but got 1"),
        ("TRAIN_LOSS", {}, "train_loss_history must be a list of mappings with 'loss', but got None"),
        ("TRAIN_LOSS", {"train_loss_history": []}, "must have an entry with 'loss', but got 0 without; log one"),
        ("TRAIN_LOSS", {"train_loss_history": [{"lr": 1}]}, "must have an entry with 'loss', but got 1 without"),
        ("TRAIN_LOSS", {"train_loss_history": [{"loss": "x"}]}, "loss in train_loss_history must be a number"),
        ("VALIDATION_LOSS", {"eval_loss_history": []}, "must have an entry with 'eval_loss' or 'loss', but got 0"),
        ("GRADNORM", {"gradnorm_history": {"grad_norm": 1}}, "gradnorm_history must be a list of mappings"),
        ("GRADNORM", {"gradnorm_history": [{"grad_norm": -1}]}, "gradient norms must be at least 0, but got -1"),
        ("LEARNABILITY", {}, "few_shot_batch must be a mapping of tensors for LEARNABILITY, but got None"),
        ("LEARNABILITY", {"few_shot_batch": batch()}, "zero_shot_batch must be a mapping of tensors"),
        ("COMBINED", {"few_shot_batch": batch()}, "zero_shot_batch must be a mapping of tensors for COMBINED"),
        ("COMBINED", {"total_steps": 9}, "train_step must be a number where total_steps is one, but got None"),
        ("COMBINED", {"total_steps": -1}, r"total_steps must be an integer in \[0, .* but got -1"),
        ("COMBINED", {"beta": -1.0}, "beta must be a finite number and at least 0, but got -1.0"),
        ("VELOCITY", {"batch": None}, "batch must be a mapping of tensors for VELOCITY, but got None"),
        ("VELOCITY", {"batch": {"input_ids": torch.ones((1, 3), dtype=torch.long)}}, "batch must hold labels"),
    ],
)  # fmt: skip
def test_arguments_that_are_missing_or_wrong_are_clear_errors(model, reward: str, arguments: dict, message) -> None:
    state: dict = {}
    with pytest.raises(CuveeError, match=message):
        compute_reward(model, **{"batch": batch(), **TRAINED, "reward_type": reward, "state": state, **arguments})
    assert state == {}


@pytest.mark.parametrize(
    ("categories", "message"),
    [
        ({"current_category": 2}, r"current_category must be an integer in \[0, 2\), but got 2"),
        ({"current_category": None}, r"current_category must be an integer in \[0, 2\), but got None"),
        ({"last_sampled_category": -1}, r"last_sampled_category must be an integer in \[0, 2\), but got -1"),
        ({"total_categories": 0}, r"total_categories must be an integer in \[1, .* but got 0"),
    ],
)
def test_categories_out_of_range_are_clear_errors(categories: dict, message: str) -> None:
    state: dict = {}
    known = {"reward_type": "TRAIN_LOSS", "train_loss_history": [{"loss": 1.0}], "state": state}
    with pytest.raises(CuveeError, match=message):
        compute_reward(None, None, **{**known, **TRAINED, **categories})
    assert state == {}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (object(), "state must be a dict that you keep between calls, but got object"),
        ({"train_loss": 3}, r"state\['train_loss'\] must be a list of at most 2 numbers or None, but got 3"),
        ({"train_loss": [1.0, 2.0, 3.0]}, "must be a list of at most 2 numbers or None"),
        ({"train_loss": ["1"]}, "must be a list of at most 2 numbers or None"),
    ],
)
def test_a_foreign_state_is_refused(state, message: str) -> None:
    with pytest.raises(StateError, match=message):
        compute_reward(None, None, reward_type="TRAIN_LOSS", state=state, train_loss_history=[{"loss": 1}], **TRAINED)


def test_one_category_needs_no_number() -> None:
    assert compute_reward(None, None, reward_type="TRAIN_LOSS", train_loss_history=[{"loss": 2.5}]) == 2.5


def test_which_rewards_are_sums_is_said(model) -> None:
    twice = {key: torch.cat([value, value]) for key, value in batch().items()}
    for reward in (Reward.ENTROPY, Reward.ENTROPY_LAST_TOKEN, Reward.ENTROPY3_VARENT1, Reward.LEARNABILITY):
        once, both = (
            compute_reward(
                model, given, reward_type=reward, zero_shot_batch=given, few_shot_batch=batch(length=10, offset=1)
            )
            for given in (batch(), twice)
        )
        assert both / once == pytest.approx(2.0 if reward in SUMMED else 1.0, rel=1e-4)
