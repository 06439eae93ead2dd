"""A mixture in TRL's SFTTrainer: its own preparation of rows, in the order of the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from datasets import Dataset, concatenate_datasets  # noqa: TID253  (whoever imports this module trains)
from trl import SFTTrainer  # type: ignore[attr-defined]  # noqa: TID253  (it exports lazily)

from ..errors import SourceError
from .transformers import MixtureTrainerMixin

if TYPE_CHECKING:
    from ..mixture import Mixture

PREPARED = ("input_ids", "labels", "seq_lengths")  # what TRL's collator takes of rows that were prepared


def concatenated(mixture: Mixture, columns: Sequence[str] | None = None) -> Dataset:
    """Return the rows of all sources end to end, as a trainer takes them that prepares rows itself.

    Nothing is copied. Whatever is done with it must keep number and order of the rows, as `map` and `rename_column` do.

    Args:
        mixture: its sources must hold a `datasets.Dataset` each, as those opened from files do.
        columns: those to keep; None keeps all.

    Raises:
        SourceError: if a source holds something else, or sources differ in their columns.
    """
    parts = {s.name: _selected(s.name, s.data, columns) for s in mixture.sources if s.rows}
    first, *others = parts
    for name in others:
        _check_alike(first, parts[first].features, name, parts[name].features)
    return concatenate_datasets(list(parts.values()))


class MixtureSFTTrainer(MixtureTrainerMixin, SFTTrainer):
    """TRL's SFTTrainer over a mixture; see `MixtureTrainerMixin`.

    Args:
        args: as SFTTrainer's, which follow.
        mixture: its sources must hold a `datasets.Dataset` each.
        train_dataset: rows to prepare; None takes `concatenated(mixture)`. Give it where columns must be selected,
            renamed or computed first.
        kwargs: as those of `MixtureTrainerMixin` and SFTTrainer.

    Raises:
        SourceError: if rows differ in their columns, or preparing them dropped some.
        PlanError: if `packing`, `padding_free` or `shuffle_dataset` is on.
    """

    def __init__(self, *args: Any, mixture: Mixture, train_dataset: Dataset | None = None, **kwargs: Any) -> None:
        rows = concatenated(mixture) if train_dataset is None else train_dataset
        if not isinstance(rows, Dataset):
            raise SourceError(
                f"train_dataset must be a datasets.Dataset, but got {type(rows).__name__}; "
                "concatenated(mixture).map(...) makes one"
            )
        super().__init__(*args, mixture=mixture, train_dataset=rows, **kwargs)

    def mix_rows(self) -> Dataset:
        """Return the prepared rows: their tokens and labels, without the text that they were made of.

        Raises:
            SourceError: if preparing them dropped some.
        """
        rows: Any = self.train_dataset
        given = sum(source.rows for source in self.mixture.sources)
        if len(rows) != given:
            raise SourceError(
                f"train_dataset must keep its {given} rows, but got {len(rows)} after SFTTrainer prepared them; it "
                "drops rows without a target, such as those that max_length cuts off before the first: set "
                "max_length=None, or leave such rows out of the sources"
            )
        if "input_ids" not in rows.column_names or not self.args.remove_unused_columns:
            return rows
        return rows.select_columns([name for name in PREPARED if name in rows.column_names])


def _selected(name: str, data: object, columns: Sequence[str] | None) -> Dataset:
    if not isinstance(data, Dataset):
        raise SourceError(
            f"source {name!r}: data must be a datasets.Dataset for a trainer that prepares rows itself, but got "
            f"{type(data).__name__}; datasets.Dataset.from_list makes one"
        )
    missing = [column for column in columns or () if column not in data.column_names]
    if missing:
        raise SourceError(f"source {name!r}: columns must be some of {data.column_names}, but got {missing}")
    return data if columns is None else data.select_columns(list(columns))


def _check_alike(first: str, expected: Mapping[str, Any], name: str, found: Mapping[str, Any]) -> None:
    """Raise if two sources differ in a column: one of them would be read as if it had the other's."""
    for column in dict.fromkeys([*expected, *found]):
        there, here = expected.get(column, "no such column"), found.get(column, "no such column")
        if there != here:
            raise SourceError(
                f"source {name!r}: columns must be those of source {first!r}, but got {column!r} with {here} in place "
                f"of {there}; name the columns to keep, or bring sources to one form with map or cast"
            )
