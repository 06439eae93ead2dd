"""What holds for near-duplicates of any documents: the definition, order, threads, and MinHash's own law."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuvee import _core
from cuvee.dedup import estimate_near_duplicate_rate, near_duplicates, overlap_matrix
from cuvee.dedup.comparison import candidates
from near_duplicates import exact_pairs, lower, shingles

WORDS = st.sampled_from(["a", "b", "B", "cc", "é", "日本", "\0", "", " ", "\n", "\u2003", "\ud800"])
TEXTS = st.lists(WORDS, max_size=9).map(" ".join) | st.text(max_size=12)
RULES = st.fixed_dictionaries({
    "shingle_size": st.integers(1, 4),
    "threshold": st.sampled_from([0.01, 0.25, 0.5, 0.75, 0.8, 1.0]),
    "lowercase": st.booleans(),
    "shingle": st.sampled_from(["words", "characters"]),
})  # fmt: skip


@given(documents=st.lists(TEXTS, max_size=12), rule=RULES)
def test_pairs_are_those_of_the_definition(documents: list[str], rule: dict) -> None:
    documents = [text.replace("İ", "i").replace("Σ", "S") for text in documents]
    truth = exact_pairs(
        documents,
        rule["threshold"],
        size=rule["shingle_size"],
        lowercase=rule["lowercase"],
        characters=rule["shingle"] == "characters",
    )
    found = near_duplicates(documents, **rule)
    assert dict(zip(map(tuple, found.pairs.tolist()), found.similarity.tolist(), strict=True)) == truth
    assert found.rate == pytest.approx(len({i for pair in truth for i in pair}) / max(len(documents), 1))


@given(documents=st.lists(TEXTS, max_size=12), data=st.data(), threads=st.integers(1, 4))
def test_order_and_threads_change_nothing(documents: list[str], data: st.DataObject, threads: int) -> None:
    order = data.draw(st.permutations(range(len(documents))))
    found = near_duplicates(documents, shingle_size=2, threshold=0.5, threads=1)
    again = near_duplicates([documents[i] for i in order], shingle_size=2, threshold=0.5, threads=threads)
    assert {tuple(sorted((order[i], order[j]))) for i, j in again.pairs} == set(map(tuple, found.pairs.tolist()))
    assert sorted(shingles_of_kept(documents, found.kept)) == sorted(
        shingles_of_kept([documents[i] for i in order], again.kept)
    )


def shingles_of_kept(documents: list[str], kept: np.ndarray) -> list[str]:
    return [" ".join(lower(documents[i]).split()) for i in np.flatnonzero(kept)]


@given(parts=st.lists(st.lists(TEXTS, max_size=6), min_size=1, max_size=4))
def test_overlap_is_counted_from_pairs(parts: list[list[str]]) -> None:
    found = overlap_matrix({str(i): part for i, part in enumerate(parts)}, shingle_size=1, threshold=0.5)
    everything = [text for part in parts for text in part]
    source = [i for i, part in enumerate(parts) for _ in part]
    near = {(i, source[j]) for i, j in near_duplicates(everything, shingle_size=1, threshold=0.5).pairs}
    near |= {(j, source[i]) for i, j in near_duplicates(everything, shingle_size=1, threshold=0.5).pairs}
    expected = np.zeros((len(parts), len(parts)), int)
    for document, other in near:
        expected[source[document], other] += 1
    assert found.counts.tolist() == expected.tolist()


@given(seed=st.integers(0, 2**62), size=st.integers(1, 300), shared=st.floats(0, 1), length=st.integers(1, 130))
def test_signatures_of_unions_are_minima(seed: int, size: int, shared: float, length: int) -> None:
    """An entry of two sets is equal only if both have its shingle: it is that of the union for at least one of them."""
    hashes = np.random.default_rng(seed % 1000).integers(0, 2**64, 2 * size, np.uint64)
    cut = int(shared * size)
    one, other = hashes[:size], hashes[size - cut : 2 * size - cut]
    union = np.union1d(one, other)
    a, b, both = (_core.minhash(s, np.array([len(s)]), length=length, seed=seed)[0] for s in (one, other, union))
    assert ((both == a) | (both == b)).all()
    assert np.array_equal(a == b, (both == a) & (both == b))


@settings(max_examples=15)
@given(st.data())
def test_candidates_do_not_depend_on_who_stands_where(data: st.DataObject) -> None:
    n, bands = data.draw(st.integers(513, 700)), 3
    random = np.random.default_rng(data.draw(st.integers(0, 100)))
    keys = random.integers(0, data.draw(st.sampled_from([2, 50, 5000])), (bands, n), np.uint32)
    digests = random.integers(0, 2**64, (n, 2), np.uint64)
    order = random.permutation(n)
    found, complete = candidates(keys, digests, np.arange(n), 2)
    again, also = candidates(np.ascontiguousarray(keys[:, order]), digests[order], np.arange(n), 1)
    assert complete == also
    assert {tuple(sorted(order[pair])) for pair in again} == set(map(tuple, found.tolist()))


@given(documents=st.lists(TEXTS, max_size=10))
def test_rate_counts_those_with_a_pair(documents: list[str]) -> None:
    rate = estimate_near_duplicate_rate(documents, shingle_size=2, threshold=0.5)
    assert rate == near_duplicates(documents, shingle_size=2, threshold=0.5).rate
    assert 0 <= rate <= 1
    if all(shingles(text, size=2) for text in documents) and len(documents) > 1:
        assert estimate_near_duplicate_rate(documents * 2, shingle_size=2) == 1
