"""One entry of a run's journal: what changed, from which position on, its form checked when it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ..checks import as_choice, as_int, as_name, as_weight
from ..errors import StateError
from ..mixture.source import MAX_CYCLES, MAX_ROWS, Source

MAY_CHANGE = ("rows", "fingerprint", "lengths")  # of a source, between save and resume, where the user allows it


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedSource:
    """What the journal keeps of a source that joined: all that determines the order, not its data."""

    name: str
    rows: int
    max_epochs: int | None
    fingerprint: str | None
    lengths: str | None

    @classmethod
    def of(cls, source: Source, *, with_lengths: bool) -> Self:
        """Describe `source`, its lengths only if they decide which rows come."""
        return cls(
            name=source.name,
            rows=source.rows,
            max_epochs=source.max_epochs,
            fingerprint=source.fingerprint,
            lengths=source.lengths_digest if with_lengths else None,
        )

    def restore(self, given: Mapping[str, Source]) -> Source:
        """Return the source described: the given one of that name, which must agree, else one without data."""
        source = given.get(self.name)
        if source is None and self.lengths is None:
            return Source(self.name, rows=self.rows, max_epochs=self.max_epochs, fingerprint=self.fingerprint)
        if source is None:
            raise StateError(
                f"add must hold source {self.name!r}, which joined during the run and has lengths, but got none of "
                "that name; pass add=[Source(...)] as in the update"
            )
        now = AddedSource.of(source, with_lengths=self.lengths is not None)
        for field in ("rows", "max_epochs", "fingerprint", "lengths"):
            was, value = getattr(self, field), getattr(now, field)
            if was != value:
                raise StateError(f"source {self.name!r}: {field} must be {was!r} as in the journal, but got {value!r}")
        return source


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """How a source's draws become cycles: draw i >= first_draw is in cycle first_cycle + (i - first_draw) div rows."""

    first_draw: int
    first_cycle: int
    rows: int

    def next_cycle(self, draw: int) -> int:
        """Return the number of the first cycle that begins at `draw` or later."""
        return self.first_cycle + -(-(draw - self.first_draw) // self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A source that changed between save and resume, allowed by the user."""

    name: str
    field: str
    was: Any
    now: Any
    at_draw: int  # number of the source's first draw under the new content
    cycle: int  # that draw's cycle
    cap: int  # draws the source may give

    @property
    def span(self) -> Span:
        """The cycles that the change of a row count begins."""
        return Span(first_draw=self.at_draw, first_cycle=self.cycle, rows=self.now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One entry: from `position` on, the shares are `weights`.

    `position` counts the stream's rows under `cycle` (epoch is None), the epoch's rows otherwise. `weights` are as
    given, by name; None where an entry only records accepted changes of the data.
    """

    epoch: int | None
    position: int
    weights: Mapping[str, float] | None
    added: tuple[AddedSource, ...] = ()
    accepted: tuple[Accepted, ...] = ()
    reason: str = ""

    @property
    def place(self) -> tuple[int, int]:
        """(epoch, position), for ordering."""
        return (self.epoch or 0, self.position)

    def record(self) -> dict[str, Any]:
        """Return the entry as JSON values."""
        record: dict[str, Any] = {"position": self.position, "reason": self.reason}
        if self.epoch is not None:
            record["epoch"] = self.epoch
        if self.weights is not None:
            record["weights"] = dict(self.weights)
        for field in ("added", "accepted"):
            if values := getattr(self, field):
                record[field] = [{name: getattr(value, name) for name in value.__slots__} for value in values]
        return record

    @classmethod
    def of(cls, record: object) -> Self:
        """Return the entry of a record as `json.loads` gives it.

        Raises:
            StateError: naming the field that is missing, unknown or of a wrong value.
        """
        fields = _fields(record, "entry", required=("position", "reason"), optional=OPTIONAL)
        epoch, weights = fields.get("epoch"), fields.get("weights")
        if weights is not None:
            if not isinstance(weights, Mapping):
                raise StateError(f"weights must map source names to numbers, but got {weights!r}")
            for name, weight in weights.items():
                as_weight(weight, f"weight of {name!r}", StateError)
        return cls(
            epoch=None if epoch is None else as_int(epoch, "epoch", 0, 2**62, StateError),
            position=as_int(fields["position"], "position", 0, 2**63, StateError),
            weights=weights,
            added=tuple(_added(value) for value in _list(fields.get("added", []), "added")),
            accepted=tuple(_accepted(value) for value in _list(fields.get("accepted", []), "accepted")),
            reason=_text(fields["reason"], "reason"),
        )


OPTIONAL = ("epoch", "weights", "added", "accepted")


def _added(value: object) -> AddedSource:
    fields = _fields(value, "added source", required=AddedSource.__slots__)
    passes = fields["max_epochs"]
    return AddedSource(
        name=as_name(fields["name"], StateError),
        rows=as_int(fields["rows"], "rows", 1, MAX_ROWS + 1, StateError),
        max_epochs=None if passes is None else as_int(passes, "max_epochs", 1, MAX_CYCLES, StateError),
        fingerprint=_text_or_none(fields["fingerprint"], "fingerprint"),
        lengths=_text_or_none(fields["lengths"], "lengths"),
    )


def _accepted(value: object) -> Accepted:
    fields = _fields(value, "accepted change", required=Accepted.__slots__)
    field = as_choice(fields["field"], "field", MAY_CHANGE, StateError)
    for name in ("was", "now"):
        if field == "rows":
            as_int(fields[name], f"rows {name}", int(name == "now"), MAX_ROWS + 1, StateError)
        else:
            _text_or_none(fields[name], f"{field} {name}")
    as_name(fields["name"], StateError)
    for name, end in (("at_draw", 2**63), ("cycle", MAX_CYCLES), ("cap", 2**63)):
        as_int(fields[name], name, 0, end, StateError)
    return Accepted(**fields)


def _fields(value: object, label: str, *, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise StateError(f"{label} must be a JSON object, but got {value!r}")
    for name in required:
        if name not in value:
            raise StateError(f"{label} must have {name!r}, but got {dict(value)!r}")
    for name in value:
        if name not in required and name not in optional:
            raise StateError(f"{label} must have only {[*required, *optional]}, but got {name!r}")
    return dict(value)


def _list(value: object, label: str) -> list[Any]:
    if isinstance(value, list):
        return value
    raise StateError(f"{label} must be a list, but got {value!r}")


def _text(value: object, label: str) -> str:
    if isinstance(value, str):
        return value
    raise StateError(f"{label} must be text, but got {value!r}")


def _text_or_none(value: object, label: str) -> str | None:
    return None if value is None else _text(value, label)
