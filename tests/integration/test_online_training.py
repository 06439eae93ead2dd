"""Weights that learn in real training: the same at any number of workers, ranks and resumes, and replayed exactly."""
# ruff: noqa: TID253

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import online_runs as runs
import tiny
from cuvee import CuveeError, PlanError, StateError
from cuvee.integrations.transformers import MixtureTrainer
from cuvee.online import Online
from cuvee.online.record import RECORD_FILE, read_record
from cuvee.online.replay import replay_run
from cuvee.online.run import JOURNAL_FILE
from cuvee.rewards import sequence_entropies
from cuvee.train.launch import launch
from cuvee.train.settings import TrainSettings

MANY_WORKERS = pytest.mark.filterwarnings("ignore:This DataLoader will create")
SETUP: dict[str, Any] = {"algorithm": "exp3_bounded", "reward": "entropy", "update_interval": 4, "lag": 12}


def mixture():
    return tiny.mixture(window=8)


def trained(folder: Path, *, resume: str | None = None, model=None, online: Online | None = None, **settings: Any):
    """Return a trainer over a mixture whose weights learn, once it has trained for two epochs."""
    trainer = MixtureTrainer(
        model=model or tiny.model(),
        args=tiny.arguments(folder, **{"num_train_epochs": 2, **settings}),
        mixture=mixture(),
        data_collator=tiny.pad,
        mix_log_dir=folder,
        online=online or Online(**SETUP),
    )
    trainer.train(resume)
    return trainer


def left(folder: Path) -> tuple[bytes, list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what a run left: its journal, decisions, and the order of its epochs."""
    record = read_record(folder)
    stretches = [{**each, "digest": None} for each in record.stretches]  # which covers lines that no longer hold, too
    return (folder / JOURNAL_FILE).read_bytes(), [each.record() for each in record.updates], stretches


def test_loops_over_real_loaders_make_the_same_run() -> None:
    expected = runs.outcome(runs.train(runs.begin(), 80))
    assert len(expected["decisions"]) == 26
    run = runs.train(runs.begin(), 80, workers=2, prefetch=2)
    assert runs.outcome(run) == expected


@MANY_WORKERS
@pytest.mark.parametrize("prefetch", [2, 8])
def test_four_workers_change_nothing(prefetch: int) -> None:
    lag = 4 * prefetch + 1
    expected = runs.outcome(runs.train(runs.begin(lag=lag), 80))
    run = runs.train(runs.begin(lag=lag), 50, workers=4, prefetch=prefetch)
    run = runs.resumed(run, lag=lag)
    assert runs.outcome(runs.train(run, 80, workers=4, prefetch=prefetch)) == expected


def test_recorded_signals_decide_the_same_on_one_rank_and_two(tmp_path) -> None:
    journal = tmp_path / "one.jsonl"
    expected = json.loads(json.dumps(runs.outcome(runs.train(runs.begin(journal=journal), 80))))
    launch(runs.two_ranks, tmp_path, world_size=2)
    for rank in range(2):
        assert json.loads((tmp_path / f"{rank}.json").read_text()) == expected
    assert (tmp_path / "journal.jsonl").read_bytes() == journal.read_bytes()


def test_one_rank_writes_what_changed_when_two_go_on(tmp_path) -> None:
    launch(runs.two_ranks_over_changed_data, tmp_path, world_size=2)
    lines = [json.loads(line) for line in (tmp_path / JOURNAL_FILE).read_text().splitlines()]
    assert sum("accepted" in line for line in lines) == 1
    found = replay_run(tmp_path, runs.mixture((90, 47, 25)))
    assert (found.updates, found.epochs, found.difference) == (23, 2, None)


def test_ranks_that_decide_differently_are_told_apart(tmp_path) -> None:
    launch(runs.differing_ranks, tmp_path, world_size=2)
    for rank in range(2):
        told = (tmp_path / f"{rank}.txt").read_text()
        assert told.startswith("ranks must decide the same, but update 1 of rank 1 differs from rank 0's: ")


@MANY_WORKERS
def test_trainer_decides_the_same_with_any_workers(tmp_path) -> None:
    online = Online(**{**SETUP, "lag": 33})
    expected = trained(tmp_path / "0", online=online, num_train_epochs=4)
    for workers, prefetch in ((4, 2), (4, 8)):
        folder = tmp_path / f"{workers}-{prefetch}"
        other = trained(
            folder, online=online, num_train_epochs=4,
            dataloader_num_workers=workers, dataloader_prefetch_factor=prefetch,
        )  # fmt: skip
        assert left(folder) == left(tmp_path / "0")
        assert torch.equal(tiny.weights(other.model), tiny.weights(expected.model))
        assert other.mix.steps.plan.plan_hash == expected.mix.steps.plan.plan_hash
    assert replay_run(tmp_path / "0", mixture()).difference is None
    assert len(left(tmp_path / "0")[1]) == 25
    assert "mix/weight/s0" in next(entry for entry in expected.state.log_history if "loss" in entry)


@pytest.mark.parametrize("reward", ["entropy", "entropy3_varent1", "entropy_last_token", "train_loss", "gradnorm"])
def test_report_is_what_the_model_says_of_the_rows(tmp_path, reward: str) -> None:
    """With a learning rate of 0 and no dropout the model stays: what it says can be worked out from the data."""
    model = tiny.model(attention_dropout=0.0)
    setup = Online(reward=reward, update_interval=25, lag=2)
    trainer = trained(
        tmp_path, model=model, online=setup, learning_rate=0.0, num_train_epochs=1, gradient_accumulation_steps=2,
        per_device_train_batch_size=2, max_grad_norm=0.01,
    )  # fmt: skip
    (update,) = read_record(tmp_path).updates
    model.eval()
    draws = mixture().plan().draws(0, 100)
    batches = [tiny.pad([tiny.TokenRows(s, 100)[r]]) for s, r in zip(draws.source, draws.row.tolist(), strict=True)]
    expected: dict[str, np.ndarray] = {}
    for name in trainer.mix.online.mixer.reward.needs:
        values = (
            gradient_norms(model, batches) if name == "gradnorm" else [said(model, batch)[name] for batch in batches]
        )
        expected[name] = np.bincount(draws.source, values, 2)
        if name == "gradnorm":
            expected[name] /= np.bincount(draws.source)
    for name, values in expected.items():
        np.testing.assert_allclose(update.report[name], values, rtol=2e-5, err_msg=name)
    assert update.report["rows"].tolist() == np.bincount(draws.source).tolist()
    assert (update.report["step"], update.report["total_steps"]) == (25, 25)


def said(model, batch: dict[str, torch.Tensor]) -> dict[str, float]:
    """Return what a model says of a batch of one row."""
    with torch.no_grad():
        logits = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    labels = batch["labels"][0, 1:]
    losses = torch.nn.functional.cross_entropy(logits[0, :-1].double(), labels, ignore_index=-100, reduction="sum")
    rows = sequence_entropies(logits, batch["attention_mask"])
    return {
        "loss_sum": losses.item(),
        "tokens": (labels >= 0).sum().item(),
        "entropy_sum": rows.entropy.item(),
        "varentropy_sum": rows.varentropy.item(),
        "last_entropy_sum": rows.last.item(),
        "entropy_rows": 1.0,
    }


def gradient_norms(model, batches: list[dict[str, torch.Tensor]]) -> list[float]:
    """Return for each row the gradient norm of its step, of four rows."""
    norms: list[float] = []
    for first in range(0, len(batches), 4):
        model.zero_grad()
        step = batches[first : first + 4]
        tokens = sum(int((batch["labels"][:, 1:] >= 0).sum()) for batch in step)
        for batch in step:
            logits = model(batch["input_ids"]).logits[0, :-1]
            loss = torch.nn.functional.cross_entropy(logits, batch["labels"][0, 1:], ignore_index=-100, reduction="sum")
            (loss / tokens).backward()
        total = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm()
        norms += [total.item()] * len(step)
    return norms


@pytest.mark.parametrize("at", [6, 12, 25, 31])
def test_resumed_trainer_ends_with_the_very_same_bits(tmp_path, at: int) -> None:
    settings = {"save_strategy": "steps", "save_steps": at}
    whole = trained(tmp_path, **settings)
    expected = left(tmp_path)
    again = trained(tmp_path, resume=str(tmp_path / f"checkpoint-{at}"), **settings)  # after it went on without us
    assert left(tmp_path) == expected
    assert torch.equal(tiny.weights(again.model), tiny.weights(whole.model))
    assert replay_run(tmp_path, mixture()).difference is None


def test_resumed_elsewhere_the_journal_goes_along(tmp_path) -> None:
    settings = {"save_strategy": "steps", "save_steps": 31, "online": Online(**{**SETUP, "update_interval": 1})}
    trained(tmp_path / "first", **settings)
    checkpoint = tmp_path / "first" / "checkpoint-31"
    state = json.loads((checkpoint / "dataset_mix_state.json").read_text())
    assert "lines" not in state["steps"]["plan"]["journal"]  # so many that they stand in the file alone
    trained(tmp_path / "second", resume=str(checkpoint), **settings)
    assert (tmp_path / "second" / JOURNAL_FILE).read_bytes() == (tmp_path / "first" / JOURNAL_FILE).read_bytes()


def test_what_a_run_must_keep_is_checked_when_it_is_resumed(tmp_path) -> None:
    settings = {"save_strategy": "steps", "save_steps": 10, "num_train_epochs": 1}
    trained(tmp_path, online=Online(**{**SETUP, "lag": None}), **settings)
    checkpoint = str(tmp_path / "checkpoint-10")
    assert read_record(tmp_path).start["lag"] == 1
    for change, message in (
        ({"reward": "train_loss"}, "online reward must be 'entropy', as in the checkpoint, but got 'train_loss'"),
        ({"algorithm": "odm"}, "online algorithm must be 'exp3_bounded', as in the checkpoint, but got 'odm'"),
        ({"algorithm_options": {"eta": 0.1}}, "online algorithm_options must be {}, as in the checkpoint"),
        ({"update_interval": 5}, "update_interval must be 4, as in the state, but got 5"),
        ({"lag": 3}, "lag must be 1, as in the state, but got 3"),
    ):
        with pytest.raises(StateError, match=f"^{message}"):
            trained(tmp_path, resume=checkpoint, online=Online(**{**SETUP, "lag": None, **change}), **settings)
    with pytest.raises(
        PlanError, match=r"^lag must be at least 5 steps, one more than the loader fetches ahead, but got 1"
    ):
        trained(
            tmp_path, resume=checkpoint, online=Online(**{**SETUP, "lag": None}), dataloader_num_workers=2, **settings
        )
    plain = MixtureTrainer(
        model=tiny.model(), args=tiny.arguments(tmp_path), mixture=mixture(), data_collator=tiny.pad
    )  # fmt: skip
    with pytest.raises(
        StateError, match=r"^weights must learn, as in the state's run, but got a run in which they do not"
    ):
        plain.train(checkpoint)
    with pytest.raises(PlanError, match=r"^reward must need only what training measures, but got 'learnability'"):
        trained(tmp_path, online=Online(reward="learnability"))


# --- cuvee train and cuvee replay


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a folder with two sources, one of them easy."""
    place = tmp_path_factory.mktemp("sources")
    for name, count in (("plus", 60), ("same", 40)):
        rows = [
            {"prompt": f"{i % 7} {name} {i * 3 % 11}", "response": f"{i * 37 % 1000}" if name == "plus" else "same"}
            for i in range(count)
        ]
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


def train_command(folder: Path, run: Path, **options: object) -> list[str]:
    given = {
        "output-dir": run, "batch-size": 8, "logging-steps": 5, "epochs": 5, "save-steps": 10, "online": "exp3:eta=0.2",
        "reward": "train_loss", "update-interval": 3, "lag": 6, "deterministic": True, **options,
    }  # fmt: skip
    flags = [f"--{name}" if value is True else f"--{name}={value}" for name, value in given.items()]
    sources = [
        f"--dataset-source={name}={folder / name}.jsonl:{share}" for name, share in (("plus", 0.3), ("same", 0.7))
    ]
    return [sys.executable, "-m", "cuvee", "train", *sources, *flags]


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "160"}


def call(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment())


def replay(run: Path) -> subprocess.CompletedProcess[str]:
    return call([sys.executable, "-m", "cuvee", "replay", str(run)])


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory) -> Path:
    """Return the folder of an uninterrupted run."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    done = call(train_command(folder, run))
    assert done.returncode == 0, done.stderr
    return run


@pytest.mark.slow
def test_replay_agrees_and_names_what_was_changed(whole, tmp_path) -> None:
    done = replay(whole)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"agrees: {whole} (21 updates and the order of 5 epochs)\n"
    weights = [update.probabilities[0] for update in read_record(whole).updates]
    assert weights[-1] > weights[0] + 0.1  # what is still to be learnt gets more
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in (RECORD_FILE, JOURNAL_FILE, "run.yaml"):
        (broken / name).write_bytes((whole / name).read_bytes())
    lines = (broken / RECORD_FILE).read_text().splitlines(keepends=True)
    (fifth,) = (place for place, line in enumerate(lines) if '"update": 5' in line)
    lines[fifth] = lines[fifth].replace('"loss_sum": [', '"loss_sum": [1')
    (broken / RECORD_FILE).write_text("".join(lines))
    done = replay(broken)
    assert done.returncode == 1
    assert done.stdout.startswith("differs: update 5 at step 15: weight of 'plus' must be ")
    assert done.stdout.count("\n") == 1
    (broken / RECORD_FILE).unlink()
    done = replay(broken)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: run folder must hold {RECORD_FILE}, which runs with online mixing write")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_killed_resumed_and_replayed_run_is_the_same(folder, whole, tmp_path, workers: int) -> None:
    run, chance = tmp_path / "run", random.Random(workers)
    options = {"num-workers": workers}
    for _ in range(2):
        resumed = {"resume": "latest"} if list(run.glob("checkpoint-*/dataset_mix_state.json")) else {}
        process = subprocess.Popen(
            train_command(folder, run, **options, **resumed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=environment(), start_new_session=True,
        )  # fmt: skip
        begun = len(list(run.glob("checkpoint-*")))
        deadline = time.monotonic() + 120
        while len(list(run.glob("checkpoint-*"))) <= begun and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chance.random() * 0.2)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        done = replay(run)  # also of what a killed run left
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
    done = call(train_command(folder, run, **options, resume="latest"))
    assert done.returncode == 0, done.stderr
    assert left(run) == left(whole)
    assert replay(run).stdout == f"agrees: {run} (21 updates and the order of 5 epochs)\n"


@pytest.mark.slow
def test_two_ranks_train_and_replay(folder, tmp_path) -> None:
    run = tmp_path / "run"
    done = call(train_command(folder, run, **{"world-size": 2, "mini-bs": 2, "reward": "gradnorm", "max-steps": 22}))
    assert done.returncode == 0, done.stderr
    done = call(train_command(folder, run, **{
        "world-size": 2, "mini-bs": 2, "reward": "gradnorm", "max-steps": 40, "resume": "latest"
    }))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert replay(run).stdout == f"agrees: {run} (13 updates and the order of 4 epochs)\n"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"reward": "entropy"}, "--reward must be given with --online, but got 'entropy' without it"),
        ({"lag": 3}, "--lag must be given with --online, but got 3 without it"),
        ({"online": "exp3:etta=1"}, "--online 'exp3:etta=1': option of exp3 must be one of .*; did you mean 'eta'?"),
        ({"online": "exp3:eta=-1"}, "--online 'exp3:eta=-1': eta must be .*, but got -1"),
        ({"online": "exp3", "reward": "velocity"}, "--reward 'velocity': reward must need only what training measures"),
        (
            {"online": "curriculum"},
            "--online must be learning_speed, exp3, exp3_bounded, odm, doremi, ado or fixed, with its options as",
        ),
    ],
)
def test_wrong_options_are_told_before_anything_is_loaded(folder, tmp_path, given, message) -> None:
    with pytest.raises(CuveeError, match=f"^{message}"):
        TrainSettings(dataset_path=str(folder / "plus.jsonl"), output_dir=tmp_path / "run", **given)
