"""Every row of every source turned into tokens once, kept in the cache folder, and read from there as a memory map."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import time
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from .._core import xxh3_128
from ..cache import cache_folder
from ..checks import canonical_json
from ..errors import SourceError
from ..sources.schemas import Rows
from .images import open_image
from .rows import RowForm, form_of, images_of, read_rows, row_blocks

if TYPE_CHECKING:
    from rich.progress import Progress

    from .encoder import Encoded, Encoder

FORMAT = 1  # of the cached files; up when the same rows would be encoded otherwise
BLOCK = 256  # rows read and encoded at a time
LONG = 20_000  # rows from which on progress is shown
ABANDONED = 24 * 3600  # seconds without a write after which nobody is writing any more
_NO_LIMIT = 2**31 - 2
_COLUMNS = {"tokens": np.int32, "targets": np.bool_, "offsets": np.int64, "target_tokens": np.int32}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most tokens of a row to train on; None is no limit. A row over any of them is left out whole.

    Args:
        total: of prompt and response together.
        prompt: of what is not learnt.
        response: of what is learnt.
    """

    total: int | None = None
    prompt: int | None = None
    response: int | None = None

    @property
    def target_limit(self) -> int | None:
        """The most target tokens that a row within the limits can have; None without limits."""
        if self.total is None and self.prompt is None and self.response is None:
            return None
        return min([_NO_LIMIT, *(limit for limit in (self.total, self.response) if limit is not None)])


class EncodedRows:
    """The tokens of all rows of a source, as map-style rows over a memory map; any process can unpickle it.

    A row is {"input_ids": int32[n], "targets": bool[n]}: what is to be learnt, never the first token. Where the
    source has images, "images" are the row's, in RGB, fetched from the source.

    Args:
        name: the source's name.
        folder: where the files lie.
        data: the source itself, where rows have images.
        form: how its rows are read.
    """

    def __init__(self, name: str, folder: Path, *, form: RowForm, data: Rows | None = None) -> None:
        self.name = name
        self.folder = folder
        self._form = form
        self._data = data
        self._open()

    def __getstate__(self) -> dict[str, Any]:
        return {key: self.__dict__[key] for key in ("name", "folder", "_form", "_data")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._open()

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __repr__(self) -> str:
        return f"EncodedRows({self.name!r}, {len(self)} rows, {len(self._tokens)} tokens)"

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return rows by their numbers in the source.

        Raises:
            IndexError: there is no such row.
            SourceError: an image cannot be read.
        """
        if len(rows) and (min(rows) < 0 or max(rows) >= len(self)):
            raise IndexError(f"rows must be in [0, {len(self)}), but got {list(rows)}")
        found = [self._row(row) for row in rows]
        if self._form.images and self._data is not None:
            for encoded, images in zip(found, self._images(rows), strict=True):
                encoded["images"] = images
        return found

    def largest_token(self) -> int:
        """Return the largest token of all rows, -1 without any; reads them all."""
        return int(self._tokens.max(initial=-1))

    @property
    def target_tokens(self) -> NDArray[np.int32]:
        """Tokens to be learnt of each row, int32[n]."""
        return self._target_tokens

    @property
    def prompt_tokens(self) -> NDArray[np.int32]:
        """The other tokens of each row, int32[n]; a row's first token is always one of them."""
        others: NDArray[np.int64] = np.diff(self._offsets) - self._target_tokens
        return others.astype(np.int32)

    def lengths(self, limits: Limits) -> tuple[NDArray[np.int32], int | None]:
        """Return what `cuvee.Source` and `cuvee.Mixture` are to be given, so that rows over the limits are skipped.

        Returns:
            (lengths, int32[n]; max_length). A length is the row's target tokens, or max_length + 1 where the row is
            over a limit. max_length depends on the limits alone, so is the same for all sources; None without limits.
        """
        limit = limits.target_limit
        if limit is None:
            return self._target_tokens.copy(), None
        prompts, targets = self.prompt_tokens, self._target_tokens
        passes = np.ones(len(self), dtype=np.bool_)
        for tokens, most in ((prompts + targets, limits.total), (prompts, limits.prompt), (targets, limits.response)):
            if most is not None:
                passes &= tokens <= most
        return np.where(passes, targets, np.int32(limit + 1)).astype(np.int32), limit

    def _open(self) -> None:
        arrays = _mapped(self.folder)
        self._tokens, self._targets = arrays["tokens"], arrays["targets"]
        self._offsets, self._target_tokens = arrays["offsets"], arrays["target_tokens"]

    def _row(self, row: int) -> dict[str, Any]:
        span = slice(int(self._offsets[row]), int(self._offsets[row + 1]))
        return {"input_ids": self._tokens[span].copy(), "targets": self._targets[span].copy()}

    def _images(self, rows: Sequence[int]) -> Iterator[list[Any]]:
        if self._data is None or self._form.images is None:
            return
        found = read_rows(self._data, list(rows), [self._form.images], name=self.name)
        for index, row in zip(rows, found, strict=True):
            where = f"source {self.name!r}, row {index}"
            yield [open_image(image, where=where) for image in images_of(row, self._form, where=where)]


def encode(
    sources: Mapping[str, Rows], *, encoder: Encoder, fingerprints: Mapping[str, str | None]
) -> dict[str, EncodedRows]:
    """Return every row of every source as tokens, made now or found in the cache folder.

    Under several ranks one calls this first; once it is done the others call `encoded_or_none`, and this for what has
    no fingerprint.

    Args:
        sources: name to rows, each of a form that training reads.
        encoder: what turns rows into tokens.
        fingerprints: content identity of each source; what has None is kept until this process ends.

    Raises:
        SourceError: a row cannot be encoded, naming source and row, or there is no room for the tokens.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    found: dict[str, EncodedRows] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=_is_short(sources)) as progress:
        for name, data in sources.items():
            job = _Job(name=name, data=data, form=form_of(name, data), encoder=encoder)
            found[name] = job.kept(fingerprints.get(name)) or job.made(fingerprints.get(name), progress)
    return found


def encoded_or_none(
    sources: Mapping[str, Rows], *, encoder: Encoder, fingerprints: Mapping[str, str | None]
) -> dict[str, EncodedRows] | None:
    """Return what `encode` returns if all of it is in the cache folder, else None; arguments as there."""
    found: dict[str, EncodedRows] = {}
    for name, data in sources.items():
        job = _Job(name=name, data=data, form=form_of(name, data), encoder=encoder)
        kept = job.kept(fingerprints.get(name))
        if kept is None:
            return None
        found[name] = kept
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One source to be encoded."""

    name: str
    data: Rows
    form: RowForm
    encoder: Encoder

    def kept(self, fingerprint: str | None) -> EncodedRows | None:
        """Return the rows if the cache folder has all of them."""
        if fingerprint is None:
            return None
        folder = self._folder(fingerprint)
        return self._opened(folder) if _is_whole(folder, len(self.data)) else None

    def made(self, fingerprint: str | None, progress: Progress) -> EncodedRows:
        """Encode the rows and keep them, in the cache folder if the content has an identity."""
        if fingerprint is not None:
            folder = self._folder(fingerprint)
            try:
                folder.parent.mkdir(parents=True, exist_ok=True)
                scratch = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}")
                scratch.mkdir()
                _remove_abandoned(folder)
            except OSError as error:
                warnings.warn(f"tokens cannot be kept and will be made again in the next run: {error}", stacklevel=3)
            else:
                with _removed_on_failure(scratch):
                    self._write(scratch, progress)
                    _appear(scratch, folder, len(self.data))
                return self._opened(folder)
        scratch = Path(tempfile.mkdtemp(prefix="cuvee-encoded-"))
        with _removed_on_failure(scratch):
            self._write(scratch, progress)
        rows = self._opened(scratch)
        weakref.finalize(rows, _remove, scratch, owner=os.getpid())
        return rows

    def _folder(self, fingerprint: str) -> Path:
        key = canonical_json([FORMAT, fingerprint, asdict(self.form), self.encoder.identity(self.form)])
        return cache_folder() / "encoded" / str(xxh3_128(key))

    def _opened(self, folder: Path) -> EncodedRows:
        return EncodedRows(self.name, folder, form=self.form, data=self.data if self.form.images else None)

    def _write(self, folder: Path, progress: Progress) -> None:
        try:
            with _Writer(folder) as writer:
                for row in self._rows(progress):
                    writer.add(row)
        except OSError as error:
            raise SourceError(
                f"source {self.name!r}: its tokens must have room in {folder.parent}, but got {error}; name a folder "
                "with more in CUVEE_CACHE"
            ) from error

    def _rows(self, progress: Progress) -> Iterator[Encoded]:
        task = progress.add_task(f"tokens of {self.name}", total=len(self.data))
        columns = (*self.form.columns, *filter(None, [self.form.images]))
        for start, rows in row_blocks(self.data, columns, size=BLOCK, name=self.name):
            yield from self.encoder.encode(rows, self.form, name=self.name, start=start)
            progress.advance(task, len(rows))


class _Writer:
    """Writes the arrays of encoded rows as they come, so that memory holds but a block of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, BinaryIO] = {}
        self._sizes = dict.fromkeys(_COLUMNS, 0)

    def __enter__(self) -> Self:
        for column in _COLUMNS:
            self._files[column] = (self._folder / f"{column}.npy").open("wb")
            self._write_header(column)
        self._append("offsets", np.zeros(1, np.int64))
        self._total = 0
        return self

    def add(self, row: Encoded) -> None:
        self._total += len(row.tokens)
        self._append("tokens", row.tokens)
        self._append("targets", row.targets)
        self._append("offsets", np.array([self._total], np.int64))
        self._append("target_tokens", np.array([np.count_nonzero(row.targets)], np.int32))

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with contextlib.ExitStack() as stack:
            for file in self._files.values():
                stack.callback(file.close)
            if kind is None:
                for column, file in self._files.items():
                    self._write_header(column)
                    file.flush()
                    os.fsync(file.fileno())

    def _append(self, column: str, values: NDArray[Any]) -> None:
        self._files[column].write(values.astype(_COLUMNS[column], copy=False).tobytes())
        self._sizes[column] += len(values)

    def _write_header(self, column: str) -> None:
        """Write the header of an .npy file, whose size does not depend on the number of values."""
        file = self._files[column]
        file.seek(0)
        descr = np.lib.format.dtype_to_descr(np.dtype(_COLUMNS[column]))
        header = {"descr": descr, "fortran_order": False, "shape": (self._sizes[column],)}
        np.lib.format.write_array_header_1_0(file, header)


def _mapped(folder: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a folder as memory maps.

    Raises:
        OSError, ValueError: a file is missing or torn.
    """
    return {
        column: np.load(folder / f"{column}.npy", mmap_mode="r", allow_pickle=False).view(np.ndarray)
        for column in _COLUMNS
    }


def _is_whole(folder: Path, rows: int) -> bool:
    """Return whether a folder holds all the arrays of so many rows."""
    try:
        arrays = _mapped(folder)
    except (OSError, ValueError):
        return False
    found = {column: (array.dtype, array.shape) for column, array in arrays.items()}
    sizes = {"offsets": rows + 1, "target_tokens": rows}
    if any(found[column] != (np.dtype(_COLUMNS[column]), (size,)) for column, size in sizes.items()):
        return False
    tokens = int(arrays["offsets"][-1])
    return all(found[column] == (np.dtype(_COLUMNS[column]), (tokens,)) for column in ("tokens", "targets"))


def _appear(scratch: Path, folder: Path, rows: int) -> None:
    """Rename a written folder to its place; what lies there is removed, unless another process made it meanwhile."""
    if os.path.lexists(folder) and not _is_whole(folder, rows):
        broken = scratch.with_name(f"{scratch.name}.broken")
        folder.rename(broken)
        if broken.is_dir() and not broken.is_symlink():
            shutil.rmtree(broken, ignore_errors=True)
        else:
            broken.unlink()
    try:
        scratch.rename(folder)
    except OSError:
        if not _is_whole(folder, rows):
            raise
        shutil.rmtree(scratch)


@contextlib.contextmanager
def _removed_on_failure(folder: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _remove_abandoned(folder: Path) -> None:
    """Remove what processes that were killed while writing to `folder` left beside it."""
    for scratch in folder.parent.glob(f".{folder.name}.*"):
        with contextlib.suppress(OSError):  # another process may be as tidy
            written = max((file.stat().st_mtime for file in scratch.iterdir()), default=scratch.stat().st_mtime)
            if time.time() - written > ABANDONED:
                shutil.rmtree(scratch)


def _remove(folder: Path, *, owner: int) -> None:
    if os.getpid() == owner:  # not in a worker that was forked
        shutil.rmtree(folder, ignore_errors=True)


def _is_short(sources: Mapping[str, Rows]) -> bool:
    return sum(len(data) for data in sources.values()) < LONG
