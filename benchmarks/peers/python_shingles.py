"""Shingles in Python, which the peers need; exact pairs and containments, which nobody may miss or invent."""

from __future__ import annotations

from collections import Counter, defaultdict

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


def exact_containments(documents: list[str], tests: list[str]) -> list[float]:
    """Return the largest share of each test's shingles that one document has, by an index of the tests' shingles."""
    holders: dict[str, list[int]] = defaultdict(list)
    sizes = []
    for i, test in enumerate(tests):
        own = set(shingles(test))
        sizes.append(len(own))
        for shingle in own:
            holders[shingle].append(i)
    most = [0] * len(tests)
    for document in documents:
        shared = Counter(i for shingle in set(shingles(document)) for i in holders.get(shingle, ()))
        for i, count in shared.items():
            most[i] = max(most[i], count)
    return [count / size for count, size in zip(most, sizes, strict=True)]
