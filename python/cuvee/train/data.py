"""The sources of a run, opened and checked before any model is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..sources.schemas import Rows
from .rows import RowForm, check_sources
from .settings import TrainSettings
from .sources import TrainSources, open_mixture_input


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """The opened sources of a run.

    Args:
        sources: what the settings name.
        rows: the rows of each, as they are stored.
        forms: how training reads them.
    """

    sources: TrainSources
    rows: Mapping[str, Rows]
    forms: Mapping[str, RowForm]

    @property
    def images(self) -> bool:
        """Whether any row has images."""
        return any(form.images for form in self.forms.values())


def open_data(settings: TrainSettings) -> Data:
    """Open and check every source; no model is looked at.

    Raises:
        ManifestError: the mixture's description is wrong.
        SourceError: a source cannot be opened, or cannot be trained on.
    """
    sources = open_mixture_input(settings)
    rows = sources.open()
    return Data(sources=sources, rows=rows, forms=check_sources(rows))
