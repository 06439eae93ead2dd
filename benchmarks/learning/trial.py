"""One training run under one arm: a model, a mixture, and what moves its weights."""

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cuvee import Mixture, OnlineMixer, Plan, Source
from cuvee.bandits import make_bandit
from cuvee.rewards import RewardFunction, make_reward, sequence_entropies

from .corpora import Domain, suite
from .model import CONTEXT, ByteModel, held_out_loss, logits_and_losses

STEPS, ROWS, RATE, WARMUP = 400, 32, 5e-3, 20
UPDATE_INTERVAL, LAG = 2, 1
EVALUATE_EVERY = 40  # steps between points of the curve of the held-out mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What decides the weights: static ones, or a bandit with a reward, beginning with equal ones."""

    name: str
    kind: str  # "static", "policy", "reward"
    weights: tuple[float, ...] | None = None  # of a static arm
    algorithm: str = "fixed"
    reward: str = "train_loss"
    algorithm_options: dict[str, Any] = field(default_factory=dict)
    reward_options: dict[str, Any] = field(default_factory=dict)


def run(suite_name: str, arm: Arm, seed: int, *, steps: int = STEPS, until: int | None = None) -> dict[str, Any]:
    """Train one model and return its held-out losses and what it was trained on, as JSON values.

    For one seed all arms have the same initial weights, the same rows of each domain in the same order, and the same
    held-out windows: they differ by the mixture alone.

    Args:
        suite_name: "P" or "H".
        arm: what decides the weights.
        seed: of initial weights and order.
        steps: optimizer steps that the learning rate is planned for.
        until: the step to stop at; None for the last.
    """
    torch.set_num_threads(1)
    began = time.process_time()
    domains = suite(suite_name)
    weights = arm.weights or (1.0,) * len(domains)  # of the bandit too, to begin with
    sources = [Source(d.name, rows=len(d.train), weight=w) for d, w in zip(domains, weights, strict=True)]
    plan = Mixture(sources, seed=seed, window=ROWS, samples_per_epoch=ROWS * steps).plan()
    mixer = _mixer(plan, arm, len(domains))
    trainer = _Trainer(seed, steps)
    curve = []
    for step in range(until or steps):
        draws = plan.draws(step * ROWS, (step + 1) * ROWS)
        rows = np.stack([domains[k].train[row] for k, row in zip(draws.source, draws.row, strict=True)])
        signals, norm = trainer.step(torch.from_numpy(rows), mixer.reward.needs if mixer else ())
        if mixer is not None:
            mixer.observe(draws.source, **signals)
            measured = _measured(trainer.model, domains, mixer.reward) if mixer.due else {}
            mixer.step(gradnorm=norm, total_steps=steps, **measured)
        if (step + 1) % EVALUATE_EVERY == 0 and step + 1 < steps:
            curve.append(float(np.mean([trainer.loss(d.validation) for d in domains if d.scored])))
    losses = [trainer.loss(d.held_out) for d in domains]
    scored = [loss for loss, d in zip(losses, domains, strict=True) if d.scored]
    counts = plan.counts((until or steps) * ROWS)
    return {
        "suite": suite_name,
        "arm": arm.name,
        "kind": arm.kind,
        "seed": seed,
        "losses": losses,
        "mean": float(np.mean(scored)),
        "worst": max(scored),
        "shares": (counts / counts.sum()).tolist(),
        "curve": curve,
        "seconds": time.process_time() - began,
    }


def _mixer(plan: Plan, arm: Arm, sources: int) -> OnlineMixer | None:
    if arm.kind == "static":
        return None
    bandit = make_bandit(arm.algorithm, arm.weights or sources, **arm.algorithm_options)
    reward = make_reward(arm.reward, sources, **arm.reward_options)
    return OnlineMixer(plan, bandit, reward, global_batch_size=ROWS, update_interval=UPDATE_INTERVAL, lag=LAG)


class _Trainer:
    def __init__(self, seed: int, steps: int) -> None:
        self.model = ByteModel(seed)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.01)
        cosine = [0.1 + 0.45 * (1 + np.cos(np.pi * step / steps)) for step in range(steps + 1)]
        self._schedule = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer, lambda step: min((step + 1) / WARMUP, cosine[step])
        )

    def step(self, rows: Tensor, needs: Any) -> tuple[dict[str, Any], float]:
        """Make an optimizer step; return what the reward needs of each row, and the gradient's norm."""
        logits, losses = logits_and_losses(self.model, rows)
        self._optimizer.zero_grad()
        losses.mean().backward()
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0))
        self._optimizer.step()
        self._schedule.step()
        signals: dict[str, Any] = {}
        if "loss_sum" in needs:
            signals = {"loss_sum": losses.detach().double().sum(1), "tokens": np.full(len(rows), CONTEXT)}
        if "entropy_rows" in needs:
            seen = sequence_entropies(logits.detach())
            signals |= {
                "entropy_sum": seen.entropy,
                "varentropy_sum": seen.varentropy,
                "last_entropy_sum": seen.last,
                "entropy_rows": (seen.positions > 0).double(),
            }
        return signals, norm

    def loss(self, windows: np.ndarray) -> float:
        return held_out_loss(self.model, torch.from_numpy(np.array(windows)))


def _measured(model: ByteModel, domains: tuple[Domain, ...], reward: RewardFunction) -> dict[str, Any]:
    """Return what a reward needs of evaluation data; of a window's second half with and without its first before it."""
    measured = {}
    if "eval_loss" in reward.needs:
        windows = [torch.from_numpy(np.array(d.validation[:32])) for d in domains]
        measured["eval_loss"] = [held_out_loss(model, each) for each in windows]
    if "few_shot_loss" in reward.needs:
        half = CONTEXT // 2
        with torch.no_grad():
            whole = [torch.from_numpy(np.array(d.validation[:32])) for d in domains]
            few = [logits_and_losses(model, each)[1][:, half:].double().mean().item() for each in whole]
            zero = [logits_and_losses(model, each[:, half:])[1].double().mean().item() for each in whole]
        measured |= {"few_shot_loss": few, "zero_shot_loss": zero}
    return measured
