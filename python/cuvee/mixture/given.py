"""How a user names a mixture: a manifest's file, or its sources inline; exactly one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, cast

from ..errors import ManifestError
from ..manifest import Manifest, from_inline, load
from ..manifest.records import show
from ..sources.files import has_data_suffix


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenMixture:
    """What the user gave to name a mixture.

    Args:
        manifest: file of a manifest, as an argument.
        config: the same, as --dataset-mix-config.
        sources: texts NAME=PATH:WEIGHT.
        seed: this and the next two only with `sources`; None is the default.
        exhaustion: "stop", "cycle" or "renormalize".
        samples_per_epoch: rows, or "all_seen".

    Raises:
        ManifestError: not exactly one form was used, or a setting of one came with another.
    """

    WAYS: ClassVar[str] = "MANIFEST, --dataset-mix-config or --dataset-source"

    manifest: Path | None = None
    config: Path | None = None
    sources: Sequence[str] = ()
    seed: int | None = None
    exhaustion: str | None = None
    samples_per_epoch: int | str | None = None

    def __post_init__(self) -> None:
        given = [form for form, value in self.forms().items() if value]
        if len(given) != 1:
            raise ManifestError(f"mixture must be given once, as {self.WAYS}, but got {' and '.join(given) or 'none'}")
        settings = self._inline_settings()
        if settings and not self.sources:
            raise ManifestError(f"{settings[0]} must come with --dataset-source, but got {self.instead_of_sources()}")
        if len(self.sources) == 1:
            raise ManifestError(f"--dataset-source must be given at least twice, but got only {self.sources[0]!r}")

    @property
    def path(self) -> Path | None:
        """The manifest's file; None if there is none."""
        return self.manifest or self.config

    def document(self) -> Manifest:
        """Return the manifest: the file's, or the one that the inline sources are short for.

        Raises:
            ManifestError: it cannot be read, or something in it is wrong.
        """
        if self.path is not None:
            return _loaded(self.path)
        return from_inline(
            self.sources,
            seed=42 if self.seed is None else self.seed,
            exhaustion=self.exhaustion or "cycle",
            samples_per_epoch=cast("int | Literal['all_seen'] | None", self.samples_per_epoch),
        )

    def forms(self) -> Mapping[str, object]:
        """Return each way to name a mixture, as the user wrote it, and its value; that is empty if it was not used."""
        return {
            f"MANIFEST {str(self.manifest)!r}": self.manifest,
            f"--dataset-mix-config {str(self.config)!r}": self.config,
            f"--dataset-source {self.sources[0]!r}" if self.sources else "": self.sources,
        }

    def instead_of_sources(self) -> str:
        """Return what was given where inline sources were not, and the cure."""
        return f"a manifest: {str(self.path)!r}; set it there"

    def _inline_settings(self) -> list[str]:
        settings = {
            "--dataset-mix-seed": self.seed,
            "--dataset-mix-exhaustion": self.exhaustion,
            "--dataset-mix-samples-per-epoch": self.samples_per_epoch,
        }
        return [f"{option} {value}" for option, value in settings.items() if value is not None]


def _loaded(path: Path) -> Manifest:
    """Return the manifest in a file, and say so where the file is data instead."""
    try:
        return load(path)
    except ManifestError:
        if path.suffix.lower() == ".json" or not has_data_suffix(path.name):
            raise
    raise ManifestError(
        f"MANIFEST must be a JSON file that describes a mixture, but got {show(str(path), most=400)}, which looks like "
        f"data; mix data with --dataset-source NAME={path}:WEIGHT, given at least twice"
    )
