"""What a run trains on: the sources and shares that a manifest, inline sources or a single dataset stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import ManifestError, SourceError
from ..manifest import Manifest, SourceSpec
from ..manifest.locations import resolve_path
from ..manifest.outputs import same_place
from ..manifest.policies import WeightPolicy
from ..mixture import Exhaustion, Mixture, Source, Stage, Unit
from ..mixture.opening import content_of, weighted
from ..sources import load_function, open_sources
from ..sources.loaders import Loader
from ..sources.schemas import Rows
from .settings import TrainSettings

SINGLE = "dataset"  # not the file's name: the order depends on a source's name, and a renamed file is the same data


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSources:
    """Sources and shares of a run, before any data are opened.

    Args:
        specs: name, path and share of each source.
        folder: where relative paths start.
        loader: the user's function that makes rows of each source.
        max_length: most tokens of a row, prompt and response together, whoever said so.
        weights: policy that works the weights out from the sources' sizes; None takes those of `specs`.
        seed: this and all others as in `Mixture`.
    """

    specs: tuple[SourceSpec, ...]
    folder: Path
    loader: Loader | None
    max_length: int | None
    seed: int
    exhaustion: Exhaustion = "cycle"
    samples_per_epoch: int | Literal["all_seen"] | None = None
    unit: Unit = "rows"
    shuffle_within_sources: bool = True
    window: int = 64
    control_interval: int = 4096
    weights: WeightPolicy | None = None
    stages: tuple[Stage, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The sources' names."""
        return tuple(spec.name for spec in self.specs)

    def open(self) -> dict[str, Rows]:
        """Open every source and return its rows by name.

        Raises:
            SourceError: a line for each source that cannot be used.
        """
        return open_sources(self.specs, loader=self.loader, folder=self.folder, alike=False)

    def fingerprints(self, opened: Mapping[str, Rows]) -> dict[str, str | None]:
        """Return the content identity of each source, the same that `Mixture.from_manifest` gives; None if unknown.

        Args:
            opened: what `open` returned.
        """
        return {
            spec.name: content_of(spec, opened[spec.name], folder=self.folder, loader=self.loader)
            for spec in self.specs
        }

    def mixture(
        self,
        data: Mapping[str, Rows],
        *,
        fingerprints: Mapping[str, str | None],
        lengths: Mapping[str, NDArray[np.int32]] | None = None,
        max_length: int | None = None,
    ) -> Mixture:
        """Return the mixture of these sources.

        Args:
            data: rows of each source as the training reads them.
            fingerprints: content identity of each source.
            lengths: target tokens of each row, int32[n] by source; needed with unit "tokens" and with `max_length`.
            max_length: rows whose length is above it are skipped.

        Raises:
            MixtureError: settings contradict each other.
            ManifestError: the weights' policy cannot be met.
        """
        sources = [
            Source(
                spec.name,
                data[spec.name],
                1.0 if spec.weight is None else spec.weight,
                lengths=None if lengths is None else lengths[spec.name],
                max_epochs=spec.max_epochs,
                fingerprint=fingerprints[spec.name],
            )
            for spec in self.specs
        ]
        if self.weights is not None:
            sources = weighted(
                sources,
                self.weights,
                unit=self.unit,
                samples_per_epoch=self.samples_per_epoch,
                max_length=max_length,
            )
        return Mixture(
            sources,
            seed=self.seed,
            exhaustion=self.exhaustion,
            unit=self.unit,
            shuffle_within_sources=self.shuffle_within_sources,
            samples_per_epoch=self.samples_per_epoch,
            window=self.window,
            control_interval=self.control_interval,
            max_length=max_length,
            stages=self.stages,
        )


def open_mixture_input(settings: TrainSettings) -> TrainSources:
    """Return what the settings say to train on; files of data are not opened yet.

    Raises:
        ManifestError: the manifest or an inline source is wrong, or limits the length that `--max-length` limits too.
        SourceError: there is no such loader function, or the run would be written over a source.
    """
    document = None if settings.dataset_path is not None else settings.given_data().document()
    loader = None if settings.dataset_loader_fn is None else load_function(settings.dataset_loader_fn)
    sources = _single(settings, loader) if document is None else _of_manifest(document, settings, loader)
    for spec in sources.specs:
        if same_place(settings.output_dir, Path(resolve_path(spec.path, sources.folder))):
            raise SourceError(
                f"--output-dir must not replace data, but got {str(settings.output_dir)!r} of source {spec.name!r}"
            )
    return sources


def _single(settings: TrainSettings, loader: Loader | None) -> TrainSources:
    spec = SourceSpec(name=SINGLE, path=str(settings.dataset_path), weight=1.0)
    return TrainSources(
        specs=(spec,), folder=Path.cwd(), loader=loader, max_length=settings.max_length, seed=settings.seed
    )


def _of_manifest(document: Manifest, settings: TrainSettings, loader: Loader | None) -> TrainSources:
    if document.max_length is not None and settings.max_length is not None:
        raise ManifestError(
            f"--max-length must be left out where the manifest has max_length, which is {document.max_length}, but got "
            f"{settings.max_length}"
        )
    return TrainSources(
        specs=document.sources,
        folder=document.folder,
        loader=loader,
        max_length=document.max_length or settings.max_length,
        seed=document.seed,
        exhaustion=document.exhaustion,
        samples_per_epoch=document.samples_per_epoch,
        unit=document.unit,
        shuffle_within_sources=document.shuffle_within_sources,
        window=document.window,
        control_interval=document.control_interval,
        weights=document.weights,
        stages=tuple(Stage(stage.at, dict(stage.weights), stage.interpolation) for stage in document.stages or ()),
    )
