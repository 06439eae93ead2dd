"""datasketch: MinHash sketches of shingles that Python makes, banded LSH, pairs checked by the sketches' estimate."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import datasketch

from peers.python_shingles import THRESHOLD, shingles

PERMUTATIONS = 128


def runs(documents: list[str]) -> Mapping[str, Callable[[], object]]:
    """Return each way from texts to pairs."""

    def pairs(bands: tuple[int, int] | None) -> set[tuple[int, int]]:
        encoded = [[shingle.encode() for shingle in shingles(text)] for text in documents]
        sketches = datasketch.MinHash.bulk(encoded, num_perm=PERMUTATIONS, seed=1)
        lsh = datasketch.MinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS, params=bands)
        found = set()
        for i, sketch in enumerate(sketches):
            for j in lsh.query(sketch):
                if sketch.jaccard(sketches[j]) >= THRESHOLD:
                    found.add((j, i))
            lsh.insert(i, sketch)
        return found

    return {
        "datasketch, default bands": lambda: pairs(None),
        "datasketch, 16 bands of 8": lambda: pairs((16, PERMUTATIONS // 16)),
    }
