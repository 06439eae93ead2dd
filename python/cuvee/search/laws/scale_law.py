"""The scale law: losses of every mixture at sizes and numbers of tokens that were never run."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from ...errors import CuveeError
from ..surrogates.surrogate import as_floats, as_mixtures, as_table
from ..surrogates.transfer_law import TransferLaw, as_shares
from .numbers import as_column, as_number, check_range
from .scale_fit import Member, Runs, fit_member, numbers_of
from .scale_terms import DECAY, DECAY_DOUBT, HELD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from ..surrogates.surrogate import Floats

BURN_IN_DOUBT = 0.1
MOST_BURN_IN = 0.9
SPAN = 1e15  # between the least and the most of what is fitted at once
FEWEST_SIZES = 2
DECAY_SIZES = 3  # sizes from which the parameters' exponent can be learned


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleLaw:
    """The transfer law with parameters N and tokens D: fitted to small runs, asked about large ones.

        loss_i = E_i + A_i N ** -a_i + D ** -b_i (f_i(v) + (f_i(w) - f_i(v)) N ** -s_i) + rest_i(w) + common_i(N, D)

    additive in size and data as Chinchilla (Hoffmann et al. 2022, equation 2), with `TransferLaw`'s effective data f of
    the mixture and a slow decline s of the differences between mixtures. `rest` is a Gaussian process over mixtures of
    what the law leaves over at all sizes alike; `common` is what all mixtures share at one evaluation (the schedule,
    the evaluation's noise). With fewer than three sizes nothing can tell the exponent a from E: it is held at a prior
    mean, and the predictions' change with it goes into the deviations. Three laws with different burn-ins are averaged.

    Args:
        own: the domain that each loss is measured on, as in `TransferLaw`.
        burn_in: first share of every run that is left out, 0..0.9, give or take a tenth: early losses follow the
            warm-up, and no power law.
        unique: tokens that each domain has, (K,); None: nothing repeats. Repeated tokens count as `effective_tokens`.
    """

    own: Sequence[int] | None = None
    burn_in: float = 0.5
    unique: Sequence[float] | None = None

    def fit(self, weights: ArrayLike, parameters: ArrayLike, tokens: ArrayLike, losses: ArrayLike) -> ScaleModel:
        """Return the law given checkpoints of runs; the more sizes and the longer the runs the better.

        Args:
            weights: mixtures of the runs, (n, K).
            parameters: sizes, (n,), counted the same way for all.
            tokens: tokens trained on at the checkpoint, (n,).
            losses: nats, (n, D), all finite and positive.

        Raises:
            CuveeError: if an argument has a wrong shape or is out of its range.
        """
        mixtures, table = as_table(weights, losses)
        check_range(table, "losses")
        sizes, counts = as_column(parameters, "parameters", len(table)), as_column(tokens, "tokens", len(table))
        for name, column in (("parameters", sizes), ("tokens", counts)):
            if column.max() / column.min() > SPAN:
                raise CuveeError(
                    f"{name} must be within a factor of {SPAN:g}, but got {column.min()} to {column.max()}"
                )
        if len(np.unique(sizes)) < FEWEST_SIZES:
            raise CuveeError(f"parameters must be of {FEWEST_SIZES} sizes or more, but got {sizes[0]:g} alone")
        rule = f"in [0, {MOST_BURN_IN}]"
        burn_in = as_number(self.burn_in, "burn_in", rule, low=0, end=np.nextafter(MOST_BURN_IN, 1))
        mix = TransferLaw(own=self.own).terms(mixtures.shape[1], table.shape[1])
        progress = counts / _ends(mixtures, sizes, counts)
        runs = [
            Runs.of(mixtures[late], sizes[late], counts[late], table[late], self.unique)
            for late in (progress >= burn_in + shift for shift in (0.0, -BURN_IN_DOUBT, BURN_IN_DOUBT))
        ]
        few = len(np.unique(sizes)) < DECAY_SIZES
        prior = (DECAY, HELD) if few else (DECAY, DECAY_DOUBT)
        members = tuple(fit_member(each, mix, prior) for each in runs)
        moved = (-DECAY_DOUBT, DECAY_DOUBT) if few else ()
        doubted = tuple(fit_member(runs[0], mix, (DECAY + shift, HELD)) for shift in moved)
        return ScaleModel(members=members, doubted=doubted)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleModel:
    """A scale law that was fitted."""

    members: tuple[Member, ...]  # which are averaged; the first is that of the burn-in asked for
    doubted: tuple[Member, ...]  # the first with the parameters' exponent one deviation lower and higher, or none

    def predict(self, weights: ArrayLike, parameters: ArrayLike, tokens: ArrayLike) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the losses that such runs would measure, both (m, D), in nats.

        Args:
            weights: mixtures, (m, K).
            parameters: sizes, (m,) or one number.
            tokens: tokens trained on, (m,) or one number.
        """
        runs = self._runs(weights, parameters, tokens)
        means, variances = (np.array(part) for part in zip(*(m.moments(*runs) for m in self.members), strict=True))
        noise = np.mean([np.diag(member.noise) for member in self.members], axis=0)
        return means.mean(0), np.sqrt(variances.mean(0) + means.var(0, ddof=1) + self._doubt(*runs) ** 2 + noise)

    def predict_mean(
        self, weights: ArrayLike, parameters: ArrayLike, tokens: ArrayLike, shares: ArrayLike | None = None
    ) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of a weighted mean of the losses, both (m,).

        Args:
            weights: mixtures, (m, K).
            parameters: sizes, (m,) or one number.
            tokens: tokens trained on, (m,) or one number.
            shares: weights of the losses, (D,); None: equal ones. They are normalised.
        """
        runs = self._runs(weights, parameters, tokens)
        part = as_shares(None if shares is None else as_floats(shares, "shares"), len(self.members[0].noise))
        means = np.array([member.moments(*runs)[0] @ part for member in self.members])
        variance = np.mean([member.variance_of_mean(*runs, part) for member in self.members], axis=0)
        noise = np.mean([part @ member.noise @ part for member in self.members])
        variance = variance + means.var(0, ddof=1) + (self._doubt(*runs) @ part) ** 2 + noise
        return means.mean(0), np.sqrt(variance)

    def interval(
        self, weights: ArrayLike, parameters: ArrayLike, tokens: ArrayLike, *, level: float = 0.9
    ) -> tuple[Floats, Floats]:
        """Return the central interval of the losses that such runs would measure: lower and upper ends, both (m, D).

        Raises:
            CuveeError: if `level` is not in (0, 1).
        """
        level = as_number(level, "level", "in (0, 1)", low=0, end=1, open_low=True)
        mean, deviation = self.predict(weights, parameters, tokens)
        reach = NormalDist().inv_cdf(0.5 + level / 2) * deviation
        return mean - reach, mean + reach

    def _runs(self, weights: ArrayLike, parameters: ArrayLike, tokens: ArrayLike) -> tuple[Floats, Floats, Floats]:
        mixtures = as_mixtures(weights, self.members[0].posterior.terms.domains)
        sizes = as_column(parameters, "parameters", len(mixtures))
        return mixtures, sizes, as_column(tokens, "tokens", len(mixtures))

    def _doubt(self, mixtures: Floats, sizes: Floats, counts: Floats) -> Floats:
        """Return half the change of the losses when the exponent moves by a deviation down and up, (m, D)."""
        if not self.doubted:
            return np.zeros((len(mixtures), len(self.members[0].noise)))
        low, high = (member.moments(mixtures, sizes, counts)[0] for member in self.doubted)
        half: Floats = (high - low) / 2
        return half


def _ends(mixtures: Floats, sizes: Floats, counts: Floats) -> Floats:
    """Return the most tokens of each checkpoint's run, (n,)."""
    run = numbers_of(np.column_stack([mixtures, sizes]))
    most = np.zeros(run.max() + 1)
    np.maximum.at(most, run, counts)
    ends: Floats = most[run]
    return ends
