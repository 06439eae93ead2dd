"""Online mixing: rows, the update by hand, rewards from logs and evaluation rows, the log, states, settings."""
# ruff: noqa: TID253

import json
import pickle
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset

import tiny
from cuvee.bandits import EXP3
from cuvee.errors import CuveeError, MixtureError, StateError
from cuvee.mixture import Source
from cuvee.odm import OnlineMixingDataset, OnlineSettings, Reward, compute_reward
from cuvee.odm.choices import Choices

LENGTH = 6


@dataclass
class State:
    """What a trainer keeps."""

    log_history: list[dict[str, Any]] = field(default_factory=list)
    global_step: int = 0
    max_steps: int = 10


def rows(count: int, first: int, *, length: int = LENGTH) -> Dataset:
    ids = [[first, row % 60, *((row * 7 + place) % 60 for place in range(length - 2))] for row in range(count)]
    return Dataset.from_dict({"input_ids": ids, "attention_mask": [[1] * length] * count}).with_format("torch")


SIZES = {"beta": 30, "alpha": 10, "gamma": 50}
NAMES = sorted(SIZES)


def categories(*, length: int = LENGTH) -> dict[str, Dataset]:
    return {name: rows(size, NAMES.index(name), length=length) for name, size in SIZES.items()}


def online(folder: Any, **settings: Any) -> OnlineMixingDataset:
    given = {"dataset_dict": categories(), "collators_dict": {}, "eval_dataset_dict": {}, "eval_collators_dict": {}}
    return OnlineMixingDataset(**{**given, "output_dir": folder, "reward_type": Reward.TRAIN_LOSS, **settings})


def drawn(dataset: OnlineMixingDataset, count: int) -> list[tuple[int, ...]]:
    return [tuple(next(dataset)["input_ids"].tolist()) for _ in range(count)]


def losses_of(model: Any) -> list[float]:
    with torch.no_grad():
        return [
            model(**data[:], labels=data[:]["input_ids"]).loss.item() for data in (categories()[name] for name in NAMES)
        ]


def lines(folder: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "odm.jsonl").read_text().splitlines()]


# --- rows


def test_proportions_are_those_of_the_weights_and_rows_come_once_per_pass(tmp_path: Any) -> None:
    dataset = online(tmp_path, sampling_weights={"alpha": 2, "beta": 1, "gamma": 1}, gamma=0.0)
    found = drawn(dataset, 640)
    counts = np.bincount([row[0] for row in found])
    assert counts.tolist() == [320, 160, 160] == dataset.curr_cat_count
    for category, size in enumerate(SIZES[name] for name in NAMES):
        own = [row for row in found if row[0] == category]
        for start in range(0, len(own) - size + 1, size):
            assert len(set(own[start : start + size])) == size


def test_weights_to_begin_with_are_mixed_with_the_uniform_ones(tmp_path: Any) -> None:
    dataset = online(tmp_path, sampling_weights={"alpha": 1, "beta": 100, "gamma": 2}, gamma=0.1)
    expected = 0.9 * np.array([1, 100, 2]) / 103 + 0.1 / 3
    assert dataset.sampling_ratio == pytest.approx(expected.tolist())
    assert dataset.sampling_weights == pytest.approx([1 / 103, 100 / 103, 2 / 103])


@pytest.mark.parametrize("interval", [1, 4, 12, 64, 100])
def test_interval_keeps_categories_together_and_passes_whole(tmp_path: Any, interval: int) -> None:
    dataset = online(tmp_path, sampling_interval=interval)
    found = drawn(dataset, 12 * interval + 5)
    for start in range(0, len(found), interval):
        assert len({row[0] for row in found[start : start + interval]}) == 1
    own = [row for row in found if row[0] == 0][:10]
    assert len(set(own)) == len(own)
    assert np.bincount([row[0] for row in found], minlength=3).tolist() == dataset.curr_cat_count


def test_interval_of_one_gives_categories_rows_in_the_order_of_longer_ones(tmp_path: Any) -> None:
    orders = []
    for interval in (1, 7):
        found = drawn(online(tmp_path, sampling_interval=interval), 700)
        orders.append([[row for row in found if row[0] == category][:200] for category in range(3)])
    assert orders[0] == orders[1]


def test_same_seed_same_rows_another_seed_others(tmp_path: Any) -> None:
    first, second, third = (drawn(online(tmp_path, seed=seed), 100) for seed in (7, 7, 8))
    assert first == second
    assert first != third
    assert drawn(online(tmp_path, seed=None), 50) == drawn(online(tmp_path, seed=42), 50)


def test_rows_have_tokens_attention_and_labels(tmp_path: Any) -> None:
    row = next(online(tmp_path))
    assert sorted(row) == ["attention_mask", "input_ids", "labels"]
    assert {tuple(value.shape) for value in row.values()} == {(LENGTH,)}
    assert torch.equal(row["labels"], row["input_ids"])


def test_collators_make_the_rows(tmp_path: Any) -> None:
    def short(given: list[Any]) -> Any:
        return {"input_ids": torch.stack([row["input_ids"][:3] for row in given]), "extra": torch.tensor([[5]])}

    dataset = online(tmp_path, collators_dict={"alpha": short, "beta": short, "gamma": lambda given: torch.ones(1, 2)})
    found = [next(dataset) for _ in range(30)]
    lengths = {len(row["input_ids"]) for row in found}
    assert lengths == {2, 3}
    assert all(row["extra"].tolist() == [5] for row in found if len(row["input_ids"]) == 3)


def test_lists_of_rows_work_as_datasets_of_different_columns(tmp_path: Any) -> None:
    data = {"a": [{"words": i} for i in range(5)], "b": [{"pages": i, "x": "y"} for i in range(9)]}
    collators = {
        "a": lambda given: {"input_ids": torch.tensor([[row["words"]] for row in given])},
        "b": lambda given: {"input_ids": torch.tensor([[row["pages"] + 100] for row in given])},
    }
    dataset = online(tmp_path, dataset_dict=data, collators_dict=collators)
    assert {row for (row,) in drawn(dataset, 30)} == {*range(5), *range(100, 109)}


def test_workers_are_refused(tmp_path: Any) -> None:
    loader = torch.utils.data.DataLoader(online(tmp_path), batch_size=4, num_workers=1)
    with pytest.raises(CuveeError, match="num_workers must be 0"):
        next(iter(loader))


def test_looking_ahead_never_passes_a_place_where_weights_may_change(tmp_path: Any) -> None:
    sources = [Source(name, rows=size) for name, size in SIZES.items()]
    for interval, window in ((1, 64), (5, 60), (64, 64), (200, 200)):
        choices = Choices(sources, np.full(3, 1 / 3), seed=1, interval=interval)
        for position in (0, 1, 63, 64, 119, 5000):
            numbers, found = choices.block(position)
            end = position + len(found)
            assert len(numbers) == len(found) > 0
            assert end <= (position // window + 1) * window
            assert choices.plan.window_start(-(-(position + 1) // interval)) * interval >= end


# --- updates


def test_update_is_exp3_by_hand(tmp_path: Any) -> None:
    dataset = online(tmp_path, reward_type="validation_loss", eta=0.3, gamma=0.1)
    dataset.update_sampling_weights(None, None, State([{"eval_alpha_loss": 3.0, "eval_beta_loss": 1.0}]))
    weights = np.exp(0.3 * np.array([3.0, 1.0, 0.0]) / (1 / 3) / 3)
    expected = 0.9 * weights / weights.sum() + 0.1 / 3
    np.testing.assert_allclose(dataset.sampling_ratio, expected, rtol=1e-12)
    dataset.update_sampling_weights(None, None, State([{"eval_gamma_loss": 2.0}]))
    weights *= np.exp(0.3 * np.array([3.0, 1.0, 2.0]) / expected / 3)
    np.testing.assert_allclose(dataset.sampling_ratio, 0.9 * weights / weights.sum() + 0.1 / 3, rtol=1e-12)


def test_update_takes_effect_at_the_next_window_start_and_not_before(tmp_path: Any) -> None:
    plain, moved = online(tmp_path / "a"), online(tmp_path / "b")
    before = drawn(plain, 500)
    found = drawn(moved, 70)
    for loss in (1.0, 2.0):  # the later one replaces the earlier at the same place
        moved.update_sampling_weights(None, None, State([{"loss": loss}]))
    found += drawn(moved, 430)
    assert found[:128] == before[:128]
    assert found[128:] != before[128:]
    assert [change.position for change in moved.choices.plan.journal] == [128, 128]
    share = np.bincount([row[0] for row in found[128:]], minlength=3) / 372
    np.testing.assert_allclose(share, moved.sampling_ratio, atol=2 / 372)


def test_loss_belongs_to_the_category_trained_on_last(tmp_path: Any) -> None:
    dataset, state, known = online(tmp_path, sampling_interval=8), State(), [0.0, 0.0, 0.0]
    for step in range(12):
        category = {row[0] for row in drawn(dataset, 8)}.pop()
        state.log_history.append({"loss": 0.1 + step / 100, "step": step})
        dataset.update_sampling_weights(None, None, state)
        known[category] = 0.1 + step / 100
        assert dataset.log["rewards"] == known
        assert dataset.log["arm_idx"] == category


def test_log_without_a_new_loss_credits_nobody_again(tmp_path: Any) -> None:
    dataset = online(tmp_path, sampling_interval=8)
    first = drawn(dataset, 8)[0][0]
    state = State([{"loss": 2.0}])
    dataset.update_sampling_weights(None, None, state)
    while drawn(dataset, 8)[0][0] == first:
        pass
    dataset.update_sampling_weights(None, None, state)
    assert sum(reward > 0 for reward in dataset.log["rewards"]) == 1
    state.log_history = [{"loss": 3.0}]  # a loop that keeps its log at one length
    dataset.update_sampling_weights(None, None, state)
    assert sum(reward > 0 for reward in dataset.log["rewards"]) == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_changes_nothing(tmp_path: Any, value: float) -> None:
    dataset = online(tmp_path)
    drawn(dataset, 3)
    dataset.update_sampling_weights(None, None, State([{"loss": value}]))
    assert dataset.sampling_ratio == pytest.approx([1 / 3] * 3)
    assert dataset.log["count"] == [0, 0, 0]


def test_gradient_norm_is_inverted(tmp_path: Any) -> None:
    dataset = online(tmp_path, reward_type="GRADNORM")
    category = drawn(dataset, 1)[0][0]
    dataset.update_sampling_weights(None, None, State([{"grad_norm": 0.5}, {"eval_loss": 1.0}]))
    assert dataset.log["rewards"][category] == pytest.approx(1 / (0.5 + 1e-4))


@pytest.mark.parametrize("reward", [Reward.ENTROPY, Reward.ENTROPY3_VARENT1, Reward.ENTROPY_LAST_TOKEN])
def test_entropies_are_those_of_compute_reward(tmp_path: Any, reward: Reward) -> None:
    dataset = online(tmp_path, reward_type=reward, eval_dataset_dict=categories(), eval_batch_size=7)
    model = tiny.model()
    dataset.update_sampling_weights(model)
    assert dataset.log["count"] == [10, 30, 50]
    for name, found in zip(NAMES, dataset.log["rewards"], strict=True):
        batch = categories()[name][:]
        assert found == pytest.approx(compute_reward(model, batch, reward_type=reward), rel=1e-5)


def test_losses_are_means_over_target_tokens(tmp_path: Any) -> None:
    labelled = {}
    for name, data in categories().items():
        labels = data["input_ids"][:].clone()
        labels[::2, :4] = -100
        labelled[name] = Dataset.from_dict({"input_ids": data["input_ids"][:].tolist(), "labels": labels.tolist()})
    model = tiny.model().eval()
    dataset = online(tmp_path, reward_type="validation_loss", eval_dataset_dict=labelled, eval_batch_size=4)
    dataset.update_sampling_weights(model, None, None)
    for name, found in zip(NAMES, dataset.log["rewards"], strict=True):
        batch = {key: torch.tensor(values) for key, values in labelled[name][:].items()}
        assert found == pytest.approx(model(**batch).loss.item(), rel=1e-5)


def test_velocity_is_the_drop_since_the_last_update(tmp_path: Any) -> None:
    model = tiny.model().eval()
    dataset = online(tmp_path, reward_type="velocity", eval_dataset_dict=categories())
    dataset.update_sampling_weights(model)
    assert dataset.log["rewards"] == [0.0, 0.0, 0.0]
    losses = losses_of(model)
    with torch.no_grad():
        model.lm_head.weight.mul_(1.5)
    dataset.update_sampling_weights(model)
    expected = [1 - now / before for now, before in zip(losses_of(model), losses, strict=True)]
    assert dataset.log["rewards"] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("reward", [Reward.LEARNABILITY, Reward.COMBINED])
def test_examples_are_needed_and_used(tmp_path: Any, reward: Reward) -> None:
    with pytest.raises(ValueError, match="templated_eval_dataset_dict and templated_eval_collators_dict must both"):
        online(tmp_path, reward_type=reward, eval_dataset_dict=categories())
    templated = {"templated_eval_dataset_dict": categories(length=10), "templated_eval_collators_dict": {}}
    dataset = online(tmp_path, reward_type=reward, eval_dataset_dict=categories(), **templated)
    model = tiny.model()
    dataset.update_sampling_weights(model, None, State(global_step=0))
    for name, found in zip(NAMES, dataset.log["rewards"], strict=True):
        zero, few = (
            {**data[name][:], "labels": data[name][:]["input_ids"]} for data in (categories(), categories(length=10))
        )
        expected = compute_reward(model, zero, reward_type="learnability", zero_shot_batch=zero, few_shot_batch=few)
        assert found == pytest.approx(expected, abs=1e-5)


def test_categories_without_evaluation_rows_keep_their_weight(tmp_path: Any) -> None:
    dataset = online(tmp_path, reward_type="entropy", eval_dataset_dict={"beta": rows(8, 1), "alpha": None})
    dataset.update_sampling_weights(tiny.model())
    assert dataset.log["count"] == [0, 8, 0]
    expected = EXP3(3, normalize="none").update(np.array([np.nan, dataset.log["rewards"][1] / 8, np.nan]))
    assert dataset.sampling_ratio == expected.tolist()


def test_model_stays_in_its_mode(tmp_path: Any) -> None:
    model = tiny.model().train()
    online(tmp_path, reward_type="entropy", eval_dataset_dict=categories()).update_sampling_weights(model)
    assert model.training


def test_weights_stay_finite_over_many_updates(tmp_path: Any) -> None:
    dataset = online(tmp_path, reward_type="validation_loss")
    state = State([{"eval_alpha_loss": 2.3, "eval_beta_loss": 2.0, "eval_gamma_loss": 0.1}])
    for _ in range(1500):
        dataset.update_sampling_weights(None, None, state)
    ratio = np.array(dataset.sampling_ratio)
    assert np.isfinite(dataset.sampling_weights).all()
    assert abs(ratio.sum() - 1) < 1e-12
    assert ratio.min() >= 0.1 / 3


# --- the log


def test_log_has_the_named_metrics_and_no_line_per_row(tmp_path: Any) -> None:
    dataset = online(tmp_path)
    drawn(dataset, 2500)
    dataset.update_sampling_weights(None, None, State([{"loss": 2.0}]))
    found = lines(tmp_path)
    assert [line["action"] for line in found] == ["sample", "sample", "sample", "update"]
    assert [line["samples_produced_so_far"] for line in found] == [1024, 2048, 2500, 2500]
    assert set(found[-1]) == {
        "samples_produced_so_far", "sampling_interval", "total_categories", "current_sampling_weights",
        "current_sampling_ratio", "arm_idx", "category_level_counts_so_far", "rewards", "count", "action", "rank",
    }  # fmt: skip
    assert all(sum(line["category_level_counts_so_far"]) == line["samples_produced_so_far"] for line in found)
    assert found[-2]["current_sampling_ratio"] == pytest.approx([1 / 3] * 3)
    assert found[-1]["current_sampling_ratio"] == dataset.sampling_ratio
    assert found[-1] == dataset.log


# --- states


@pytest.mark.parametrize("interval", [1, 5, 64])
def test_state_goes_on_exactly_at_any_row(tmp_path: Any, interval: int) -> None:
    dataset, state = online(tmp_path, sampling_interval=interval), State()
    for step in range(7):
        drawn(dataset, 23)
        state.log_history.append({"loss": 0.1 + step / 100})
        dataset.update_sampling_weights(None, None, state)
    drawn(dataset, 9)
    saved = json.loads(json.dumps(dataset.state_dict()))
    again = online(tmp_path, sampling_interval=interval)
    kept = json.dumps(saved)
    again.load_state_dict(saved)
    assert json.dumps(saved) == kept
    assert again.state_dict() == dataset.state_dict()
    assert drawn(again, 300) == drawn(dataset, 300)
    for each in (dataset, again):
        each.update_sampling_weights(None, None, State([*state.log_history, {"loss": 9.0}]))
    assert again.state_dict() == dataset.state_dict()
    assert drawn(again, 300) == drawn(dataset, 300)


def test_state_stays_small_and_goes_on_after_a_thousand_updates(tmp_path: Any) -> None:
    dataset, state = online(tmp_path), State()
    for step in range(1000):
        drawn(dataset, 3)
        state.log_history.append({"loss": 1 + step % 7 / 10})
        dataset.update_sampling_weights(None, None, state)
    saved = json.dumps(dataset.state_dict())
    assert len(saved) < 1000 * (4 + 4 * 11) + 4096
    again = online(tmp_path)
    again.load_state_dict(json.loads(saved))
    assert again.choices.plan.journal.digest == dataset.choices.plan.journal.digest
    assert json.dumps(again.state_dict()) == saved
    assert drawn(again, 200) == drawn(dataset, 200)


def test_state_of_a_plan_that_was_changed_by_hand_too_keeps_the_journals_lines(tmp_path: Any) -> None:
    dataset = online(tmp_path)
    dataset.update_sampling_weights(None, None, State([{"loss": 1.0}]))
    drawn(dataset, 10)
    dataset.update_sampling_weights(None, None, State([{"loss": 1.0}, {"loss": 2.0}]))
    assert "packed" in dataset.state_dict()["plan"]["journal"]
    dataset.choices.plan.update([0.2, 0.3, 0.5], reason="by hand")
    saved = json.loads(json.dumps(dataset.state_dict()))
    assert "lines" in saved["plan"]["journal"]
    again = online(tmp_path)
    again.load_state_dict(saved)
    assert drawn(again, 200) == drawn(dataset, 200)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda journal: journal.update(packed=journal["packed"][:-8]),
        lambda journal: journal.update(packed="?" + journal["packed"][1:]),
        lambda journal: journal.update(packed=7),
        lambda journal: journal.update(packed="AAAA" + journal["packed"][4:]),
        lambda journal: journal.update(entries=10**9),
        lambda journal: journal.update(entries="x"),
        lambda journal: journal.update(entries=-1),
        lambda journal: journal.pop("entries"),
        lambda journal: journal.update(digest="0" * 32),
        dict.clear,
    ],
    ids=["short", "alphabet", "number", "first", "huge", "text", "negative", "without", "digest", "empty"],
)
def test_a_spoilt_journal_in_a_state_is_refused(tmp_path: Any, spoil: Any) -> None:
    dataset = online(tmp_path)
    drawn(dataset, 10)
    dataset.update_sampling_weights(None, None, State([{"loss": 1.0}]))
    state = json.loads(json.dumps(dataset.state_dict()))
    spoil(state["plan"]["journal"])
    again = online(tmp_path)
    before = again.state_dict()
    with pytest.raises(StateError):
        again.load_state_dict(state)
    assert again.state_dict() == before


def test_rows_held_back_come_again(tmp_path: Any) -> None:
    dataset = online(tmp_path)
    found = drawn(dataset, 100)
    again = online(tmp_path)
    again.load_state_dict(dataset.state_dict(held=12))
    assert drawn(again, 12) == found[88:]


def test_wrong_states_are_refused_and_change_nothing(tmp_path: Any) -> None:
    dataset = online(tmp_path)
    drawn(dataset, 10)
    before = dataset.state_dict()
    others = [
        ({}, "must be from OnlineMixingDataset"),
        (online(tmp_path, sampling_interval=3).state_dict(), "sampling_interval must be 1"),
        (online(tmp_path, eta=0.5).state_dict(), "state settings"),
        (online(tmp_path, reward_type="gradnorm").state_dict(), "must be of TrainLoss"),
        (online(tmp_path, seed=1).state_dict(), "seed"),
    ]
    data = categories()
    data["alpha"] = rows(10, 9)
    others.append((online(tmp_path, dataset_dict=data).state_dict(), "alpha"))
    for state, message in others:
        with pytest.raises(StateError, match=message):
            dataset.load_state_dict(state)
        assert dataset.state_dict() == before


def test_state_is_plain_json_also_when_pickled(tmp_path: Any) -> None:
    state = online(tmp_path).state_dict()
    assert pickle.loads(pickle.dumps(state)) == json.loads(json.dumps(state)) == state


@pytest.mark.parametrize("name", ["position", "held", "seen", "plan", "bandit", "reward", "categories", "version"])
def test_a_damaged_state_is_refused_and_changes_nothing(tmp_path: Any, name: str) -> None:
    dataset = online(tmp_path)
    drawn(dataset, 10)
    dataset.update_sampling_weights(None, None, State([{"loss": 1.0}]))
    state = json.loads(json.dumps(dataset.state_dict()))
    again = online(tmp_path)
    before = again.state_dict()
    without = {key: value for key, value in state.items() if key != name}
    for damaged in (without, *({**state, name: wrong} for wrong in ("x", None, -1, {}))):
        with pytest.raises(CuveeError):
            again.load_state_dict(damaged)
        assert again.state_dict() == before


# --- what is refused


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"reward_type": "entropie"}, CuveeError, "did you mean 'entropy'"),
        ({"gamma": 1.5}, MixtureError, "gamma must be a number in"),
        ({"eta": 0}, MixtureError, "eta must be a number"),
        ({"sampling_interval": 0}, CuveeError, "sampling_interval must be an integer"),
        ({"eval_batch_size": 0}, CuveeError, "eval_batch_size must be an integer"),
        ({"seed": -1}, CuveeError, "seed must be an integer"),
        ({"dataset_dict": {}}, CuveeError, "dataset_dict must hold datasets"),
        ({"dataset_dict": {1: rows(3, 0), "b": rows(3, 1)}}, CuveeError, "dataset_dict must have texts for names"),
        ({"collators_dict": dict.fromkeys(NAMES, 3)}, CuveeError, r"collators_dict\['alpha'\] must make a batch"),
        ({"eval_dataset_dict": {"alpha": 3}}, CuveeError, r"eval_dataset_dict\['alpha'\] must be a map-style dataset"),
        ({"output_dir": 3}, CuveeError, "output_dir must be a folder's path, but got 3"),
        ({"output_dir": "/dev/null/x"}, CuveeError, "output_dir must be a folder that can be written, but got"),
        ({"dataset_dict": [1, 2]}, CuveeError, "dataset_dict must be a dict"),
        ({"sampling_weights": {"alpha": 1}}, CuveeError, "without \\['beta', 'gamma'\\]"),
        (
            {"sampling_weights": {"alpha": 1, "beta": 0, "gamma": 1}},
            MixtureError,
            "initial must be finite and positive",
        ),
        ({"collators_dict": {"alpha": None}}, CuveeError, "collators_dict must have an entry for each"),
        ({"eval_dataset_dict": {"alfa": rows(3, 0)}}, CuveeError, "did you mean 'alpha'"),
        ({"dataset_dict": {"a": rows(3, 0), "b": iter([])}}, MixtureError, "'b': data must have __len__"),
        ({"dataset_dict": {"a": rows(3, 0), "b": []}}, MixtureError, "'b'"),
        ({"auto_categorize_config": {"colum": 1}}, CuveeError, "auto_categorize_config must have keys"),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Any, settings: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        online(tmp_path, **settings)


def test_update_without_anything_to_learn_from_is_refused(tmp_path: Any) -> None:
    with pytest.raises(CuveeError, match="eval_dataset_dict must have rows"):
        online(tmp_path, reward_type="entropy").update_sampling_weights(tiny.model())
    with pytest.raises(CuveeError, match="state must have log_history"):
        online(tmp_path).update_sampling_weights(tiny.model())
    with pytest.raises(CuveeError, match="log_history must be a list"):
        online(tmp_path).update_sampling_weights(None, None, State(log_history="loss"))  # type: ignore[arg-type]


def test_rows_that_cannot_be_stacked_ask_for_a_collator(tmp_path: Any) -> None:
    ragged = {"a": [{"input_ids": [1] * (i + 1)} for i in range(5)], "b": [{"text": "x"}] * 5}
    data = {"dataset_dict": ragged, "eval_dataset_dict": {"a": ragged["a"]}, "reward_type": "entropy"}
    with pytest.raises(CuveeError, match="give a collator"):
        online(tmp_path, **data).update_sampling_weights(tiny.model())
    with pytest.raises(CuveeError, match="must hold tokens"):
        drawn(online(tmp_path, **data), 10)


# --- settings


def test_settings_come_from_yaml_wherever_they_lie(tmp_path: Any) -> None:
    inner = (
        "update_interval: 5\n{0}sampling_interval: 8\n{0}reward_type: TRAIN_LOSS\n{0}gamma: 0.2\n{0}eta: 0.5\n"
        "{0}resume_from_checkpoint: true\n"
    )
    heads = {0: "", 2: "odm:\n  ", 4: "dataprocessor:\n  odm:\n    ", 6: "training:\n  odm:\n    odm:\n      "}
    for depth, head in heads.items():
        path = tmp_path / f"{depth}.yaml"
        path.write_text(head + inner.format(" " * depth))
        settings = OnlineSettings.from_yaml(path)
        assert settings == OnlineSettings(
            update_interval=5,
            sampling_interval=8,
            reward_type="TRAIN_LOSS",
            gamma=0.2,
            eta=0.5,
            resume_from_checkpoint=True,
        )
    dataset = online(tmp_path, **settings.dataset_options())
    assert (dataset.sampling_interval, dataset.reward_type) == (8, Reward.TRAIN_LOSS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("update_intervall: 3", "did you mean 'update_interval'"),
        ("update_interval: 0", "update_interval must be an integer"),
        ("gamma: 2", "gamma must be a number"),
        ("reward_type: losses", "reward must be one of"),
        ("resume_from_checkpoint: 3", "resume_from_checkpoint must be true"),
        ("- 1", "must map settings"),
        ("a: [", "must be a YAML file"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Any, text: str, message: str) -> None:
    path = tmp_path / "odm.yaml"
    path.write_text(text)
    with pytest.raises(CuveeError, match=message):
        OnlineSettings.from_yaml(path)


def test_no_settings_are_the_defaults(tmp_path: Any) -> None:
    (tmp_path / "odm.yaml").write_text("# nothing\n")
    assert OnlineSettings.from_yaml(tmp_path / "odm.yaml") == OnlineSettings()
    with pytest.raises(CuveeError, match="must be a YAML file"):
        OnlineSettings.from_yaml(tmp_path / "none.yaml")
