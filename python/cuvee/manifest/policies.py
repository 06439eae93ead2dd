"""Weights worked out from the sizes of the sources instead of written down."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from ..errors import ManifestError
from .records import Record, any_of, nearest, refuse, rule, show

Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False), rule("finite and positive")]


class Proportional(Record):
    """Each source weighs what it holds: w = n."""

    policy: Literal["proportional"]

    def shares(self, rows: Sequence[int], _budget: int) -> list[float]:
        """Return a share per source, not normalised."""
        return [float(size) for size in rows]


class Temperature(Record):
    """Sizes flattened by a temperature: w = n^(1/tau). tau = 1 is proportional, a large one nearly uniform."""

    policy: Literal["temperature"]
    tau: Positive = Field(description="temperature: 1 is proportional to size, larger is flatter")

    def shares(self, rows: Sequence[int], _budget: int) -> list[float]:
        """Return a share per source, not normalised."""
        from .._core import power

        largest = max(rows)
        exponent = min(1 / self.tau, 1e300)  # a subnormal tau has no finite inverse
        return [power(size / largest, exponent) if size else 0.0 for size in rows]


class Unimax(Record):
    """As even as the sizes allow when no source may be repeated more than `max_epochs` times.

    Chung et al., "UniMax: Fairer and more effective language sampling for large-scale multilingual pretraining", ICLR
    2023, section 3: from the smallest source to the largest, each gets an equal part of the budget that is left, but
    at most its rows times `max_epochs`.
    """

    policy: Literal["unimax"]
    max_epochs: Positive = Field(description="most passes over any one source within the budget")

    def shares(self, rows: Sequence[int], budget: int) -> list[float]:
        """Return what each source gets of a `budget` in the unit of `rows`."""
        left = float(budget)
        shares = [0.0] * len(rows)
        smallest_first = sorted(range(len(rows)), key=lambda source: rows[source])
        for done, source in enumerate(smallest_first):
            shares[source] = min(left / (len(rows) - done), rows[source] * self.max_epochs)
            left -= shares[source]
        return shares


class Uniform(Record):
    """Every source that has rows weighs the same."""

    policy: Literal["uniform"]

    def shares(self, rows: Sequence[int], _budget: int) -> list[float]:
        """Return a share per source, not normalised."""
        return [float(size > 0) for size in rows]


POLICIES = ("proportional", "temperature", "unimax", "uniform")


def _names_a_policy(value: object) -> object:
    if isinstance(value, Proportional | Temperature | Unimax | Uniform):
        return value
    if not isinstance(value, Mapping) or "policy" not in value:
        raise refuse(f'must be an object such as {{"policy": "proportional"}}, but got {show(value)}')
    policy = value["policy"]
    if policy not in POLICIES:
        raise refuse(f"must be {any_of(POLICIES)}, but got {show(policy)}{nearest(policy, POLICIES)}", "policy")
    return dict(value)


WeightPolicy = Annotated[
    Proportional | Temperature | Unimax | Uniform, Field(discriminator="policy"), BeforeValidator(_names_a_policy)
]


def resolve_weights(
    policy: Proportional | Temperature | Unimax | Uniform, rows: Sequence[int], budget: int | None = None
) -> list[float]:
    """Return the weights, summing to 1, that `policy` gives sources of these sizes.

    Args:
        policy: how sizes become weights.
        rows: size of each source in the mixture's unit (rows, or tokens), 0 or more; an empty source weighs 0.
        budget: draws planned in the same unit, for `unimax`; None is the sum of `rows`.

    Raises:
        ManifestError: no source has rows, a size is negative, or the budget is not positive.

    Example:
        >>> resolve_weights(Unimax(policy="unimax", max_epochs=2), [10, 100, 1000], budget=420)
        [0.047619047619047616, 0.47619047619047616, 0.47619047619047616]
    """
    if not rows or min(rows) < 0 or max(rows) == 0:
        raise ManifestError(f"rows must be 0 or more and not all 0 for weights by policy, but got {show(list(rows))}")
    budget = sum(rows) if budget is None else budget
    if budget < 1:
        raise ManifestError(f"budget must be positive, but got {show(budget)}")
    return normalised(policy.shares(rows, budget))


def normalised(weights: Sequence[float]) -> list[float]:
    """Return `weights` divided by their sum, whatever their scale; at least one must be positive."""
    largest = max(weights)
    scaled = [weight / largest for weight in weights]
    total = math.fsum(scaled)
    return [weight / total for weight in scaled]
