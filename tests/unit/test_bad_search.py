"""Scores and settings that are none: told in a sentence, before any work is lost."""

from __future__ import annotations

import json
import math
import multiprocessing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optuna  # noqa: TID253
import pytest

from cuvee.errors import CuveeError, MixtureError, StateError
from cuvee.search import Receipt, Space, search

NAMES = ("a", "b", "c")


class Losses(dict):
    """Losses of somebody's own class."""


class Number:
    """A loss of some library."""

    def __float__(self) -> float:
        return 2.5


def bowl(weights: Mapping[str, float], _budget: float, _seed: int) -> dict[str, float]:
    return {name: (share - 0.4) ** 2 for name, share in weights.items()}


def searched(score: Any, **settings: Any) -> Receipt:
    return search(score, NAMES, **{"budget": 6, "method": "bandit", **settings})


# --- scores
@pytest.mark.parametrize(
    ("loss", "shown"),
    [
        ("1.5", "'1.5'"),
        (True, "True"),
        (None, "None"),
        (1j, "1j"),
        (np.ones(2), "array"),
    ],
)
def test_losses_must_be_numbers(loss: object, shown: str) -> None:
    with pytest.raises(MixtureError, match=f"loss of 'a' must be a finite number, but got {shown}"):
        searched(lambda weights, budget, seed: dict.fromkeys(weights, loss))


@pytest.mark.parametrize("loss", [math.nan, -math.inf, 1e300, 10**400])
def test_losses_that_are_never_finite_are_told(loss: float) -> None:
    with pytest.raises(StateError, match=r"losses must be finite in one run of the first round at least, but got 1"):
        searched(lambda weights, budget, seed: dict.fromkeys(weights, loss))


@pytest.mark.parametrize("method", ["auto", "bandit", "doremi"])
@pytest.mark.parametrize("size", [1e29, 1e-300, -1.0, 0.0])
def test_losses_of_any_size_give_a_mixture(size: float, method: str) -> None:
    receipt = searched(lambda weights, _budget, _seed: {n: size * (w + 1) for n, w in weights.items()}, method=method)
    assert sum(receipt.weights) == pytest.approx(1)
    assert np.isfinite(receipt.low).all()


@pytest.mark.parametrize("method", ["auto", "bandit", "doremi"])
def test_the_unit_of_losses_changes_nothing(method: str) -> None:
    def score(unit: float) -> Receipt:
        return searched(
            lambda weights, _budget, _seed: {n: unit * (100 + 10 * (w - 0.4) ** 2) for n, w in weights.items()},
            method=method,
            budget=14,
        )

    nats, other = score(1.0), score(2.0**40)
    assert [run.weights for run in other.runs] == [run.weights for run in nats.runs]
    assert (other.weights, other.low, other.high) == (nats.weights, nats.low, nats.high)
    assert other.predicted == pytest.approx(2.0**40 * nats.predicted, nan_ok=True)
    assert other.predicted_sd == pytest.approx(2.0**40 * nats.predicted_sd, nan_ok=True)


@pytest.mark.parametrize("loss", [np.float32(2.5), Number(), np.array(2.5), 2.5])
def test_losses_of_other_libraries_are_taken(loss: object) -> None:
    receipt = searched(lambda weights, budget, seed: Losses(dict.fromkeys(weights, loss)))
    assert {loss for run in receipt.runs for loss in run.losses} == {2.5}


@pytest.mark.parametrize("answer", [None, 1.0, [1.0, 2.0, 3.0], {}, "abc"])
def test_answers_must_be_losses_by_name(answer: object) -> None:
    with pytest.raises(MixtureError, match="score must return a mapping of losses by name, but got"):
        searched(lambda weights, budget, seed: answer)


def test_other_losses_later_on_are_told_with_the_nearest() -> None:
    calls = []

    def score(weights: Mapping[str, float], budget: float, seed: int) -> dict[str, float]:
        calls.append(weights)
        return bowl(weights, budget, seed) if len(calls) < 3 else {"A": 1.0, "b": 1.0, "c": 1.0}

    with pytest.raises(
        MixtureError, match=r"score must return a loss of 'a', but got \['A', 'b', 'c'\]; did you mean 'A'"
    ):
        searched(score)


def test_a_score_may_do_with_its_arguments_what_it_likes() -> None:
    def greedy(weights: dict[str, float], budget: float, seed: int) -> dict[str, float]:
        losses = bowl(weights, budget, seed)
        weights.clear()
        return losses

    class Many:
        def many(self, weights: np.ndarray, budget: float, seed: int) -> Any:
            losses = [bowl(dict(zip(NAMES, row, strict=True)), budget, seed) for row in weights.tolist()]
            weights[:] = 7
            return (loss for loss in losses)

    runs = [[(run.weights, run.losses) for run in searched(score).runs] for score in (bowl, greedy, Many())]
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("answer", [None, 5, "abc", {"a": 1.0}])
def test_many_scores_must_answer_with_many(answer: object) -> None:
    class Many:
        def many(self, weights: np.ndarray, budget: float, seed: int) -> Any:
            return answer

    with pytest.raises(MixtureError, match="score must answer with one mapping of losses a mixture, but got"):
        searched(Many())


@pytest.mark.parametrize("answer", [None, 3.0, "x", [[1.0, 2.0]], [["x"] * 3], [[[[1.0] * 3]]]])
def test_evaluated_losses_must_be_a_table(answer: object) -> None:
    class Evaluates:
        def evaluate(self, weights: np.ndarray, **seeds: Any) -> Any:
            return answer

    with pytest.raises(CuveeError, match=r"losses of runs 0 to 0 must be numbers, of shape \(1, 3\), but got"):
        searched(Evaluates())


def test_evaluated_losses_may_be_lists() -> None:
    class Evaluates:
        def evaluate(self, weights: np.ndarray, **seeds: Any) -> Any:
            return (weights + 1).tolist()

    assert searched(Evaluates()).runs[0].losses == pytest.approx([4 / 3] * 3)


# --- several workers
def test_a_score_that_no_worker_can_be_given_is_told_before_anything_is_begun(tmp_path: Path) -> None:
    with pytest.raises(MixtureError, match=r"score must be picklable for several workers.*give workers=1"):
        searched(lambda weights, budget, seed: {}, workers=2, storage=tmp_path / "study.log")
    assert list(tmp_path.iterdir()) == []


def test_a_score_of_a_session_without_a_file_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import __main__

    monkeypatch.setattr(bowl, "__module__", "__main__")
    monkeypatch.setattr(__main__, "bowl", bowl, raising=False)
    monkeypatch.setattr(__main__, "__spec__", None)
    monkeypatch.setattr(__main__, "__file__", "<stdin>", raising=False)
    with pytest.raises(MixtureError, match="score must be of a file that workers can import"):
        searched(bowl, workers=2)
    assert multiprocessing.active_children() == []


# --- settings
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"targets": ["a"]}, "targets must be weights by name of a loss, but got ['a']"),
        ({"targets": {1: 1.0}}, "targets must be weights by name of a loss"),
        ({"targets": {"a": math.inf}}, "weight of target 'a' must be a finite number and at least 0, but got inf"),
        ({"targets": {"a": True}}, "weight of target 'a' must be a finite number and at least 0, but got True"),
        ({"targets": {}}, "targets must not all have weight 0, but got {}"),
        ({"targets": {"q": 1.0}}, "score must return a loss of 'q', but got ['a', 'b', 'c']"),
        ({"options": None}, "options must be JSON values by name, but got None: no mapping"),
        ({"options": {"degree": np.ones(2)}}, "options must be JSON values by name"),
        ({"options": {"seed": 1}}, "options must not have 'seed', but got 1; the search gives it"),
        ({"options": {"rungs": 3}, "method": "auto"}, "options must suit auto, but got {'rungs': 3}"),
        ({"options": {"rungs": "x"}, "method": "auto"}, "rungs must rise from above 0 to below 1, but got ['x']"),
        ({"about": {"x": math.nan}}, "about must be JSON values by name"),
        ({"rows": (1, 2)}, "rows must have shape (3,), but got (2,)"),
        ({"rows": (0, 0, 0)}, "rows must not all be 0"),
        ({"rows": (1, -2, 3)}, "rows of 'b' must be finite and at least 0, but got -2.0"),
        ({"study": ""}, "study must be a name of 1 to 512 characters, but got ''"),
        ({"study": 5}, "study must be a name of 1 to 512 characters, but got 5"),
        ({"storage": 5}, "--storage must be sqlite:///FILE.db"),
    ],
)
def test_settings_that_are_none_are_told(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(CuveeError) as caught:
        searched(bowl, **settings)
    assert says in str(caught.value)


@pytest.mark.parametrize("score", [None, 5, "score.py"])
def test_a_score_must_be_one(score: object) -> None:
    with pytest.raises(MixtureError, match="score must be a function of weights, budget and seed, but got"):
        searched(score)


def test_wrong_options_do_not_begin_a_study(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    with pytest.raises(MixtureError, match="option of bandit must be one of"):
        searched(bowl, options={"degrees": 2}, storage=path)
    assert searched(bowl, storage=path).search_runs > 0


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    rows = np.array([3, 2, 1])
    settings = {"budget": np.int64(8), "seed": np.uint32(1), "targets": {"a": np.float32(1)}}
    one = searched(bowl, rows=rows, storage=tmp_path / "study.log", **settings)
    other = searched(bowl, rows=[3, 2, 1], budget=8, seed=1, targets={"a": 1}, storage=tmp_path / "study.log")
    assert one == other


def test_weights_of_targets_of_any_size_are_weights() -> None:
    receipt = searched(bowl, targets={"a": 1e308, "b": 1e308, "c": 0.0})
    assert receipt.target_weights == (0.5, 0.5, 0.0)


@pytest.mark.parametrize("names", [("a" * 5000, "b"), ("a=b", "c/d"), ("é", "日本"), ("</script><img>", "%{x}")])
def test_names_may_be_any_text(names: tuple[str, ...]) -> None:
    receipt = search(bowl, names, budget=4, method="bandit")
    assert Receipt.from_document(json.loads(receipt.to_json())).names == names


@pytest.mark.parametrize("method", ["auto", "bandit", "doe"])
@pytest.mark.parametrize(
    "space",
    [
        Space(NAMES, lower=[0.5, 0.3, 0.2 + 1e-12]),
        Space(NAMES, fixed={"a": 0.5, "b": 0.5}),
        Space(NAMES, rows=[10, 10, 80], target_rows=100, max_repetition=1),
        Space(["a"]),
    ],
)
def test_a_space_of_one_mixture_is_searched_in_no_time(space: Space, method: str) -> None:
    receipt = search(bowl, space, budget=40, method=method)
    assert receipt.weights == pytest.approx(space.uniform, abs=1e-9)
    assert receipt.spent == 1 + len(receipt.audit_seeds)


# --- losses that cannot be read
class Refusing(dict):
    """Losses that cannot be looked up."""

    def __getitem__(self, name: str) -> float:
        raise RuntimeError(f"no {name} here")


class Meta:
    """A loss without a value, as a tensor of torch's meta device is."""

    def __float__(self) -> float:
        raise RuntimeError("no data")

    def __repr__(self) -> str:
        return "tensor(..., device='meta')"


def test_losses_whose_conversion_raises_are_told() -> None:
    with pytest.raises(MixtureError, match=r"loss of 'a' must be a finite number, but got tensor\(..., device='meta'"):
        searched(lambda weights, budget, seed: dict.fromkeys(weights, Meta()))
    with pytest.raises(MixtureError, match="loss of 'a' must be a finite number, but got RuntimeError: no a here"):
        searched(lambda weights, budget, seed: Refusing(weights))


# --- studies of others
def test_a_study_that_maximises_is_not_joined(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    optuna.create_study(storage=url, study_name="search", direction="maximize")
    with pytest.raises(StateError, match=r"study 'search' must be one that minimises .* but got one of maximize; give"):
        searched(bowl, storage=url)


def test_a_search_leaves_the_verbosity_of_optuna_as_it_was(tmp_path: Path) -> None:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.DEBUG)
    try:
        searched(bowl, storage=f"{tmp_path}/study.log")
        assert optuna.logging.get_verbosity() == optuna.logging.DEBUG
    finally:
        optuna.logging.set_verbosity(before)


@pytest.mark.parametrize(
    ("losses", "says"),
    [("x", "with TypeError: 'x' among its losses"), ([1.0], "with other losses than 3"), (5, "with TypeError: ")],
)
def test_losses_that_were_edited_in_a_journal_are_told(losses: object, says: str, tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    searched(bowl, storage=path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    edited = next(line for line in lines if "result" in line.get("user_attr", {}))
    edited["user_attr"]["result"]["losses"] = losses
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    with pytest.raises(StateError, match=r"storage must be as searches wrote it, but got trial \d+ " + says):
        searched(bowl, storage=path)


@pytest.mark.parametrize(
    "junk",
    [
        '{"op_code":99,"worker_id":"x"}',
        '{"op_code":true,"worker_id":"x","study_id":0}',
        '{"op_code":4}',
        '{"op_code":4,"worker_id":"x"}',
    ],
)
def test_lines_of_a_journal_that_are_no_entries_are_named(junk: str, tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    searched(bowl, storage=path)
    number = len(path.read_text().splitlines()) + 1
    with path.open("a") as file:
        file.write(f"{junk}\n")
    with pytest.raises(CuveeError, match=f"line {number} is no entry of a journal"):
        searched(bowl, storage=path)


def test_the_budget_of_a_method_is_no_option() -> None:
    with pytest.raises(MixtureError, match="options must not have 'budget', but got 1; the search gives it"):
        searched(bowl, options={"budget": 1})
