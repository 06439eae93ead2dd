"""Shingles in Python, which the peers need, and the exact pairs of a corpus, which nobody may miss or invent."""

from __future__ import annotations

from collections import defaultdict

SIZE = 5
THRESHOLD = 0.8


def shingles(text: str) -> list[str]:
    """Return the shingles of a text: SIZE words each."""
    words = text.split()
    return [" ".join(words[i : i + SIZE]) for i in range(max(len(words) - SIZE + 1, 1))]


def exact_pairs(documents: list[str]) -> set[tuple[int, int]]:
    """Return every pair of similarity THRESHOLD: each shares a shingle, so all that share one are counted."""
    sets = [frozenset(shingles(text)) for text in documents]
    holders: dict[str, list[int]] = defaultdict(list)
    shared: dict[tuple[int, int], int] = defaultdict(int)
    for i, own in enumerate(sets):
        for shingle in own:
            for j in holders[shingle]:
                shared[j, i] += 1
            holders[shingle].append(i)
    return {(i, j) for (i, j), both in shared.items() if both / (len(sets[i]) + len(sets[j]) - both) >= THRESHOLD}
