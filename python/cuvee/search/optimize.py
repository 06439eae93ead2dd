"""A mixture from a handful of proxy runs, in one call and one process."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..checks import as_choice, as_flag, as_int
from ..errors import MixtureError
from .domains import MOST_SEEDS, Domain
from .methods import METHODS, Observation, make_method
from .proxy import Proxy
from .proxy import checked_settings as proxy_settings
from .receipt import RECOMMENDED, UNIFORM, Receipt, Run
from .space import Space

F64 = NDArray[np.float64]
MOST_BUDGET = 2**20
FEWEST_RUNS = 2  # one to search with, one for the audit
FORBIDDEN = {"seed": "give seed to optimize_mixture itself", "return_detail": "the receipt tells the losses by domain"}
FEWEST_CONFIRMED = 8  # runs of the least budget that has some left to confirm the answer
RUNS_A_PAIR = 16  # of a budget, for each pair of runs that confirms the answer
MOST_PAIRS = 8
STALLED = 8  # proposals of mixtures that were run, in a row, after which a method is taken to have settled


def optimize_mixture(
    domains: Iterable[Domain],
    proxy_steps: int,
    budget: int,
    *,
    method: str = "bandit",
    proxy_kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
    return_receipt: bool = False,
) -> F64 | tuple[F64, Receipt]:
    """Search for the mixture of the least mean held-out loss over the domains.

    All runs of the search share one training seed and one evaluation seed, so that their losses differ by the mixture
    alone. A mixture that is proposed again would give the same loss again: it is not run twice, and costs nothing. From
    a budget of 8 on, the mixture found is then run beside the uniform one under fresh training seeds, one for each 16
    runs of the budget; if it is not better there on average, it was a chance of its seed, and the uniform mixture is
    returned. The last run is an audit: the answer under seeds that no choice depended on.

    Args:
        domains: K domains, at least two, with unique names and one vocabulary.
        proxy_steps: optimizer steps of a run.
        budget: most proxy runs, those of a part of the steps and the audit included; at least 2.
        method: of `cuvee.search.METHODS`.
        proxy_kwargs: settings of the runs, those of `ProxySettings`.
        seed: of all that is drawn.
        return_receipt: return (weights, receipt) instead.

    Returns:
        The weights, float64 of shape (K,), sum 1.

    Raises:
        MixtureError: naming the argument that is wrong, before any run.
    """
    with_receipt = as_flag(return_receipt, "return_receipt", MixtureError)
    settings = checked_settings(proxy_kwargs)
    proxy = Proxy(domains, proxy_steps, **settings)
    runs = as_int(budget, "budget", FEWEST_RUNS, MOST_BUDGET, MixtureError) - 1
    seed = as_int(seed, "seed", 0, MOST_SEEDS, MixtureError)
    as_choice(method, "method", list(METHODS), MixtureError)
    pairs = _pairs_of(budget)
    search = _Search(proxy, method, budget=runs - 2 * pairs, seed=seed)
    search.run()
    weights, remarks = search.answer(pairs)
    audit = _audit(proxy, weights, seed)
    return (weights, search.receipt(weights, audit, remarks)) if with_receipt else weights


class _Search:
    """The runs of one search, one after the other, so that each is proposed from all before it."""

    def __init__(self, proxy: Proxy, method: str, *, budget: int, seed: int) -> None:
        self._proxy, self._budget, self._first_seed = proxy, budget, seed
        self._space = Space(proxy.names)
        self._method = make_method(method, self._space, seed=seed, budget=budget)
        self._known: dict[tuple[float, ...], F64] = {}  # losses by fidelity and weights
        self.runs: list[Run] = []

    def run(self) -> None:
        """Spend the budget, or as much of it as the method has a use for."""
        left, again = float(self._budget), 0
        while again < STALLED:
            (trial,) = self._method.ask(1)
            key = (trial.fidelity, *trial.weights.tolist())
            if key in self._known:
                again += 1
            elif trial.fidelity > left + 1e-9 or len(self.runs) == self._budget:
                return
            else:
                again, left = 0, left - trial.fidelity
                seed = _seed_of("search", self._first_seed)
                self._known[key] = self._losses([trial.weights], seed, fidelity=trial.fidelity)[0]
            self._method.tell([Observation(trial, self._known[key])])

    def answer(self, pairs: int) -> tuple[F64, tuple[str, ...]]:
        """Return the mixture found, or uniform if it is not better than that under fresh seeds; and what to remark."""
        found, uniform = self._method.recommend().weights, self._space.uniform
        if np.array_equal(found, uniform) or self._confirms(found, pairs):
            return found / found.sum(), ()
        shown = ", ".join(f"{name} {share:.3f}" for name, share in zip(self._space.names, found.tolist(), strict=True))
        return uniform, (
            f"The mixture found ({shown}) was not better than uniform under fresh seeds; uniform is kept.",
        )

    def receipt(self, weights: F64, audit: Run, remarks: tuple[str, ...]) -> Receipt:
        """Return the account of the search."""
        names, found = self._space.names, self._method.recommend()
        kept = not remarks
        return Receipt(
            method=self._method.name,
            names=names,
            targets=names,
            target_weights=(1 / len(names),) * len(names),
            weights=tuple(weights.tolist()),
            predicted=found.mean if kept else math.nan,
            predicted_sd=found.sd if kept else math.nan,
            runs=(*self.runs, audit),
            remarks=(*self._proxy.remarks, *remarks),
        )

    def _confirms(self, weights: F64, pairs: int) -> bool:
        """Tell whether a mixture is better than uniform under fresh training seeds; True without pairs."""
        both = [self._space.uniform, weights]
        seeds = [_seed_of("confirmation", self._first_seed, pair) for pair in range(pairs)]
        losses = [self._losses(both, seed, (UNIFORM, RECOMMENDED)).mean(axis=1) for seed in seeds]
        return not losses or float(np.mean([uniform - ours for uniform, ours in losses])) > 0

    def _losses(
        self, mixtures: Sequence[F64], training_seed: int, arms: Sequence[str] = ("",), fidelity: float = 1.0
    ) -> F64:
        """Make runs, keep them, and return their losses, shape (M, K)."""
        losses = self._proxy.evaluate(np.stack(mixtures), fidelity=fidelity, training_seed=training_seed)
        for arm, weights, row in zip(arms, mixtures, losses, strict=True):
            run = Run(
                number=len(self.runs),
                kind="search",
                arm=arm,
                weights=tuple(weights.tolist()),
                losses=tuple(row.tolist()),
                training_seed=training_seed,
                evaluation_seed=self._proxy.settings.eval_seed,
                fidelity=fidelity,
            )
            self.runs.append(run)
        return losses


def checked_settings(proxy_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return settings for proxy runs; `Proxy` checks the rest.

    Raises:
        MixtureError: they are no mapping, or name what the search itself decides.
    """
    if proxy_kwargs is None:
        return {}
    if not isinstance(proxy_kwargs, Mapping):
        raise MixtureError(f"proxy_kwargs must be a mapping of settings by name, but got {proxy_kwargs!r:.100}")
    for name, cure in FORBIDDEN.items():
        if name in proxy_kwargs:
            raise MixtureError(f"proxy_kwargs must not have {name!r}, but got {proxy_kwargs[name]!r}; {cure}")
    proxy_settings(proxy_kwargs)  # Proxy would take its other arguments for settings
    return dict(proxy_kwargs)


def _pairs_of(budget: int) -> int:
    """Return how many pairs of runs a budget has for confirming the answer."""
    return min(MOST_PAIRS, max(1, budget // RUNS_A_PAIR)) if budget >= FEWEST_CONFIRMED else 0


def _audit(proxy: Proxy, weights: F64, seed: int) -> Run:
    """Run the answer under fresh seeds."""
    training, evaluation = _seed_of("audit training", seed), _seed_of("audit evaluation", seed)
    losses = proxy.evaluate(weights[None], training_seed=training, evaluation_seed=evaluation)[0]
    return Run(
        number=0,
        kind="audit",
        arm=RECOMMENDED,
        weights=tuple(weights.tolist()),
        losses=tuple(losses.tolist()),
        training_seed=training,
        evaluation_seed=evaluation,
    )


def _seed_of(purpose: str, seed: int, number: int = 0) -> int:
    """Return a seed for one purpose, in [0, 2**63)."""
    return _core.key64(f"mixture search: {purpose}", seed=seed, epoch=number) >> 1
