"""When two documents are near-duplicates, and how many hashes it takes to find almost all that are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Literal, TypedDict

import numpy as np

from ..checks import as_choice, as_flag, as_int
from ..errors import CuveeError

Shingle = Literal["words", "characters"]
MISSED = 1e-3  # most of the pairs that are just at the threshold that may not become candidates
LOWEST = 0.01  # threshold; below it nearly all documents would have to be compared


class Shingling(TypedDict):
    """How the core takes texts apart."""

    size: int
    characters: bool
    lowercase: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When two documents are near-duplicates: their sets of shingles have a Jaccard similarity of the threshold.

    Args:
        threshold: least shared / joint shingles, in [0.01, 1].
        shingle: "words" or "characters", what a shingle is made of.
        shingle_size: how many of them.
        lowercase: whether case is forgotten.
        num_hashes: entries of a MinHash signature; more are taken where these would miss too many pairs.
        seed: of the MinHash; it decides which of the rare misses happen, never what is a near-duplicate.

    Raises:
        CuveeError: a value is out of its range.
    """

    threshold: float = 0.8
    shingle: Shingle = "words"
    shingle_size: int = 5
    lowercase: bool = True
    num_hashes: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        value: object = self.threshold
        is_number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
        if not (is_number and LOWEST <= self.threshold <= 1):
            raise CuveeError(f"threshold must be a number in [{LOWEST}, 1], but got {value!r}")
        object.__setattr__(self, "threshold", float(self.threshold))
        as_choice(self.shingle, "shingle", ("words", "characters"), CuveeError)
        as_int(self.shingle_size, "shingle_size", 1, 2**31, CuveeError)
        as_flag(self.lowercase, "lowercase", CuveeError)
        as_int(self.num_hashes, "num_hashes", 1, 2**16, CuveeError)
        as_int(self.seed, "seed", 0, 2**63, CuveeError)

    @property
    def bands(self) -> tuple[int, int]:
        """Number of bands of the signature, and of hashes in each.

        Two documents become candidates if all hashes of one of b bands of r are equal; with similarity J they are
        missed with a probability of (1 - J^r)^b (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, section
        3.4.2). The longest bands are taken that miss at most one in a thousand pairs at the threshold.
        """
        for rows in range(self.num_hashes, 0, -1):
            if self.missed(self.num_hashes // rows, rows) <= MISSED:
                return self.num_hashes // rows, rows
        return math.ceil(math.log(MISSED) / math.log1p(-self.threshold)), 1

    def missed(self, bands: int, rows: int) -> float:
        """Return the probability that a pair just at the threshold agrees in none of the bands."""
        return float((1 - self.threshold**rows) ** bands)

    def shingling(self) -> Shingling:
        """Return what the core takes texts apart with."""
        return {
            "size": int(self.shingle_size),
            "characters": self.shingle == "characters",
            "lowercase": bool(self.lowercase),
        }
