"""Near-duplicates by definition: sets of shingles of Python strings, all pairs compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

INSIDE = {"İ": "i", "ς": "ς"}


def lower(text: str) -> str:
    """Return a text in lower case, one character for each."""
    return "".join(INSIDE.get(char) or (char.lower() if len(char.lower()) == 1 else char) for char in text)


def shingles(text: str, *, size: int = 5, characters: bool = False, lowercase: bool = True) -> set[str]:
    words = (lower(text) if lowercase else text).split()
    units: Sequence[str] = " ".join(words) if characters else words
    if not units:
        return set()
    joint = "" if characters else " "
    return {joint.join(units[i : i + size]) for i in range(max(len(units) - size + 1, 1))}


def jaccard(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0


def exact_pairs(documents: Sequence[str], threshold: float = 0.8, **rule) -> dict[tuple[int, int], float]:
    """Return the similarity of every two documents that have at least `threshold`."""
    sets = [shingles(text, **rule) for text in documents]
    found = {}
    for i, one in enumerate(sets):
        for j in range(i + 1, len(sets)):
            if one and one.isdisjoint(sets[j]):  # most are
                continue
            similarity = jaccard(one, sets[j])
            if similarity >= threshold and bool(one) == bool(sets[j]):
                found[i, j] = similarity
    return found


def edited_corpus(n: int, *, words: int = 120, copies: float = 0.25, edits: int = 3, seed: int = 5) -> list[str]:
    """Return n documents, a share of which are copies of others with up to `edits` words replaced."""
    random = np.random.default_rng(seed)
    texts = [random.zipf(1.3, words) % 5000 for _ in range(n - int(n * copies))]
    for _ in range(n - len(texts)):
        copy = texts[int(random.integers(n - int(n * copies)))].copy()
        copy[random.choice(words, int(random.integers(0, edits + 1)), replace=False)] = random.integers(0, 5000)
        texts.append(copy)
    return [" ".join(f"w{word}" for word in texts[i]) for i in random.permutation(n)]


def containment(inner: set[str], outer: set[str]) -> float:
    return len(inner & outer) / len(inner) if inner else 0.0


def best_containments(
    sources: Sequence[Sequence[str]], evaluation: Sequence[str], **rule
) -> list[tuple[float, tuple[int, int]]]:
    """Return the largest containment of each evaluation document in any document, and (source, row) of the first."""
    everything = [((i, row), shingles(text, **rule)) for i, part in enumerate(sources) for row, text in enumerate(part)]
    found = []
    for text in evaluation:
        inner, best = shingles(text, **rule), (0.0, (-1, -1))
        for place, outer in everything:
            share = containment(inner, outer)
            if share > best[0]:
                best = (share, place)
        found.append(best)
    return found
