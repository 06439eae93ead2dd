"""The report as one HTML page that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..run_log import METRICS_FILE
from . import story
from .figures import Chart, Figure, deviation_chart, learning_charts, loss_charts, metric_charts, share_charts
from .groups import Groups, groups_of
from .history import Run
from .markup import Content, Html, element, joined
from .owed import Owed, owed_by, requested
from .shell import card, document, tiles
from .tables import Account, account_of, account_table, balance, glance_table, numbers_table, swatch
from .wording import moment, number, plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The charts of a report, by section."""

    shares: Sequence[Chart]
    learning: Sequence[Chart]
    distance: Sequence[Chart]
    loss: Sequence[Chart]
    pace: Sequence[Chart]

    @property
    def figures(self) -> dict[str, Figure]:
        """All figures by their keys."""
        charts = (*self.shares, *self.learning, *self.distance, *self.loss, *self.pace)
        return {chart.key: chart.figure for chart in charts}


def page_of(run: Run) -> str:
    """Return the report of a run as an HTML document.

    Raises:
        StateError: if what draws the charts is not installed.
    """
    owed, groups = owed_by(run), groups_of(run)
    if not len(run.points):
        nothing = element("section", element("p", "No step has been logged yet.", class_="lead"), id="empty")
        warned = story.warning_list(story.warnings(run, owed, None))
        return _document(run, joined(_head(run), warned, nothing, _record_section(run)), {})
    account = account_of(run, owed, groups)
    drawn = Drawn(
        shares=share_charts(run, groups, owed),
        learning=learning_charts(run, groups),
        distance=[deviation_chart(run, groups, owed)] if owed else [],
        loss=loss_charts(run, groups),
        pace=metric_charts(run),
    )
    body = joined(
        _head(run),
        story.warning_list(story.warnings(run, owed, account)),
        *_mix_sections(run, groups, owed, account, drawn),
        *_training_sections(run, groups, drawn),
        _account_section(run, owed, groups, account),
        _record_section(run),
    )
    return _document(run, body, drawn.figures)


def _document(run: Run, body: Html, figures: Mapping[str, Figure]) -> str:
    version = run.facts.get("cuvee", "")
    foot = f"Written by cuvee report from {run.folder / METRICS_FILE}. Trained with Cuvée {version}."
    return document(f"{run.folder.name} - training report", body, figures, foot)


def _head(run: Run) -> Html:
    kind, text = story.status(run)
    return element(
        "header",
        element("p", "Training report", class_="eyebrow"),
        element("h1", run.folder.name),
        element("p", element("span", text, class_=f"status {kind}"), " ", _subtitle(run), class_="subtitle"),
        tiles(story.headline(run)),
    )


def _subtitle(run: Run) -> str:
    model = run.facts.get("ckpt") or run.facts.get("model")
    known = [f"model {model}"] if model else []
    known.append(plural(len(run.names), "source"))
    for name, noun in (("world_size", "rank"), ("rows_per_step", "row")):
        count = run.facts.get(name)
        if isinstance(count, int):
            known.append(plural(count, noun) + (" per step" if noun == "row" else ""))
    last = run.sessions[-1].last_time
    return " · ".join([*known, f"last event {moment(last)}"])


def _mix_sections(run: Run, groups: Groups, owed: Owed | None, account: Account, drawn: Drawn) -> Iterator[Content]:
    """Yield what was asked for and given: at the end, over the steps, and how far apart they were."""
    yield element(
        "section",
        element("h2", "Shares"),
        element("p", _verdict(run, owed), class_="lead"),
        glance_table(account, groups),
        element("p", _bar_note(run), class_="note"),
        id="shares",
    )
    key = "Solid: what was given. Dashed: what was asked for." if owed else "No plan was logged to compare with."
    yield element(
        "section",
        element("h2", "Shares over the run"),
        _legend(groups, f"{key} {_marks(run)}"),
        _grid(drawn.shares, "three" if len(drawn.shares) == 3 else "two"),
        id="over-time",
    )
    if drawn.learning:
        yield element(
            "section",
            element("h2", "Weights that learn"),
            _legend(groups, _marks(run)),
            _grid(drawn.learning, "two" if len(drawn.learning) > 1 else "one"),
            id="learning",
        )
    if drawn.distance:
        yield element("section", _grid(drawn.distance, "one"), id="distance")


def _bar_note(run: Run) -> str:
    weights = {tuple(requested(plan, run.names).round(9)) for plan in run.plans}
    moved = (
        len(weights) > 1
        or run.learns
        or any((plan.spec or {}).get("stages") or plan.document.get("changes") for plan in run.plans)
    )
    mean = ", on average over the steps" if moved else ""
    if any(plan.document.get("policy") == "renormalize" for plan in run.plans):
        mean = ", where a source that is used up leaves its share to the others"
    return f"The mark in a bar is the share requested{mean}, or one pass over the source."


def _verdict(run: Run, owed: Owed | None) -> str:
    if owed is None:
        return "What was asked for is not known: no plan was logged."
    off = np.abs(owed.deviation)
    worst = off.max(initial=0.0)
    place, source = np.unravel_index(int(off.argmax()), off.shape)
    taken = "that were in force at logged steps" if run.learns else "at the start of each epoch"
    how = "" if owed.exact else f" (taken with the weights {taken}, though they may move within it)"
    digits = 1 if owed.unit == "rows" else 0
    return (
        f"At every logged step each source was within {number(worst, digits)} {owed.unit} of what it was owed{how}: "
        f"the farthest was {run.names[int(source)]} at step {int(run.points.step[int(place)]):,}."
    )


def _training_sections(run: Run, groups: Groups, drawn: Drawn) -> Iterator[Content]:
    """Yield how training went: loss, pace, and what the optimizer did."""
    if drawn.loss:
        legend = _legend(groups, _marks(run)) if any(chart.key == "losses" for chart in drawn.loss) else None
        grid = _grid(drawn.loss, "two" if len(drawn.loss) > 1 else "one")
        yield element("section", element("h2", "Loss"), legend, grid, id="loss")
    if drawn.pace:
        yield element("section", element("h2", "Pace and optimizer"), _grid(drawn.pace, "two"), id="pace")


def _account_section(run: Run, owed: Owed | None, groups: Groups, account: Account) -> Html:
    everything = None
    if groups.others:
        alone = Groups(labels=run.names, of=np.arange(len(run.names)), others=0)
        table = account_table(account_of(run, owed, alone))
        summary = element("summary", f"All {plural(len(run.names), 'source')}")
        everything = element("details", summary, element("div", table, class_="scroll", tabindex=0, role="region",
                                                         aria_label="All sources"))  # fmt: skip
    step = int(run.points.step[-1])
    return element(
        "section",
        element("h2", "Account"),
        element("p", f"At step {step:,}: {balance(account)}.", class_="lead"),
        account_table(account),
        everything,
        id="account",
    )


def _record_section(run: Run) -> Html:
    plans = joined(element("h2", "Plans"), story.plan_cards(run)) if run.plans else None
    return element(
        "section",
        element("h2", "Course of the run"),
        story.course(run),
        plans,
        element("details", element("summary", "Settings of the run"), story.settings(run), class_="settings"),
        id="record",
    )


def _legend(groups: Groups, note: str) -> Html:
    items = []
    for line, label in enumerate(groups.labels):
        shown = "false" if groups.dwarfing and line == len(groups) - 1 else "true"
        key, name = swatch(groups, line), element("span", label, class_="name")
        button = element("button", key, name, type="button", title=label, data_line=line, aria_pressed=shown)
        items.append(element("li", button))
    zoom = " Drag over a chart to zoom all, double-click to see all again."
    return joined(
        element("ul", *items, class_="legend", aria_label="Sources: press one to hide or show it"),
        element("p", f"{note}Press a source to hide or show it.", element("span", zoom, class_="mouse"), class_="note"),
    )


def _marks(run: Run) -> str:
    resumed = "▼ marks where the run was resumed. " if any(session.resumed_from for session in run.sessions) else ""
    epochs = "Dotted upright lines: an epoch began. " if len({plan.epoch for plan in run.plans}) > 1 else ""
    return resumed + epochs


def _grid(charts: Sequence[Chart], columns: str) -> Html:
    figures = (card(chart.key, chart.title, chart.note, numbers_table(chart)) for chart in charts)
    return element("div", *figures, class_=f"grid {columns}")
