"""The categories of an online mix: what the user gave by name, put together; a single dataset put into categories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import Subset  # noqa: TID253  (whoever imports this module trains)

from .._core import xxh3_128
from ..categorize import AutoCategorizeConfig, Categories, categorize
from ..checks import nearest
from ..dataset import MixedDataset
from ..errors import CuveeError
from ..mixture import Mixture, Source
from ..sources.fingerprint import arrow_kind, fingerprint_of
from .collate import stack_rows
from .evaluation import EvaluationRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Collator = Callable[[list[Any]], Any]
    Datasets = Mapping[str, Any]

ONLY = "train"  # the name of a dataset that was given without one


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """One category: its rows, what makes batches of them, and its evaluation rows.

    `aliases` are the names it may have in what the user gives: its own, and for automatic ones that without terms.
    """

    aliases: tuple[str, ...]
    data: Any
    source: Source
    reader: MixedDataset
    collate: Collator
    collator: Collator | None
    evaluation: EvaluationRows | None = None
    templated: EvaluationRows | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.aliases[0]

    def read(self, rows: list[int]) -> list[Any]:
        """Return rows of its dataset by their numbers."""
        zeros = [0] * len(rows)
        return self.reader.rows(zeros, rows, zeros)


def categories_of(
    dataset_dict: Any, collators_dict: Any, *, config: AutoCategorizeConfig, seed: int
) -> tuple[list[Category], Categories | None]:
    """Return the categories sorted by name, and the fit if a single dataset was put into them.

    Raises:
        CuveeError: naming the argument and the category that is wrong.
    """
    datasets = named(dataset_dict, "dataset_dict")
    if not datasets:
        raise CuveeError("dataset_dict must hold datasets by category name, but got none")
    parts: list[tuple[tuple[str, ...], Any, str | None]]
    if len(datasets) > 1:
        parts = [((name,), datasets[name], fingerprint_of(datasets[name])) for name in sorted(datasets)]
        fit = None
    else:
        data = next(iter(datasets.values()))
        fit = categorize(data, config, seed=seed)
        whole, parts = fingerprint_of(data), []
        for name, short in zip(fit.names, fit.short_names, strict=True):
            rows = fit.rows(name)
            mark = None if whole is None else str(xxh3_128(f"{whole} {xxh3_128(rows.tobytes())}".encode()))
            parts.append(((name, short), part_of(data, rows), mark))
    collators = by_category(
        collators_dict, [aliases for aliases, _, _ in parts], "collators_dict", shared=fit is not None
    )
    sources = [Source(aliases[0], data, fingerprint=mark) for aliases, data, mark in parts]
    return [
        Category(
            aliases=aliases,
            data=source.data,
            source=source,
            reader=reader_of(source),
            collate=collators[aliases[0]] or partial(stack_rows, category=aliases[0]),
            collator=collators[aliases[0]],
        )
        for (aliases, _, _), source in zip(parts, sources, strict=True)
    ], fit


def with_evaluation(
    categories: list[Category],
    fit: Categories | None,
    evaluation: tuple[Any, Any],
    templated: tuple[Any, Any],
) -> list[Category]:
    """Return the categories with their evaluation rows.

    Where the categories are automatic, a single dataset of evaluation rows is put into those of the training fit; rows
    of the templated one go where the evaluation rows of the same numbers went.

    Args:
        categories: from `categories_of`, as the fit.
        fit: None if categories were given.
        evaluation: datasets and collators by category.
        templated: the same of rows with examples before them.
    """
    found, labels = _evaluation_rows(categories, fit, evaluation, "eval", None)
    examples, _ = _evaluation_rows(categories, fit, templated, "templated_eval", labels)
    return [replace(each, evaluation=found.get(each.name), templated=examples.get(each.name)) for each in categories]


def named(datasets: Any, what: str) -> dict[str, Any]:
    """Return datasets by name; a dataset by itself is called `train`."""
    if datasets is None:
        return {}
    if isinstance(datasets, Mapping):
        wrong = [name for name in datasets if not isinstance(name, str)]
        if wrong:
            raise CuveeError(f"{what} must have texts for names, but got {wrong[0]!r}")
        return dict(datasets)
    if arrow_kind(datasets) == "dataset":
        return {ONLY: datasets}
    raise CuveeError(f"{what} must be a dict of datasets by category name, but got {type(datasets).__name__}")


def by_category(
    given: Any, categories: Sequence[tuple[str, ...]], what: str, *, shared: bool = False
) -> dict[str, Any]:
    """Return what was given for each category, by its own name; None for all if nothing was.

    Args:
        given: a dict by name, or None or an empty one.
        categories: of each the names it may have.
        what: the argument's name.
        shared: whether a single value is for all categories.

    Raises:
        CuveeError: if a category has none.
    """
    if not given:
        return {aliases[0]: None for aliases in categories}
    if not isinstance(given, Mapping):
        raise CuveeError(f"{what} must be a dict by category name, but got {type(given).__name__}")
    for name, value in given.items():
        if "collators" in what and value is not None and not callable(value):
            raise CuveeError(f"{what}[{name!r}] must make a batch of rows, or be None, but got {value!r:.60}")
    found = {aliases[0]: next((given[name] for name in aliases if name in given), _Missing) for aliases in categories}
    missing = [name for name, value in found.items() if value is _Missing]
    if missing and shared and len(given) == 1:
        return dict.fromkeys(found, next(iter(given.values())))
    if missing:
        raise CuveeError(
            f"{what} must have an entry for each category {list(found)}, but got {list(given)}, without {missing}"
        )
    return found


def part_of(data: Any, rows: NDArray[np.int64]) -> Any:
    """Return some rows of a dataset, as a dataset."""
    return data.select(rows) if arrow_kind(data) == "dataset" else Subset(data, rows.tolist())


def reader_of(source: Source) -> MixedDataset:
    """Return what reads rows of a source by their numbers."""
    return MixedDataset(Mixture([source]), metadata=False)


class _Missing:
    """Stands for what was not given, where None may be."""


def _evaluation_rows(
    categories: list[Category],
    fit: Categories | None,
    given: tuple[Any, Any],
    what: str,
    labels: NDArray[np.int32] | None,
) -> tuple[dict[str, EvaluationRows], NDArray[np.int32] | None]:
    """Return evaluation rows by category, and the labels of rows that were put into categories."""
    datasets, names = named(given[0], f"{what}_dataset_dict"), [each.aliases for each in categories]
    for name, data in datasets.items():
        if data is not None and not hasattr(data, "__len__"):
            raise CuveeError(
                f"{what}_dataset_dict[{name!r}] must be a map-style dataset, but got {type(data).__name__}"
            )
    datasets = {name: data for name, data in datasets.items() if data is not None and len(data)}
    if not datasets:
        return {}, None
    single = next(iter(datasets))
    split = fit is not None and len(datasets) == 1 and single not in {name for each in names for name in each}
    if fit is not None and split:
        data = datasets[single]
        if labels is None or len(labels) != len(data):
            labels = fit.labels_of(data, what=f"{what} rows")
        rows = {name: np.flatnonzero(labels == number) for number, name in enumerate(fit.names)}
        datasets = {name: part_of(data, numbers) for name, numbers in rows.items() if len(numbers)}
    known = {name: aliases for aliases in names for name in aliases}
    for name in datasets:
        if name not in known:
            raise CuveeError(
                f"{what}_dataset_dict must have names among the categories {[each[0] for each in names]}, but got "
                f"{name!r}{nearest(name, known)}"
            )
    present = [aliases for aliases in names if any(name in datasets for name in aliases)]
    collators = by_category(given[1], present, f"{what}_collators_dict", shared=split)
    return {
        known[name][0]: EvaluationRows(
            category=known[name][0],
            rows=len(data),
            reader=reader_of(Source(known[name][0], data)),
            collate=collators[known[name][0]] or partial(stack_rows, category=known[name][0]),
        )
        for name, data in datasets.items()
    }, labels
