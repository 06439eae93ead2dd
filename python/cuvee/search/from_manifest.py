"""A search over the sources of a manifest, as `cuvee search` makes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._core import xxh3_128
from ..checks import as_choice, as_int, bound_text, canonical_json
from ..errors import MixtureError
from ..manifest import load
from ..mixture.opening import content_of
from ..sources import load_function, open_sources
from .domains import MOST_SEEDS, TokenDomain
from .file_score import FileScore
from .passes import Passes
from .plan import SearchPlan
from .score import Score
from .space import Space

PROXIES: Mapping[str, Mapping[str, Any]] = {  # sizes of models that come with the package
    "tiny": {"d_model": 64, "n_layer": 2, "n_head": 4, "block": 64, "batch_size": 16, "eval_tokens": 16_384},
}
STEPS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSearch:
    """What `cuvee search` was asked for.

    Args:
        manifest: file of the manifest whose sources are the domains.
        budget: whole runs, the audit included.
        method: name of `METHODS`.
        proxy: name of `PROXIES`.
        proxy_steps: optimizer steps of a whole run of the proxy.
        score: `FILE.py:function` that makes the runs instead of the proxy; None is the proxy.
        loader: `FILE.py:function` that makes rows of the sources.
        lower, upper, fixed: bounds and fixed shares by name of source.
        max_repetition: how often the run that the mixture is for may see a row, or, by the proxy, a token.
        target_rows: rows of that run. Proxies repeat each source as often as it does.
        target_steps: steps after which losses are compared, extrapolated by laws; None compares them as they are.
        targets: weight of each loss in what is minimised; empty: all the same.
        seed: of the search.
        options: of the method.
        audit_seeds, round_size: see `SearchPlan`.

    Raises:
        MixtureError: naming what is out of its range.
    """

    manifest: Path
    budget: int
    method: str = "auto"
    proxy: str = "tiny"
    proxy_steps: int = STEPS
    score: str | None = None
    loader: str | None = None
    lower: Mapping[str, float] | None = None
    upper: Mapping[str, float] | None = None
    fixed: Mapping[str, float] | None = None
    max_repetition: float | None = None
    target_rows: int | None = None
    target_steps: int | None = None
    targets: Mapping[str, float] | None = None
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    audit_seeds: int | None = None
    round_size: int | None = None

    def __post_init__(self) -> None:
        as_choice(self.proxy, "--proxy", list(PROXIES), MixtureError)
        as_int(self.proxy_steps, "--proxy-steps", 1, 2**31, MixtureError)
        if self.target_steps is not None and self.score is not None:
            raise MixtureError(
                f"--target-steps must come without --score, but got {self.target_steps} and {self.score!r}"
            )
        if self.target_steps is not None and self.target_steps < self.proxy_steps:
            raise MixtureError(
                f"--target-steps must be at least {self.proxy_steps}, the steps of a proxy run, but got "
                f"{self.target_steps}"
            )
        if self.max_repetition is not None and self.target_rows is None:
            raise MixtureError(f"--max-repetition must come with --target-rows, but got {self.max_repetition} alone")
        if self.target_rows is not None and self.max_repetition is None and not self.repeats:
            raise MixtureError(
                "--target-rows must come with --max-repetition where --score or --target-steps is given, for then no "
                f"proxy is repeated as often as it says, but got {self.target_rows} alone"
            )

    @property
    def repeats(self) -> bool:
        """Whether proxies repeat each source as often as a run of `target_rows` does.

        Not if losses are extrapolated beyond the proxy's steps: there they would be repeated too often.
        """
        return self.target_rows is not None and self.score is None and self.target_steps is None

    def plan(self) -> SearchPlan:
        """Open every source and return the search.

        Raises:
            CuveeError: the manifest, a source, a bound or the score's file is wrong.
        """
        manifest = load(self.manifest)
        names = [spec.name for spec in manifest.sources]
        loader = load_function(self.loader) if self.loader is not None else None
        opened = open_sources(manifest.sources, loader=loader, folder=manifest.folder, alike=False)
        prints = {
            spec.name: content_of(spec, opened[spec.name], folder=manifest.folder, loader=loader)
            for spec in manifest.sources
        }
        rows = {name: float(len(opened[name])) for name in names}
        sizes, run = rows, self.target_rows and float(self.target_rows)
        domains = self._domains(opened) if self.score is None else None
        if domains is not None:  # the proxy's shares are of tokens, so sizes must be
            sizes = {domain.name: float(domain.whole) for domain in domains}
            run = run and run * math.fsum(sizes.values()) / math.fsum(rows.values())
        score, about = self._score(domains, run)
        space = Space(
            names,
            lower=self.lower,
            upper=self.upper,
            fixed=self.fixed,
            rows=sizes,
            target_rows=run,
            max_repetition=self.max_repetition,
        )
        return SearchPlan(
            score=score,
            space=space,
            budget=self.budget,
            method=self.method,
            seed=self.seed,
            targets=self.targets,
            options=self.options,
            audit_seeds=self.audit_seeds,
            round_size=self.round_size,
            target_steps=self.target_steps,
            rows=tuple(sizes[name] for name in names),
            passes=self._passes(rows, None if domains is None else sizes),
            about={**about, "fingerprints of the sources": prints, "fingerprint": _digest(prints)},
        )

    def _passes(self, rows: Mapping[str, float], tokens: Mapping[str, float] | None) -> Passes | None:
        if self.target_rows is None:
            return None
        return Passes(
            rows=tuple(rows.values()),
            run_rows=float(self.target_rows),
            row_tokens=None if tokens is None else tuple(tokens[name] / rows[name] for name in rows),
            most=self.max_repetition,
        )

    def _domains(self, opened: Mapping[str, Any]) -> list[TokenDomain]:
        """Return the sources as the proxy reads them: enough of each for a run of it alone."""
        from .source_domains import domains_in

        size = PROXIES[self.proxy]
        run = self.proxy_steps * size["batch_size"] * size["block"]
        return domains_in(opened, most_tokens=2 * (run + 10 * size["eval_tokens"]))

    def _score(self, domains: list[TokenDomain] | None, run: float | None) -> tuple[Score, dict[str, Any]]:
        """Return what makes the runs, and what to keep of it.

        Args:
            domains: of the proxy; None for a score of the user's.
            run: tokens of the run that the mixture is for, if they are known.
        """
        if domains is None:
            score = FileScore(str(self.score))
            return score, {"score": score.name, "fingerprint of the score": score.digest}
        from .proxy import Proxy

        settings = dict(PROXIES[self.proxy])
        if self.repeats and run is not None:
            settings["target_tokens"] = self._whole(run)
        proxy = Proxy(domains, self.proxy_steps, **settings)
        return proxy, {"proxy": self.proxy, "proxy steps": self.proxy_steps, "proxy settings": settings}

    def _whole(self, run: float) -> int:
        """Return tokens of the run as an integer."""
        tokens = max(1, round(run))
        if tokens >= MOST_SEEDS:
            raise MixtureError(
                f"--target-rows must be of fewer than {bound_text(MOST_SEEDS)} tokens, but got {self.target_rows:,} "
                f"rows of {run / float(self.target_rows or 1):,.0f}"
            )
        return tokens


def _digest(prints: Mapping[str, str | None]) -> str:
    """Return one fingerprint of all sources, whatever order they stand in."""
    return xxh3_128(canonical_json(dict(prints)))
