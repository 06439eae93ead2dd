"""OnlineMixer by hand: what it reports, when an update takes effect, what it refuses; and what a run leaves of it."""
# ruff: noqa: TID253

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
import transformers
from torch.utils.data import DataLoader

import online_runs as runs
from cuvee import CuveeError, MixedDataset, Mixture, MixtureSampler, PlanError, Source, Stage, StateError
from cuvee.bandits import EXP3, make_bandit
from cuvee.exact_sums import ExactSums, total
from cuvee.online import Online, OnlineMixer
from cuvee.online.decision import Decision, report_of
from cuvee.online.record import RECORD_FILE, read_record
from cuvee.online.replay import replay_run
from cuvee.online.run import JOURNAL_FILE, OnlineRun, set_aside
from cuvee.online.signals import ForwardEntropies
from cuvee.rewards import TrainLoss, entropies, make_reward, sequence_entropies
from cuvee.steps import StepSampler
from cuvee.train.rules import with_options

# --- sums


def test_sums_are_exact_in_any_order_and_parts() -> None:
    rng = np.random.default_rng(0)
    source = rng.integers(-1, 3, 2000)
    values = rng.normal(size=2000) * 10.0 ** rng.integers(-12, 12, 2000)
    whole = ExactSums(3)
    whole.add("x", source, values)
    expected = [math.fsum(values[source == each]) for each in range(3)]
    assert total([whole.parts()], 3)["x"].tolist() == expected
    order = rng.permutation(2000)
    parts = [ExactSums(3) for _ in range(4)]
    for number, chunk in enumerate(np.array_split(order, 37)):
        parts[number % 4].add("x", source[chunk], torch.tensor(values[chunk]))
    assert total([part.parts() for part in parts], 3)["x"].tolist() == expected
    merged = ExactSums(3)
    for part in parts:
        merged.merge(json.loads(json.dumps(part.parts())))
    assert total([merged.parts()], 3)["x"].tolist() == expected
    assert max(len(each) for each in merged.parts()["x"]) < 6


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 1e308])
def test_a_sum_that_is_not_finite_is_nan_and_stays_so(wrong: float) -> None:
    sums = ExactSums(2)
    sums.add("x", np.array([0, 0, 1]), np.array([wrong, wrong, 2.0]))
    sums.add("x", np.array([0]), np.array([-wrong]))
    parts = json.loads(json.dumps(sums.parts(), allow_nan=False))
    added = total([parts, {}], 2)["x"]
    assert added[1] == 2.0
    assert math.isnan(added[0]) or added[0] == wrong == 1e308


# --- a report and its decision


def mixer_of(steps, reward="train_loss", **arguments) -> OnlineMixer:
    settings = {"global_batch_size": runs.ROWS, "update_interval": 2, "lag": 3, **arguments}
    return OnlineMixer(steps, make_bandit("exp3", [0.5, 0.3, 0.2]), make_reward(reward, 3), **settings)


def test_report_is_the_sum_over_rows_that_are_no_padding() -> None:
    plan = runs.mixture().plan()
    mixer = mixer_of(plan)
    mixer.observe([0, 2, -1], loss_sum=torch.tensor([1.5, 2.0, math.nan]), tokens=[3, 4, 9], unheard=None)
    mixer.observe([0, 0], loss_sum=np.array([0.25, 0.5]), tokens=[1, 1])
    assert not mixer.due
    assert mixer.step() is None
    assert mixer.due
    mixer.observe([2], loss_sum=[1.0], tokens=[6])
    decision = mixer.step(total_steps=9)
    assert decision is not None
    report = {name: np.asarray(value).tolist() for name, value in decision.report.items()}
    assert report == {
        "rows": [3, 0, 2],
        "loss_sum": [2.25, 0.0, 3.0],
        "tokens": [5.0, 0.0, 10.0],
        "step": 2,
        "total_steps": 9,
    }
    reward = TrainLoss(3)
    reward.observe(decision.report)
    expected = make_bandit("exp3", [0.5, 0.3, 0.2]).update(reward.scores(), np.array([3, 0, 2]))
    assert decision.probabilities.tolist() == expected.tolist()
    assert (decision.update, decision.step, mixer.decisions, mixer.steps) == (1, 2, 1, 2)


def test_gradient_norm_is_a_mean_over_the_rows_of_its_steps() -> None:
    mixer = mixer_of(runs.mixture().plan(), "gradnorm")
    mixer.observe([0, 0, 1, -1])
    mixer.step(gradnorm=torch.tensor(2.0))
    mixer.observe([0])
    decision = mixer.step(gradnorm=5.0)
    assert decision is not None
    assert decision.report["gradnorm"].tolist()[:2] == [3.0, 2.0]
    assert math.isnan(decision.report["gradnorm"][2])


@pytest.mark.parametrize(
    ("reward", "bandit", "goes_by_rows"),
    [
        (make_reward("train_loss", 3), "exp3", True),
        (make_reward("velocity", 3, loss="train"), "exp3", True),
        (make_reward("velocity", 3), "exp3", False),
        (make_reward("validation_loss", 3), "exp3_bounded", False),
        (make_reward("validation_loss", 3), "ado", True),
    ],
)
def test_scores_of_evaluation_data_are_news_of_sources_without_rows_too(reward, bandit, goes_by_rows: bool) -> None:
    options = {"warmup": 1, "ignore": 0} if bandit == "ado" else {}
    steps = {"global_batch_size": 8, "update_interval": 1, "lag": 3}
    mixer = OnlineMixer(runs.mixture().plan(), make_bandit(bandit, 3, **options), reward, **steps)
    twin = make_bandit(bandit, 3, **options)
    for turn in range(6):
        mixer.observe([0, 0, 1], loss_sum=[2.0, 1.0, 3.0 / (1 + turn)], tokens=[1, 1, 1])
        decision = mixer.step(eval_loss=[1.0, 2.0, 3.0 / (1 + turn)])
        assert decision is not None
        expected = twin.update(reward.scores(), np.array([2, 1, 0]) if goes_by_rows else None)
        assert decision.probabilities.tolist() == expected.tolist()


def test_a_curriculum_goes_by_rows_whatever_the_reward_is_of() -> None:
    bandit = make_bandit("curriculum", 3, stages=[(4, [0.0, 0.5, 0.5])])
    steps = {"global_batch_size": 8, "update_interval": 1, "lag": 3}
    mixer = OnlineMixer(runs.mixture().plan(), bandit, make_reward("validation_loss", 3), **steps)
    mixer.observe([0, 1, 2, 0])
    decision = mixer.step(eval_loss=[1.0, 2.0, 3.0])
    assert decision is not None
    assert decision.probabilities.tolist() == [0.0, 0.5, 0.5]


def test_update_takes_effect_at_the_first_window_after_the_lag_and_changes_nothing_before() -> None:
    plan, before = runs.mixture().plan(), runs.mixture().plan()
    mixer = mixer_of(plan)  # after step 2, and 3 more: position 40, of windows of 16 the next is 48
    for _ in range(2):
        mixer.observe([0, 1, 2], loss_sum=[9.0, 1.0, 1.0], tokens=[1, 1, 1])
        decision = mixer.step()
    assert decision is not None
    assert (decision.epoch, decision.position) == (0, 48)
    (change,) = plan.journal
    assert (change.position, change.reason) == (48, "online update 1 at step 2")
    assert list(change.weights.values()) == decision.probabilities.tolist()
    assert plan.schedule_hash(0, 48) == before.schedule_hash(0, 48)
    assert plan.schedule_hash() != before.schedule_hash()


def test_decision_survives_json_to_the_bit() -> None:
    decision = Decision(
        update=3,
        step=30,
        epoch=1,
        position=64,
        report=report_of({"rows": np.array([3, 0]), "loss_sum": [0.1 + 0.2, math.inf], "total_steps": None, "x": 2.5}),
        probabilities=np.array([1 / 3, 2 / 3]),
    )
    again = Decision.of(json.loads(json.dumps(decision.record(), allow_nan=False)))
    assert again.record() == decision.record()
    assert math.isnan(again.report["loss_sum"][1])
    assert again.report["rows"].dtype == np.int64
    for wrong in ({}, {**decision.record(), "update": -1}, {**decision.record(), "report": None}, []):
        with pytest.raises(StateError):
            Decision.of(wrong)  # type: ignore[arg-type]


# --- refusals


def test_lag_below_what_a_loader_fetches_is_an_error_that_names_it() -> None:
    run = runs.begin(lag=2)
    run.mixer.observe([0, 1, 2], loss_sum=[1.0, 2.0, 3.0], tokens=[1, 1, 1])
    for _, _micro in zip(range(20), run.steps, strict=False):
        pass
    for _ in range(runs.INTERVAL):
        run.steps.advance()
    assert [run.mixer.step() for _ in range(runs.INTERVAL - 1)] == [None, None]
    with pytest.raises(
        PlanError, match=r"^lag must be at least the steps that the loader fetches ahead, but got 2: .*"
    ):
        run.mixer.step()


def test_wrong_arguments_are_errors() -> None:
    plan = runs.mixture().plan()
    for name in ("global_batch_size", "update_interval"):
        with pytest.raises(PlanError, match=rf"^{name} must be an integer in \[1, 2\*\*31\), but got 0"):
            mixer_of(plan, **{name: 0})
    with pytest.raises(PlanError, match=r"^algorithm must be made for 3 sources, as the plan has, but got one for 2"):
        OnlineMixer(plan, EXP3(2), TrainLoss(3), global_batch_size=8, update_interval=1, lag=0)
    with pytest.raises(PlanError, match=r"^reward must be made for 3 sources, as the plan has, but got one for 4"):
        OnlineMixer(plan, EXP3(3), TrainLoss(4), global_batch_size=8, update_interval=1, lag=0)
    mixer = mixer_of(plan)
    with pytest.raises(StateError, match=r"^reward must get what it needs, but got no 'loss_sum'"):
        mixer.observe([0], loss_sum=None, tokens=[1])
    with pytest.raises(StateError, match=r"^tokens must be one value a row, \(2,\), but got shape \(1,\)"):
        mixer.observe([0, 1], loss_sum=[1.0, 1.0], tokens=[1])
    for source in (3, -2):
        with pytest.raises(StateError, match=rf"^source must be one of the 3 .* or -1 for padding, but got {source}"):
            mixer.observe([0, source], loss_sum=[1.0, 1.0], tokens=[1, 1])
    for wrong in ([0.5], [True], [[0]], 0, ["s0"]):
        with pytest.raises(StateError, match=r"^source must be integers of shape \(n,\), but got"):
            mixer.observe(wrong, loss_sum=[1.0], tokens=[1])
    mixer.observe([0, 1], loss_sum=[1.0, 2.0], tokens=[1, 1])  # what was refused before left nothing behind
    mixer.step()
    decision = mixer.step()
    assert decision is not None
    assert decision.report["rows"].tolist() == [1, 1, 0]
    assert decision.report["loss_sum"].tolist() == [1.0, 2.0, 0.0]


def test_a_source_that_joins_the_plan_is_a_clear_error() -> None:
    plan = runs.mixture().plan()
    mixer = mixer_of(plan, update_interval=1, lag=0)
    plan.update([0.4, 0.3, 0.2, 0.1], add=[Source("late", rows=30, lengths=np.ones(30, dtype=np.int32))])
    mixer.observe([0, 1], loss_sum=[1.0, 2.0], tokens=[1, 1])
    with pytest.raises(PlanError, match=r"^sources must be those that the bandit began with, but got \['late'\] more"):
        mixer.step()
    with pytest.raises(StateError, match=r"^source must be one of the 3 that the bandit began with"):
        mixer.observe([3], loss_sum=[1.0], tokens=[1])
    bigger = OnlineMixer(plan, EXP3(4), TrainLoss(4), global_batch_size=8, update_interval=1, lag=0)
    bigger.observe([0, 3], loss_sum=[1.0, 2.0], tokens=[1, 1])
    assert bigger.step() is not None


@pytest.mark.parametrize(("name", "other"), [("lag", 5), ("update_interval", 3), ("global_batch_size", 4)])
def test_state_keeps_what_a_run_keeps(name: str, other: int) -> None:
    state = mixer_of(runs.mixture().plan()).state_dict()
    with pytest.raises(StateError, match=rf"^{name} must be \d, as in the state, but got {other}"):
        mixer_of(runs.mixture().plan(), **{name: other}).load_state_dict(state)
    with pytest.raises(StateError, match=r"^state must be from OnlineMixer.state_dict"):
        mixer_of(runs.mixture().plan()).load_state_dict({"version": 7})


def test_no_update_where_all_sources_are_used_up_before() -> None:
    mix = runs.mixture(samples_per_epoch=155, max_length=None)
    capped = type(mix)([type(s)(s.name, s.data, s.weight, max_epochs=1) for s in mix.sources], window=16)
    steps = StepSampler(capped.plan(), rows=8)
    mixer = mixer_of(steps, lag=3, update_interval=1)
    decided = []
    for _ in steps:
        mixer.observe([0, 1, 2], loss_sum=[1.0, 2.0, 3.0], tokens=[1, 1, 1])
        steps.advance()
        decided.append(mixer.step() is not None)
    assert decided[0]
    assert not any(decided[-3:])
    assert sorted(decided, reverse=True) == decided


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"plan": 3}, "plan must be a plan or a sampler of one, but got int"),
        ({"plan": runs.mixture()}, "plan must be a plan or a sampler of one, but got Mixture"),
        ({"algorithm": 3}, r"algorithm must have probabilities, update, .*, but int lacks \['probabilities', 'update'"),
        ({"reward": "x"}, "reward must have needs, from_training, .*, but str lacks"),
        ({"lag": 1.5}, "lag must be an integer"),
        ({"update_interval": True}, "update_interval must be an integer"),
    ],
)
def test_arguments_of_other_kinds_are_errors(wrong, message) -> None:
    given = {"plan": runs.mixture().plan(), "algorithm": EXP3(3), "reward": TrainLoss(3)}
    sizes = {"global_batch_size": 8, "update_interval": 1, "lag": 1}
    given, sizes = ({name: wrong.get(name, value) for name, value in each.items()} for each in (given, sizes))
    with pytest.raises(PlanError, match=f"^{message}"):
        OnlineMixer(*given.values(), **sizes)


def test_values_that_are_no_numbers_are_errors() -> None:
    mixer = mixer_of(runs.mixture().plan(), update_interval=1)
    for wrong in ("ab", [1, {}], [[1.0], [1.0, 2.0]], [1.0]):
        with pytest.raises(StateError, match=r"^loss_sum must be (numbers, one a row|one value a row)"):
            mixer.observe([0, 1], loss_sum=wrong, tokens=[1, 1])
    mixer.observe([0, 1], loss_sum=[1.0, 2.0], tokens=[1, 1])
    with pytest.raises(StateError, match=r"^total_steps in a report must be numbers, but got <object"):
        mixer.step(total_steps=object())
    mixer = mixer_of(runs.mixture().plan(), "gradnorm", update_interval=1)
    mixer.observe([0, 1])
    for wrong in ("x", None, [1.0]):
        with pytest.raises(StateError, match="gradnorm"):
            mixer.step(gradnorm=wrong)


def test_an_array_that_is_used_again_is_taken_as_it_was() -> None:
    mixer = mixer_of(runs.mixture().plan(), update_interval=1)
    loss, tokens = np.array([1.0, 2.0]), np.array([1, 1])
    mixer.observe([0, 1], loss_sum=loss, tokens=tokens)
    loss[:], tokens[:] = 9.0, 7
    decision = mixer.step()
    assert decision is not None
    assert decision.report["loss_sum"].tolist() == [1.0, 2.0, 0.0]
    assert decision.report["tokens"].tolist() == [1, 1, 0]


def test_a_damaged_state_is_refused_and_changes_nothing() -> None:
    def made() -> OnlineMixer:
        mixer = mixer_of(runs.mixture().plan(), update_interval=1)
        mixer.observe([0, 1], loss_sum=[1.0, 2.0], tokens=[1, 1])
        return mixer

    mixer = made()
    mixer.step()
    state = json.loads(json.dumps(mixer.state_dict()))
    damaged = [{name: value for name, value in state.items() if name != left} for left in state]
    damaged += [{**state, name: wrong} for name in state if name != "loop" for wrong in ("x", None, -1, {"a": 1})]
    damaged += [{**state, "loop": wrong} for wrong in ("x", None, {"epoch": -1, "position": 0})]
    damaged += [{**state, "rows": wrong} for wrong in ([], [1], [-1, 0, 0], [0.5, 0, 0])]
    damaged += [{**state, "sums": {"loss_sum": wrong}} for wrong in ([[1.0]], [["x"], [], []], 3)]
    for each in damaged:
        fresh = made()
        before = json.dumps(fresh.state_dict())
        with pytest.raises(CuveeError):
            fresh.load_state_dict(each)
        assert json.dumps(fresh.state_dict()) == before, each


def test_a_setup_that_cannot_be_is_told_before_anything_is_loaded() -> None:
    mix = runs.mixture()
    later = Mixture(
        [Source("a", rows=50, weight=0), Source("b", rows=50)], samples_per_epoch=100,
        stages=[Stage(50, {"a": 0.5, "b": 0.5})],
    )  # fmt: skip
    for setup, over, message in (
        ({}, later, r"weights of sources must be over 0 where they learn, but got 0 for \['a'\]"),
        ({"algorithm": 3}, mix, "algorithm must have probabilities"),
        ({"reward": 3}, mix, "reward must have needs"),
        ({"algorithm_options": 3}, mix, "algorithm_options must be a mapping, but got 3"),
        ({"reward_options": ["x"]}, mix, "reward_options must be a mapping"),
        ({"update_interval": 0}, mix, "update_interval must be an integer"),
    ):
        with pytest.raises(PlanError, match=f"^{message}"):
            Online(**setup).parts(over)


# --- loops over a plan or a MixtureSampler


@pytest.mark.parametrize(
    "settings", [{}, {"max_length": 6}, {"exhaustion": "stop", "samples_per_epoch": None}], ids=str
)
@pytest.mark.parametrize("drop_last", [False, True])
def test_mixture_sampler_is_followed_from_epoch_to_epoch(settings, drop_last) -> None:
    def run(workers: int) -> tuple[list, str]:
        sampler = MixtureSampler(runs.mixture(**settings).plan(), batch_size=8, drop_last=drop_last)
        mixer = mixer_of(sampler, lag=9)
        loader = DataLoader(
            MixedDataset(sampler.plan.mixture), batch_sampler=sampler, collate_fn=runs.collate, num_workers=workers
        )
        made = []
        for _ in range(3):
            for draws in sampler.track(loader):
                mixer.observe(draws[:, 0], loss_sum=runs.losses(draws, mixer.steps), tokens=np.ones(len(draws)))
                decision = mixer.step()
                made += [] if decision is None else [decision.record()]
        return made, sampler.plan.journal.digest

    made, journal = run(0)
    assert {record["epoch"] for record in made} == {0, 1, 2}
    assert run(2) == (made, journal)


def test_a_plan_is_for_one_epoch() -> None:
    plan = runs.mixture().plan()
    mixer = mixer_of(plan, lag=1)
    for _ in range(38):  # 300 rows
        mixer.observe([0, 1, 2], loss_sum=[1.0, 2.0, 3.0], tokens=[1, 1, 1])
        decision = mixer.step()
        if mixer.steps == 36:
            assert decision is not None
            assert (decision.epoch, decision.position) == (0, 300)  # the next epoch's first row
    with pytest.raises(PlanError, match=r"^steps must be those of epoch 0, but got one more after its 300 rows"):
        mixer.step()


# --- setup


def test_options_in_a_text() -> None:
    assert with_options("exp3") == ("exp3", {})
    assert with_options("exp3:eta=0.3,gamma=1e-2,n=3,normalize=none,flag=true") == (
        "exp3",
        {"eta": 0.3, "gamma": 0.01, "n": 3, "normalize": "none", "flag": True},
    )
    for wrong in ("", "exp3:", "exp3:eta", "exp3:eta=", "exp3:eta=1,eta=2", "exp3:=1", "a b"):
        with pytest.raises(ValueError, match=f"^{wrong}$"):
            with_options(wrong)


def test_setup_finds_what_cannot_be_measured_or_fetched() -> None:
    mix = runs.mixture()
    with pytest.raises(
        PlanError, match=r"^reward must need only what training measures, but got 'velocity', .*eval_loss"
    ):
        Online(reward="velocity").parts(mix)
    one = Mixture([Source("lone", rows=9)])
    with pytest.raises(PlanError, match=r"^sources must be at least two where weights learn, but got \['lone'\]"):
        Online().parts(one)
    Online(reward="velocity", reward_options={"loss": "train"}).parts(mix)
    Online(reward="velocity", measure=dict).parts(mix)
    with pytest.raises(CuveeError, match="eta"):
        Online(algorithm="exp3", algorithm_options={"etta": 1}).parts(mix)
    steps = StepSampler(mix.plan(), rows=8)
    assert Online(reward="train_loss").mixer(steps, fetched=4).lag == 5
    assert Online(reward="train_loss").mixer(steps, fetched=4, kept={"lag": 7}).lag == 7
    with pytest.raises(
        PlanError, match=r"^lag must be at least 5 steps, one more than the loader fetches ahead, but got 4"
    ):
        Online(reward="train_loss", lag=4).mixer(steps, fetched=4)


def test_what_training_does_not_measure_is_asked_for_before_each_update() -> None:
    asked = []

    def measure() -> dict[str, list[float]]:
        asked.append(online.mixer.steps)
        return {"eval_loss": [3.0 - len(asked), 2.0, math.nan]}

    setup = Online(algorithm="exp3", reward="velocity", update_interval=2, lag=1, measure=measure)
    steps = StepSampler(runs.mixture().plan(), rows=8)
    online = OnlineRun(setup, steps)
    for _, _ in zip(range(6), steps, strict=False):
        steps.advance()
        online.stepped(None)
    assert asked == [1, 3, 5]
    scores = online.mixer.reward.scores()
    assert scores[:2].tolist() == [1.0, 0.0]  # 1 - 0 / 1
    assert math.isnan(scores[2])


# --- entropies of a forward pass


class Said(torch.nn.Module):
    """Returns what it is told to, as models do."""

    config = transformers.LlamaConfig(vocab_size=11)

    def forward(self, returned: dict[str, torch.Tensor], **_: torch.Tensor) -> dict[str, torch.Tensor]:
        return returned


def test_entropies_are_read_off_logits_or_off_those_of_the_targets() -> None:
    torch.manual_seed(0)
    logits, mask = torch.randn(3, 6, 11), torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0]])
    expected = sequence_entropies(logits, mask)
    model = Said()
    read = ForwardEntropies(model)
    model({"logits": logits}, attention_mask=mask)
    found = read.take()
    assert torch.equal(found["entropy_sum"], expected.entropy)
    assert torch.equal(found["varentropy_sum"], expected.varentropy)
    assert torch.equal(found["last_entropy_sum"], expected.last)
    assert found["entropy_rows"].tolist() == [1.0, 1.0, 0.0]
    assert set(read.take().values()) == {None}
    labels = torch.where(mask == 1, 5, -100)
    model({"logits": logits}, labels=labels)  # no mask: labels say where tokens are
    assert torch.equal(read.take()["entropy_sum"], expected.entropy)

    targets = (mask[:, 1:] * mask[:, :-1]).bool()  # as of a model that keeps no logits
    entropy, _ = entropies(logits[:, :-1], targets)
    model({"entropy": entropy, "label_mask": targets}, labels=labels)
    again = read.take()
    torch.testing.assert_close(again["entropy_sum"], expected.entropy)
    torch.testing.assert_close(again["last_entropy_sum"], expected.last)
    assert again["entropy_rows"].tolist() == [1.0, 1.0, 0.0]
    assert again["varentropy_sum"] is None
    model.eval()
    model({"logits": logits}, attention_mask=mask)
    assert set(read.take().values()) == {None}


# --- files


def recorded(folder, steps: int = 30, run: OnlineRun | None = None) -> OnlineRun:
    """Return a run that wrote its files, and came to its end."""
    setup = Online(algorithm="exp3_bounded", reward="train_loss", update_interval=runs.INTERVAL, lag=2)
    sampler = StepSampler(runs.mixture().plan(), rows=runs.ROWS)
    run = run or OnlineRun(setup, sampler, folder=folder)
    sampler = run._steps
    run.start()
    while sampler.step < steps:
        for keys in sampler:
            draws = runs.collate(MixedDataset(sampler.plan.mixture).__getitems__(keys)) if keys else None
            if draws is None:
                continue
            run.observe(draws[:, 0], loss_sum=runs.losses(draws, sampler.step), tokens=np.ones(len(draws)))
            run.stepped(sampler.advance())
            if sampler.step == steps:
                break
    run.finish()
    return run


def test_files_of_a_run_replay_it(tmp_path) -> None:
    recorded(tmp_path, 45)
    record = read_record(tmp_path)
    assert [update.step for update in record.updates] == list(range(3, 46, 3))
    assert [(each["kind"], each["epoch"]) for each in record.stretches] == [("epoch", 0), ("end", 1)]
    assert record.ended
    found = replay_run(tmp_path, runs.mixture())
    assert (found.updates, found.epochs, found.difference) == (15, 2, None)
    elsewhere = replay_run(tmp_path, runs.mixture(seed=1))
    assert elsewhere.difference is not None
    assert elsewhere.difference.startswith("spec_hash must be ")


def test_a_second_run_in_the_folder_keeps_the_files_of_the_first(tmp_path) -> None:
    recorded(tmp_path, 10)
    first = (tmp_path / JOURNAL_FILE).read_bytes()
    recorded(tmp_path, 20)
    assert replay_run(tmp_path, runs.mixture()).updates == 6
    (kept,) = tmp_path.glob(f"{JOURNAL_FILE}.dropped-*")
    assert kept.read_bytes() == first
    set_aside(tmp_path / "not there")


def changed(path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_replay_ends_at_once_on_numbers_it_could_not_reach(tmp_path) -> None:
    recorded(tmp_path, 45)
    text = (tmp_path / RECORD_FILE).read_text()
    for old, new, message in (
        ('"update_interval": 3', '"update_interval": 1000000', "line 1 must have the digest"),
        ('"lag": ', '"lag": 1000000', "line 1 must have the digest"),
        ('"update": 4, "epoch": 0', '"update": 4, "epoch": 1000000000000000', "update 4 at step 12: epoch must be 0"),
    ):
        (tmp_path / RECORD_FILE).write_text(text.replace(old, new, 1))
        assert message in replay_run(tmp_path, runs.mixture()).difference


def test_replay_says_that_a_record_has_no_end(tmp_path) -> None:
    recorded(tmp_path, 45)
    assert replay_run(tmp_path, runs.mixture()).ended
    lines = (tmp_path / RECORD_FILE).read_text().splitlines(keepends=True)
    (tmp_path / RECORD_FILE).write_text("".join(lines[:-1]))
    found = replay_run(tmp_path, runs.mixture())
    assert (found.difference, found.ended) == (None, False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"rows": [', '"rows": [1.5, '),
        ('"probabilities": [', f'"probabilities": [{10**400}, '),
        ('"loss_sum": [', '"loss_sum": [Infinity, '),
        ('"loss_sum": [', f'"loss_sum": [{10**400}, '),
        ('"kind": "end"', '"kind": "end", "x": 1e999'),
    ],
)
def test_a_record_with_impossible_numbers_is_one_sentence(tmp_path, old: str, new: str) -> None:
    recorded(tmp_path, 45)
    text = (tmp_path / RECORD_FILE).read_text()
    assert old in text
    (tmp_path / RECORD_FILE).write_text(text.replace(old, new, 1))
    with pytest.raises(StateError, match=r"must be|must have"):
        replay_run(tmp_path, runs.mixture())


def test_replay_reports_the_first_difference(tmp_path) -> None:
    recorded(tmp_path, 45)
    files = {name: (tmp_path / name).read_text() for name in (RECORD_FILE, JOURNAL_FILE)}
    lines = [json.loads(line) for line in files[RECORD_FILE].splitlines()]
    fourth = next(line for line in lines if line.get("update") == 4)
    weight, loss = fourth["probabilities"], fourth["report"]["loss_sum"][0]
    line = json.dumps(fourth)
    end, sixth = lines[-1]["schedule_hash"], files[JOURNAL_FILE].splitlines()[5]

    def difference(name: str, old: object, new: object) -> str | None:
        for each, text in files.items():
            (tmp_path / each).write_text(text)
        changed(tmp_path / name, str(old), str(new))
        return replay_run(tmp_path, runs.mixture()).difference

    wrong = [weight[0], np.nextafter(weight[1], 1).item(), weight[2]]
    assert difference(RECORD_FILE, line, line.replace(str(weight), str(wrong))) == (
        f"update 4 at step 12: weight of 's1' must be {weight[1]!r}, as its report leads to, but got {wrong[1]!r} in "
        "the record"
    )
    assert "weight of 's0' must be" in difference(RECORD_FILE, loss, 1e3)
    assert difference(
        RECORD_FILE, '"update": 4, "epoch": 0, "position": 112', '"update": 4, "epoch": 0, "position": 128'
    ) == ("update 4 at step 12: position must be 112, made again, but got 128")
    assert difference(RECORD_FILE, '"step": 12, "update": 4', '"step": 13, "update": 4').startswith(
        "update 4 at step 13: step "
    )
    assert difference(RECORD_FILE, end, "0" * 32).startswith("epoch 1: schedule_hash of 56 rows must be ")
    assert (
        difference(RECORD_FILE, '"rows": 300', '"rows": 299')
        == "epoch 0 must have 300 rows, made again, but got 299 in the record"
    )
    assert difference(JOURNAL_FILE, sixth + "\n", "").startswith(f"{JOURNAL_FILE}, line 6 must be ")
    last = files[JOURNAL_FILE].splitlines()[-1] + "\n"
    assert difference(JOURNAL_FILE, last, "") == f"{JOURNAL_FILE} must hold 15 updates, as the record does, but got 14"


def test_a_report_that_was_changed_is_noticed_even_where_it_leads_to_the_same_weights(tmp_path) -> None:
    recorded(tmp_path, 20)
    path = tmp_path / RECORD_FILE
    lines = path.read_text().splitlines(keepends=True)
    second = json.loads(lines[2])
    second["report"]["more"] = [1.0, 2.0, 3.0]  # nothing goes by it
    path.write_text("".join([*lines[:2], json.dumps(second) + "\n", *lines[3:]]))
    found = replay_run(tmp_path, runs.mixture())
    assert found.updates == 6
    assert found.difference is not None
    assert found.difference.startswith(
        f"{RECORD_FILE}, line 3 must have the digest of what stands in it and before it, "
    )
    path.write_text("".join([*lines[:2], *lines[3:]]))  # a line less
    assert replay_run(tmp_path, runs.mixture()).difference is not None


def test_the_chain_of_digests_goes_on_over_a_resume(tmp_path) -> None:
    state = json.dumps(runs.accounted(tmp_path, 20).state_dict())
    runs.accounted(tmp_path, 25)  # goes on, and is killed within a line
    with (tmp_path / RECORD_FILE).open("a") as file:
        file.write('{"kind": "upd')
    runs.accounted(tmp_path, 40, state=state).finish({})
    found = replay_run(tmp_path, runs.mixture())
    assert (found.updates, found.difference) == (13, None)
    assert read_record(tmp_path).broken is None


@pytest.mark.parametrize("exhaustion", ["cycle", "renormalize"])
@pytest.mark.parametrize("checkpoint", [10, 20, 37])
def test_a_run_over_data_that_changed_is_replayed(tmp_path, checkpoint: int, exhaustion: str) -> None:
    settings = {} if exhaustion == "cycle" else {"exhaustion": exhaustion, "samples_per_epoch": None}
    before, after = runs.mixture(**settings), runs.mixture((90, 47, 25), **settings)
    run = runs.accounted(tmp_path, checkpoint, mix=before)
    state = json.dumps(run.state_dict())
    run = runs.accounted(tmp_path, 60, mix=after, state=state, accept_changes=("s1",))
    later = json.dumps(run.state_dict())
    runs.accounted(tmp_path, 80, mix=after, state=later).finish({})
    found = replay_run(tmp_path, after)
    assert (found.updates, found.difference) == (26, None)
    ended = [stretch["step"] for stretch in read_record(tmp_path).stretches]
    assert found.epochs == sum(step > checkpoint or exhaustion == "cycle" for step in ended)
    assert "must be those of the run's checkpoint" in str(replay_run(tmp_path, before).difference)
    files = {name: (tmp_path / name).read_text() for name in (RECORD_FILE, JOURNAL_FILE)}
    second = read_record(tmp_path).updates[1]
    for name in files:
        for each, text in files.items():
            (tmp_path / each).write_text(text)
        changed(tmp_path / name, repr(second.probabilities[0].item()), "0.25")
        found = replay_run(tmp_path, after)
        assert found.difference is not None


def test_a_resume_that_is_refused_leaves_the_journal_alone(tmp_path) -> None:
    state = json.loads(json.dumps(runs.accounted(tmp_path, 20).state_dict()))
    journal = (tmp_path / JOURNAL_FILE).read_bytes()
    state["online"]["setup"]["algorithm"] = "odm"
    with pytest.raises(StateError, match="online algorithm must be 'odm', as in the checkpoint"):
        runs.accounted(tmp_path, 30, mix=runs.mixture((90, 47, 25)), state=json.dumps(state), accept_changes=("s1",))
    assert (tmp_path / JOURNAL_FILE).read_bytes() == journal


def test_replay_of_a_killed_run_needs_no_last_words(tmp_path) -> None:
    recorded(tmp_path, 45)
    record, journal = tmp_path / RECORD_FILE, tmp_path / JOURNAL_FILE
    lines, entries = record.read_bytes().splitlines(keepends=True), journal.read_bytes().splitlines(keepends=True)
    for cut in range(1, len(lines)):
        updates = sum(b'"update"' in line for line in lines[:cut])
        for torn in (b"", lines[cut][:20]):
            for behind in (0, 1):
                record.write_bytes(b"".join(lines[:cut]) + torn)
                last_is_update = b'"kind": "update"' in lines[cut - 1]
                journal.write_bytes(b"".join(entries[: max(updates - behind * last_is_update, 0)]))
                found = replay_run(tmp_path, runs.mixture())
                assert (found.updates, found.difference) == (updates, None)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "must hold the record of a run, but got no whole line"),
        (b"{}\n", "line 1 must be of one of the kinds"),
        (b"nonsense\n", "line 1 must be JSON"),
        (
            b'{"kind": "end", "step": 1, "epoch": 0, "rows": 1, "schedule_hash": "", "digest": ""}\n',
            "line 1 must be of kind 'start'",
        ),
        (b'{"kind": "start", "step": 0, "version": 1}\n', "line 1 must hold names, spec_hash"),
    ],
)
def test_a_record_that_is_none_is_an_error_that_names_the_line(tmp_path, line, message) -> None:
    (tmp_path / RECORD_FILE).write_bytes(line)
    with pytest.raises(StateError, match=message):
        read_record(tmp_path)


def test_wrong_lines_of_a_record(tmp_path) -> None:
    recorded(tmp_path, 10)
    path = tmp_path / RECORD_FILE
    text = path.read_text()
    for old, new, message in (
        ('"version": 1', '"version": 2', "line 1: version must be 1, but got 2"),
        ('"update": 1', '"update": "x"', "line 2: update must be an integer"),
        ('"report"', '"reports"', "line 2 must hold report"),
    ):
        path.write_text(text.replace(old, new))
        with pytest.raises(StateError, match=message):
            read_record(tmp_path)
    with pytest.raises(StateError, match=f"run folder must hold {RECORD_FILE}"):
        read_record(tmp_path / "nowhere")


def test_objects_must_be_given_again_for_a_replay(tmp_path) -> None:
    def parts() -> dict[str, object]:
        return {"algorithm": EXP3([0.5, 0.3, 0.2], normalize="quantile"), "reward": TrainLoss(3)}

    steps = StepSampler(runs.mixture().plan(), rows=runs.ROWS)
    recorded(tmp_path, 20, OnlineRun(Online(**parts(), update_interval=runs.INTERVAL, lag=2), steps, folder=tmp_path))
    with pytest.raises(StateError, match=r"^algorithm must be given to replay a run whose algorithm was an object"):
        replay_run(tmp_path, runs.mixture())
    assert replay_run(tmp_path, runs.mixture(), **parts()).difference is None
