"""What is compared: static mixtures, every policy with one reward, every reward with one policy."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cuvee.rewards import LastEstimate, register_reward, report_mean

from .corpora import SUITES, Domain, suite
from .trial import ROWS, STEPS, Arm

TRAINED_ON_LOSS = ("exp3", "exp3_bounded", "odm", "ado", "learning_speed")
REWARDS: Mapping[str, dict[str, Any]] = {
    "entropy": {},
    "entropy3_varent1": {},
    "entropy_last_token": {},
    "validation_loss": {},
    "gradnorm": {},
    "learnability": {},
    "velocity": {"loss": "train"},
    "combined": {"loss": "train"},
}
UNIFORM = Arm(name="uniform", kind="static")


@register_reward("excess_loss")
class ExcessLoss(LastEstimate):
    """Training loss above a reference model's, at least 0: what DoReMi's scores are."""

    needs = frozenset({"loss_sum", "tokens"})

    def __init__(self, sources: int, *, reference: Sequence[float]) -> None:
        super().__init__(sources)
        self._reference = np.array(reference)

    def measure(self, report: Mapping[str, Any]) -> np.ndarray:
        return np.maximum(report_mean(report, "loss_sum", "tokens", self.sources) - self._reference, 0)


def arms(suite_name: str, tuned: Sequence[float], reference: Sequence[float]) -> list[Arm]:
    """Return all arms of a suite but uniform.

    Args:
        suite_name: "P" or "H".
        tuned: the weights of "tuned static".
        reference: losses of a reference model by domain, DoReMi's: the one trained on the uniform mixture.
    """
    domains = suite(suite_name)
    natural = [float(len(domain.train)) for domain in domains]
    static = {"natural": natural, "unimax": _unimax(domains), "tuned": list(tuned)}
    to_uniform = {"stages": [(STEPS * ROWS, [1.0] * len(domains))], "passage": "linear"}
    excess = {"reward": "excess_loss", "reward_options": {"reference": list(reference)}}
    return [
        *(Arm(name=name, kind="static", weights=tuple(weights)) for name, weights in static.items()),
        *(Arm(name=name, kind="policy", algorithm=name) for name in TRAINED_ON_LOSS),
        Arm(name="doremi", kind="policy", algorithm="doremi", **excess),
        Arm(
            name="curriculum",
            kind="policy",
            weights=tuple(natural),
            algorithm="curriculum",
            algorithm_options=to_uniform,
        ),
        *(
            Arm(
                name=f"{reward} (exp3_bounded)",
                kind="reward",
                algorithm="exp3_bounded",
                reward=reward,
                reward_options=options,
            )
            for reward, options in REWARDS.items()
        ),
    ]


def _unimax(domains: Sequence[Domain]) -> list[float]:
    """Return UniMax's weights at no more than four epochs of a domain (Chung et al. 2023, section 3)."""
    left, shares = float(STEPS * ROWS), [0.0] * len(domains)
    smallest_first = sorted(range(len(domains)), key=lambda k: len(domains[k].train))
    for done, k in enumerate(smallest_first):
        shares[k] = min(left / (len(domains) - done), 4.0 * len(domains[k].train))
        left -= shares[k]
    return shares


def names() -> list[str]:
    """Return the arms' names in the order of the table."""
    some = arms("P", [1.0] * len(SUITES["P"]), [math.inf] * len(SUITES["P"]))
    return ["uniform", *(arm.name for arm in some)]
