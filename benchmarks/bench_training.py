"""What a mixture costs a training loop: the tiny model on 32 x 256 tokens a step, plain, mixed, and over a peer's mix.

A step is nearly all model, and what a mixture adds is less than steps vary by. So that is measured where there is
hardly a model: the same loops over a hollow one, with logits of the same shape; the plain loop's time is taken off.
"""

from __future__ import annotations

import ctypes
import itertools
import statistics
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import datasets
import numpy as np
import torch
from torch.utils.data import ConcatDataset, DataLoader, default_collate
from transformers import LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments, default_data_collator

import cuvee
from cuvee.integrations.transformers import MixtureTrainer
from cuvee.losses import SourceLosses, row_losses, target_counts
from cuvee.train.model import tiny_config, tiny_model
from harness import OURS, Case, Measure, Report, main, time_in_turns
from workload import apportion, zipf

ROWS, TOKENS, SOURCES = 32, 256, 8
META = "__cuvee_meta__"
PLAIN, PLAIN_TRAINER, PEER = "plain PyTorch", "transformers Trainer", "datasets interleave_datasets"
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
MILLISECONDS = 1_000_000  # items a step counts for, so that nanoseconds an item are milliseconds a step


@dataclass(frozen=True, slots=True)
class Texts:
    """Map-style, in memory: row i is `tokens[i]`, all of it to be learnt."""

    tokens: torch.Tensor

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class Work:
    """The same rows for every loop: `steps` steps of them, in sources whose sizes and weights are Zipf's."""

    def __init__(self, steps: int) -> None:
        weights = zipf(SOURCES)
        random = torch.Generator().manual_seed(7)
        sizes = apportion(steps * ROWS, weights).tolist()
        self.steps = steps
        self.sources = [Texts(torch.randint(7, 263, (size, TOKENS), generator=random)) for size in sizes]
        self.mixture = cuvee.Mixture(
            [cuvee.Source(f"s{k}", source, weights[k]) for k, source in enumerate(self.sources)],
            samples_per_epoch=steps * ROWS,
        )
        self.everything: Any = ConcatDataset(self.sources)  # type: ignore[arg-type]
        draws = self.mixture.plan().draws(0, steps * ROWS)
        self.order = (np.cumsum([0, *sizes])[draws.source] + draws.row).tolist()  # the mixture's, in `everything`
        parts = [datasets.Dataset.from_dict({"input_ids": source.tokens.numpy()}) for source in self.sources]
        self.interleaved: Any = datasets.interleave_datasets(
            [part.with_format("torch") for part in parts],
            probabilities=weights.tolist(),
            seed=1,
            stopping_strategy="all_exhausted",
        )
        assert len(self.interleaved) >= steps * ROWS

    def plain(self) -> Iterable[dict[str, Any]]:
        """Return batches of the rows in the mixture's order, which was made beforehand."""
        return DataLoader(self.everything, ROWS, sampler=self.order)

    def peer(self) -> Iterable[dict[str, Any]]:
        """Return as many batches of the peer's mix."""
        return itertools.islice(DataLoader(self.interleaved, ROWS), self.steps)


def hollow_model() -> LlamaForCausalLM:
    """Return a model that is all logits."""
    torch.manual_seed(0)
    config = tiny_config()
    config.num_hidden_layers, config.hidden_size = 0, 8
    return LlamaForCausalLM(config)


def train_plain(model: Any, batches: Callable[[], Iterable[dict[str, Any]]]) -> None:
    """Train as a loop without a mixture does."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in batches():
        tokens = batch["input_ids"]
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def with_metadata(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Collate rows, their metadata beside them."""
    metadata = [row.pop(META) for row in rows]
    return {**default_collate(rows), META: metadata}


def train_mixed(model: Any, work: Work) -> cuvee.Ledger:
    """Train on the mixture: each batch compared with the plan, rows, tokens and losses counted per source."""
    names = work.mixture.names
    ids = {name: source for source, name in enumerate(names)}
    sampler = cuvee.MixtureSampler(work.mixture.plan(), batch_size=ROWS)
    dataset: Any = cuvee.MixedDataset(work.mixture)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=with_metadata)
    ledger, losses = cuvee.Ledger(names), SourceLosses(names)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in sampler.track(loader):
        tokens, metadata = batch["input_ids"], batch[META]
        targets = target_counts(tokens)
        rows = row_losses(model(input_ids=tokens).logits, tokens)
        (rows.sum() / targets.sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
        ledger.add_batch(metadata, targets)
        losses.add([ids[meta["source"]] for meta in metadata], rows.detach(), targets)
    sampler.account(ledger)
    assert None not in losses.take().values()
    return ledger


def train_trainer(kind: type[Trainer], model: Any, folder: str, work: Work, **data: Any) -> None:
    """Train with a Trainer of transformers as many steps."""
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=ROWS,
        max_steps=work.steps,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = kind(model=model, args=arguments, data_collator=default_data_collator, **data)
    trainer.remove_callback(PrinterCallback)
    trainer.train()


def check(work: Work) -> None:
    """Assert that the mixed loop trains on what the plain one does, and counts it."""
    plain, mixed = hollow_model(), hollow_model()
    train_plain(plain, work.plain)
    ledger = train_mixed(mixed, work)
    for one, other in zip(plain.parameters(), mixed.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    assert ledger.trained.tolist() == ledger.scheduled.tolist() == work.mixture.plan().counts(len(work.order)).tolist()
    assert ledger.tokens.sum() == len(work.order) * (TOKENS - 1)


def loops(model: Any, work: Work) -> dict[str, Case]:
    """Return the loops to be timed."""
    runs = {
        OURS: partial(train_mixed, model, work),
        PLAIN: partial(train_plain, model, work.plain),
        PEER: partial(train_plain, model, work.peer),
    }
    return {name: Case(run=run, items=work.steps * MILLISECONDS) for name, run in runs.items()}


def trainers(model: Any, work: Work, folder: str) -> dict[str, Case]:
    """Return the Trainers to be timed."""
    run = partial(train_trainer, model=model, folder=folder, work=work)
    runs = {
        OURS: partial(run, MixtureTrainer, mixture=work.mixture),
        PLAIN_TRAINER: partial(run, Trainer, train_dataset=work.everything),
    }
    return {name: Case(run=run, items=work.steps * MILLISECONDS) for name, run in runs.items()}


def own_share(report: Report, name: str, *, step: Case, ours: Case, plain: Case) -> None:
    """Keep what a hollow step of `ours` takes more than one of `plain`, as a share of a real `step`, round by round."""
    cases = {"step": step, "ours": ours, "plain": plain}
    seconds = time_in_turns(cases, report.rounds)
    whole, mixed, bare = ([s / cases[name].items for s in runs] for name, runs in seconds.items())
    shares = [100 * (mine - theirs) / full for full, mine, theirs in zip(whole, mixed, bare, strict=True)]
    report.add(
        Measure(name=name, value=statistics.median(shares), unit="% of a step", low=min(shares), high=max(shares))
    )


def keep_memory() -> None:
    """Let glibc keep what a step frees: else pages come and go as the case before left the heap, for 2% of a step."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1)):
            assert mallopt(parameter, value) == 1


def measure(report: Report) -> None:
    """Measure plain loops, then transformers' Trainer."""
    keep_memory()
    work, hollow_work = (Work(2), Work(4)) if report.quick else (Work(6), Work(40))
    model, hollow = tiny_model(), hollow_model()
    check(hollow_work)
    steps, hollow_steps = loops(model, work), loops(hollow, hollow_work)
    report.compare("training/step", steps, unit="ms/step")
    report.compare("training/hollow step", hollow_steps, unit="ms/step")
    step, share = steps[PLAIN], "mixture's own share"
    own_share(report, f"training/{share}", step=step, ours=hollow_steps[OURS], plain=hollow_steps[PLAIN])
    with tempfile.TemporaryDirectory() as folder:
        hollow_steps = trainers(hollow, hollow_work, folder)
        report.compare("training/Trainer, step", trainers(model, work, folder), unit="ms/step")
        ours, plain = hollow_steps[OURS], hollow_steps[PLAIN_TRAINER]
        own_share(report, f"training/Trainer, {share}", step=step, ours=ours, plain=plain)


if __name__ == "__main__":
    main(measure)
