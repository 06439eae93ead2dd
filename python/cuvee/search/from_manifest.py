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
from ..manifest import Manifest, load
from ..mixture.opening import content_of
from ..sources import load_function, open_sources
from .domains import MOST_SEEDS
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
        score, about, tokens = self._score(manifest, loader)
        rows = {name: float(len(opened[name])) for name in names}
        sizes, run = rows, self.target_rows and float(self.target_rows)
        if tokens is not None:  # shares are of tokens, so sizes must be
            sizes, run = tokens, run and run * math.fsum(tokens.values()) / math.fsum(rows.values())
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
            passes=self._passes(rows, tokens),
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

    def _score(self, manifest: Manifest, loader: Any) -> tuple[Score, dict[str, Any], dict[str, float] | None]:
        """Return what makes the runs, what to keep of it, and the tokens of each source if its shares are of tokens."""
        if self.score is not None:
            score = FileScore(self.score)
            return score, {"score": score.name, "fingerprint of the score": score.digest}, None
        from .proxy import Proxy
        from .repetition import tokens_a_row
        from .source_domains import domains_of

        settings = dict(PROXIES[self.proxy])
        run = self.proxy_steps * settings["batch_size"] * settings["block"]
        most = 2 * (run + 10 * settings["eval_tokens"])  # enough for a run of one domain alone
        domains = domains_of(manifest, loader=loader, most_tokens=most)
        mean = tokens_a_row(domains)
        if self.repeats and self.target_rows is not None and mean is not None:
            settings["target_tokens"] = _tokens_of(self.target_rows, mean)
        proxy = Proxy(domains, self.proxy_steps, **settings)
        tokens = {domain.name: float(domain.whole) for domain in domains}
        return proxy, {"proxy": self.proxy, "proxy steps": self.proxy_steps, "proxy settings": settings}, tokens


def _tokens_of(rows: int, mean: float) -> int:
    """Return the tokens of so many rows."""
    tokens = max(1, round(rows * mean))
    if tokens >= MOST_SEEDS:
        raise MixtureError(
            f"--target-rows must be of fewer than {bound_text(MOST_SEEDS)} tokens, but got {rows:,} rows of {mean:,.0f}"
        )
    return tokens


def _digest(prints: Mapping[str, str | None]) -> str:
    """Return one fingerprint of all sources, whatever order they stand in."""
    return xxh3_128(canonical_json(dict(prints)))
