"""What tests of online mixing share: runs whose model is a function of the rows, through real loaders and ranks."""
# ruff: noqa: TID253

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from cuvee import MixedDataset, Mixture, Source, StateError
from cuvee.bandits import make_bandit
from cuvee.mix_run import MixRun
from cuvee.online import Online, OnlineMixer
from cuvee.online.decision import Decision
from cuvee.online.run import OnlineRun
from cuvee.plan import Plan
from cuvee.rewards import make_reward
from cuvee.steps import StepSampler
from cuvee.train.launch import init_process_group

ROWS = 8  # of an optimizer step
INTERVAL = 3
LAG = 20  # covers all loaders of these tests


@dataclass(frozen=True)
class Numbers:
    """Rows that say where they come from."""

    source: int
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, row: int) -> dict[str, int]:
        return {"source": self.source, "row": row}


def mixture(sizes: tuple[int, ...] = (90, 40, 25), **settings: Any) -> Mixture:
    weights = (0.5, 0.3, 0.2)
    sources = [
        Source(f"s{k}", Numbers(k, size), weight, lengths=np.arange(size, dtype=np.int32) % 10 + 1)
        for k, (size, weight) in enumerate(zip(sizes, weights, strict=True))
    ]
    return Mixture(sources, **{"samples_per_epoch": 300, "window": 16, **settings})


def collate(rows: list[dict[str, Any]]) -> np.ndarray:
    """Return source, row and cycle of each row, int64 of shape (n, 3); padding has cycle -1."""
    return np.array(
        [[row["source"], row["row"], row["__cuvee_meta__"]["cycle"]] for row in rows], dtype=np.int64
    ).reshape(-1, 3)


def losses(draws: np.ndarray, step: int) -> np.ndarray:
    """Return a loss per row, float32, as a model of its own kind would: each source falls at its own rate."""
    source, row = draws[:, 0], draws[:, 1]
    return ((3 + source) / (1 + 0.05 * (source + 1) * step) + np.sin(row * 12.9898 + step) / 7).astype(np.float32)


@dataclass(kw_only=True)
class Run:
    """A run under way, with all that a loop holds."""

    steps: StepSampler
    mixer: OnlineMixer
    decisions: list[Decision] = field(default_factory=list)
    rows: list[tuple[int, ...]] = field(default_factory=list)  # what this rank trained on
    plans: dict[int, str] = field(default_factory=dict)  # schedule hash of each epoch that ended

    def state(self) -> str:
        return json.dumps({"steps": self.steps.state_dict(), "mixer": self.mixer.state_dict()})


def begin(
    mix: Mixture | None = None,
    *,
    bandit: str = "exp3_bounded",
    reward: str = "train_loss",
    lag: int = LAG,
    journal: Path | None = None,
    state: str | None = None,
    **deal: Any,
) -> Run:
    """Return a run at its beginning, or where `state` was taken."""
    mix = mix or mixture()
    steps = StepSampler(mix.plan(), **{"rows": ROWS, **deal})
    if state is None and journal is not None:
        steps.plan.journal.attach(journal)
    if state is not None:
        steps.load_state_dict(json.loads(state)["steps"], journal=journal)
        if steps.rank > 0:
            steps.plan.journal.detach()
    run = Run(steps=steps, mixer=None)  # type: ignore[arg-type]
    run.mixer = OnlineMixer(
        steps,
        make_bandit(bandit, mix.weights),
        make_reward(reward, len(mix.names)),
        global_batch_size=steps.rows,
        update_interval=INTERVAL,
        lag=lag,
        told=run.decisions.append,
    )
    if state is not None:
        run.mixer.load_state_dict(json.loads(state)["mixer"])
    return run


def batches(run: Run, workers: int, prefetch: int | None) -> Iterator[np.ndarray]:
    """Yield micro-batches for ever, through a loader; those made before a state was loaded are left out."""
    loader = DataLoader(
        MixedDataset(run.steps.plan.mixture),
        batch_sampler=run.steps,
        collate_fn=collate,
        num_workers=workers,
        prefetch_factor=prefetch if workers else None,
    )
    while True:
        yield from (batch for batch in loader if len(batch))


def ahead(run: Run, steps: int) -> Iterator[np.ndarray]:
    """Yield micro-batches for ever, as a loader does that asks for those of so many steps more."""
    rows = MixedDataset(run.steps.plan.mixture)
    while True:
        waiting: deque[list[int]] = deque()
        for keys in run.steps:
            waiting += [keys] if keys else []
            if len(waiting) > steps * run.steps.micro_batches:
                yield collate(rows.__getitems__(waiting.popleft()))
        yield from (collate(rows.__getitems__(keys)) for keys in waiting)


def train(run: Run, steps: int, *, workers: int = 0, prefetch: int | None = None, fetched: int | None = None) -> Run:
    """Make steps of a run until it has made `steps` in all, through a loader, or what fetches `fetched` steps ahead."""
    source = batches(run, workers, prefetch) if fetched is None else ahead(run, fetched)
    while run.steps.step < steps:
        for _ in range(run.steps.micro_batches):
            draws = next(source)
            real = draws[:, 2] >= 0
            run.rows += [tuple(draw) for draw in draws[real].tolist()]
            loss = losses(draws, run.steps.step)
            run.mixer.observe(
                np.where(real, draws[:, 0], -1), loss_sum=torch.tensor(loss), tokens=np.ones(len(draws), np.int64)
            )
        plan = run.steps.plan
        if run.steps.advance() is not None:
            run.plans[plan.epoch] = whole(plan).schedule_hash()
        run.mixer.step()
    source.close()
    return run


def resumed(run: Run, **arguments: Any) -> Run:
    """Return the run as it goes on from its state in a new process, what it decided before kept."""
    follower = begin(run.steps.plan.mixture, state=run.state(), **arguments)
    follower.decisions[:0] = run.decisions
    follower.plans |= run.plans
    follower.rows[:0] = run.rows
    return follower


def whole(plan: Plan) -> Plan:
    """Return a plan from its epoch's first row on: a resumed one of shares in tokens begins where it was taken up."""
    return plan.mixture.plan(plan.epoch, journal=plan.journal)


def outcome(run: Run) -> dict[str, Any]:
    """Return what must be the same of the same run, however it was made."""
    last = run.decisions[-1]
    plan = run.steps.plan_after(max(last.epoch - run.steps.plan.epoch, 0))
    assert plan is not None
    return {
        "journal": plan.journal.digest,
        "plan_hash": plan.plan_hash,
        "schedule_hash": whole(plan).schedule_hash(),
        "epochs": run.plans,
        "decisions": [decision.record() for decision in run.decisions],
    }


def accounted(
    folder: Path,
    until: int,
    *,
    mix: Mixture | None = None,
    state: str | None = None,
    accept_changes: tuple[str, ...] = (),
    **deal: Any,
) -> MixRun:
    """Make steps of a run with accounts and files, until it has made `until` in all; return it unfinished."""
    mix = mix or mixture()
    steps = StepSampler(mix.plan(), **{"rows": ROWS, **deal})
    kept = None if state is None else json.loads(state)
    setup = Online(algorithm="exp3_bounded", reward="train_loss", update_interval=INTERVAL, lag=LAG)
    online = OnlineRun(setup, steps, folder=folder, kept=None if kept is None else kept["online"])
    run = MixRun(steps, online=online)
    if kept is not None:
        journal = online.journal_beside(folder / "checkpoint")
        run.load_state_dict(kept, journal=journal, accept_changes=accept_changes)
    run.start()
    rows = MixedDataset(mix)
    while steps.step < until:
        for keys in steps:
            draws = collate(rows.__getitems__(keys)) if keys else None
            if draws is None:
                continue
            run.arrived(draws)
            run.trained(draws, np.ones(len(draws)), losses(draws, steps.step))
            run.stepped()
            if steps.step == until:
                break
    return run


def two_ranks_over_changed_data(folder: Path) -> None:
    """Make a run in one of two ranks that goes on over a source with more rows."""
    init_process_group(use_cpu=True)
    deal = {"rank": torch.distributed.get_rank(), "world_size": 2}
    state = json.dumps(accounted(folder, 20, **deal).state_dict())
    bigger = mixture((90, 47, 25))
    accounted(folder, 70, mix=bigger, state=state, accept_changes=("s1",), **deal).finish({})


def two_ranks(folder: Path) -> None:
    """Make a run in one of two ranks, with a checkpoint on the way, and write its outcome to a file of its own."""
    init_process_group(use_cpu=True)
    rank = torch.distributed.get_rank()
    journal = folder / "journal.jsonl"
    run = train(begin(rank=rank, world_size=2, journal=journal if rank == 0 else None), 40)
    state = run.state()
    train(run, 50)  # a run that is killed later: its journal goes on after the checkpoint
    torch.distributed.barrier()
    resumed = begin(rank=rank, world_size=2, state=state, journal=journal)
    train(resumed, 80)
    keep = sum(decision.step <= 40 for decision in run.decisions)
    resumed.decisions[:0] = run.decisions[:keep]
    resumed.plans = run.plans | resumed.plans
    (folder / f"{rank}.json").write_text(json.dumps(outcome(resumed)))


def differing_ranks(folder: Path) -> None:
    """Let two ranks report numbers of their own that must be the same."""
    init_process_group(use_cpu=True)
    run = begin(rank=torch.distributed.get_rank(), world_size=2)
    try:
        for step in range(INTERVAL):
            run.mixer.observe([0, 1, 2], loss_sum=[1.0, 2.0, 3.0], tokens=[1, 1, 1])
            run.mixer.step(total_steps=step + torch.distributed.get_rank())
    except StateError as error:
        (folder / f"{torch.distributed.get_rank()}.txt").write_text(str(error))
