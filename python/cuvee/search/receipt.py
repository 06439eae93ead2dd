"""What a search leaves behind: what it spent, every run, how noisy they were, and what its answer is worth."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import StateError

F64 = NDArray[np.float64]
Kind = Literal["search", "audit", "earlier audit"]
RECOMMENDED, UNIFORM, PROPORTIONAL = "recommended", "uniform", "proportional"
FOUND = "found"  # what the search recommended, where the audit overturned that
ARMS = (RECOMMENDED, UNIFORM, PROPORTIONAL, FOUND)
LEVEL = 0.9  # of intervals
SURE = 0.95  # confidence from which a mixture counts as better
PARTS = (0.25, 0.5, 0.75)  # of a run, after which losses are measured besides its end, for laws to go on from
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One proxy run.

    Attributes:
        number: its place in the order of the search, or of the audit, from 0 on.
        kind: "search" if the method asked for it, "audit" if it judges the answer, "earlier audit" if it judged one
            of before the budget was raised.
        weights: the mixture trained on, K shares with the sum 1.
        losses: held-out loss by target, D values in nats.
        fidelity: part of the proxy's steps that were run, in (0, 1].
        training_seed, evaluation_seed: what it was drawn from.
        arm: which mixture an audit run is of: "recommended", "uniform", "proportional", or "found" if the search's own
            answer was overturned by the audit. Also of runs that confirm an answer.
        curve: losses after the parts of the run that `PARTS` names, D each; empty if they were not measured.
        measured: the losses at the end of the run where `losses` are others: extrapolated beyond it, or those of the
            worst run in place of one that diverged; else empty. NaN for a loss that was not finite.
        diverged: whether a loss of the run, at its end or after a part of it, was not finite or larger than any loss.
        seconds: how long it took; NaN if that is not known. Runs trained as one share their time.
        worker: the process that ran it.
    """

    number: int
    kind: Kind
    weights: tuple[float, ...]
    losses: tuple[float, ...]
    training_seed: int
    evaluation_seed: int
    fidelity: float = 1.0
    arm: str = ""
    curve: tuple[tuple[float, ...], ...] = ()
    measured: tuple[float, ...] = ()
    diverged: bool = False
    seconds: float = math.nan
    worker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The recommended mixture against another, from runs that share their seeds.

    Attributes:
        other: "uniform", "proportional" or "found".
        differences: loss of the other minus that of the recommended mixture, one per seed, in nats.
        by_target: the same, averaged over seeds, for each of the D targets.
        diverged: pairs in which the recommended mixture diverged; it is then not better, whatever the others say.
    """

    other: str
    differences: tuple[float, ...]
    by_target: tuple[float, ...]
    diverged: int = 0

    @property
    def pairs(self) -> int:
        """How many pairs of runs there are."""
        return len(self.differences)

    @property
    def gain(self) -> float:
        """How much lower the loss of the recommended mixture is on average, in nats."""
        return float(np.mean(self.differences))

    @property
    def sd(self) -> float:
        """Standard deviation of a difference, in nats; NaN for a single pair."""
        return float(np.std(self.differences, ddof=1)) if self.pairs > 1 else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of the gain at level 0.9, by Student's t over pairs; NaN for a single pair."""
        if self.pairs < 2:
            return math.nan, math.nan
        from scipy.special import stdtrit

        reach = float(stdtrit(self.pairs - 1, (1 + LEVEL) / 2)) * self.sd / math.sqrt(self.pairs)
        return self.gain - reach, self.gain + reach

    @property
    def confidence(self) -> float:
        """1 - p of a one-sided paired t test of a gain above 0; NaN for a single pair."""
        if self.pairs < 2:
            return math.nan
        if self.sd == 0:
            return 0.5 if self.gain == 0 else float(self.gain > 0)
        from scipy.special import stdtr

        return float(stdtr(self.pairs - 1, self.gain * math.sqrt(self.pairs) / self.sd))

    @property
    def better(self) -> bool:
        """Whether the recommended mixture is better beyond noise: a confidence of 0.95 or more, and never diverged."""
        return self.confidence >= SURE and not self.diverged

    def sentence(self) -> str:
        """Return what the pairs say."""
        other = "what the search found" if self.other == FOUND else self.other
        if self.diverged:
            return f"not better than {other}: it diverged in {self.diverged} of {self.pairs} runs under fresh seeds"
        low, high = self.interval
        off = f"{abs(self.gain):.4f} nats {'below' if self.gain >= 0 else 'above'} {other}"
        if self.pairs < 2:
            return f"{off} in one pair of runs, which says nothing of noise: more audit seeds would"
        verdict = f"better than {other}" if self.better else f"not better than {other} beyond noise"
        return (
            f"{verdict}: {off}, {LEVEL:.0%} interval of the gain {low:+.4f} to {high:+.4f}, confidence "
            f"{sureness(self.confidence)} from {self.pairs} pairs of runs under fresh seeds"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How far losses scatter when nothing but the seed changes.

    Attributes:
        run: standard deviation of the mean loss of one run over seeds, in nats; NaN below two seeds.
        difference: that of the difference of two runs that share their seed.
        seeds: seeds that both are estimated from.
    """

    run: float
    difference: float
    seeds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The account of a search.

    Attributes:
        method: name of the method that searched.
        names: the K domains, in the order of all weights.
        targets: the D domains whose held-out losses are measured.
        target_weights: weight of each target in the loss that was minimised, sum 1.
        weights: the recommended mixture, K shares with the sum 1.
        low, high: interval of each share at level 0.9; empty if none was worked out.
        runs: every run there was, those of the search first.
        predicted, predicted_sd: what the method expects of the recommended mixture, in nats; NaN if it does not say.
        target_steps: steps that all losses are extrapolated to; 0 if they are as they were measured.
        fingerprint: of what was searched on; "" if it has none.
        remarks: what else should be known, one sentence each.
    """

    method: str
    names: tuple[str, ...]
    targets: tuple[str, ...]
    target_weights: tuple[float, ...]
    weights: tuple[float, ...]
    runs: tuple[Run, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    predicted: float = math.nan
    predicted_sd: float = math.nan
    target_steps: int = 0
    fingerprint: str = ""
    remarks: tuple[str, ...] = ()

    def of_kind(self, kind: Kind, arm: str | None = None) -> Iterator[Run]:
        """Yield runs of one kind, or of one arm of the audit."""
        return (run for run in self.runs if run.kind == kind and arm in (None, run.arm))

    @property
    def diverged(self) -> int:
        """Runs that diverged, those of the audit included."""
        return sum(run.diverged for run in self.runs)

    def loss(self, run: Run) -> float:
        """Return what the search minimised: the weighted mean of a run's losses, in nats."""
        return float(np.dot(run.losses, self.target_weights))

    @property
    def search_runs(self) -> int:
        """Runs spent on the search, the audit not counted."""
        return sum(1 for _ in self.of_kind("search"))

    @property
    def audit_runs(self) -> int:
        """Runs spent on the audit."""
        return sum(1 for _ in self.of_kind("audit"))

    @property
    def spent(self) -> float:
        """What all runs cost together, in whole runs: the sum of their fidelities."""
        return math.fsum(run.fidelity for run in self.runs)

    @property
    def seconds(self) -> float:
        """Time of all runs added up, over all workers."""
        return math.fsum(run.seconds for run in self.runs if math.isfinite(run.seconds))

    @property
    def selection_seeds(self) -> tuple[tuple[int, int], ...]:
        """Pairs of training and evaluation seed that the search used."""
        return tuple(dict.fromkeys((run.training_seed, run.evaluation_seed) for run in self.of_kind("search")))

    @property
    def audit_seeds(self) -> tuple[tuple[int, int], ...]:
        """Pairs of training and evaluation seed that the audit used; none of them is one of the search."""
        return tuple(dict.fromkeys((run.training_seed, run.evaluation_seed) for run in self.of_kind("audit")))

    @property
    def selection_eval_seed(self) -> int:
        """Evaluation seed of the search."""
        return self.selection_seeds[0][1]

    @property
    def audit_training_seed(self) -> int:
        """Training seed of the first audit run."""
        return self.audit_seeds[0][0]

    @property
    def audit_eval_seed(self) -> int:
        """Evaluation seed of the first audit run."""
        return self.audit_seeds[0][1]

    @property
    def audit_losses(self) -> F64:
        """Losses of the recommended mixture under fresh seeds, by target, shape (D,): means over the audit."""
        losses = [run.losses for run in self.of_kind("audit", RECOMMENDED)]
        return np.mean(losses, axis=0) if losses else np.full(len(self.targets), np.nan)

    @property
    def audit_loss(self) -> float:
        """Loss of the recommended mixture under fresh seeds, in nats."""
        return float(self.audit_losses @ np.array(self.target_weights))

    @property
    def audit_per_domain(self) -> tuple[tuple[str, float], ...]:
        """The same by target."""
        return tuple(zip(self.targets, self.audit_losses.tolist(), strict=True))

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The recommended mixture against the others of the audit."""
        ours = {(run.training_seed, run.evaluation_seed): run for run in self.of_kind("audit", RECOMMENDED)}
        found = []
        for other in ARMS[1:]:
            pairs = [
                (ours[seeds], run)
                for run in self.of_kind("audit", other)
                if (seeds := (run.training_seed, run.evaluation_seed)) in ours
            ]
            if pairs:
                gains = np.array([np.subtract(theirs.losses, mine.losses) for mine, theirs in pairs])
                differences = tuple((gains @ np.array(self.target_weights)).tolist())
                found.append(
                    Comparison(
                        other=other,
                        differences=differences,
                        by_target=tuple(gains.mean(axis=0).tolist()),
                        diverged=sum(mine.diverged for mine, _ in pairs),
                    )
                )
        return tuple(found)

    @property
    def noise(self) -> Noise:
        """How noisy runs are, from those of the audit that did not diverge: each arm under several seeds."""
        sound = replace(self, runs=tuple(run for run in self.runs if not run.diverged))
        return Noise(
            run=_pooled_sd([[self.loss(run) for run in sound.of_kind("audit", arm)] for arm in ARMS]),
            difference=_pooled_sd([comparison.differences for comparison in sound.comparisons]),
            seeds=len(sound.audit_seeds),
        )

    @property
    def verdict(self) -> str:
        """What the answer is worth, in a sentence or two."""
        said = [comparison.sentence() for comparison in self.comparisons]
        text = "; ".join(said) if said else "not compared: no other mixture ran in the audit"
        return f"The recommended mixture is {text}."

    def __str__(self) -> str:
        """Return the answer in a line: the mixture, and what it is worth."""
        shares = ", ".join(f"{name} {share:.2%}" for name, share in zip(self.names, self.weights, strict=True))
        return f"{self.method}: {shares}. {self.verdict}"

    def document(self) -> dict[str, Any]:
        """Return the receipt as JSON values; `from_document` reads it back."""
        summary = {
            "search_runs": self.search_runs,
            "audit_runs": self.audit_runs,
            "diverged": self.diverged,
            "spent": self.spent,
            "seconds": self.seconds,
            "selection_seeds": self.selection_seeds,
            "audit_seeds": self.audit_seeds,
            "audit_loss": self.audit_loss,
            "audit_per_domain": dict(self.audit_per_domain),
            "noise": asdict(self.noise),
            "comparisons": [
                asdict(each)
                | {"gain": each.gain, "interval": each.interval, "confidence": each.confidence, "better": each.better}
                for each in self.comparisons
            ],
            "verdict": self.verdict,
        }
        document: dict[str, Any] = without_nan({"format": FORMAT, **asdict(self), "summary": summary})
        return document

    def to_json(self) -> str:
        """Return the receipt as JSON text."""
        return json.dumps(self.document(), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Return the receipt that `document` made these JSON values of.

        Raises:
            StateError: it is of another format, or not a receipt; names what is wrong.
        """
        if not isinstance(document, Mapping):
            raise StateError(f"receipt must be a JSON object, but got {document!r:.100}")
        if document.get("format") != FORMAT or isinstance(document["format"], bool):
            raise StateError(f"receipt must be of format {FORMAT}, but got {document.get('format')!r}")
        from .receipt_reading import receipt_from

        return receipt_from(document, cls)


def sureness(confidence: float) -> str:
    """Return a probability in percent that never claims certainty."""
    if confidence > 0.999:
        return "above 99.9%"
    return f"{confidence:.1%}" if confidence >= 0.001 else "below 0.1%"


def _pooled_sd(groups: Sequence[Sequence[float]]) -> float:
    """Return the standard deviation within groups of values; NaN if no group has two."""
    squares = sum(len(group) * float(np.var(group)) for group in groups if len(group) > 1)
    freedom = sum(len(group) - 1 for group in groups if len(group) > 1)
    return math.sqrt(squares / freedom) if freedom else math.nan


def without_nan(value: Any) -> Any:
    """Return JSON values: None for what is not finite, lists for tuples."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: without_nan(inner) for name, inner in value.items()}
    return [without_nan(inner) for inner in value] if isinstance(value, list | tuple) else value
