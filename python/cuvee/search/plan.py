"""What a search is to do, as a value that any process of it can be given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from ..checks import as_choice, as_int, as_weight, canonical_json, nearest
from ..errors import CuveeError, MixtureError
from .extrapolation import Extrapolation
from .methods import METHODS, Method, make_method
from .passes import Passes
from .receipt import F64, PARTS
from .repetition import Repetition
from .rounds import Course, Rules, audit_seeds_of, round_size_of
from .score import ManyScores, Score, run_scores
from .space import Space
from .study import Evaluate, Study, Timing, open_study, raise_budget, terms_of
from .terms import BUDGET, check_budgets, check_same

EVALUATION_SEED = 999_000  # of the search, as in `proxy_run_score`
MOST_RUNS = 1_000_000
FEWEST_STEPS = 16  # of a run whose curve is to be extrapolated
GIVEN = ("budget", "seed", "targets", "losses")  # to a method by the search, and so no options
GROUPS = 2  # batches that a round is split into, so that two workers share it


@runtime_checkable
class EvaluatesApart(Protocol):
    """A score with a seed of its own for held-out text, such as `Proxy`."""

    evaluate: Evaluate


@runtime_checkable
class HasSteps(EvaluatesApart, Protocol):
    """A score that knows the steps of a whole run, and goes on with a run that it made in part."""

    steps: int


@runtime_checkable
class Repeats(Protocol):
    """A score that may repeat each source as often as the run that the mixture is for."""

    repetition: Repetition | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """A search: what is scored, how, and how much.

    Args:
        score: makes the runs. With several workers it must be picklable: a function of a module, or a `Proxy`.
        space: the mixtures to choose from.
        method: a name of `METHODS`.
        budget: whole runs that may be spent, the audit included.
        seed: training seed of all runs of the search, and of the method.
        evaluation_seed: of held-out text in the search, for scores that know one.
        targets: weight of each loss in what is minimised, by name; the score must return them. None: the domains, all
            the same.
        options: of the method.
        audit_seeds: fresh seeds under which the answer is compared with uniform and proportional, 1 or more. None: one
            for each 12 runs of the budget, at most 8.
        round_size: runs that are proposed at a time, and so the most workers that can share the work. None: an eighth
            of the budget, at most 8.
        group_size: runs that a worker trains as one batch. None: half a round if the score makes many at once, else 1.
        target_steps: steps of the training that the mixture is for; mixtures are then compared by losses extrapolated
            to there by a law of steps. Only for a score with steps, such as `Proxy`.
        rows: sizes of the domains, for the proportional mixture; shape (K,).
        passes: the run that the mixture is for, to tell how often it reads each domain; None if it is not known.
        about: what the search depends on besides, as JSON values: fingerprints of data, sizes of models.
        earlier: budgets that the search had before this one, rising; see `at`.

    Raises:
        MixtureError: naming the argument that is out of its range.
    """

    score: Score
    space: Space
    budget: int
    method: str = "auto"
    seed: int = 0
    evaluation_seed: int = EVALUATION_SEED
    targets: Mapping[str, float] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    audit_seeds: int | None = None
    round_size: int | None = None
    group_size: int | None = None
    target_steps: int | None = None
    rows: tuple[float, ...] | None = None
    passes: Passes | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    earlier: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not (callable(self.score) or isinstance(self.score, EvaluatesApart | ManyScores)):
            raise MixtureError(f"score must be a function of weights, budget and seed, but got {self.score!r:.100}")
        as_choice(self.method, "method", list(METHODS), MixtureError)
        whole = {"budget": (2, MOST_RUNS), "seed": (0, 2**32), "evaluation_seed": (0, 2**63)}
        whole |= dict.fromkeys(("audit_seeds", "round_size", "group_size"), (1, MOST_RUNS))
        for name, (low, end) in whole.items():
            if getattr(self, name) is not None or name in ("budget", "seed", "evaluation_seed"):
                self._set(name, as_int(getattr(self, name), name, low, end, MixtureError))
        if self.targets is not None:
            self._set("targets", _checked_targets(self.targets))
        if self.rows is not None:
            self._set("rows", tuple(self.space.amounts(self.rows, "rows").tolist()))
        _refuse_others_than_json(self.options, "options")
        _refuse_others_than_json(self.about, "about")
        self._check_target_steps()
        self._check_budget()
        self.make_method(self.rules.search_budget)  # so that wrong options are told before anything is begun

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # of a frozen value, while it is made

    def _check_budget(self) -> None:
        """Raise unless there is a run for the search, beside those of the audit and what a smaller budget was for."""
        rules, before = self.rules, self.parts[-2].search_budget if self.earlier else 0
        if rules.search_budget > before:
            return
        audit, least = rules.arms * rules.audit_seeds, self.budget + before - rules.search_budget + 1
        had = f" and {self.earlier[-1]} that it had before" if self.earlier else ""
        raise MixtureError(
            f"budget must leave a run for the search beside {audit} of the audit{had}, but got {self.budget}; give at "
            f"least {least}" + (", or fewer audit_seeds" if rules.audit_seeds > 1 and not self.earlier else "")
        )

    def _check_target_steps(self) -> None:
        if self.target_steps is None:
            return
        steps = self.score.steps if isinstance(self.score, HasSteps) else None
        if steps is None:
            raise MixtureError(
                f"target_steps must come with a score that has steps, such as the proxy, but got {self.target_steps!r}"
            )
        as_int(self.target_steps, "target_steps", steps, 2**50, MixtureError)
        if isinstance(self.score, Repeats) and self.score.repetition is not None:
            raise MixtureError(
                "target_steps must come with a proxy without target_tokens, or sources repeat too often beyond its "
                f"steps, but got {self.target_steps!r} with {self.score.repetition.target_tokens!r}"
            )
        if steps < FEWEST_STEPS:
            raise MixtureError(
                f"steps of a proxy run must be at least {FEWEST_STEPS} for target_steps, but got {steps}"
            )

    @property
    def losses(self) -> tuple[str, ...]:
        """Names of the D losses of a run."""
        own = self.space.names
        if isinstance(self.score, EvaluatesApart):
            for name in self.targets or {}:
                if name not in own:
                    raise MixtureError(f"targets must be of domains {list(own)}, but got {name!r}{nearest(name, own)}")
            return own
        return tuple(self.targets) if self.targets else own

    @property
    def target_weights(self) -> tuple[float, ...]:
        """Weight of each loss in what is minimised, sum 1."""
        weights = np.array([1.0 if self.targets is None else self.targets.get(name, 0.0) for name in self.losses])
        weights = weights / weights.max()
        return tuple((weights / weights.sum()).tolist())

    @property
    def rules(self) -> Rules:
        """What decides the course, of its last part if the budget was raised."""
        return self.parts[-1]

    @property
    def parts(self) -> tuple[Rules, ...]:
        """What decides the course for each budget that the search had; rounds stay as they were begun."""
        budgets, found = (*self.earlier, self.budget), list[Rules]()
        round_size = self.round_size or round_size_of(budgets[0])
        many = isinstance(self.score, EvaluatesApart | ManyScores)
        proportional = None if self.rows is None else self.space.fit(np.array(self.rows))
        for budget in budgets:
            rules = Rules(
                budget=budget,
                seed=self.seed,
                evaluation_seed=self.evaluation_seed,
                audit_seeds=self.audit_seeds or audit_seeds_of(budget),
                round_size=round_size,
                group_size=self.group_size or (-(-round_size // GROUPS) if many else 1),
                uniform=_floats(self.space.uniform),
                proportional=None if proportional is None else _floats(proportional),
                earlier_audit_seeds=sum(before.audit_seeds for before in found),
            )
            found.append(rules)
        return tuple(found)

    @property
    def course(self) -> Course:
        """Which runs come next."""
        targets = dict(zip(self.losses, self.target_weights, strict=True))
        return Course(parts=self.parts, make_method=self.make_method, targets=targets, extrapolate=self.extrapolation)

    @property
    def extrapolation(self) -> Extrapolation | None:
        """What turns measured losses into those that the method is told; None for nothing."""
        if self.target_steps is None or not isinstance(self.score, HasSteps):
            return None
        return Extrapolation(steps=self.score.steps, target_steps=self.target_steps)

    def make_method(self, budget: int) -> Method:
        """Return the method as it is before any run, for so many whole runs of the search."""
        weights = np.array(self.target_weights)
        for name in GIVEN:
            if name in self.options:
                raise MixtureError(
                    f"options must not have {name!r}, but got {self.options[name]!r:.100}; the search gives it"
                )
        options: dict[str, Any] = {"budget": budget, **self.options}
        try:
            return make_method(self.method, self.space, seed=self.seed, targets=weights, losses=self.losses, **options)
        except (TypeError, ValueError) as error:
            if isinstance(error, CuveeError):
                raise
            raise MixtureError(
                f"options must suit {self.method}, but got {dict(self.options)!r:.200}: {error}"
            ) from None

    @property
    def settings(self) -> dict[str, Any]:
        """All that the runs depend on, as JSON values; kept with a study, and compared when it is gone on with."""
        rules, space = self.parts[0], self.space  # a budget that was raised is kept beside them
        return {
            "method": self.method,
            "domains": list(space.names),
            **self.about,
            "lower": _rounded(space.lower),
            "upper": _rounded(space.upper),
            "prior": _rounded(space.prior),
            "targets": dict(zip(self.losses, _rounded(self.target_weights), strict=True)),
            "seed": self.seed,
            "evaluation seed": self.evaluation_seed,
            "budget": rules.budget,
            "audit seeds": rules.audit_seeds,
            "target steps": self.target_steps,
            "runs of a round": rules.round_size,
            "runs of a batch": rules.group_size,
            "rows": None if self.rows is None else list(self.rows),
            "options": dict(self.options),
        }

    def at(self, storage: str, name: str) -> Self:
        """Return this search as a study of it goes on: with the budgets that it had before. A larger one raises it.

        Raises:
            CuveeError: the storage cannot be opened, or the budget is too little to go on.
            StateError: a study of that name has runs that were made with other settings, or with a larger budget.
        """
        terms = terms_of(storage, name)
        if terms is None or not terms.fixed or (self.budget == terms.settings[BUDGET] and not terms.raised):
            return replace(self, earlier=())
        begun = self._begun_with(terms.settings[BUDGET])
        check_same(name, terms.settings, begun.settings)
        if self.budget > terms.budgets[-1]:
            replace(self, earlier=terms.budgets)  # which tells whether it is enough
            raise_budget(storage, name, terms, self.budget)
            terms = terms_of(storage, name) or terms
        check_budgets(name, terms.budgets, (*terms.budgets[:-1], self.budget))
        return replace(self, earlier=terms.budgets[:-1])

    def _begun_with(self, budget: int) -> Self:
        """Return this search with another budget to begin with; itself if that cannot be."""
        try:
            return replace(self, budget=budget, earlier=())
        except MixtureError:
            return self

    def open(self, storage: str, name: str, timing: Timing | None = None) -> Study:
        """Return the study of this search in a storage, begun if it is not there.

        Raises:
            CuveeError: the storage cannot be opened.
            StateError: a study of that name was begun with other settings, or given another budget.
        """
        return open_study(
            storage,
            name,
            self.settings,
            names=self.space.names,
            course=self.course,
            raised=(*self.earlier, self.budget)[1:],
            timing=timing,
        )

    def evaluate(self, weights: F64, *, fidelity: float, training_seed: int, evaluation_seed: int) -> F64:
        """Return the losses of runs, shape (M, D), or (M, P + 1, D) to be extrapolated; see `Evaluate`."""
        seeds = {"training_seed": training_seed, "evaluation_seed": evaluation_seed}
        if not isinstance(self.score, EvaluatesApart):
            losses = self.losses
            return run_scores(
                self.score, self.space, weights, budget=fidelity, seed=training_seed, losses=losses, finite=False
            )[1]
        if self.target_steps is None:
            return self.score.evaluate(weights, fidelity=fidelity, **seeds)
        parts = [self.score.evaluate(weights, fidelity=fidelity * part, **seeds) for part in (*PARTS, 1.0)]
        return np.stack(parts, axis=1)


def _checked_targets(targets: object) -> dict[str, float]:
    """Return the weights of losses by name, at least one of them above 0."""
    if not isinstance(targets, Mapping) or not all(isinstance(name, str) for name in targets):
        raise MixtureError(f"targets must be weights by name of a loss, but got {targets!r:.200}")
    checked = {name: as_weight(weight, f"weight of target {name!r}", MixtureError) for name, weight in targets.items()}
    if not any(checked.values()):
        raise MixtureError(f"targets must not all have weight 0, but got {checked}")
    return checked


def _refuse_others_than_json(values: object, name: str) -> None:
    try:
        if isinstance(values, Mapping):
            canonical_json(dict(values))
            return
        reason = "no mapping"
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error)
    raise MixtureError(f"{name} must be JSON values by name, but got {values!r:.200}: {reason}")


def _rounded(weights: F64 | Sequence[float]) -> list[float]:
    """Return weights to nine digits: the last bits of sums may differ from one kind of processor to another."""
    return [round(weight, 9) for weight in _floats(weights)]


def _floats(weights: F64 | Sequence[float]) -> tuple[float, ...]:
    return tuple(np.asarray(weights, dtype=np.float64).tolist())
