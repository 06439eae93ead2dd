"""The model of a manifest: the one place that says which documents are valid."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, WrapValidator, model_validator

from .policies import WeightPolicy
from .records import Record, any_of, items_of, mapping_of, nearest, refuse, rule, show

Exhaustion = Literal["stop", "cycle", "renormalize"]
Unit = Literal["rows", "tokens"]
Interpolation = Literal["linear", "cosine"]


def _is_a_name(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError
    return text


def _is_a_path(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise ValueError
    return text


def _choice(*choices: str) -> WrapValidator:
    return rule(any_of(choices), choices=choices)


Count = Annotated[int, Field(strict=True, ge=1, lt=2**63), rule("an integer in [1, 2^63)")]
Flag = Annotated[bool, Field(strict=True), rule("true or false")]
Text = Annotated[str, Field(strict=True, min_length=1), rule("a non-empty string")]
Name = Annotated[
    str,
    Field(strict=True, min_length=1, json_schema_extra={"pattern": r"^\S(.*\S)?$"}),
    AfterValidator(_is_a_name),
    rule("a non-empty, printable string without spaces at its ends"),
]
DataPath = Annotated[
    str, Field(strict=True, min_length=1), AfterValidator(_is_a_path), rule("a non-empty string without NUL")
]
Weight = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False), rule("finite and positive")]
StageWeight = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False), rule("finite and not negative")]


class SourceSpec(Record):
    """One source of a manifest: its name, where its data are, and its share."""

    ADDED_IN_2: ClassVar[tuple[str, ...]] = ("max_epochs", "split", "columns", "rows")

    name: Name = Field(description="unique name; the order of a source's rows depends on it")
    path: DataPath = Field(
        description="JSON, JSONL, Parquet, CSV, TSV or Arrow file, save_to_disk folder, or Hub reference "
        "repo/name[:config[:split]]; a relative path starts at the manifest's folder"
    )
    weight: Weight | None = Field(
        default=None, description="requested share, relative to the other sources; 0 only where a stage raises it"
    )
    max_epochs: Annotated[int, Field(strict=True, ge=1, lt=2**32), rule("an integer in [1, 2^32)")] | None = Field(
        default=None, description="most passes over the source's rows"
    )
    split: Text | None = Field(default=None, description="split to read of a dataset that has several")
    columns: Annotated[tuple[Text, ...], Field(min_length=1), items_of("at least 1 column", least=1)] | None = Field(
        default=None, description="columns to keep; the default is all"
    )
    rows: DataPath | None = Field(
        default=None,
        description="NumPy file (.npy) of the numbers of the rows to keep, int64 and rising, as cuvee dedup writes "
        "it; a relative path starts at the manifest's folder; the default is all rows",
    )


class StageSpec(Record):
    """A keyframe of the weights: they are `weights` from position `at` on."""

    at: Annotated[
        int,
        Field(strict=True, ge=1, lt=2**63),
        rule("an integer in [1, 2^63)", cure="before the first stage the weights are those of the sources"),
    ] = Field(description="position (rows) at which the weights are reached")
    weights: Annotated[dict[str, StageWeight], mapping_of("one weight per source")] = Field(
        description="requested share of every source"
    )
    interpolation: Annotated[Interpolation, _choice("linear", "cosine")] | None = Field(
        default=None, description="how the weights move here from the keyframe before; null is a jump at `at`"
    )


class Manifest(Record):
    """A manifest of version 1 or 2: the sources of a mixture and how they are mixed.

    Make one with `load`, `parse` or `from_inline`, which raise `ManifestError`. Manifests are equal when their
    documents say the same and their relative paths start at the same `folder`.
    """

    ADDED_IN_2: ClassVar[tuple[str, ...]] = ("unit", "window", "control_interval", "max_length", "weights", "stages")

    version: Literal[1, 2] = Field(description="version of the manifest's format")
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**63), rule("an integer in [0, 2^63)")] = Field(
        description="decides the order, together with everything else here but the paths"
    )
    exhaustion: Annotated[Exhaustion, _choice("stop", "cycle", "renormalize")] = Field(
        description="what happens when a source has given all its rows: the plan ends, the source starts over, or "
        "the others share its part"
    )
    shuffle_within_sources: Flag = Field(default=True, description="false: the rows of a source come in file order")
    samples_per_epoch: (
        Annotated[
            Annotated[int, Field(strict=True, ge=1, lt=2**63)] | Literal["all_seen"],
            rule('an integer in [1, 2^63) or "all_seen"', choices=["all_seen"]),
        ]
        | None
    ) = Field(default=None, description='rows in an epoch, only with "cycle"; the default is the sum of all rows')
    unit: Annotated[Unit, _choice("rows", "tokens")] = Field(
        default="rows", description="what the weights are shares of"
    )
    window: Annotated[int, Field(strict=True, ge=1, le=65536), rule("an integer in [1, 65536]")] = Field(
        default=64, description="positions within which the sources are shuffled; 1 is not at all"
    )
    control_interval: Count = Field(default=4096, description="least slots between two steps of a controller")
    max_length: Annotated[int, Field(strict=True, ge=1, lt=2**31), rule("an integer in [1, 2^31)")] | None = Field(
        default=None, description="rows of more tokens than this are skipped"
    )
    weights: WeightPolicy | None = Field(
        default=None, description="policy that works the weights out from the sources' sizes"
    )
    sources: Annotated[tuple[SourceSpec, ...], Field(min_length=2), items_of("at least 2 sources", least=2)] = Field(
        description="what is mixed"
    )
    stages: Annotated[tuple[StageSpec, ...], Field(min_length=1), items_of("at least 1 stage", least=1)] | None = Field(
        default=None, description="weights that change during the run, in the order of their positions"
    )

    _folder: Path = PrivateAttr()

    def model_post_init(self, context: Mapping[str, Path] | None, /) -> None:
        """Remember the folder the document was validated for; without one, the current folder."""
        self._folder = Path(context["folder"] if context else ".").resolve()

    @property
    def folder(self) -> Path:
        """Folder at which relative paths start."""
        return self._folder

    @model_validator(mode="before")
    @classmethod
    def _version_comes_first(cls, data: object) -> object:
        if isinstance(data, Mapping) and "version" in data:
            version = data["version"]
            if type(version) is not int or version not in (1, 2):
                raise refuse(f"must be 1 or 2, but got {show(version)}", "version")
        return data

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        if self.version == 1:
            _check_version_1(self)
        _check_epoch(self)
        _check_names(self)
        _check_weights(self)
        _check_stages(self)
        return self


def _check_version_1(manifest: Manifest) -> None:
    _check_added(manifest)
    for index, spec in enumerate(manifest.sources):
        _check_added(spec, "sources", index)
    if manifest.samples_per_epoch == "all_seen":
        raise refuse('must be an integer in version 1, but got "all_seen"; set "version": 2', "samples_per_epoch")


def _check_added(record: Manifest | SourceSpec, *location: int | str) -> None:
    for name in record.ADDED_IN_2:
        if name in record.model_fields_set:
            got = show(record.model_dump(mode="json", include={name}, exclude_unset=True)[name])
            raise refuse(f'must be left out in version 1, but got {got}; set "version": 2 to use it', *location, name)


def _check_epoch(manifest: Manifest) -> None:
    if manifest.samples_per_epoch is not None and manifest.exhaustion != "cycle":
        got = f"{show(manifest.samples_per_epoch)} with {show(manifest.exhaustion)}"
        raise refuse(f'must be left out unless exhaustion is "cycle", but got {got}', "samples_per_epoch")


def _check_names(manifest: Manifest) -> None:
    first: dict[str, int] = {}
    for index, spec in enumerate(manifest.sources):
        if first.setdefault(spec.name, index) != index:
            text = f"must be unique, but got {show(spec.name)}, the name of source {first[spec.name]} too"
            raise refuse(text, "sources", index, "name")


def _check_weights(manifest: Manifest) -> None:
    raised = {name for stage in manifest.stages or () for name, weight in stage.weights.items() if weight > 0}
    for index, spec in enumerate(manifest.sources):
        if manifest.weights is not None:
            if spec.weight is not None:
                text = f'must be left out where "weights" names a policy, but got {show(spec.weight)}'
                raise refuse(text, "sources", index, "weight")
        elif spec.weight is None:
            cure = '; or give "weights" a policy' if manifest.version == 2 else ""
            raise refuse(f"must be finite and positive, but is missing{cure}", "sources", index, "weight")
        elif spec.weight == 0 and spec.name not in raised:
            cure = "; 0 is allowed only where a stage raises it" if manifest.version == 2 else ""
            raise refuse(f"must be finite and positive, but got {show(spec.weight)}{cure}", "sources", index, "weight")
    if manifest.weights is None and not any(spec.weight for spec in manifest.sources):
        raise refuse("must not all have weight 0, but got 0 for every one; the run has to start somewhere", "sources")


def _check_stages(manifest: Manifest) -> None:
    names = dict.fromkeys(spec.name for spec in manifest.sources)  # a set that keeps the order
    previous = 0
    for index, stage in enumerate(manifest.stages or ()):
        if stage.at <= previous:
            text = f"must be above {previous}, the position of the stage before, but got {stage.at}"
            raise refuse(text, "stages", index, "at")
        previous = stage.at
        _check_stage_weights(stage.weights, names, "stages", index, "weights")


def _check_stage_weights(weights: Mapping[str, float], names: Collection[str], *location: int | str) -> None:
    for name in weights:
        if name not in names:
            cure = nearest(name, names) or f"; the sources are {show(list(names))}"
            raise refuse(f"unknown source {show(name)}{cure}", *location)
    for name in names:
        if name not in weights:
            raise refuse(f"must name every source, but {show(name)} is missing", *location)
    if not any(weights.values()):
        raise refuse(f"must not all be 0, but got {show(weights)}", *location)
