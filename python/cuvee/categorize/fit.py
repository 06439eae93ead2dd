"""Puts rows into categories by k-means over embeddings, the same for the same seed; other rows follow the fit."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import xxh3_128
from ..cache import cache_folder, write_atomically
from ..checks import as_int
from ..errors import CuveeError
from .config import AutoCategorizeConfig, as_config
from .embeddings import INSTALL, Embedder
from .texts import Texts, top_terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..sources.schemas import Rows

FORMAT = 1  # of the cached files; up when the same vectors would be grouped otherwise
MANY = 100_000  # rows above which k-means goes by mini-batches
BLOCK = 65_536  # vectors compared with the centres at a time


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Categories:
    """The categories of a dataset's rows.

    Attributes:
        names: of the categories, sorted, the largest first.
        short_names: the names without their terms: prefix and number.
        terms: of each category, the words that tell it from the others.
        labels: int32 of shape (n,), each row's category.
        centres: float32 of shape (K, d), the means that rows are nearest to.
    """

    names: tuple[str, ...]
    short_names: tuple[str, ...]
    terms: tuple[tuple[str, ...], ...]
    labels: NDArray[np.int32]
    centres: NDArray[np.float32]
    embedder: Embedder
    config: AutoCategorizeConfig

    def rows(self, name: str) -> NDArray[np.int64]:
        """Return the numbers of a category's rows, in order."""
        return np.flatnonzero(self.labels == self.names.index(name))

    def labels_of(self, data: Rows, *, what: str = "other rows") -> NDArray[np.int32]:
        """Return the categories of other rows: that whose centre is nearest; int32 of shape (n,).

        Args:
            data: rows with the same column.
            what: what they are, for the progress bar.

        Raises:
            CuveeError: as `categorize`.
        """
        return _nearest(self.embedder.embed(Texts(data, self.config), what=what), self.centres)


def categorize(
    data: Rows, config: AutoCategorizeConfig | Mapping[str, Any] | None = None, *, seed: int = 42
) -> Categories:
    """Put rows into categories by what their texts are about.

    The same rows, settings, seed and model give the same categories. Both embeddings and categories are kept in the
    cache folder under the rows' fingerprint; of several processes one computes them and the others wait for it.

    Args:
        data: map-style rows.
        config: settings; None for the defaults.
        seed: of k-means, at least 0.

    Raises:
        CuveeError: if a setting is wrong, or the column, a package or the model is missing.
    """
    from filelock import FileLock

    settings = as_config(config)
    seed = as_int(seed, "seed", 0, 2**63, CuveeError)
    texts, embedder = Texts(data, settings), Embedder(settings)
    content = texts.identity()
    if content is None:
        return _made(texts, embedder, settings, seed)
    path = _path(content, embedder, settings, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        kept = _kept(path, texts, embedder, settings)
        if kept is not None:
            return kept
        made = _made(texts, embedder, settings, seed)
        _keep(path, made)
    return made


def _made(texts: Texts, embedder: Embedder, config: AutoCategorizeConfig, seed: int) -> Categories:
    vectors = embedder.embed(texts, what="rows")
    centres = _centres(vectors, config.categories_of(len(texts)), config, seed)
    labels = _nearest(vectors, centres)
    sizes = np.bincount(labels, minlength=len(centres))
    used, first = np.unique(labels, return_index=True)
    order = used[np.lexsort((first, -sizes[used]))]  # the largest first, then the one that begins first
    place = np.zeros(len(centres), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    labels = place[labels]
    return _named(labels, centres[order], top_terms(texts, labels, len(order)), embedder, config)


def _named(
    labels: NDArray[np.int32],
    centres: NDArray[np.float32],
    terms: list[tuple[str, ...]],
    embedder: Embedder,
    config: AutoCategorizeConfig,
) -> Categories:
    digits = len(str(len(terms) - 1))  # so that names sort by number
    short = tuple(f"{config.category_prefix}_{number:0{digits}d}" for number in range(len(terms)))
    return Categories(
        names=tuple("_".join([name, *words]) for name, words in zip(short, terms, strict=True)),
        short_names=short,
        terms=tuple(terms),
        labels=labels,
        centres=centres,
        embedder=embedder,
        config=config,
    )


def _centres(
    vectors: NDArray[np.float32], categories: int, config: AutoCategorizeConfig, seed: int
) -> NDArray[np.float32]:
    """Return the centres that k-means finds, float32 of shape (K, d)."""
    try:
        from sklearn.cluster import KMeans, MiniBatchKMeans
        from sklearn.exceptions import ConvergenceWarning
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise CuveeError(
            f"categories need the package scikit-learn, but {error.name} is not installed; {INSTALL}"
        ) from None
    kind, starts = (KMeans, 10) if len(vectors) <= MANY else (MiniBatchKMeans, 3)
    settings = {"n_init": starts, "random_state": seed % 2**32, **config.cluster_kwargs}
    try:
        kmeans = kind(n_clusters=categories, **settings)
        with warnings.catch_warnings(), threadpool_limits(limits=1):  # threads would add up in another order
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct texts than categories
            kmeans.fit(vectors)
    except TypeError as error:
        raise CuveeError(f"cluster_kwargs must be arguments of {kind.__name__}, but got {error}") from None
    centres: NDArray[np.float32] = kmeans.cluster_centers_.astype(np.float32)
    return centres


def _nearest(vectors: NDArray[np.float32], centres: NDArray[np.float32]) -> NDArray[np.int32]:
    """Return the number of the centre nearest to each vector."""
    half = (centres.astype(np.float64) ** 2).sum(axis=1) / 2
    labels = np.empty(len(vectors), dtype=np.int32)
    for start in range(0, len(vectors), BLOCK):
        block = vectors[start : start + BLOCK].astype(np.float64)
        labels[start : start + BLOCK] = (block @ centres.T - half).argmax(axis=1)
    return labels


def _path(content: str, embedder: Embedder, config: AutoCategorizeConfig, seed: int) -> Path:
    numbers = [config.num_categories, config.min_categories, config.max_categories, config.cluster_algo.lower()]
    settings = [FORMAT, content, embedder.identity(), *numbers, dict(config.cluster_kwargs), seed]
    key = json.dumps(settings, sort_keys=True, default=str)
    return cache_folder() / "categories" / f"{xxh3_128(key.encode())}.npz"


def _keep(path: Path, made: Categories) -> None:
    file = io.BytesIO()
    terms = json.dumps(made.terms).encode()
    np.savez(file, labels=made.labels, centres=made.centres, terms=np.frombuffer(terms, np.uint8))
    try:
        write_atomically(path, file.getvalue())
    except OSError as error:
        warnings.warn(f"categories could not be kept and will be made again: {error}", stacklevel=3)


def _kept(path: Path, texts: Texts, embedder: Embedder, config: AutoCategorizeConfig) -> Categories | None:
    """Return what the cache has, None if that is nothing or broken."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            labels, centres, terms = file["labels"], file["centres"], json.loads(file["terms"].tobytes())
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    if labels.dtype != np.int32 or labels.shape != (len(texts),) or len(terms) != len(centres):
        return None
    return _named(labels, centres, [tuple(words) for words in terms], embedder, config)
