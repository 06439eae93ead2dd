"""rensa: MinHash in Rust of shingles that Python makes, from texts to pairs, flags or refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import rensa

from peers.python_shingles import THRESHOLD, shingles

PERMUTATIONS = 128


def runs(documents: list[str]) -> Mapping[str, Callable[[], object]]:
    """Return each way from texts to an answer; all but the first leave candidates unchecked."""

    def pairs() -> set[tuple[int, int]]:
        sketches = rensa.RMinHash.from_token_sets([shingles(text) for text in documents], PERMUTATIONS, 42)
        lsh = rensa.RMinHashLSH(THRESHOLD, PERMUTATIONS, 16)
        lsh.insert_many(sketches)
        return {
            (i, j)
            for i, near in enumerate(lsh.query_all(sketches))
            for j in near
            if i < j and sketches[i].jaccard(sketches[j]) >= THRESHOLD
        }

    def flags(digest: Callable[..., object]) -> list[bool]:
        matrix = digest([shingles(text) for text in documents], PERMUTATIONS, 42)
        return rensa.RMinHashLSH(THRESHOLD, PERMUTATIONS, 8).query_duplicate_flags_matrix_one_shot(matrix)

    def refusals() -> list[bool]:
        sketches = rensa.CMinHash.from_token_sets([shingles(text) for text in documents], PERMUTATIONS, 42)
        return rensa.CMinHashDeduplicator(THRESHOLD, PERMUTATIONS).add_pairs(
            (str(i), sketch) for i, sketch in enumerate(sketches)
        )

    return {
        "rensa RMinHash, 16 bands": pairs,
        "rensa matrix, one-shot flags": lambda: flags(rensa.RMinHash.digest_matrix_from_token_sets),
        "rensa rho matrix, one-shot flags": lambda: flags(rensa.RMinHash.digest_matrix_from_token_sets_rho),
        "rensa CMinHash refusals": refusals,
    }
