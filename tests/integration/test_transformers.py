"""A mixture in transformers' Trainer: the plan's rows in its order, exact accounts, losses per source, resuming."""
# ruff: noqa: TID253

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from torch.utils.data import DataLoader

import tiny
from cuvee import Ledger, PlanError, StateError
from cuvee.integrations.transformers import DRAWS, STATE_FILE, MixtureCollator, MixtureTrainer
from cuvee.run_log import read_events

TESTS = Path(__file__).parents[1]


class Recording(MixtureTrainer):
    """Keeps what it trained on: per optimizer step (source, row, cycle) of each row that is no padding."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.seen: list[list[tuple[int, ...]]] = []

    def training_step(self, model, inputs, *args, **kwargs):
        draws = inputs[DRAWS].tolist()
        if len(self.seen) == self.state.global_step:
            self.seen.append([])
        self.seen[-1] += [tuple(draw) for draw in draws if draw[2] >= 0]
        assert [ids[0] for ids in inputs["input_ids"].tolist()] == [draw[0] for draw in draws]
        return super().training_step(model, inputs, *args, **kwargs)


def trained(folder, *, mixture=None, kind=Recording, model=None, resume=None, done=0, **settings):
    """Return a trainer that has trained; `mix_log_dir` is the folder."""
    trainer = kind(
        model=model or tiny.model(),
        args=tiny.arguments(folder, **settings),
        mixture=mixture or tiny.mixture(),
        data_collator=tiny.pad,
        mix_log_dir=folder,
    )
    if hasattr(trainer, "seen"):
        trainer.seen += [[] for _ in range(done)]
    trainer.train(resume)
    return trainer


def ordered(mixture, rows, epochs=1):
    """Return the run's optimizer steps as the plans have them."""
    steps, plan = [], mixture.plan()
    for _ in range(epochs):
        draws = plan.draws(0, len(plan))
        kept = np.flatnonzero(plan.passes(draws))
        order = list(zip(*(part[kept].tolist() for part in (draws.source, draws.row, draws.cycle)), strict=True))
        steps += [order[first : first + rows] for first in range(0, len(order), rows)]
        plan = plan.next_epoch()
    return steps


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gradient_accumulation_steps": 3},
        {"dataloader_num_workers": 2, "num_train_epochs": 2},
        {"gradient_accumulation_steps": 2, "num_train_epochs": 3, "per_device_train_batch_size": 7},
    ],
    ids=str,
)
def test_trainer_trains_on_the_plan(tmp_path, settings) -> None:
    trainer = trained(tmp_path, **settings)
    rows = trainer.args.per_device_train_batch_size * trainer.args.gradient_accumulation_steps
    assert trainer.seen == ordered(tiny.mixture(), rows, trainer.args.num_train_epochs)


def test_plain_trainer_over_the_same_order_learns_the_same(tmp_path) -> None:
    """Neither the loss nor the loader of ours changes what a step does."""
    mixture = tiny.mixture()
    rows = [tiny.TokenRows(source, 100)[row] for source, row, _ in ordered(mixture, 100)[0]]
    plain = transformers.Trainer(
        model=tiny.model(),
        args=tiny.arguments(tmp_path / "plain", train_sampling_strategy="sequential", gradient_accumulation_steps=5),
        train_dataset=rows,
        data_collator=tiny.pad,
    )
    plain.train()
    ours = trained(tmp_path / "ours", gradient_accumulation_steps=5)
    torch.testing.assert_close(tiny.weights(ours.model), tiny.weights(plain.model), rtol=1e-4, atol=1e-5)
    assert not torch.equal(tiny.weights(ours.model), tiny.weights(tiny.model()))


def test_accounts_and_events_add_up_to_a_recount_from_the_data(tmp_path) -> None:
    trainer = trained(tmp_path, num_train_epochs=2)
    recount = Ledger(trainer.mixture.names)
    draws = [draw for step in trainer.seen for draw in step]
    sources = np.array([draw[0] for draw in draws], dtype=np.int32)
    lengths = [sum(label >= 0 for label in tiny.TokenRows(s, 100)[row]["labels"][1:]) for s, row, _ in draws]
    recount.add_scheduled(sources)
    recount.add_trained(sources, lengths)
    assert trainer.mix.ledger.counts.tolist() == recount.counts.tolist()
    trainer.mix.ledger.check()
    events = read_events(tmp_path)
    stages = [event["stage"] for event in events]
    assert stages[:2] == ["run_start", "dataset_mix_plan"]
    assert stages.count("dataset_mix_epoch_end") == 2
    assert stages.count("dataset_mix_plan") == 2
    assert stages[-1] == "run_end"
    last = [event for event in events if event["stage"] == "dataset_mix_epoch_end"][-1]
    assert {name: source["target_tokens"] for name, source in last["sources"].items()} == dict(
        zip(recount.names, recount.tokens.tolist(), strict=True)
    )


def test_loss_per_source_is_that_of_its_tokens(tmp_path) -> None:
    """With a learning rate of 0 and no dropout the model stays: its losses can be worked out from the data."""
    model = tiny.model(attention_dropout=0.0)
    trainer = trained(tmp_path, model=model, learning_rate=0.0, logging_steps=25, gradient_accumulation_steps=1)
    event = next(event for event in read_events(tmp_path) if event["stage"] == "dataset_mix_progress")
    model.eval()
    for source, name in enumerate(trainer.mixture.names):
        total = tokens = 0.0
        for _, row, _ in (draw for step in trainer.seen for draw in step if draw[0] == source):
            batch = tiny.pad([tiny.TokenRows(source, 100)[row]])
            with torch.no_grad():
                logits = model(batch["input_ids"]).logits[0, :-1].double()
            labels = batch["labels"][0, 1:]
            total += torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum").item()
            tokens += (labels >= 0).sum().item()
        assert event["sources"][name]["loss"] == pytest.approx(total / tokens, rel=1e-5)
    logged = next(entry for entry in trainer.state.log_history if "loss" in entry)
    assert logged["mix/loss/s0"] == event["sources"]["s0"]["loss"]
    assert logged["mix/row_share/s0"] == 0.7
    shares = [event["sources"][name]["target_tokens"] for name in trainer.mixture.names]
    losses = [event["sources"][name]["loss"] for name in trainer.mixture.names]
    mean = sum(loss * share for loss, share in zip(losses, shares, strict=True)) / sum(shares)
    assert event["metrics"]["loss"] == pytest.approx(mean, rel=0.02)  # the Trainer's is a mean of steps, not of tokens


@pytest.mark.parametrize("settings", [{}, {"gradient_accumulation_steps": 2, "dataloader_num_workers": 2}], ids=str)
@pytest.mark.parametrize("at", [3, 13, 17])
def test_resumed_run_ends_with_the_very_same_weights(tmp_path, settings, at) -> None:
    settings = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": at, **settings}
    whole = trained(tmp_path / "whole", **settings)
    first = trained(tmp_path / "parts", max_steps=at, lr_scheduler_type="constant", **settings)
    assert first.seen == whole.seen[:at]
    checkpoint = tmp_path / "whole" / f"checkpoint-{at}"
    rest = trained(tmp_path / "whole", resume=str(checkpoint), done=at, **settings)
    assert rest.seen[at:] == whole.seen[at:]
    assert torch.equal(tiny.weights(rest.model), tiny.weights(whole.model))
    assert rest.mix.ledger.counts.tolist() == whole.mix.ledger.counts.tolist()
    ended = [event["epoch"] for event in read_events(tmp_path / "whole") if event["stage"] == "dataset_mix_epoch_end"]
    assert ended == [0, 1]


def test_state_in_the_checkpoint_is_one_small_file(tmp_path) -> None:
    trained(tmp_path, save_strategy="steps", save_steps=10)
    state = tmp_path / "checkpoint-10" / STATE_FILE
    assert state.stat().st_size < 4096
    assert json.loads(state.read_text())["steps"]["step"] == 10


def test_step_keeps_its_rows_when_accumulation_changes_on_resume(tmp_path) -> None:
    settings = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 5}
    whole = trained(tmp_path, per_device_train_batch_size=8, **settings)
    rest = trained(
        tmp_path, resume=True, done=26, per_device_train_batch_size=2, gradient_accumulation_steps=4,
        **{**settings, "num_train_epochs": 3},
    )  # fmt: skip
    assert whole.seen == ordered(tiny.mixture(), 8, 2)[:26]
    assert rest.seen[26:] == ordered(tiny.mixture(), 8, 3)[26:]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"per_device_train_batch_size": 6}, "rows of an optimizer step must be 4, as in the state, but got 6"),
        ({"ignore_data_skip": True}, "ignore_data_skip must be False"),
        ({"mixture": tiny.mixture(weights=(0.6, 0.4))}, "weight"),
        ({"mixture": tiny.mixture(seed=7)}, "seed"),
    ],
    ids=str,
)
def test_resuming_with_another_order_is_an_error(tmp_path, change, text) -> None:
    settings = {"save_strategy": "steps", "save_steps": 5, "max_steps": 5}
    trained(tmp_path, **settings)
    with pytest.raises(StateError, match=text):
        trained(tmp_path, resume=str(tmp_path / "checkpoint-5"), **{**settings, "max_steps": 9, **change})


def test_checkpoint_without_the_mixtures_state_is_an_error(tmp_path) -> None:
    settings = {"save_strategy": "steps", "save_steps": 5, "max_steps": 5}
    trained(tmp_path, **settings)
    (tmp_path / "checkpoint-5" / STATE_FILE).unlink()
    with pytest.raises(StateError, match=f"checkpoint must hold {STATE_FILE}"):
        trained(tmp_path, resume=True, **settings)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": 9, "steps": {}, "ledger": {}}', "\x00\x01"])
def test_broken_state_is_an_error(tmp_path, content) -> None:
    settings = {"save_strategy": "steps", "save_steps": 5, "max_steps": 5}
    trained(tmp_path, **settings)
    (tmp_path / "checkpoint-5" / STATE_FILE).write_text(content)
    with pytest.raises(StateError):
        trained(tmp_path, resume=True, **settings)


def test_resuming_where_there_is_nothing_is_an_error(tmp_path) -> None:
    with pytest.raises(StateError, match="output_dir must hold a checkpoint to resume from"):
        trained(tmp_path, resume=True)


# --- other losses, other models


def test_loss_of_the_users_own_is_trained_on_and_sources_are_measured_beside_it(tmp_path) -> None:
    called = []

    def half(outputs, labels, num_items_in_batch=None):
        called.append(num_items_in_batch)
        return 0.5 * torch.nn.functional.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    trainer = MixtureTrainer(
        model=tiny.model(), args=tiny.arguments(tmp_path), mixture=tiny.mixture(), data_collator=tiny.pad,
        compute_loss_func=half,
    )  # fmt: skip
    trainer.train()
    assert len(called) == 25
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert logged[0]["loss"] < 0.7 * logged[0]["mix/loss/s0"]


class OwnLoss(Recording):
    """A trainer that computes its loss itself, as those of other libraries do."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        return (outputs.loss, outputs) if return_outputs else outputs.loss


def test_trainer_with_a_loss_of_its_own_measures_sources_by_what_the_model_returned(tmp_path) -> None:
    model = tiny.model(attention_dropout=0.0)
    own = trained(tmp_path / "own", kind=OwnLoss, model=model, learning_rate=0.0, logging_steps=25)
    ours = trained(tmp_path / "ours", model=model, learning_rate=0.0, logging_steps=25)
    losses = [
        next(event["sources"] for event in read_events(tmp_path / name) if event["stage"] == "dataset_mix_progress")
        for name in ("own", "ours")
    ]
    assert own.seen == ours.seen
    for name in ("s0", "s1"):
        assert losses[0][name]["loss"] == pytest.approx(losses[1][name]["loss"], rel=1e-6)


def test_classifier_is_trained_and_measured(tmp_path) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=3
    )

    def collate(rows):
        batch = tiny.pad(rows)
        return {**batch, "labels": batch["input_ids"][:, 1] % 3}

    trainer = MixtureTrainer(
        model=transformers.BertForSequenceClassification(config), args=tiny.arguments(tmp_path, num_train_epochs=4),
        mixture=tiny.mixture(), data_collator=collate,
    )  # fmt: skip
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert 0.2 < logged[0]["mix/loss/s0"] < 2.5
    assert trainer.mix.ledger.tokens.tolist() == trainer.mix.ledger.trained.tolist()


def test_encoder_decoder_counts_every_label(tmp_path) -> None:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=64, d_model=32, d_kv=16, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    trainer = MixtureTrainer(
        model=transformers.T5ForConditionalGeneration(config), args=tiny.arguments(tmp_path), mixture=tiny.mixture(),
        data_collator=tiny.pad,
    )  # fmt: skip
    trainer.train()
    logged = next(entry for entry in trainer.state.log_history if "loss" in entry)
    mean = [logged[f"mix/loss/{name}"] * logged[f"mix/token_share/{name}"] for name in ("s0", "s1")]
    assert sum(mean) == pytest.approx(logged["loss"], rel=0.05)
    labels = sum(4 + row % 6 for source, row, _ in ordered(tiny.mixture(), 100)[0] if source == 0)
    assert trainer.mix.ledger.tokens[0] == labels


class Gradients(MixtureTrainer):
    """Notes by how much a micro-batch of padding changes the gradients."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.changes: list[float] = []

    def _padding_step(self, model, inputs, *args, **kwargs):
        before = [parameter.grad.clone() for parameter in model.parameters()]
        loss = super()._padding_step(model, inputs, *args, **kwargs)
        after = [parameter.grad for parameter in model.parameters()]
        self.changes += [float((one - other).abs().max()) for one, other in zip(before, after, strict=True)]
        assert loss == 0
        return loss


def classifier(**settings):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=64, **sizes, **settings))


@pytest.mark.parametrize("kind", ["causal", "regression", "several labels"])
def test_micro_batch_of_padding_changes_no_gradient(tmp_path, kind) -> None:
    """Nine rows in steps of four and two micro-batches: the last step has a row, and padding beside it."""

    def collate(rows):
        batch = tiny.pad(rows)
        if kind != "causal":
            origin = batch["input_ids"][:, 1].float()
            batch["labels"] = (
                origin if kind == "regression" else torch.stack([origin % 2, origin % 3 > 0], dim=1).float()
            )
        return batch

    models = {
        "causal": tiny.model,
        "regression": lambda: classifier(num_labels=1),
        "several labels": lambda: classifier(num_labels=2, problem_type="multi_label_classification"),
    }
    trainer = Gradients(
        model=models[kind](), mixture=tiny.mixture(sizes=(6, 3), samples_per_epoch=9), data_collator=collate,
        args=tiny.arguments(tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=2),
    )  # fmt: skip
    trainer.train()
    assert trainer.changes
    assert set(trainer.changes) == {0.0}
    assert trainer.mix.ledger.trained.sum() == 9
    assert torch.isfinite(tiny.weights(trainer.model)).all()


def test_finished_run_that_is_resumed_trains_nothing_more(tmp_path) -> None:
    settings = {"max_steps": 6, "save_strategy": "steps", "save_steps": 6}
    whole = trained(tmp_path, **settings)
    again = trained(tmp_path, resume=True, done=6, **settings)
    assert again.state.global_step == 6
    assert again.seen[6:] == []
    assert torch.equal(tiny.weights(again.model), tiny.weights(whole.model))


def test_step_that_changes_its_size_in_the_run_is_refused(tmp_path) -> None:
    with pytest.raises(PlanError, match="auto_find_batch_size must be False"):
        trained(tmp_path, auto_find_batch_size=True)


def test_padding_is_neither_learnt_nor_counted() -> None:
    def batch_of(*cycles):
        metas = [{"source": "s0", "source_index": row, "cycle": cycle} for row, cycle in enumerate(cycles)]
        rows = [{**tiny.TokenRows(0, 9)[row], "__cuvee_meta__": meta} for row, meta in enumerate(metas)]
        return MixtureCollator(tiny.pad, ["s0"])(rows)

    batch = batch_of(0, -1)
    assert batch[DRAWS].tolist() == [[0, 0, 0]]
    assert (batch["labels"][0] >= 0).any()
    padding = batch_of(-1)
    assert padding[DRAWS].tolist() == [[0, 0, -1]]
    assert (padding["labels"] == -100).all()


# --- tools that would change the order


class Prepared(Recording):
    """Sends the loader through Accelerate, which deals it to processes once more."""

    def get_train_dataloader(self):
        return self.accelerator.prepare(super().get_train_dataloader())


class Shuffling(Recording):
    """Puts another loader in the place of ours."""

    def get_train_dataloader(self):
        ours = super().get_train_dataloader()
        order = torch.randperm(len(ours), generator=torch.Generator().manual_seed(1)).tolist()
        batches = list(ours.batch_sampler)
        return DataLoader(ours.dataset, batch_sampler=[batches[i] for i in order], collate_fn=ours.collate_fn)


def test_loader_that_shuffles_is_an_error_before_the_first_step(tmp_path) -> None:
    before = tiny.weights(tiny.model())
    model = tiny.model()
    with pytest.raises(PlanError, match="step 0 of rank 0 in epoch 0"):
        trained(tmp_path, kind=Shuffling, model=model)
    assert torch.equal(tiny.weights(model), before)


def test_preparing_the_loader_in_one_process_changes_nothing(tmp_path) -> None:
    assert trained(tmp_path, kind=Prepared).seen == ordered(tiny.mixture(), 4)


RANKS = """
    import json, sys, warnings
    from pathlib import Path
    import torch
    import tiny
    from leaving import leave
    from integration.test_transformers import Prepared, Recording, trained

    folder, kind, settings = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    resume = settings.pop("resume", None)
    try:
        trainer = trained(folder, kind={"prepared": Prepared, "ours": Recording}[kind], resume=resume,
                          done=settings.pop("done", 0), ddp_backend="gloo", **settings)
        total = trainer.mix.ledger.reduced()
        told = {"seen": trainer.seen, "total": total.counts.tolist(), "weights": tiny.weights(trainer.model).tolist()}
    except ValueError as error:
        told = {"error": f"{type(error).__name__}: {error}"}
    (folder / f"rank-{torch.distributed.get_rank()}.json").write_text(json.dumps(told))
    leave()
"""


def ranks(folder, world_size, kind="ours", **settings):
    """Return what each rank of a gloo run under torchrun told."""
    folder.mkdir(exist_ok=True)
    script = folder / "script.py"
    script.write_text(textwrap.dedent(RANKS))
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world_size}", str(script),
        str(folder), kind, json.dumps(settings),
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(world_size)]


def together(told):
    """Return the global steps of several ranks."""
    return [
        [tuple(draw) for part in parts for draw in part] for parts in zip(*(rank["seen"] for rank in told), strict=True)
    ]


@pytest.mark.slow
def test_two_ranks_train_on_the_plan_count_once_and_resume_elastically(tmp_path) -> None:
    settings = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 4, "gradient_accumulation_steps": 2}
    told = ranks(tmp_path / "two", 2, per_device_train_batch_size=4, **settings)
    expected = ordered(tiny.mixture(), 16, 2)
    assert together(told) == expected
    assert told[0]["total"] == told[1]["total"]
    assert np.array(told[0]["total"])[[0, 2]].tolist() == [[140, 60], [140, 60]]
    assert told[0]["weights"] == told[1]["weights"]
    events = read_events(tmp_path / "two")
    assert [event["stage"] for event in events].count("dataset_mix_epoch_end") == 2
    alone = trained(
        tmp_path / "one", resume=str(tmp_path / "two" / "checkpoint-8"), done=8, per_device_train_batch_size=16,
        **{**settings, "gradient_accumulation_steps": 1},
    )  # fmt: skip
    assert alone.seen[8:] == expected[8:]
    assert alone.mix.ledger.counts.tolist() == told[0]["total"]


@pytest.mark.slow
def test_preparing_the_loader_on_two_ranks_is_an_error_that_names_accelerate(tmp_path) -> None:
    for rank in ranks(tmp_path / "two", 2, "prepared"):
        assert rank["error"].startswith("PlanError")
        assert "accelerate" in rank["error"]
