"""What holds for contamination by any documents: the definition, and that threads and cuts change nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cuvee.dedup import Contamination, Rule, contamination, overlap_matrix
from cuvee.dedup.comparison import Corpus
from cuvee.dedup.containment import index_of, look_through, merged
from cuvee.dedup.texts import texts_of
from near_duplicates import best_containments, containment, shingles

WORDS = st.sampled_from(["a", "b", "B", "cc", "é", "日本", "\0", "", " ", "\n", "\u2003", "\ud800"])
TEXTS = st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=12).map(
    lambda text: text.replace("İ", "i").replace("Σ", "S")
)
PARTS = st.lists(st.lists(TEXTS, max_size=7), max_size=3)
RULES = st.fixed_dictionaries({
    "shingle_size": st.integers(1, 4),
    "threshold": st.sampled_from([1e-9, 0.25, 1 / 3, 0.5, 2 / 3, 0.8, 1.0]),
    "lowercase": st.booleans(),
    "shingle": st.sampled_from(["words", "characters"]),
})  # fmt: skip


def named(parts: list[list[str]], prefix: str) -> dict[str, list[str]]:
    return {f"{prefix}{i}": part for i, part in enumerate(parts)}


def reference_rule(rule: dict) -> dict:
    return {
        "size": rule["shingle_size"],
        "lowercase": rule["lowercase"],
        "characters": rule["shingle"] == "characters",
    }


def same(one: Contamination, other: Contamination) -> bool:
    by_set = all(
        np.array_equal(getattr(one, field)[name], getattr(other, field)[name])
        for field in ("containment", "match", "short")
        for name in one.evaluation
    )
    return by_set and all(
        np.array_equal(getattr(one, f), getattr(other, f)) for f in ("contaminated", "quotes", "shares")
    )


@given(sources=PARTS, sets=PARTS, rule=RULES)
def test_containment_is_that_of_the_definition(sources: list[list[str]], sets: list[list[str]], rule: dict) -> None:
    found = contamination(named(sources, "s"), named(sets, "t"), **rule)
    for name, texts in named(sets, "t").items():
        best = best_containments(sources, texts, **reference_rule(rule))
        assert found.containment[name].tolist() == [share for share, _ in best]
        assert list(map(tuple, found.match[name].tolist())) == [place for _, place in best]


@given(sources=PARTS, sets=PARTS, rule=RULES)
def test_counts_and_quotes_are_those_of_the_definition(
    sources: list[list[str]], sets: list[list[str]], rule: dict
) -> None:
    found = contamination(named(sources, "s"), named(sets, "t"), **rule)
    inner = [[shingles(text, **reference_rule(rule)) for text in texts] for texts in sets]
    contaminated = np.zeros((len(sources), len(sets)), int)
    quotes = []
    for i, documents in enumerate(sources):
        outer = [shingles(text, **reference_rule(rule)) for text in documents]
        for j, tests in enumerate(inner):
            contaminated[i, j] = sum(any(_contains(o, test, rule["threshold"]) for o in outer) for test in tests)
        for row, document in enumerate(outer):
            for j, tests in enumerate(inner):
                within = [k for k, test in enumerate(tests) if _contains(document, test, rule["threshold"])]
                quotes += [(i, row, j, within[0], containment(tests[within[0]], document))] if within else []
    assert found.contaminated.tolist() == contaminated.tolist()
    assert [
        (*place, share) for place, share in zip(found.quotes.tolist(), found.shares.tolist(), strict=True)
    ] == quotes
    for i, name in enumerate(found.sources):
        assert found.rows(name).tolist() == sorted({row for source, row, *_ in quotes if source == i})
    assert found.containing.sum() == len(quotes)


def _contains(outer: set[str], inner: set[str], threshold: float) -> bool:
    return bool(inner) and containment(inner, outer) >= threshold


@given(sources=PARTS, sets=PARTS, rule=RULES, threads=st.integers(2, 5))
def test_threads_change_nothing(sources: list[list[str]], sets: list[list[str]], rule: dict, threads: int) -> None:
    one = contamination(named(sources, "s"), named(sets, "t"), **rule, threads=1)
    assert same(one, contamination(named(sources, "s"), named(sets, "t"), **rule, threads=threads))


@given(sources=PARTS, sets=PARTS, size=st.integers(1, 3), stretch=st.integers(1, 4))
def test_stretches_of_a_source_may_be_looked_through_apart(
    sources: list[list[str]], sets: list[list[str]], size: int, stretch: int
) -> None:
    data, tests = (
        Corpus({name: texts_of(texts, name=name) for name, texts in named(parts, prefix).items()})
        for parts, prefix in ((sources, "s"), (sets, "t"))
    )
    rule = Rule(shingle_size=size)
    found = []
    for number, (name, texts) in enumerate(data.sources.items()):
        for first in range(0, len(texts), stretch):
            rows, index = range(first, min(first + stretch, len(texts))), index_of(tests, rule, 0.5, 1)
            start = int(data.starts[number])
            found.append(look_through(index, texts, rows, name=name, source=number, start=start))
    apart = merged(found, index_of(tests, rule, 0.5, 1), data, tests)
    assert same(apart, contamination(named(sources, "s"), named(sets, "t"), shingle_size=size, threshold=0.5))


@given(sources=PARTS, sets=PARTS, rule=RULES)
def test_more_documents_contain_no_less(sources: list[list[str]], sets: list[list[str]], rule: dict) -> None:
    part = contamination(named(sources[:1], "s"), named(sets, "t"), **rule)
    whole = contamination(named(sources, "s"), named(sets, "t"), **rule)
    for name in whole.evaluation:
        assert (whole.containment[name] >= part.containment[name]).all()
    joined = contamination({"s": [text for texts in sources for text in texts]}, named(sets, "t"), **rule)
    for name in whole.evaluation:
        assert np.array_equal(whole.containment[name], joined.containment[name])


@given(sources=PARTS, sets=PARTS, size=st.integers(1, 3), threshold=st.sampled_from([0.25, 0.5, 0.8, 1.0]))
def test_whatever_is_alike_is_contained(
    sources: list[list[str]], sets: list[list[str]], size: int, threshold: float
) -> None:
    """Shared shingles are at least as large a share of one set as of the union; empty documents aside."""
    data, tests = (
        named(sources, "s"),
        {name: [t for t in texts if t.split()] for name, texts in named(sets, "t").items()},
    )
    alike = overlap_matrix(data, tests, shingle_size=size, threshold=threshold).counts
    found = contamination(data, tests, shingle_size=size, threshold=threshold)
    n = len(data)
    assert (found.containing >= alike[:n, n:]).all()
    assert (found.contaminated >= alike[n:, :n].T).all()
