"""Contamination: evaluation documents within documents of sources, of every size, form and number."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from cuvee.dedup import contamination
from cuvee.errors import CuveeError, SourceError
from near_duplicates import best_containments, edited_corpus

QUESTION = "how many litres of water does a bath of two metres by one hold when it is full"
ANSWER = "as many as the builder says"
PAGE = " ".join(f"word{i}" for i in range(5000))
HALVES = PAGE[: len(PAGE) // 2], PAGE[len(PAGE) // 2 :]


def test_a_question_is_found_within_a_long_page() -> None:
    pages = [PAGE, f"{HALVES[0]} {QUESTION}? {HALVES[1]}", f"{HALVES[0]} {QUESTION.upper()} {HALVES[1]}"]
    found = contamination({"web": pages}, {"test": [ANSWER, QUESTION]})
    shingles = len(QUESTION.split()) - 4
    assert found.containment["test"].tolist() == [0, 1]
    assert found.match["test"].tolist() == [[-1, -1], [0, 2]]
    assert found.quotes.tolist() == [[0, 1, 0, 1], [0, 2, 0, 1]]
    assert found.shares.tolist() == [(shingles - 1) / shingles, 1]  # the mark of the one belongs to its last word
    assert found.contaminated.tolist() == [[1]]
    assert found.containing.tolist() == [[2]]
    assert found.rows("web").tolist() == [1, 2]
    assert contamination({"web": pages}, {"test": [QUESTION]}, threshold=1).rows("web").tolist() == [2]
    assert contamination({"web": pages}, {"test": [QUESTION]}, threshold=1, lowercase=False).rows("web").tolist() == []


def test_counts_are_of_each_source_and_set() -> None:
    sources = {"web": [QUESTION, f"{PAGE} {QUESTION}", ANSWER], "books": [PAGE, f"{ANSWER} {QUESTION}"], "none": []}
    found = contamination(sources, {"one": [QUESTION, QUESTION, ANSWER], "two": [PAGE], "three": []})
    assert found.contaminated.tolist() == [[3, 1, 0], [3, 1, 0], [0, 0, 0]]
    assert found.containing.tolist() == [[3, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert found.quotes.tolist() == [
        [0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 2, 0, 2], [1, 0, 1, 0], [1, 1, 0, 0],
    ]  # fmt: skip
    assert found.match["one"].tolist() == [[0, 0], [0, 0], [0, 2]]
    with pytest.raises(CuveeError, match=r"source must be one of \['web', 'books', 'none'\], but got 'one'"):
        found.rows("one")


def test_a_later_source_is_counted_though_an_earlier_one_has_more() -> None:
    words = QUESTION.split()
    cut = " ".join(words[:-2])
    found = contamination({"first": [QUESTION], "second": [cut, cut]}, {"test": [QUESTION]})
    assert found.contaminated.tolist() == [[1], [1]]
    assert found.containing.tolist() == [[1], [2]]
    assert found.match["test"].tolist() == [[0, 0]]
    assert found.shares.tolist() == [1, (len(words) - 6) / (len(words) - 4), (len(words) - 6) / (len(words) - 4)]


@pytest.mark.parametrize("shingle", ["words", "characters"])
def test_short_ones_are_found_as_a_whole_and_empty_ones_never(shingle: str) -> None:
    tests = ["yes", "", " \n", "a b c d", "a b c d e", "yes"]
    documents = ["yes it is so and no more", "", "A  B c D", "x a b c d e y", "yes"]
    size = 5 if shingle == "words" else 9
    found = contamination({"web": documents}, {"test": tests}, shingle=shingle, shingle_size=size, threshold=1e-9)
    assert found.containment["test"].tolist() == [1, 0, 0, 1, 1, 1]
    assert found.match["test"][:, 1].tolist() == [4, -1, -1, 2, 3, 4]
    assert found.short["test"].tolist() == [True, False, False, True, False, True]


def test_the_threshold_is_met_by_what_equals_it() -> None:
    test = " ".join(f"w{i}" for i in range(14))  # 10 shingles
    document = " ".join(f"w{i}" for i in range(11))  # 7 of them, and 7 / 10 is less than a double's 0.7000000000000001
    for threshold, met in ((0.7, 1), (np.nextafter(0.7, 1), 0), (0.1, 1), (1, 0)):
        assert contamination({"a": [document]}, {"b": [test]}, threshold=threshold).containing.tolist() == [[met]]
    third = contamination({"a": ["a b"]}, {"b": ["a c d"]}, shingle_size=1, threshold=1 / 3)
    assert third.containing.tolist() == [[1]]


def test_repeats_count_once() -> None:
    found = contamination({"a": ["b b a b b", "a a"]}, {"t": ["a a a b a a a"]}, shingle_size=2)
    assert found.containment["t"].tolist() == [2 / 3]  # of "a a", "a b" and "b a" the first has two
    assert found.match["t"].tolist() == [[0, 0]]


def test_ten_thousand_equal_tests_are_one() -> None:
    found = contamination({"web": [PAGE, QUESTION] * 2000}, {"test": [QUESTION] * 10_000, "again": [QUESTION]})
    assert found.contaminated.tolist() == [[10_000, 1]]
    assert found.containing.tolist() == [[2000, 2000]]
    assert (found.match["test"] == [0, 1]).all()
    assert np.unique(found.quotes[:, 3]).tolist() == [0]


@pytest.mark.parametrize("common", [40, 20, 10])
@pytest.mark.parametrize("had", [40, 25])
def test_a_frame_that_all_have_is_not_quadratic(common: int, had: int) -> None:
    """Documents and tests begin with the same words: what is counted stays right, and all pairs are not looked at."""
    frame = [f"f{i}" for i in range(common)]
    tests = [" ".join([*frame, *(f"q{i}x{j}" for j in range(8))]) for i in range(3000)]
    documents = [" ".join([*frame[:had], *(f"d{i}x{j}" for j in range(8))]) for i in range(9000)]
    documents[7777] = f"before {tests[2999]} after"
    found = contamination({"web": documents, "again": documents[:3]}, {"test": tests}, threads=2)
    share, most = ((had_of_it - 4) / (common + 4) for had_of_it in (min(common, had), common))
    assert found.containment["test"].tolist() == [most] * 2999 + [1]
    assert found.match["test"].tolist() == [[0, 7777 if most > share else 0]] * 2999 + [[0, 7777]]
    assert found.contaminated.tolist() == [[3000 if most >= 0.8 else 1], [3000 if share >= 0.8 else 0]]
    assert found.containing.tolist() == ([[9000], [3]] if share >= 0.8 else [[1], [0]])


def test_one_giant_document_has_all() -> None:
    tests = edited_corpus(400, words=30)
    found = contamination({"web": ["small", " ".join(tests * 3)]}, {"test": tests})
    assert (found.containment["test"] == 1).all()
    assert (found.match["test"] == [0, 1]).all()
    assert found.quotes.tolist() == [[0, 1, 0, 0]]


def test_many_documents_give_what_all_pairs_give() -> None:
    tests = edited_corpus(80, words=40, edits=20, seed=2)
    documents = [f"{page} {test}" for page, test in zip(edited_corpus(80), tests[40:] + tests[:40], strict=True)]
    documents += edited_corpus(300, words=60)
    best = best_containments([documents[:50], documents[50:]], tests)
    for threads in (1, 3):
        found = contamination({"a": documents[:50], "b": documents[50:]}, {"test": tests}, threads=threads)
        assert found.containment["test"].tolist() == [share for share, _ in best]
        assert list(map(tuple, found.match["test"].tolist())) == [place for _, place in best]


FORMS: dict[str, Callable[[list[str]], object]] = {
    "tuple": tuple,
    "rows": lambda texts: [{"text": text} for text in texts],
    "stream": iter,
    "array": lambda texts: pytest.importorskip("pyarrow").array(texts),
    "dataset": lambda texts: pytest.importorskip("datasets").Dataset.from_dict({"body": texts}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_documents_gives_the_same(form: str) -> None:
    documents = [ANSWER, f"{PAGE} é 日本 \U0001f600 {QUESTION}", "", f"É\u2003日本\n \U0001f600 {QUESTION}"]
    tests = [f"日本 \U0001f600 {QUESTION}", "é 日本 \U0001f600 HOW many", ""]
    found = contamination({"web": FORMS[form](documents)}, {"test": FORMS[form](tests)})  # type: ignore[dict-item]
    assert found.containment["test"].tolist() == [1, 1, 0]
    assert found.match["test"].tolist() == [[0, 1], [0, 1], [-1, -1]]
    assert found.containing.tolist() == [[2]]


@pytest.mark.parametrize("value", [0, -0.1, 1.01, math.nan, math.inf, True, "0.8", None])
def test_a_threshold_that_is_none_is_told(value: object) -> None:
    with pytest.raises(CuveeError, match="threshold must be a number above 0 and at most 1, but got "):
        contamination({"a": ["a"]}, {"b": ["a"]}, threshold=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sources", "evaluation", "error", "message"),
    [
        ({"a": ["x", None]}, {"b": ["x"]}, SourceError, "source 'a', document 1: must be a string, but got None"),
        ({"a": ["x"]}, {"b": ["x", 7]}, SourceError, "source 'b', document 1: must be a string, but got 7"),
        ({"a": ["x"]}, {"a": ["x"]}, CuveeError, r"evaluation must have other names than sources, but got \['a'\]"),
        ([["x"]], {"a": ["x"]}, CuveeError, "sources must be a mapping of names to documents, but got a list"),
        ({"a": ["x"]}, None, CuveeError, "evaluation must be a mapping of names to documents, but got a NoneType"),
        ({"a": "x"}, {"b": ["x"]}, SourceError, "documents must be in a list, dataset or stream, but got str"),
    ],
)
def test_what_is_wrong_is_told(sources: object, evaluation: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        contamination(sources, evaluation)  # type: ignore[arg-type]


def test_progress_is_told_to_the_end() -> None:
    told: list[tuple[str, int, int]] = []
    contamination({"a": ["x"] * 9000, "b": ["y"]}, {"t": ["x"]}, progress=lambda *now: told.append(now))
    assert told == [("quotes", 8192, 9001), ("quotes", 9000, 9001), ("quotes", 9001, 9001)]
