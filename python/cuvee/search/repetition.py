"""Proxy runs that repeat each source as often as the run that the mixture is for.

A run of D tokens that gives a source of T tokens the share w reads it w * D / T times. A proxy run of P tokens reads it
w * P / T times, so that small sources look better to it than they are: what is new to it is stale by the end of the
other run. With T * P / D tokens of each source it repeats all of them as often, whatever the mixture (2606.07597).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import MixtureError
from .domains import Domain, TextsDomain, TokenDomain

FEW_WINDOWS = 16  # of a source's text, below which a proxy run is told little by it
ENOUGH = 0.8  # of the windows that a run has a use for; a tenth is held out


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """A proxy run beside the run that the mixture is for.

    Args:
        steps: of the proxy run.
        batch_size: its windows a step.
        block: tokens of a window.
        target_tokens: of the other run.
    """

    steps: int
    batch_size: int
    block: int
    target_tokens: int

    @property
    def part(self) -> float:
        """Part of each source that proxy runs have, in (0, 1]."""
        return min(1.0, self.steps * self.batch_size * self.block / self.target_tokens)

    def thinned(self, domains: Sequence[Domain]) -> tuple[Domain, ...]:
        """Return the domains with that part of their text. Streams have no end, and never repeat.

        Raises:
            MixtureError: no domain has an end, one cannot be thinned, or not a window is left of one.
        """
        for domain in domains:
            if isinstance(domain, TextsDomain) and not isinstance(domain, TokenDomain):
                raise MixtureError(
                    f"target_tokens must come with domains that are TokenDomain, but got {domain!r:.100}"
                )
        texts = [domain for domain in domains if isinstance(domain, TokenDomain)]
        if not texts:
            names = [domain.name for domain in domains]
            raise MixtureError(f"target_tokens must come with domains of texts, which repeat, but got streams: {names}")
        least = min(texts, key=lambda domain: domain.whole)
        if self.part * least.whole < self.block:
            need = self._steps_for(1, least)
            raise MixtureError(
                f"steps of a proxy run must be at least {need:,} to repeat domain {least.name!r} as a run of "
                f"{self.target_tokens:,} tokens does, or less than a window of {self.block} tokens is left of its "
                f"{least.whole:,}, but got {self.steps:,}; give more, or lower target_tokens"
            )
        return tuple(domain.thinned(self.part) if isinstance(domain, TokenDomain) else domain for domain in domains)

    def remarks(self, thinned: Sequence[Domain]) -> tuple[str, ...]:
        """Return what to know of proxy runs of such domains, a sentence each."""
        run = self._run(thinned)
        if self.steps * self.batch_size * self.block > self.target_tokens:
            return (f"Proxy runs are longer than {run}, and repeat sources more often.",)
        part = "all" if self.part == 1 else f"{100 * self.part:.2g}%"
        found = [f"Proxy runs have {part} of each source's text, and repeat it as often as {run}."]
        for domain in thinned:
            if isinstance(domain, TokenDomain):
                found += self._remarks_of(domain)
        return tuple(found)

    def _remarks_of(self, domain: TokenDomain) -> Iterator[str]:
        windows = domain.training_windows(self.block + 1)
        most = min(self.steps * self.batch_size, self.part * domain.whole / self.block)  # that a run has a use for
        if len(domain) < domain.whole and windows < ENOUGH * most:
            few = f"{len(domain):,} of {domain.whole:,}"
            yield f"Of {domain.name!r} too few tokens were read, {few}: proxy runs repeat it more often."
        elif windows < FEW_WINDOWS:
            need, few = self._steps_for(FEW_WINDOWS, domain), "1 window" if windows == 1 else f"{windows} windows"
            yield (
                f"Proxy runs have {few} of {domain.name!r}, and say little of its share; runs of {need:,} steps would "
                f"have {FEW_WINDOWS}."
            )

    def _steps_for(self, windows: int, domain: TokenDomain) -> int:
        """Return the steps of a proxy run that has so many windows of a domain."""
        return math.ceil(windows * self.target_tokens / (domain.whole * self.batch_size))

    def _run(self, domains: Sequence[Domain]) -> str:
        mean = tokens_a_row(domains)
        count = "" if mean is None else f"{self.target_tokens / mean:,.0f}"
        rows = f", about {count} row{'' if count == '1' else 's'}" if count else ""
        return f"a run of {self.target_tokens:,} tokens{rows}"


def tokens_a_row(domains: Sequence[Domain]) -> float | None:
    """Return the mean tokens of a row over all sources pooled; None where that is not known."""
    known = [(domain.whole, domain.rows) for domain in domains if isinstance(domain, TokenDomain)]
    rows = [rows for _, rows in known if rows is not None]
    return sum(whole for whole, _ in known) / sum(rows) if len(rows) == len(domains) else None
