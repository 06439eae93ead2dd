"""What a study depends on, as all its processes see it: entries in its storage, of which the order decides.

A study is begun with settings, and all its runs must be made under the same. Until the first was made there is nothing
to lose, and other settings may take their place: they are added, and the last are in force. Whoever has made the first
run adds that it did. If the settings it worked under are in force up to there, they are so for ever, and those added
later are none. A storage takes one entry after the other, so all who read the entries come to the same settings; of two
processes that begin a study at once with different ones, one finds itself refused, and no run of it counts. A larger
budget is an entry, too: what the settings ask for is done to its end first, and then goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..checks import canonical_json
from ..errors import StateError

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

SETTINGS = "settings"  # attribute of a trial that is an entry: settings
MADE = "a run was made under"  # and: that a run was, with the number of their trial
RAISED = "budget raised to"  # and: a larger budget, with the number of their trial as UNDER
UNDER = "under"  # attribute of a trial: number of the settings that it is under
BUDGET = "budget"  # the setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The settings in force.

    Attributes:
        number: of the trial that has them.
        settings: as JSON values.
        fixed: whether a run was made under them, so that no others may be.
        raised: budgets that it was raised to, one after the other.
    """

    number: int
    settings: Mapping[str, Any]
    fixed: bool = False
    raised: tuple[int, ...] = ()

    @property
    def budgets(self) -> tuple[int, ...]:
        """The budget that it was begun with, and those that it was raised to."""
        return (int(self.settings[BUDGET]), *self.raised)


def in_force(trials: Iterable[FrozenTrial]) -> Terms | None:
    """Return the settings in force, None if there are none yet.

    Args:
        trials: of the study, in the order of their numbers.
    """
    terms: Terms | None = None
    for trial in trials:
        entry = trial.user_attrs
        if SETTINGS in entry and (terms is None or not (terms.fixed or are_same(terms.settings, entry[SETTINGS]))):
            terms = Terms(number=trial.number, settings=entry[SETTINGS])
        elif MADE in entry and terms is not None and entry[MADE] == terms.number:
            terms = replace(terms, fixed=True)
        elif RAISED in entry and terms is not None and terms.fixed and entry[UNDER] == terms.number:
            more = entry[RAISED] > terms.budgets[-1]
            terms = replace(terms, raised=(*terms.raised, entry[RAISED])) if more else terms
    return terms


def are_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two settings say the same."""
    return canonical_json(dict(one)) == canonical_json(dict(other))


def check_same(name: str, kept: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise unless two settings of a study say the same.

    Raises:
        StateError: naming the first that differs.
    """
    for setting in [*kept, *(key for key in given if key not in kept)]:
        before, now = kept.get(setting), given.get(setting)
        if canonical_json(before) != canonical_json(now):
            raise StateError(
                f"{setting} of study {name!r} must be {_shown(before)}, as it was begun with, but got {_shown(now)}; "
                "give the search another --study, or another --output-dir"
            )


def check_budgets(name: str, kept: Sequence[int], given: Sequence[int]) -> None:
    """Raise unless budgets are those that a study had, one after the other.

    Raises:
        StateError: saying what the last may be.
    """
    if [*given] != [*kept]:
        how = "as it was raised to" if len(kept) > 1 else "as it was begun with"
        raise StateError(
            f"budget of study {name!r} must be {kept[-1]}, {how}, or more, but got {given[-1]}; give so much and begin "
            "again, or give the search another --study, or another --output-dir"
        )


def _shown(value: Any) -> str:
    text = canonical_json(value).decode()
    return text if len(text) <= 200 else f"{text[:200]}..."
