"""How the weights of a run are to learn: bandit, reward, and when; and what training itself can measure for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..bandits import Bandit, make_bandit
from ..checks import as_int
from ..errors import PlanError
from ..rewards import RewardFunction, make_reward
from .mixer import GRADNORM, MOST, OnlineMixer, check_kinds

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..mixture import Mixture
    from ..steps import StepSampler
    from .decision import Decision

LOSSES = frozenset({"loss_sum", "tokens"})
ENTROPIES = frozenset({"entropy_sum", "varentropy_sum", "last_entropy_sum", "entropy_rows"})
MEASURED = LOSSES | ENTROPIES | {GRADNORM, "rows", "step", "total_steps"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Online:
    """Weights that learn while a model trains.

    Args:
        algorithm: a name in `cuvee.bandits.BANDITS`; or a bandit, for one run.
        reward: a name that `cuvee.rewards.make_reward` takes; or a reward, for one run.
        algorithm_options: the bandit's own, where it was named.
        reward_options: the reward's own, where it was named.
        update_interval: optimizer steps between updates.
        lag: optimizer steps between a decision and its effect; None is what the loader fetches ahead, and one more. A
            run keeps it when it is resumed. To be the same with other numbers of workers, a run must be given it.
        measure: called before each update, on every rank, for what the reward needs and training does not measure, as
            `eval_loss`: values by name, arrays of shape (K,) or numbers, the same on every rank.
    """

    algorithm: str | Bandit = "learning_speed"
    reward: str | RewardFunction = "train_loss"
    algorithm_options: Mapping[str, Any] = field(default_factory=dict)
    reward_options: Mapping[str, Any] = field(default_factory=dict)
    update_interval: int = 10
    lag: int | None = None
    measure: Callable[[], Mapping[str, ArrayLike | None]] | None = None

    def parts(self, mixture: Mixture) -> tuple[Bandit, RewardFunction]:
        """Return bandit and reward for the sources of a mixture, whose weights the bandit begins with.

        Raises:
            CuveeError: if there is no such bandit, reward or option, or a value is out of its range.
            PlanError: if nothing measures what the reward needs.
        """
        bandit, reward = self.algorithm, self.reward
        if len(mixture.names) < 2:
            raise PlanError(f"sources must be at least two where weights learn, but got {list(mixture.names)}")
        as_int(self.update_interval, "update_interval", 1, MOST, PlanError)
        for name in ("algorithm_options", "reward_options"):
            if not isinstance(getattr(self, name), Mapping):
                raise PlanError(f"{name} must be a mapping, but got {getattr(self, name)!r:.60}")
        if isinstance(bandit, str):
            weightless = [name for name, weight in zip(mixture.names, mixture.weights, strict=True) if not weight > 0]
            if weightless:
                raise PlanError(f"weights of sources must be over 0 where they learn, but got 0 for {weightless}")
            bandit = make_bandit(bandit, mixture.weights, **self.algorithm_options)
        if isinstance(reward, str):
            reward = make_reward(reward, len(mixture.names), **self.reward_options)
        check_kinds(bandit, reward)
        self.check_measured(reward)
        return bandit, reward

    def check_measured(self, reward: RewardFunction) -> None:
        """Raise PlanError if nothing measures what a reward needs."""
        lacking = sorted(set(reward.needs) - MEASURED)
        if lacking and self.measure is None:
            raise PlanError(
                f"reward must need only what training measures, but got {self._named()[1]!r}, which needs "
                f"{', '.join(lacking)}; pass Online(measure=...) from Python, or take entropy, train_loss, gradnorm or "
                "velocity with loss=train (velocity:loss=train on the command line)"
            )

    def mixer(
        self,
        steps: StepSampler,
        *,
        fetched: int = 0,
        kept: Mapping[str, Any] | None = None,
        told: Callable[[Decision], None] | None = None,
    ) -> OnlineMixer:
        """Return the mixer of a run.

        Args:
            steps: its steps.
            fetched: steps that its loader fetches ahead.
            kept: what a run to be resumed kept of its mixer.
            told: as for OnlineMixer.

        Raises:
            PlanError: if `lag` is less than the loader needs, and as `parts` does.
        """
        lag = self.lag
        if lag is None:
            lag = fetched + 1 if kept is None else kept.get("lag")
        lag = as_int(lag, "lag", 0, MOST, PlanError)
        if lag <= fetched:
            raise PlanError(
                f"lag must be at least {fetched + 1} steps, one more than the loader fetches ahead, but got {lag}; use "
                "fewer workers or a smaller prefetch_factor"
            )
        bandit, reward = self.parts(steps.plan.mixture)
        return OnlineMixer(
            steps,
            bandit,
            reward,
            global_batch_size=steps.rows,
            update_interval=self.update_interval,
            lag=lag,
            told=told,
        )

    def document(self) -> dict[str, Any]:
        """Return what decides how weights follow from reports, as JSON values; options of objects are not known."""
        algorithm, reward = self._named()
        return {
            "algorithm": algorithm,
            "algorithm_options": dict(self.algorithm_options) if isinstance(self.algorithm, str) else None,
            "reward": reward,
            "reward_options": dict(self.reward_options) if isinstance(self.reward, str) else None,
        }

    def _named(self) -> tuple[str, str]:
        return (
            self.algorithm if isinstance(self.algorithm, str) else self.algorithm.algorithm,
            self.reward if isinstance(self.reward, str) else type(self.reward).__name__,
        )
