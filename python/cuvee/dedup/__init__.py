"""Near-duplicates: found by MinHash and banded LSH, verified by the exact Jaccard similarity of shingles.

    >>> docs = ["The cat sat on the mat", "the cat  sat on the mat", "the cat sat on the red mat", "a dog"]
    >>> found = near_duplicates(docs, shingle_size=2, threshold=0.5)
    >>> found.pairs.tolist(), found.similarity.round(2).tolist(), found.kept.tolist()
    ([[0, 1], [0, 2], [1, 2]], [1.0, 0.57, 0.57], [False, False, True, True])
    >>> estimate_near_duplicate_rate(docs, shingle_size=2)
    0.5

docs/dedup.md has the definitions and the guarantees.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from ..checks import as_choice, as_int, as_name
from ..errors import CuveeError
from .comparison import Comparison, Corpus, Progress, as_progress, default_threads
from .containment import Contamination, as_share, contaminate
from .local import compare
from .result import Keep, NearDuplicates, Overlap, has_near_duplicate, near_duplicates_of, overlap_of
from .rule import Rule, Shingle
from .texts import has_columns, texts_of
from .workspace import workspace

__all__ = [
    "Contamination",
    "NearDuplicates",
    "Overlap",
    "Rule",
    "contamination",
    "estimate_near_duplicate_rate",
    "near_duplicates",
    "overlap_matrix",
]

NAME = "corpus"  # of documents that belong to no source


def estimate_near_duplicate_rate(
    corpus: Iterable[str],
    *,
    shingle_size: int = 5,
    num_hashes: int = 64,
    threshold: float = 0.8,
    seed: int = 0,
) -> float:
    """Return the share of documents, 0..1, that have at least one verified near-duplicate.

    Args:
        corpus: documents: strings, a dataset, or anything that `near_duplicates` takes.
        shingle_size: words of a shingle. A document that is shorter is one shingle; an empty one matches only another
            empty one.
        num_hashes: entries of a MinHash signature, which only finds the pairs to verify; more are taken where these
            would miss more than one in a thousand.
        threshold: least Jaccard similarity, in [0.01, 1]; or 0, which every other document meets that is not empty.
        seed: of the MinHash.

    Raises:
        CuveeError: a setting is out of its range.
        SourceError: a document is no string.
    """
    everything = isinstance(threshold, Real) and not isinstance(threshold, bool) and threshold == 0
    rule = Rule(threshold=1.0 if everything else threshold, shingle_size=shingle_size, num_hashes=num_hashes, seed=seed)
    comparison = _compared({NAME: corpus}, rule)[0]
    if comparison.documents == 0:
        return 0.0
    if not everything:
        return float(has_near_duplicate(comparison).mean())
    empty = int((comparison.shingles == 0).sum())
    groups = (empty, comparison.documents - empty)
    return sum(group for group in groups if group > 1) / comparison.documents


def near_duplicates(
    corpus: Iterable[Any],
    *,
    threshold: float = 0.8,
    shingle: Shingle = "words",
    shingle_size: int = 5,
    lowercase: bool = True,
    num_hashes: int = 64,
    seed: int = 0,
    keep: Keep = "longest",
    column: str | None = None,
    threads: int | None = None,
    work_folder: str | os.PathLike[str] | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
) -> NearDuplicates:
    """Return the near-duplicates among documents: verified pairs, clusters, and the one of each cluster that stays.

    The result does not depend on the order of the documents, the number of threads or the process; of a pair just at
    the threshold it misses at most one in a thousand, of more similar ones far fewer, and it has no false ones.

    Args:
        corpus: strings in a list or tuple; a `datasets.Dataset` or other map-style rows; a pyarrow array of strings; or
            an iterable of strings, which is read once and kept in a file meanwhile.
        threshold: least Jaccard similarity of the sets of shingles, in [0.01, 1].
        shingle: "words", or "characters".
        shingle_size: how many of these are a shingle.
        lowercase: whether case is forgotten.
        num_hashes: entries of a MinHash signature; see `Rule.bands`.
        seed: of the MinHash.
        keep: which document of a cluster stays: the "longest", in shingles with repeats, which no order of the
            documents changes (of equal texts the first); or the "first".
        column: of a dataset or rows.
        threads: to work with; None is all cores this process may use.
        work_folder: folder for files, from which a comparison that was stopped goes on. None is a temporary one.
        memory_limit: bytes of arrays in memory, beyond which they go to files; None is half of what is free. About
            100 bytes a document come on top.
        progress: called with (stage, done, of how many).

    Raises:
        CuveeError: a setting is out of its range.
        SourceError: a document is no string.
        StateError: the work folder is that of other documents or settings.
    """
    rule = Rule(
        threshold=threshold,
        shingle=shingle,
        shingle_size=shingle_size,
        lowercase=lowercase,
        num_hashes=num_hashes,
        seed=seed,
    )
    as_choice(keep, "keep", ("longest", "first"), CuveeError)
    comparison, _ = _compared(
        {NAME: corpus},
        rule,
        column=column,
        threads=threads,
        folder=work_folder,
        memory=memory_limit,
        progress=progress,
    )
    return near_duplicates_of(comparison, keep)


def overlap_matrix(
    sources: Mapping[str, Iterable[Any]],
    evaluation: Mapping[str, Iterable[Any]] | None = None,
    *,
    threshold: float = 0.8,
    shingle: Shingle = "words",
    shingle_size: int = 5,
    lowercase: bool = True,
    num_hashes: int = 64,
    seed: int = 0,
    column: str | None = None,
    threads: int | None = None,
) -> Overlap:
    """Return how many documents of each source have a near-duplicate in each other one, and in their own.

    Args:
        sources: name to documents; anything that `near_duplicates` takes.
        evaluation: the same for evaluation sets, whose names come after the sources': row i, column j of the result is
            then the contamination of evaluation set j as source i sees it, and the other way round.
        threshold: this and all others as in `near_duplicates`.
        shingle: what a shingle is made of.
        shingle_size: how many of these.
        lowercase: whether case is forgotten.
        num_hashes: entries of a MinHash signature.
        seed: of the MinHash.
        column: of datasets and rows.
        threads: to work with.

    Raises:
        CuveeError: a setting is out of its range, a name is none or given twice, or there is nothing to compare.
        SourceError: a document is no string.
    """
    rule = Rule(
        threshold=threshold,
        shingle=shingle,
        shingle_size=shingle_size,
        lowercase=lowercase,
        num_hashes=num_hashes,
        seed=seed,
    )
    sets = {} if evaluation is None else evaluation
    _check_names(sources, sets)
    if not sources and evaluation is None:
        raise CuveeError("sources must have documents of at least one source, but got {}")
    comparison, corpus = _compared({**sources, **sets}, rule, column=column, threads=threads)
    return overlap_of(comparison, list(corpus.sources), corpus.starts)


def contamination(
    sources: Mapping[str, Iterable[Any]],
    evaluation: Mapping[str, Iterable[Any]],
    *,
    threshold: float = 0.8,
    shingle: Shingle = "words",
    shingle_size: int = 5,
    lowercase: bool = True,
    column: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Contamination:
    """Return which evaluation documents lie within documents of sources, however long these are.

    Of each evaluation document: the largest share of its distinct shingles that any one document has, exactly, and the
    first document that has it. Documents are read once, block by block: memory is that of the evaluation sets and of
    what is found. The result does not depend on the number of threads.

        >>> page = "Much else. " * 99 + "How many legs does a spider have? Eight, as all. " + "And more. " * 99
        >>> found = contamination({"web": ["short", page]}, {"test": ["how many legs does a spider have?", "why?"]})
        >>> found.containment["test"].tolist(), found.match["test"].tolist(), found.rows("web").tolist()
        ([1.0, 0.0], [[0, 1], [-1, -1]], [1])

    Args:
        sources: name to documents; anything that `near_duplicates` takes.
        evaluation: the same for evaluation sets.
        threshold: least share of its shingles, in (0, 1], that a document must have to contain an evaluation document.
        shingle: what a shingle is made of.
        shingle_size: how many of these. An evaluation document that is shorter is one shingle, which only a whole
            document is; an empty one is never contained.
        lowercase: whether case is forgotten.
        column: of datasets and rows.
        threads: to work with.
        progress: called with (stage, done, of how many).

    Raises:
        CuveeError: a setting is out of its range, or a name is given twice.
        SourceError: a document is no string.
    """
    rule = Rule(shingle=shingle, shingle_size=shingle_size, lowercase=lowercase)
    share, workers = as_share(threshold, "threshold"), default_threads(threads)
    as_progress(progress)
    _check_names(sources, evaluation)
    _check_column(column, [*sources.values(), *evaluation.values()])
    with workspace(None, None) as space:
        documents, sets = (_corpus(data, column, space.folder) for data in (sources, evaluation))
        return contaminate(documents, sets, rule, share=share, threads=workers, progress=progress)


def _check_names(sources: Mapping[str, Any], evaluation: Mapping[str, Any]) -> None:
    for name, given in (("sources", sources), ("evaluation", evaluation)):
        if not isinstance(given, Mapping):
            raise CuveeError(f"{name} must be a mapping of names to documents, but got a {type(given).__name__}")
    for given, what in ((sources, "source"), (evaluation, "evaluation set")):
        for name in given:
            as_name(name, CuveeError, of=what)
    twice = sorted(set(sources) & set(evaluation))
    if twice:
        raise CuveeError(f"evaluation must have other names than sources, but got {twice} in both")


def _check_column(column: str | None, data: Iterable[Any]) -> None:
    if column is not None and not any(map(has_columns, data)):
        raise CuveeError(f"column must be left out where documents are strings and not rows, but got {column!r}")


def _corpus(data: Mapping[str, Any], column: str | None, spool: Path | None) -> Corpus:
    return Corpus({name: texts_of(texts, name=name, column=column, spool=spool) for name, texts in data.items()})


def _compared(
    data: Mapping[str, Any],
    rule: Rule,
    *,
    column: str | None = None,
    threads: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
) -> tuple[Comparison, Corpus]:
    if memory is not None:
        as_int(memory, "memory_limit", 0, 2**63, CuveeError)
    workers = default_threads(threads)
    as_progress(progress)
    _check_column(column, data.values())
    with workspace(folder, memory) as space:
        corpus = _corpus(data, column, None if space.keeps else space.folder)  # nothing goes on from a stream
        return compare(corpus, rule, workspace=space, threads=workers, progress=progress), corpus
