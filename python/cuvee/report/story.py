"""What a reader should know of a run in words: how it stands, what looks wrong, its course, its plans."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from .history import PlanRecord, Run
from .markup import Content, Html, element
from .owed import Owed
from .tables import Account
from .wording import duration, moment, number, percent, plural

SHARE_GAP = 0.1  # relative gap between what a source was asked for and got that is told
FEW_ROWS = 50  # gaps are not told of a source that is owed fewer rows or tokens: one row is much of them
VARIES = re.compile(r"""('.*?'|".*?")|\d[\d.,]*(?:e[+-]?\d+)?""")  # names and numbers in a warning


def status(run: Run) -> tuple[str, str]:
    """Return how a run stands, as a word for the style sheet and as text."""
    last = run.sessions[-1]
    if last.ended:
        return "done", "finished at its step limit" if last.reached_max_steps else "finished"
    return "open", "under way or interrupted"


def seconds_of(run: Run) -> float:
    """Return how long all sessions together took."""
    return sum(max(0.0, session.last_time - session.time) for session in run.sessions)


def tokens_per_second(run: Run) -> float:
    """Return target tokens per second between the logged steps of each session; NaN if there are too few."""
    points = run.points
    within = np.diff(points.session) == 0
    tokens, seconds = np.diff(points.counts[3].sum(axis=1))[within].sum(), np.diff(points.time)[within].sum()
    return float(tokens / seconds) if seconds > 0 else np.nan


def headline(run: Run) -> list[tuple[str, str]]:
    """Return the run in a few numbers: (what, how much)."""
    last, planned = max(session.last_step for session in run.sessions), run.facts.get("steps")
    ahead = isinstance(planned, int) and planned > last
    facts = [("optimizer steps", f"{number(last)} of {planned:,}" if ahead else number(last))]
    facts.append(("duration", duration(seconds_of(run))))
    if len(run.points):
        totals = run.points.counts[:, -1].sum(axis=1).tolist()
        facts.append(("rows trained on", number(totals[2])))
        pace = tokens_per_second(run)
        if totals[3]:
            facts.append(("target tokens", number(totals[3])))
        if totals[3] and np.isfinite(pace):
            facts.append(("tokens per second", number(pace)))
    losses = run.points.metrics.get("loss", np.array([]))
    known = losses[np.isfinite(losses)]
    if len(known):
        facts.append(("loss, first to last", f"{known[0]:.2f} → {known[-1]:.2f}"))
    return facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """A warning, and further ones of its kind."""

    text: str
    more: tuple[str, ...] = ()


def warnings(run: Run, owed: Owed | None, account: Account | None) -> list[Warned]:
    """Return what looks wrong, the gravest first."""
    found = [*_broken(run, owed), *(_gaps(account) if account is not None else ())]
    return [*(Warned(text=text) for text in found), *_planned(run)]


def _planned(run: Run) -> Iterable[Warned]:
    """Yield what the plans warned of, one warning per kind; of those that differ in numbers alone, the last one."""
    kinds: dict[str, dict[str, str]] = {}
    for plan in run.plans:
        for warning in map(str, plan.document["warnings"]):
            same = VARIES.sub(lambda match: match[1] or "", warning)
            kinds.setdefault(VARIES.sub("", warning), {})[same] = f"Plan of epoch {plan.epoch}: {warning}."
    for kind in kinds.values():
        first, *more = kind.values()
        yield Warned(text=first, more=tuple(more))


def _broken(run: Run, owed: Owed | None) -> Iterable[str]:
    for name, (times, first) in run.not_finite.items():
        yield f"The {name.replace('_', ' ')} was not a finite number {plural(times, 'time')}, first at step {first:,}."
    points = run.points
    short_of = points.counts[0] - points.counts[1] - points.counts[2]
    if (short_of < 0).any():
        place, source = np.argwhere(short_of < 0)[0].tolist()
        yield (
            f"The account does not balance: at step {points.step[place]:,} source {run.names[source]!r} has more rows "
            "filtered and trained on than scheduled."
        )
    if owed is not None and owed.bound is not None:
        beyond = np.abs(owed.deviation)
        if beyond.max(initial=0.0) > owed.bound + 1e-6:
            place, source = np.unravel_index(int(beyond.argmax()), beyond.shape)
            yield (
                f"Source {run.names[int(source)]!r} was {beyond.max():,.1f} rows off what it was owed at step "
                f"{points.step[int(place)]:,}; the plan promises {owed.bound:,.1f} at most."
            )
    yield from _changed_plans(run)


def _changed_plans(run: Run) -> Iterable[str]:
    seen: dict[int, str] = {}
    for plan in run.plans:
        digest = plan.document["plan_hash"]
        if seen.get(plan.epoch, digest) != digest:
            yield f"The plan of epoch {plan.epoch} changed at step {plan.step:,}."
        seen[plan.epoch] = digest


def _gaps(account: Account) -> Iterable[str]:
    """Yield the sources whose share of what was trained on is not what was asked for."""
    amount = account.counts[3 if account.unit == "tokens" else 2].sum()
    for label, asked, got in zip(account.labels, account.requested.tolist(), account.given.tolist(), strict=True):
        if np.isfinite(asked) and asked * amount >= FEW_ROWS and abs(got - asked) > SHARE_GAP * asked:
            yield f"Source {label!r} was asked for {percent(asked)} of the {account.unit}, and got {percent(got)}."


def warning_list(found: list[Warned]) -> Html:
    """Return warnings as a list."""
    if not found:
        return Html("")
    items = (element("li", warned.text, _more(warned.more)) for warned in found)
    return element(
        "section",
        element("h2", plural(len(found), "warning")),
        element("ul", *items),
        class_="warnings",
        id="warnings",
    )


def _more(texts: tuple[str, ...]) -> Html | None:
    if not texts:
        return None
    summary = element("summary", f"{len(texts):,} more of this kind")
    return element("details", summary, element("ul", *(element("li", text) for text in texts)))


def course(run: Run) -> Html:
    """Return the run's sessions as a list."""
    items = []
    for session in run.sessions:
        began = "Began" if session.resumed_from is None else f"Resumed from {session.resumed_from}"
        end = (
            f"ended at step {session.last_step:,}" if session.ended else f"last heard of at step {session.last_step:,}"
        )
        limit = ", its limit" if session.ended and session.reached_max_steps else ""
        took = duration(session.last_time - session.time)
        text = f"{began} at step {session.step:,}, {end}{limit}, after {took}."
        items.append(element("li", element("span", moment(session.time), class_="when"), " ", text))
    return element("ol", *items, class_="course")


def plan_cards(run: Run) -> Html:
    """Return the plan of each epoch with its hashes; one that a resumed session had again is shown once."""
    found: dict[tuple[int, str, str], list[PlanRecord]] = {}
    for plan in run.plans:
        key = (plan.epoch, plan.document["plan_hash"], plan.document["schedule_hash"])
        found.setdefault(key, []).append(plan)
    return element("div", *(_plan_card(plans) for plans in found.values()), class_="plans")


def _plan_card(plans: list[PlanRecord]) -> Html:
    document = plans[-1].document
    again = "".join(f", again from {plan.step:,}" for plan in plans[1:])
    reason = _ending(str(document.get("termination_reason")))
    facts: dict[str, Content] = {
        "rows": f"{number(document['planned_rows'])}, {reason}",
        "in force": f"from step {plans[0].step:,}{again}",
        "shares": f"in {document.get('weight_unit')}, policy {document.get('policy')}",
        "seed": str(document.get("seed")),
    }
    if document.get("changes"):
        facts["changes of weights"] = str(document["changes"])
    hashes = {"spec": "mix_spec_hash", "plan": "plan_hash", "parent": "parent", "schedule": "schedule_hash"}
    facts |= {label: element("code", str(document[name])) for label, name in hashes.items() if document.get(name)}
    facts["file"] = element("code", str(document.get("plan_file")))
    return element("article", element("h3", f"Epoch {plans[0].epoch}"), facts_list(facts), class_="card")


def _ending(reason: str) -> str:
    kind, _, name = reason.partition(":")
    return {
        "samples_per_epoch": "the epoch's budget",
        "source_exhausted": f"until {name} is used up",
        "all_sources_exhausted": "until every source is used up",
        "all_sources_exhausted_once": "until every row was drawn",
    }.get(kind, reason)


def facts_list(facts: Mapping[str, Content]) -> Html:
    """Return facts as a list of names and values."""
    pairs = (element("div", element("dt", name), element("dd", value)) for name, value in facts.items())
    return element("dl", *pairs, class_="facts")


def settings(run: Run) -> Html:
    """Return what the last session was started with, what is grouped there laid out flat."""
    flat: dict[str, object] = {}
    for name, value in run.facts.items():
        flat |= value if isinstance(value, Mapping) else {name: value}
    return facts_list({str(name).replace("_", " "): _setting(value) for name, value in flat.items()})


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None or value == "" else str(value)
