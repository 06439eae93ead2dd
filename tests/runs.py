"""Run folders as a training run leaves them: real plans, ledgers and logs around a loss that is only made up."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cuvee import Ledger, Mixture, Plan, Source, Stage
from cuvee.run_log import METRICS_FILE, RunLog

BEGAN = 1_790_000_000.0  # Unix seconds at which every run here begins
SECONDS_PER_STEP = 0.6
PAUSE = 900.0  # seconds between two sessions
NAMES = ("web", "code", "math", "books", "dialogue", "wiki", "law", "science")


def mixture_of(count: int, *, seed: int = 7, **settings) -> Mixture:
    """Return a mixture of `count` sources with lengths, each of another size and share."""
    random = np.random.default_rng(seed)
    names = [f"{NAMES[place % 8]}-{place // 8}" if count > 8 else NAMES[place] for place in range(count)]
    weights = random.dirichlet(np.full(count, 2.0))
    rows = random.integers(60, 4000, size=count)
    return Mixture(
        [
            Source(name, rows=int(size), weight=float(weight), lengths=lengths(random, int(size)))
            for name, size, weight in zip(names, rows, weights, strict=True)
        ],
        **settings,
    )


def lengths(random: np.random.Generator, rows: int) -> np.ndarray:
    """Return made-up target tokens of rows: most are short, some are long."""
    return np.clip(random.lognormal(4.0, 0.7, size=rows), 1, 2000).astype(np.int32)


def staged_mixture() -> Mixture:
    """Return a mixture whose weights change at a position and then move slowly."""
    stages = [Stage(2000, {"a": 0.2, "b": 0.8}), Stage(6000, {"a": 0.5, "b": 0.5}, "linear")]
    sources = [Source("a", rows=3000, weight=0.7), Source("b", rows=5000, weight=0.3)]
    return Mixture(sources, stages=stages, control_interval=512)


@dataclass(kw_only=True)
class TrainingRun:
    """A run that trains nothing and logs everything."""

    folder: Path
    mixture: Mixture
    rows_per_step: int = 32
    logging_steps: int = 5
    total_steps: int = 200
    seed: int = 3
    learning: bool = False  # whether its weights move while it trains
    plan: Plan = field(init=False)
    ledger: Ledger = field(init=False)
    log: RunLog = field(init=False)
    step: int = 0
    position: int = 0
    sessions: int = 0

    def __post_init__(self) -> None:
        self.plan = self.mixture.plan()
        self.ledger = Ledger(self.mixture.names)
        self._saved = (0, 0, 0, self.ledger.state_dict())
        unknown = np.full(len(self.mixture.names), -1.0)
        self._weights = [(0, 0, np.asarray(self.mixture.weights), unknown)]  # epoch, position, weights, their scores

    def begin(self) -> None:
        """Start a session, the first one or one that resumes the run."""
        resumed_from = f"checkpoint-{self.step}" if self.sessions else None
        facts = {"ckpt": "tiny", "world_size": 2, "rows_per_step": self.rows_per_step, "steps": self.total_steps}
        self.log = RunLog(self.folder, names=self.mixture.names)
        self.log.start(
            step=self.step, resumed_from=resumed_from, settings={"lr": 1e-3, "bf16": False, "resume": None}, **facts
        )
        self.log.plan(self.plan, step=self.step)
        self.sessions += 1

    def train(self, until: int) -> None:
        """Train to step `until`."""
        while self.step < until:
            if self.position == len(self.plan):
                self.plan, self.position = self.plan.next_epoch(), 0
                self.log.plan(self.plan, step=self.step)
            self._train_step()
            if self.learning and self.step % 20 == 0:
                self._update()
            if self.step % self.logging_steps == 0:
                self._log_progress()
            if self.position == len(self.plan):
                self.log.epoch_end(self.ledger, step=self.step, plan=self.plan)

    def finish(self) -> None:
        """End the session as a run ends that has trained all its steps."""
        self.log.max_steps_reached(self.ledger, step=self.step, max_steps=self.total_steps)
        self.log.end(step=self.step, metrics={"train_loss": 1.0})

    def save(self) -> None:
        """Remember this step as the last checkpoint."""
        self._saved = (self.step, self.plan.epoch, self.position, self.ledger.state_dict())

    def load(self) -> None:
        """Go back to the last checkpoint."""
        self.step, epoch, self.position, counts = self._saved
        self.plan = self.mixture.plan(epoch)
        self.ledger = Ledger.from_state(counts)

    def _train_step(self) -> None:
        draws = self.plan.draws(self.position, min(self.position + 4 * self.rows_per_step, len(self.plan)))
        passed = self.plan.passes(draws)
        taken = np.cumsum(passed)
        size = int(np.searchsorted(taken, self.rows_per_step)) + 1 if taken[-1] >= self.rows_per_step else len(passed)
        source, passed, tokens = draws.source[:size], passed[:size], self.plan.lengths_of(draws)
        self.ledger.add_scheduled(source, passed=passed)
        self.ledger.add_trained(source[passed], None if tokens is None else tokens[:size][passed])
        self.position += size
        self.step += 1

    def _update(self) -> None:
        scores = np.random.default_rng((self.seed, self.step, 2)).random(len(self.mixture.names))
        weights = 0.5 * self._weights[-1][2] + 0.5 * scores / scores.sum()
        at = self.plan.window_start(self.position)
        if at < len(self.plan):
            self.plan.update(weights, at=at, reason=f"update at step {self.step}")
            self._weights.append((self.plan.epoch, at, weights, scores))

    def _learnt(self) -> dict[str, dict[str, float | None]]:
        """Return the weights in force and the scores known, as the log takes them."""
        names, here = self.mixture.names, (self.plan.epoch, self.position)
        weights = [entry[2] for entry in self._weights if entry[:2] <= here][-1].tolist()
        scores = self._weights[-1][3].tolist()
        return {
            "weights": dict(zip(names, weights, strict=True)),
            "scores": {name: score if score >= 0 else None for name, score in zip(names, scores, strict=True)},
        }

    def _log_progress(self) -> None:
        losses = self._losses()
        weights = self.ledger.shares("trained")
        random = np.random.default_rng((self.seed, self.step, 1))
        pace = random.normal(1.0, 0.05)
        metrics = {
            "loss": float(sum(weight * (loss or 0.0) for weight, loss in zip(weights, losses.values(), strict=True))),
            "learning_rate": 1e-3
            * min(1.0, self.step / 20)
            * 0.5
            * (1 + math.cos(math.pi * self.step / self.total_steps)),
            "grad_norm": float(random.lognormal(-0.3, 0.25)),
            "rows_per_second": pace * self.rows_per_step / SECONDS_PER_STEP,
            "tokens_per_second": pace * float(self.ledger.tokens.sum()) / self.step / SECONDS_PER_STEP,
        }
        place = {"step": self.step, "epoch": self.plan.epoch, "position": self.position}
        learnt = self._learnt() if self.learning else {}
        self.log.progress(self.ledger, **place, losses=losses, metrics=metrics, **learnt)

    def _losses(self) -> dict[str, float | None]:
        """Return a loss that falls with the rows trained on, to another floor for each source."""
        random = np.random.default_rng((self.seed, self.step))
        noise = random.normal(0, 0.04, size=len(self.mixture.names))
        floors = 0.8 + 2.2 * np.random.default_rng(self.seed).random(len(self.mixture.names))
        falls = 2.5 * np.exp(-self.step / 45)
        losses = floors + falls + noise
        return {
            name: float(losses[source]) if self.ledger.trained[source] else None
            for source, name in enumerate(self.mixture.names)
        }


def retimed(folder: Path) -> None:
    """Write the times of a run's events as if each step had taken `SECONDS_PER_STEP`."""
    path = folder / METRICS_FILE
    events = [json.loads(line) for line in path.read_text().splitlines()]
    began, first = BEGAN - PAUSE, 0
    for event in events:
        if event["stage"] == "run_start":
            began, first = began + PAUSE + first * SECONDS_PER_STEP, event["step"]
        event["time"] = began + (event["step"] - first) * SECONDS_PER_STEP
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


def finished_run(folder: Path, mixture: Mixture, *, steps: int = 200, **settings) -> Path:
    """Write a run that trained without interruption."""
    run = TrainingRun(folder=folder, mixture=mixture, total_steps=steps, **settings)
    run.begin()
    run.train(steps)
    run.finish()
    retimed(folder)
    return folder


def resumed_run(folder: Path, mixture: Mixture, *, steps: int = 200, **settings) -> Path:
    """Write a run that was killed 7 steps after its checkpoint in the middle, and went on from there."""
    run = TrainingRun(folder=folder, mixture=mixture, total_steps=steps, **settings)
    run.begin()
    run.train(steps // 2)
    run.save()
    run.train(steps // 2 + 7)
    run.load()
    run.begin()
    run.train(steps)
    run.finish()
    retimed(folder)
    return folder


def killed_run(folder: Path, mixture: Mixture, *, steps: int, **settings) -> Path:
    """Write a run that was killed after some steps, in the middle of writing a line."""
    run = TrainingRun(folder=folder, mixture=mixture, **settings)
    run.begin()
    run.train(steps)
    retimed(folder)
    with run.log.path.open("a") as file:
        file.write('{"stage": "dataset_mix_prog')
    return folder
