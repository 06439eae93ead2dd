"""Near-duplicates from texts to clusters, and tests within documents: rate beside others, what is missed, memory."""

from __future__ import annotations

import numpy as np

from cuvee.dedup import Contamination, NearDuplicates, contamination, near_duplicates
from harness import OURS, Case, Report, main, on_cores, peak_growth_megabytes, resident_megabytes, time_in_turns
from peers import load
from peers.python_shingles import exact_containments, exact_pairs

PEERS = ("rensa_lsh", "datasketch_lsh")
VOCABULARY = 20_000
GROWTH_ROUNDS = 3
MOST_EDITS = 8  # words replaced in a copy: similarities from 1 down to about 0.65


def corpus(n: int, *, words: int = 200, copies: float = 0.1, seed: int = 11) -> list[str]:
    """Return n documents of Zipf-distributed words, a share of which are edited copies of others."""
    random = np.random.default_rng(seed)
    cumulated = np.cumsum(1.0 / np.arange(1, VOCABULARY + 1))
    names = np.array([f"w{word:x}" for word in range(VOCABULARY)], dtype=object)
    originals = n - int(n * copies)
    copied = random.choice(originals, size=n - originals, replace=False)
    is_copied = np.isin(np.arange(originals), copied)
    texts, kept = [], {}
    for i, length in enumerate(random.integers(words - 40, words + 41, size=originals).tolist()):
        drawn = np.searchsorted(cumulated, random.random(length) * cumulated[-1])
        texts.append(" ".join(names[drawn].tolist()))
        if is_copied[i]:
            kept[i] = drawn.astype(np.uint16)
    for original in copied.tolist():
        text = kept.pop(original)
        at = random.choice(len(text), size=int(random.integers(0, MOST_EDITS + 1)), replace=False)
        text[at] = random.integers(0, VOCABULARY, size=len(at))
        texts.append(" ".join(names[text].tolist()))
    return [texts[i] for i in random.permutation(n)]


def compare_with_peers(report: Report, n: int) -> None:
    """Time texts to clusters on one core, and count what is missed and invented."""
    documents = corpus(n)
    truth = exact_pairs(documents)
    found = {(i, j) for i, j in near_duplicates(documents, threads=1).pairs.tolist()}
    cases = {OURS: Case(run=lambda: near_duplicates(documents, threads=1), items=n)}
    for name in PEERS:
        peer = load(name, report.skipped)
        if peer is not None:
            cases |= {label: Case(run=run, items=n, rounds=1) for label, run in peer.runs(documents).items()}
    report.compare(f"near-duplicates/{n:,} documents", cases, unit="ns/document")
    report.value(f"near-duplicates/{n:,} documents/pairs missed", len(truth - found) / max(len(truth), 1), "share")
    report.value(f"near-duplicates/{n:,} documents/pairs invented", len(found - truth) / max(len(found), 1), "share")


def measure_growth(report: Report, n: int) -> None:
    """Time n documents beside a tenth as many, and measure memory, on two cores.

    The tenth is a corpus of its own: in a part of the documents the share that has a copy would be smaller too.
    """
    documents = corpus(n)

    def run(texts: list[str]) -> NearDuplicates:
        return near_duplicates(texts, threads=2)

    with on_cores(2):
        growth = peak_growth_megabytes(lambda: run(documents))
    report.value(f"near-duplicates, memory/{n:,} documents/beside the texts", growth, "MB")
    report.value(f"near-duplicates, memory/{n:,} documents/with the texts", resident_megabytes("VmHWM"), "MB")
    tenth = corpus(n // 10)
    seconds = time_in_turns(
        {
            "all": Case(run=lambda: run(documents), items=n, rounds=GROWTH_ROUNDS, cores=2),
            "a tenth": Case(run=lambda: run(tenth), items=len(tenth), rounds=GROWTH_ROUNDS, cores=2),
        },
        rounds=GROWTH_ROUNDS,
    )
    each = {"all": min(seconds["all"]) / n, "a tenth": min(seconds["a tenth"]) / len(tenth)}
    name = f"near-duplicates, growth/{n:,} documents"
    report.value(f"{name}/a document", each["all"] * 1e9, "ns")
    report.value(f"{name}/a document over one of a tenth of them", each["all"] / each["a tenth"], "times")


def quoting_corpus(n: int, tests: list[str], *, quoted: int) -> list[str]:
    """Return n documents, into which every `quoted`-th of the tests was inserted somewhere."""
    documents, random = corpus(n), np.random.default_rng(12)
    for test in tests[::quoted]:
        at = int(random.integers(n))
        words = documents[at].split()
        cut = int(random.integers(len(words)))
        documents[at] = " ".join([*words[:cut], test, *words[cut:]])
    return documents


def look_for_tests(report: Report, n: int, tests: int) -> None:
    """Time the search for tests within documents on one core, beside sets in Python, and count what is missed."""
    wanted = corpus(tests, words=60, copies=0, seed=13)
    documents = quoting_corpus(n, wanted, quoted=10)

    def ours() -> Contamination:
        return contamination({"web": documents}, {"test": wanted}, threads=1)

    name = f"contamination/{n:,} documents, {tests:,} tests"
    cases = {
        OURS: Case(run=ours, items=n),
        "sets in Python": Case(run=lambda: exact_containments(documents, wanted), items=n, rounds=1),
    }
    report.compare(name, cases, unit="ns/document")
    off = np.abs(ours().containment["test"] - exact_containments(documents, wanted)).max()
    report.value(f"{name}/largest error of a containment", off, "share")
    report.value(f"{name}/memory beside the texts", peak_growth_megabytes(ours), "MB")
    frame = " ".join(f"frame{i}" for i in range(40))  # of a chat's template, say
    framed = {"web": [f"{frame} {text}" for text in documents]}
    case = Case(run=lambda: contamination(framed, {"test": [f"{frame} {t}" for t in wanted]}, threads=1), items=n)
    report.compare(f"{name}, all of one frame", {OURS: case}, unit="ns/document")


def measure(report: Report) -> None:
    """Measure near-duplicates and contamination."""
    compare_with_peers(report, 2_000 if report.quick else 50_000)
    look_for_tests(report, *((2_000, 500) if report.quick else (50_000, 10_000)))
    measure_growth(report, 10_000 if report.quick else 1_000_000)


if __name__ == "__main__":
    main(measure)
