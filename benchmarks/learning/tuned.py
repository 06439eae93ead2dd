"""The best static mixture that cheap runs can find: 24 of them, stopped at 30%, and a law through their losses."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from cuvee.search.surrogates import TransferLaw

from .corpora import suite
from .trial import STEPS, Arm

RUNS, STOP, SEED = 24, 0.3, 90_000  # seeds from here on are of proxies alone


def proxies(suite_name: str) -> list[tuple[str, Arm, int, int]]:
    """Return the arguments of the proxy runs: suite, arm, seed, step to stop at."""
    rng = np.random.default_rng(SEED)
    domains = len(suite(suite_name))
    mixtures = [np.full(domains, 1 / domains), *rng.dirichlet(np.full(domains, 1.5), RUNS - 1)]
    arms = (Arm(name=f"proxy {n}", kind="static", weights=tuple(w)) for n, w in enumerate(mixtures))
    return [(suite_name, arm, SEED, int(STOP * STEPS)) for arm in arms]


def tuned_weights(suite_name: str, runs: Iterable[dict[str, Any]], log: Callable[[str], None] = print) -> list[float]:
    """Return the weights with the least mean of the scored domains' losses, by the law of the proxies' losses."""
    domains = suite(suite_name)
    mixtures = np.array([arm.weights for _, arm, _, _ in proxies(suite_name)])
    losses = np.array([run["losses"] for run in runs])
    scored = [k for k, domain in enumerate(domains) if domain.scored]
    model = TransferLaw(own=scored).fit(mixtures, losses[:, scored])
    rng = np.random.default_rng(SEED + 1)
    best = mixtures[np.argmin(losses[:, scored].mean(1))]
    for size in (1.0, 0.5, 0.25, 0.1, 0.05):
        moved = best * np.exp(size * rng.standard_normal((2000, len(domains))))
        candidates = np.vstack([best, rng.dirichlet(np.ones(len(domains)), 2000), moved / moved.sum(1, keepdims=True)])
        best = candidates[np.argmin(model.predict(candidates)[0].mean(1))]
    log(f"{suite_name}: tuned static {dict(zip([d.name for d in domains], best.round(3).tolist(), strict=True))}")
    return best.tolist()
