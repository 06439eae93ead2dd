"""The checked, normalised contract of a mix: sources, their shares, and every setting that determines the order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..checks import as_choice, as_flag, as_int, canonical_json
from ..errors import MixtureError
from .length_table import LengthTable
from .shares import named_weights, normalise
from .source import Exhaustion, Source, Unit, check_lengths

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..manifest import Manifest
    from ..plan import Plan
    from ..plan.journal import Journal
    from ..plan.stream import Stream

Interpolation = Literal["linear", "cosine"]

__all__ = ["Exhaustion", "Interpolation", "Mixture", "Source", "Stage", "Unit"]


@dataclass(frozen=True, slots=True)
class Stage:
    """A keyframe of a curriculum: `weights` hold from run position `at` on.

    With an interpolation the weights move there from the previous keyframe (the mixture's own weights at position 0),
    in steps of one per `control_interval`, and arrive at `at`. Weights name every source and may be 0.
    """

    at: int
    weights: Mapping[str, float]
    interpolation: Interpolation | None = None

    def __post_init__(self) -> None:
        at = as_int(self.at, "stage position `at`", 0, _core.ENDLESS, MixtureError)
        if at == 0:
            raise MixtureError(
                "stage position `at` must be at least 1, but got 0; give weights that hold from the start to the "
                "sources"
            )
        object.__setattr__(self, "at", at)
        if not isinstance(self.weights, Mapping):
            raise MixtureError(
                f"stage at {self.at}: weights must map source names to numbers, but got {self.weights!r}"
            )
        object.__setattr__(self, "weights", dict(self.weights))
        if self.interpolation is not None:
            as_choice(self.interpolation, f"stage at {self.at}: interpolation", ("linear", "cosine"), MixtureError)


@dataclass(frozen=True, init=False, eq=False)
class Mixture:
    """Sources and settings of a run; `plan()` gives its order.

    Args:
        sources: at least one `Source`, unique names.
        seed: integer in [0, 2**63).
        exhaustion: what happens when a source is used up: "stop", "cycle" or "renormalize".
        unit: what shares are measured in, "rows" or "tokens" (needs the lengths of every source).
        shuffle_within_sources: False draws each source's rows in their own order.
        samples_per_epoch: rows per epoch under `cycle` (default: the sum of rows), or "all_seen".
        window: positions shuffled together, 1..65536; 1 leaves the regular order.
        control_interval: rows between two steps of token control or of an interpolation.
        max_length: rows with more target tokens are skipped (needs the lengths of every source).
        stages: keyframes of a curriculum, sorted by position.
        allow_empty: accept sources of 0 rows; they are never drawn.

    Raises:
        MixtureError: naming the setting and the value.
        SourceError: columns of two sources' data cannot stand in one batch; found out from schemas and first rows.
    """

    sources: tuple[Source, ...]
    seed: int
    exhaustion: Exhaustion
    unit: Unit
    shuffle_within_sources: bool
    samples_per_epoch: int | Literal["all_seen"] | None
    window: int
    control_interval: int
    max_length: int | None
    stages: tuple[Stage, ...]
    allow_empty: bool
    names: tuple[str, ...]
    weights: NDArray[np.float64]
    manifest: Manifest | None
    default_budget: bool

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        seed: int = 42,
        exhaustion: Exhaustion = "cycle",
        unit: Unit = "rows",
        shuffle_within_sources: bool = True,
        samples_per_epoch: int | Literal["all_seen"] | None = None,
        window: int = 64,
        control_interval: int = 4096,
        max_length: int | None = None,
        stages: Sequence[Stage] | None = None,
        allow_empty: bool = False,
    ) -> None:
        def assign(field: str, value: object) -> None:
            object.__setattr__(self, field, value)

        checked = _check_sources(sources, allow_empty=allow_empty)
        _check_data(checked)
        assign("sources", checked)
        assign("names", tuple(source.name for source in checked))
        assign("seed", as_int(seed, "seed", 0, 2**63, MixtureError))
        assign("exhaustion", as_choice(exhaustion, "exhaustion", ("stop", "cycle", "renormalize"), MixtureError))
        assign("unit", as_choice(unit, "unit", ("rows", "tokens"), MixtureError))
        assign("shuffle_within_sources", as_flag(shuffle_within_sources, "shuffle_within_sources", MixtureError))
        assign("window", as_int(window, "window", 1, 65537, MixtureError))
        assign("control_interval", as_int(control_interval, "control_interval", 1, 2**62, MixtureError))
        assign("max_length", None if max_length is None else as_int(max_length, "max_length", 1, 2**31, MixtureError))
        assign("allow_empty", as_flag(allow_empty, "allow_empty", MixtureError))
        assign("manifest", None)
        assign("default_budget", samples_per_epoch is None)
        assign("samples_per_epoch", _epoch_budget(samples_per_epoch, checked, exhaustion))
        assign("weights", normalise([source.weight for source in checked], checked, "weights", MixtureError))
        assign("stages", self._check_stages(stages))
        check_lengths(checked, unit=unit, max_length=max_length, weights=self._peak_weights())

    @classmethod
    def from_manifest(
        cls,
        manifest: str | PathLike[str] | Manifest | Mapping[str, Any],
        *,
        loader: Callable[..., Any] | None = None,
        tokenizer: Callable[..., Any] | None = None,
        length_column: str | None = None,
    ) -> Self:
        """Open every source of a manifest and return the mixture it describes.

        Args:
            manifest: path of a manifest, version 1 or 2; or one that is loaded already; or its content as a dict, whose
                relative paths start at the current folder.
            loader: applied to each source as it is opened.
            tokenizer: counts the tokens of each row, where lengths are needed.
            length_column: column that holds the tokens of each row.

        Raises:
            ManifestError: where the document is wrong.
            SourceError: where data cannot be opened.
        """
        from ..manifest import Manifest, load, parse
        from .opening import sources_of

        if isinstance(manifest, Mapping):
            document = parse(manifest)
        else:
            document = manifest if isinstance(manifest, Manifest) else load(manifest)
        mixture = cls(
            sources_of(document, loader=loader, tokenizer=tokenizer, length_column=length_column),
            seed=document.seed,
            exhaustion=document.exhaustion,
            unit=document.unit,
            shuffle_within_sources=document.shuffle_within_sources,
            samples_per_epoch=document.samples_per_epoch,
            window=document.window,
            control_interval=document.control_interval,
            max_length=document.max_length,
            stages=[Stage(stage.at, dict(stage.weights), stage.interpolation) for stage in document.stages or ()],
        )
        object.__setattr__(mixture, "manifest", document)
        return mixture

    @classmethod
    def from_cli(
        cls,
        sources: Sequence[str],
        *,
        seed: int = 42,
        exhaustion: Exhaustion = "cycle",
        samples_per_epoch: int | Literal["all_seen"] | None = None,
        loader: Callable[..., Any] | None = None,
        tokenizer: Callable[..., Any] | None = None,
        length_column: str | None = None,
    ) -> Self:
        """Return the mixture of inline sources `NAME=PATH:WEIGHT`, split at the first `=` and the last `:`.

        Args:
            sources: at least two.
            seed: as in a manifest, like the next two.
            exhaustion: "stop", "cycle" or "renormalize".
            samples_per_epoch: rows, or "all_seen".
            loader: this and the next two as in `from_manifest`.
            tokenizer: counts the tokens of each row.
            length_column: column that holds them.

        Raises:
            ManifestError: where a source or a setting is wrong.
            SourceError: where data cannot be opened.
        """
        from ..manifest import from_inline

        document = from_inline(sources, seed=seed, exhaustion=exhaustion, samples_per_epoch=samples_per_epoch)
        return cls.from_manifest(document, loader=loader, tokenizer=tokenizer, length_column=length_column)

    def to_manifest(self, path: str | PathLike[str]) -> None:
        """Write the manifest this mixture was opened from to `path`.

        Raises:
            MixtureError: if its sources have no paths, because it was made from objects.
        """
        from .. import manifest

        if self.manifest is None:
            raise MixtureError(
                "to_manifest must be called on a mixture made by from_manifest or from_cli, but got one made from "
                f"objects, whose sources {list(self.names)} have no paths"
            )
        manifest.dump(self.manifest, path)

    def plan(
        self,
        epoch: int = 0,
        *,
        journal: str | PathLike[str] | Journal | None = None,
        add: Iterable[Source] = (),
    ) -> Plan:
        """Return the order of one epoch: as if no weights had ever been updated, or of the run that a journal is of.

        Args:
            epoch: which epoch, from 0 on.
            journal: the record of a run's updates, or its file: the plan is then that of the run, draw by draw. It is
                only read; `plan.journal.attach(file)` goes on with it.
            add: sources that joined during that run, where they have data or lengths.

        Raises:
            PlanError: if the sources' caps leave nothing to draw in that epoch.
            StateError: if the journal cannot be read, or is one of another mixture.
        """
        from ..plan import Plan
        from ..plan.journal import Journal
        from ..plan.replay import replay

        if journal is None:
            return Plan(self, epoch)
        entries = journal if isinstance(journal, Journal) else Journal.load(journal)
        return replay(self, epoch, entries, add)

    def spec(self) -> dict[str, Any]:
        """Return all that determines the order, as JSON values: what `spec_hash` is the hash of."""
        entries = [source.spec(self.exhaustion, with_lengths=self.uses_lengths) for source in self.sources]
        for entry, weight in zip(entries, self.weights.tolist(), strict=True):
            entry["weight"] = weight
        return {
            "order_format": _core.ORDER_FORMAT,
            "seed": self.seed,
            "exhaustion": self.exhaustion,
            "unit": self.unit,
            "window": self.window,
            "shuffle_within_sources": self.shuffle_within_sources,
            "samples_per_epoch": self.samples_per_epoch,
            "control_interval": self.control_interval,
            "max_length": self.max_length,
            "stages": [
                {"at": stage.at, "interpolation": stage.interpolation, "weights": self.stage_weights(stage).tolist()}
                for stage in self.stages
            ],
            "sources": entries,
        }

    @cached_property
    def lengths(self) -> LengthTable:
        """The token lengths of all rows; of sources without known lengths, none."""
        return LengthTable(self.sources, self.max_length)

    @cached_property
    def stream(self) -> Stream:
        """The endless stream under `cycle` of this mixture alone, shared by all its plans; nobody updates it."""
        from ..plan.stream import Stream

        return Stream(self, self.sources, shared=True)

    @property
    def steered(self) -> bool:
        """Whether weights move by themselves, step by step: in tokens or by an interpolation."""
        return self.unit == "tokens" or any(stage.interpolation for stage in self.stages)

    @property
    def uses_lengths(self) -> bool:
        """Whether token lengths decide which rows come; otherwise they are only counted, and may be unknown."""
        return self.unit == "tokens" or self.max_length is not None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("stream", "lengths")}

    @cached_property
    def spec_hash(self) -> str:
        """xxh3-128 of the canonical serialisation of `spec()`, 32 hex digits."""
        return _core.xxh3_128(canonical_json(self.spec()))

    def stage_weights(self, stage: Stage) -> NDArray[np.float64]:
        """Return a stage's weights in source order, normalised, shape (K,)."""
        return named_weights(stage.weights, self.sources, f"stage at {stage.at}: weights", MixtureError)

    def with_budget(self, samples_per_epoch: int) -> Mixture:
        """Return this mixture with another `samples_per_epoch` (rows)."""
        fields = ("seed", "exhaustion", "unit", "shuffle_within_sources", "window", "control_interval", "max_length",
                  "stages", "allow_empty")  # fmt: skip
        settings = {field: getattr(self, field) for field in fields}
        return Mixture(self.sources, samples_per_epoch=samples_per_epoch, **settings)

    def _check_stages(self, stages: Sequence[Stage] | None) -> tuple[Stage, ...]:
        if stages is not None and not isinstance(stages, Iterable):
            raise MixtureError(f"stages must be Stage objects, but got {stages!r}")
        checked = tuple(stages or ())
        for stage in checked:
            if not isinstance(stage, Stage):
                raise MixtureError(f"stages must be Stage objects, but got {stage!r}")
            self.stage_weights(stage)
        for before, after in pairwise(checked):
            if after.at <= before.at:
                raise MixtureError(
                    f"stages must be sorted by position, each after the one before, but got {[s.at for s in checked]}"
                )
        return checked

    def _peak_weights(self) -> NDArray[np.float64]:
        """Return the largest weight each source ever has by contract, shape (K,)."""
        peaks = np.array([self.weights, *(self.stage_weights(stage) for stage in self.stages)])
        return np.asarray(peaks.max(axis=0), dtype=np.float64)


def _check_sources(sources: Sequence[Source], *, allow_empty: bool) -> tuple[Source, ...]:
    if not isinstance(sources, Iterable):
        raise MixtureError(f"sources must be Source objects, but got {sources!r}")
    checked = tuple(sources)
    if not checked:
        raise MixtureError("sources must hold at least one Source, but got []")
    seen: set[str] = set()
    for source in checked:
        if not isinstance(source, Source):
            raise MixtureError(f"sources must be Source objects, but got {source!r}")
        if source.name in seen:
            raise MixtureError(f"source names must be unique, but got {source.name!r} twice")
        seen.add(source.name)
        if source.rows == 0 and not allow_empty:
            raise MixtureError(
                f"source {source.name!r}: rows must be at least 1, but got 0; pass allow_empty=True to leave it out"
            )
    return checked


def _check_data(sources: tuple[Source, ...]) -> None:
    data = {source.name: source.data for source in sources if source.data is not None}
    if data:
        from ..sources import check_schemas

        check_schemas(data)


def _epoch_budget(
    budget: int | Literal["all_seen"] | None, sources: tuple[Source, ...], exhaustion: Exhaustion
) -> int | Literal["all_seen"] | None:
    if exhaustion != "cycle":
        if budget is not None:
            raise MixtureError(
                f'samples_per_epoch must be left out unless exhaustion="cycle", but got {budget!r} with {exhaustion!r}'
            )
        return None
    if budget is None:
        budget = sum(source.rows for source in sources)
    if isinstance(budget, str):
        as_choice(budget, "samples_per_epoch", ("all_seen",), MixtureError)
        return "all_seen"
    return as_int(budget, "samples_per_epoch", 1, _core.ENDLESS, MixtureError)
