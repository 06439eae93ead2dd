"""How rows are put into categories: column, model, number of categories."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ..checks import as_choice, as_int, as_name, nearest
from ..errors import CuveeError

MOST_CATEGORIES = 65_536
OTHER_NAMES = {"text_field": "input_column"}  # that users of other tools write


@dataclass(frozen=True, slots=True)
class AutoCategorizeConfig:
    """What `categorize` goes by.

    Args:
        input_column: column of texts, or of lists of tokens.
        num_categories: their number, at most that of rows; None for the square root of the number of rows, within
            `min_categories` and `max_categories`.
        min_categories: fewest.
        max_categories: most.
        model_name: a sentence-transformers model: a folder, or the name of one that lies in the Hub's cache on this
            machine or came with an installed package. Nothing is downloaded.
        batch_size: texts that the model reads at a time.
        cluster_algo: "kmeans"; above 100,000 rows by mini-batches.
        category_prefix: beginning of the categories' names.
        model_kwargs: as transformers takes them when it loads the model.
        cluster_kwargs: as scikit-learn's KMeans takes them.
        tokenizer: turns lists of tokens into texts, by `batch_decode`.

    Raises:
        CuveeError: naming the setting and the value.
    """

    input_column: str = "text"
    num_categories: int | None = None
    min_categories: int = 2
    max_categories: int = 15
    model_name: str = "sentence-transformers/all-MiniLM-L6-v2"
    batch_size: int = 64
    cluster_algo: str = "kmeans"
    category_prefix: str = "auto_category"
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    cluster_kwargs: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: Any = None

    def __post_init__(self) -> None:
        for name in ("input_column", "model_name"):
            if not (isinstance(getattr(self, name), str) and getattr(self, name)):
                raise CuveeError(f"{name} must be a name, but got {getattr(self, name)!r}")
        as_name(self.category_prefix, CuveeError)
        if self.num_categories is not None:
            as_int(self.num_categories, "num_categories", 1, MOST_CATEGORIES, CuveeError)
        as_int(self.max_categories, "max_categories", 1, MOST_CATEGORIES, CuveeError)
        as_int(self.min_categories, "min_categories", 1, self.max_categories + 1, CuveeError)
        as_int(self.batch_size, "batch_size", 1, 2**20, CuveeError)
        if not isinstance(self.cluster_algo, str):
            raise CuveeError(f"cluster_algo must be 'kmeans', but got {self.cluster_algo!r}")
        as_choice(self.cluster_algo.lower(), "cluster_algo", ("kmeans",), CuveeError)
        for name in ("model_kwargs", "cluster_kwargs"):
            if not isinstance(getattr(self, name), Mapping):
                raise CuveeError(f"{name} must be a dict of arguments, but got {getattr(self, name)!r}")

    def categories_of(self, rows: int) -> int:
        """Return how many categories so many rows are put into."""
        if self.num_categories is not None:
            return min(self.num_categories, rows)
        return min(max(math.isqrt(rows), self.min_categories), self.max_categories, rows)


def as_config(value: AutoCategorizeConfig | Mapping[str, Any] | None) -> AutoCategorizeConfig:
    """Return settings, given as such, as a dict, or not at all.

    Raises:
        CuveeError: if there is no such setting, or a value is out of its range.
    """
    if isinstance(value, AutoCategorizeConfig):
        return value
    if value is None:
        return AutoCategorizeConfig()
    if not isinstance(value, Mapping):
        raise CuveeError(f"auto_categorize_config must be a dict or AutoCategorizeConfig, but got {value!r:.60}")
    known = [entry.name for entry in fields(AutoCategorizeConfig)]
    settings: dict[str, Any] = {}
    for given, setting in value.items():
        name = OTHER_NAMES.get(given, given)
        if name not in known:
            raise CuveeError(
                f"auto_categorize_config must have keys among {known}, but got {given!r}{nearest(given, known)}"
            )
        if name in settings:
            raise CuveeError(f"auto_categorize_config must give {name!r} once, but got it as {given!r} too")
        settings[name] = setting
    return AutoCategorizeConfig(**settings)
