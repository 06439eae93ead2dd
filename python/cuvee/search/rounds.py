"""Which runs come next: a pure function of the rules of a search and of the runs that are done.

A search goes in rounds. The runs of a round are proposed from what the rounds before have shown, so that any number of
workers can share a round and the answer does not depend on how many they were. The last round is the audit: the
recommended mixture beside the uniform and the proportional one, each pair under seeds that the search never saw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias

import numpy as np

from .divergence import best_sound, with_losses
from .methods import Method, Observation, Recommendation, Trial
from .receipt import F64, PROPORTIONAL, RECOMMENDED, UNIFORM, Run
from .space import mixture
from .trials import Planned, Slot

Made: TypeAlias = tuple[tuple[float, ...], float]  # weights and fidelity
AUDIT_SEED = 0x6175_6469  # sets the seeds of audits apart from all others that are made of a search's seed
MOST_AUDIT_SEEDS = 8
ROUNDING = 1e-9  # of sums of fidelities
SAME_DIGITS = 9  # of shares, to which mixtures are told apart
MOST_NATS = 128.0  # a loss above is in some other unit, such as perplexity or nats of a document
STALLED = 8  # rounds of runs that were all made before, in a row, after which a method is taken to have settled


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What decides the course of a search, besides its method.

    Args:
        budget: whole runs that may be spent, the audit included.
        seed: training seed of all runs of the search; those of the audit are made of it.
        evaluation_seed: of the search.
        audit_seeds: seeds that the audit compares mixtures under.
        earlier_audit_seeds: those of audits before, of a search whose budget was raised.
        round_size: runs proposed at a time.
        group_size: runs trained by one worker as one batch.
        uniform: the feasible mixture nearest to uniform, shape (K,).
        proportional: the one nearest to the shares of rows; None if rows are not known.
    """

    budget: int
    seed: int
    evaluation_seed: int
    audit_seeds: int
    round_size: int
    group_size: int
    uniform: tuple[float, ...]
    proportional: tuple[float, ...] | None
    earlier_audit_seeds: int = 0

    @property
    def arms(self) -> int:
        """Mixtures in the audit."""
        return 1 + len({mixture(other) for other in self.free.values()})

    @property
    def free(self) -> dict[str, tuple[float, ...]]:
        """Mixtures that cost no search, by the names of their arms."""
        both = {UNIFORM: self.uniform, PROPORTIONAL: self.proportional}
        return {name: weights for name, weights in both.items() if weights is not None}

    @property
    def search_budget(self) -> int:
        """Whole runs for the search."""
        return self.budget - self.arms * (self.audit_seeds + self.earlier_audit_seeds)


def audit_seeds_of(budget: int) -> int:
    """Return how many seeds an audit has if nobody says: about a quarter of the runs go there, 8 seeds are enough."""
    return min(MOST_AUDIT_SEEDS, max(1, budget // 12))


def round_size_of(budget: int) -> int:
    """Return how many runs are proposed at a time if nobody says: eight, and fewer where the budget is small."""
    return min(8, max(1, budget // 8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The course of a search.

    Args:
        parts: what decides it; a search whose budget was raised has a part for each, one after the other, with an
            audit at the end of each.
        make_method: returns the method as it is before any run, for whole runs of the search.
        targets: weight of each loss in what is minimised, by name, sum 1.
        extrapolate: returns runs with the losses that the method is to be told; None tells those that were measured.
    """

    parts: tuple[Rules, ...]
    make_method: Callable[[int], Method]
    targets: Mapping[str, float]
    extrapolate: Callable[[Sequence[Run]], Sequence[Run]] | None = None

    def due(self, slots: Sequence[Slot], dropped: Sequence[Planned] = ()) -> list[Planned]:
        """Return the runs to plan now; none while others are under way, and none after the audit.

        Args:
            slots: where every run stands.
            dropped: plans of runs that were given up; they are planned as they were.
        """
        known = [*(slot.planned for slot in slots), *dropped]
        if not known:
            return self._proposed(0, ())
        last = max(known, key=lambda plan: plan.round)
        standing = {(slot.planned.kind, slot.planned.number) for slot in slots}
        missing = {number for number in range(last.first, last.first + last.of) if (last.kind, number) not in standing}
        if missing:
            again = {plan.number: plan for plan in dropped if plan.round == last.round}
            if not missing <= again.keys():  # whoever planned this round was stopped half-way
                anew = self._proposed(last.round, [slot for slot in slots if slot.planned.round < last.round])
                again = {plan.number: plan for plan in anew} | again
            return [again[number] for number in sorted(missing & again.keys())]
        if any(slot.state != "done" for slot in slots) or len(_audits(slots)) == len(self.parts):
            return []
        return self._proposed(last.round + 1, slots)

    def finished(self, slots: Sequence[Slot]) -> bool:
        """Tell whether every run there will be is done."""
        audit = self.last_audit(slots)
        whole = bool(audit) and len(audit) == audit[0].planned.of
        return whole and all(slot.state == "done" for slot in slots)

    def last_audit(self, slots: Sequence[Slot]) -> list[Slot]:
        """Return the runs of the audit that decides, the last there will be; none as long as it is not begun."""
        audits = _audits(slots)
        if len(audits) < len(self.parts):
            return []
        return [slot for slot in slots if slot.planned.kind == "audit" and slot.planned.round == audits[-1]]

    def told(self, runs: Iterable[Run]) -> list[Run]:
        """Return runs with the losses that the method is told: extrapolated, and those of the worst for a diverged one.

        Raises:
            StateError: all runs of the search diverged.
        """
        runs = list(runs)
        if self.extrapolate is not None:
            moved = iter(self.extrapolate([run for run in runs if not run.diverged]))
            runs = [run if run.diverged else next(moved) for run in runs]
        return with_losses(runs, list(self.targets))

    def recommendation(self, told: Sequence[Run]) -> Recommendation:
        """Return what the method recommends after the runs of a search, with their losses as it is `told` them.

        A mixture that diverged is not recommended: the best that was run and did not is, in its place.
        """
        return self._recommendation(told, self.parts[-1])

    def _recommendation(self, told: Sequence[Run], rules: Rules) -> Recommendation:
        method, unit = self._method_and_unit(told, rules)
        found = method.recommend()
        if mixture(found.weights) in {mixture(run.weights) for run in told if run.diverged}:
            best = best_sound(told, list(self.targets.values()))
            if best is not None:
                return Recommendation(weights=np.array(best.weights))
        return replace(found, mean=found.mean * unit, sd=found.sd * unit)

    def _method_and_unit(self, runs: Sequence[Run], rules: Rules) -> tuple[Method, float]:
        """Return the method after runs, in their order, and the unit it was told their losses in."""
        method, unit = self.make_method(rules.search_budget), _unit_of(runs)
        told = [
            Observation(
                Trial(number=run.number, weights=np.array(run.weights), fidelity=run.fidelity),
                np.array(run.losses) / unit,
            )
            for run in runs
        ]
        if told:
            method.tell(told)
        return method, unit

    def _proposed(self, number: int, done: Sequence[Slot]) -> list[Planned]:
        """Return the runs of a round of that number, after others that are done."""
        searched = [slot for slot in done if slot.planned.kind == "search"]
        audits = _audits(done)
        rules, begun = self.parts[len(audits)], max(audits, default=-1) + 1
        left = rules.search_budget - math.fsum(slot.planned.cost for slot in searched)
        told = self.told(slot.run() for slot in searched)
        method = self._method_and_unit(told, rules)[0]
        if left > ROUNDING and not _settled(searched, begun, number):
            trials = _distinct(method.ask(min(rules.round_size, math.ceil(left - ROUNDING))))
            known = {_made(slot.planned): slot for slot in searched}
            affordable = list(_affordable(trials, known, left))
            if affordable:
                return _search_round(rules, number, len(searched), affordable, known)
        first = sum(slot.planned.kind == "audit" for slot in done)
        return _audit_round(rules, number, first, self._recommendation(told, rules))


def _search_round(
    rules: Rules, number: int, first: int, trials: Sequence[Trial], known: Mapping[Made, Slot]
) -> list[Planned]:
    """Return the runs of a round: those of one fidelity in batches, those that were made before by themselves."""
    planned = [
        Planned(
            kind="search",
            number=first + place,
            round=number,
            first=first,
            of=len(trials),
            group=0,
            weights=_floats(trial.weights),
            fidelity=float(trial.fidelity),
            training_seed=rules.seed,
            evaluation_seed=rules.evaluation_seed,
        )
        for place, trial in enumerate(trials)
    ]
    planned = [_recalled(plan, known) for plan in planned]
    batches = [
        same[start : start + rules.group_size]
        for _, run in groupby(planned, key=lambda plan: (plan.fidelity, bool(plan.known)))
        for same in (list(run),)
        for start in range(0, len(same), rules.group_size)
    ]
    return [replace(plan, group=group) for group, batch in enumerate(batches) for plan in batch]


def _audit_round(rules: Rules, number: int, first: int, recommended: Recommendation) -> list[Planned]:
    arms = _arms(rules, _floats(recommended.weights))
    pairs = [(seeds, arm) for seeds in _fresh_seeds(rules) for arm in arms.items()]
    return [
        Planned(
            kind="audit",
            number=first + place,
            round=number,
            first=first,
            of=len(pairs),
            group=place // len(arms),
            weights=weights,
            fidelity=1.0,
            training_seed=training,
            evaluation_seed=evaluation,
            arm=arm,
        )
        for place, ((training, evaluation), (arm, weights)) in enumerate(pairs)
    ]


def _arms(rules: Rules, recommended: tuple[float, ...]) -> dict[str, tuple[float, ...]]:
    """Return the mixtures of the audit by name; one that equals another is run once."""
    arms, known = {RECOMMENDED: recommended}, {mixture(recommended)}
    for name, weights in rules.free.items():
        if mixture(weights) not in known:
            arms[name] = weights
            known.add(mixture(weights))
    return arms


def _fresh_seeds(rules: Rules) -> list[tuple[int, int]]:
    """Return pairs of training and evaluation seed, none of them one of the search or of an audit before."""
    used, end = {rules.seed, rules.evaluation_seed}, rules.earlier_audit_seeds + rules.audit_seeds
    state = np.random.SeedSequence([rules.seed, AUDIT_SEED]).generate_state(4 * end + 8)
    fresh = [seed for seed in dict.fromkeys(state.tolist()) if seed not in used]
    return list(zip(fresh[::2], fresh[1::2], strict=False))[rules.earlier_audit_seeds : end]


def _affordable(trials: Sequence[Trial], known: Mapping[Made, object], budget: float) -> Iterator[Trial]:
    """Yield trials from the first one on as long as the budget lasts; what was run before costs nothing."""
    spent = 0.0
    for trial in trials:
        spent += 0.0 if _made(trial) in known else trial.fidelity
        if spent > budget + ROUNDING:
            return
        yield trial


def _distinct(trials: Sequence[Trial]) -> list[Trial]:
    """Return trials without those that are the same run as one before them."""
    return list({_made(trial): trial for trial in reversed(trials)}.values())[::-1]


def _unit_of(runs: Sequence[Run]) -> float:
    """Return the power of two, at least 1, in which losses are at most `MOST_NATS`: methods know the size of nats."""
    most = max((abs(loss) for run in runs for loss in run.losses), default=0.0)
    return 2.0 ** max(0, math.ceil(math.log2(most / MOST_NATS))) if most > MOST_NATS else 1.0


def _made(run: Planned | Trial) -> Made:
    """Return what makes a run of a search the same run: all share their seeds, and rounding makes no mixture."""
    return tuple(round(weight, SAME_DIGITS) for weight in _floats(run.weights)), float(run.fidelity)


def _recalled(planned: Planned, known: Mapping[Made, Slot]) -> Planned:
    """Return a planned run with what it brought when it was made before, if it was."""
    before = known.get(_made(planned))
    return planned if before is None else replace(planned, known=before.losses, known_curve=before.curve)


def _audits(slots: Sequence[Slot]) -> list[int]:
    """Return the numbers of the rounds that are audits, rising."""
    return sorted({slot.planned.round for slot in slots if slot.planned.kind == "audit"})


def _settled(searched: Sequence[Slot], begun: int, number: int) -> bool:
    """Tell whether the last rounds before one of that number, none before `begun`, asked for nothing new."""
    last = [slot.planned for slot in searched if slot.planned.round >= number - STALLED]
    return number - begun >= STALLED and all(plan.known for plan in last)


def _floats(weights: F64 | Sequence[float]) -> tuple[float, ...]:
    return tuple(np.asarray(weights, dtype=np.float64).tolist())
