"""Training on a GPU: what it learns is what a CPU learns, and the mix's accounts never wait for the device."""
# ruff: noqa: TID253

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import tiny
from cuvee import MixedDataset
from cuvee.integrations.transformers import DRAWS, MixtureCollator, MixtureTrainer
from cuvee.losses import CausalLoss, SourceLosses, row_losses, target_counts
from cuvee.mix_run import MixRun
from cuvee.run_log import read_events
from cuvee.steps import StepSampler

pytestmark = [
    pytest.mark.cuda,
    # with more of them visible, transformers would split each batch over them
    pytest.mark.skipif(torch.cuda.device_count() != 1, reason="needs one GPU: CUDA_VISIBLE_DEVICES=0"),
]

DEVICE = "cuda"
STEPS = 10


@contextlib.contextmanager
def no_waiting():
    """Make every call that waits for the device an error."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def trained(folder, *, on_cpu: bool, **settings) -> MixtureTrainer:
    """Return a trainer after `STEPS` steps, which it told one by one; plain descent shows differences as they are."""
    defaults = {"max_steps": STEPS, "logging_steps": 1, "optim": "sgd", "learning_rate": 0.1, "use_cpu": on_cpu}
    trainer = MixtureTrainer(
        model=tiny.model(attention_dropout=0.0),
        args=tiny.arguments(folder, **{**defaults, **settings}),
        mixture=tiny.mixture(),
        data_collator=tiny.pad,
        mix_log_dir=folder,
    )
    trainer.train()
    assert next(trainer.model.parameters()).device.type == ("cpu" if on_cpu else DEVICE)
    return trainer


def losses(folder) -> list[list[float]]:
    """Return the losses of every step: of all rows, then by source, NaN where a source has none in it."""
    told = [event for event in read_events(folder) if event["stage"] == "dataset_mix_progress"]
    return [
        [event["metrics"]["loss"], *(np.nan if s["loss"] is None else s["loss"] for s in event["sources"].values())]
        for event in told
    ]


@pytest.fixture(scope="module")
def by_cpu(tmp_path_factory) -> tuple[MixtureTrainer, list[list[float]]]:
    """Return a trainer that has trained on the CPU, and its losses."""
    folder = tmp_path_factory.mktemp("cpu")
    return trained(folder, on_cpu=True), losses(folder)


@pytest.mark.parametrize("workers", [0, 2])
def test_steps_on_a_gpu_are_those_on_a_cpu(tmp_path, by_cpu, workers) -> None:
    trainer = trained(tmp_path, on_cpu=False, dataloader_num_workers=workers)
    cpu, expected = by_cpu
    assert trainer.mix.ledger.counts.tolist() == cpu.mix.ledger.counts.tolist()
    assert len(expected) == STEPS
    np.testing.assert_allclose(losses(tmp_path), expected, rtol=1e-4)
    weights = tiny.weights(trainer.model).cpu()
    torch.testing.assert_close(weights, tiny.weights(cpu.model), rtol=1e-3, atol=1e-5)
    assert not torch.equal(weights, tiny.weights(tiny.model()))


def test_bf16_learns_about_the_same_in_float32_weights(tmp_path, by_cpu) -> None:
    trainer = trained(tmp_path, on_cpu=False, bf16=True)
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}
    _, expected = by_cpu
    np.testing.assert_allclose(losses(tmp_path), expected, rtol=0.03)
    assert losses(tmp_path) != expected


def micro_batches(steps: StepSampler) -> Iterator[tuple[np.ndarray, np.ndarray, torch.Tensor]]:
    """Yield draws, target tokens and labels, in pinned memory, of an epoch of `tiny.mixture()`."""
    mixture, on_gpu = tiny.mixture(), DEVICE == "cuda"
    collate = MixtureCollator(tiny.pad, mixture.names)
    loader: Any = DataLoader(MixedDataset(mixture), batch_sampler=steps, collate_fn=collate, pin_memory=on_gpu)
    for batch in loader:
        labels = batch["labels"]
        yield batch[DRAWS].numpy(), target_counts(labels).numpy(), labels


def sampler() -> StepSampler:
    return StepSampler(tiny.mixture().plan(), rows=8, micro_batches=2)


def test_counting_a_step_never_waits_for_the_device() -> None:
    logits = torch.randn(4, 16, tiny.VOCABULARY, device=DEVICE, requires_grad=True)
    items = torch.tensor(40, device=DEVICE)
    steps, loss = sampler(), CausalLoss()
    run = MixRun(steps)
    run.start()
    for number, (draws, tokens, labels) in enumerate(micro_batches(steps), start=1):
        with no_waiting():
            there = labels.to(DEVICE, non_blocking=True)
            run.arrived(draws)
            outputs = {"logits": logits[: len(labels), : labels.shape[1]]}
            loss(outputs, there, num_items_in_batch=items).backward()
            run.trained(draws, tokens, loss.take())
            if number % steps.micro_batches == 0:
                run.stepped()
    assert steps.step == steps.steps_per_epoch
    expected = SourceLosses(run.names)
    for draws, tokens, labels in micro_batches(sampler()):
        here = logits.detach().cpu()[: len(labels), : labels.shape[1]]
        expected.add(draws[:, 0], row_losses(here, labels), tokens)
    assert run.standing().losses == pytest.approx(expected.take(), rel=1e-5)
