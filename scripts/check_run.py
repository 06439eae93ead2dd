"""Judge what gpu_check.sh has run: `check_run.py run RUN` or `check_run.py tests JUNIT.xml passed|skipped`.

It prints what it finds, and exits with 1 if that is not as it must be.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cuvee.run_log import read_events

WINDOW = 50  # steps at either end whose losses are compared


def check_tests(report: Path, expected: str) -> list[str]:
    """Return what is wrong with a report of tests that must all have passed, or all been skipped."""
    suite = next(ET.parse(report).iter("testsuite"))  # noqa: S314  (written by our own pytest)
    tests, skipped = int(suite.attrib["tests"]), int(suite.attrib["skipped"])
    print(f"{tests} CUDA tests, {skipped} skipped")
    if not tests:
        return ["there must be tests in tests/cuda, but got none"]
    if skipped != (tests if expected == "skipped" else 0):
        return [f"the tests must be {expected}, but got {skipped} skipped of {tests}"]
    return []


def check_run(folder: Path) -> list[str]:
    """Return what is wrong with a run; print its losses at both ends and its shares."""
    events = read_events(folder)
    wrong = [] if events[-1]["stage"] == "run_end" else [f"the run must have ended, but got {events[-1]['stage']!r}"]
    told = [event for event in events if event["stage"] == "dataset_mix_progress"]
    if len(told) < 2:
        return [*wrong, f"the run must have trained for some steps, but told of {len(told)}"]
    wrong += without_losses(told)
    if not wrong:
        losses = [event["metrics"]["loss"] for event in told]
        window = min(WINDOW, len(losses) // 2)
        first, last = (sum(part) / window for part in (losses[:window], losses[-window:]))
        print(f"loss: {first:.4f} over the first {window} of {len(losses)} steps, {last:.4f} over the last {window}")
        wrong += [] if last < first else [f"the loss must fall, but got {first:.4f}, then {last:.4f}"]
    plans = [event for event in events if event["stage"] == "dataset_mix_plan"]
    wrong += print_shares(plans, told[-1]["sources"])
    return wrong


def without_losses(told: Sequence[dict[str, Any]]) -> list[str]:
    """Return the steps whose loss, or that of a source trained on in them, is NaN or infinite: the log has null."""
    lost = [event["step"] for event in told if event["metrics"]["loss"] is None]
    wrong = [f"step {step}: loss must be finite, but is not" for step in lost]
    tokens: dict[str, int] = {}
    for event in told:
        for name, source in event["sources"].items():
            if source["loss"] is None and source["target_tokens"] > tokens.get(name, 0):
                wrong.append(f"step {event['step']}: loss of source {name!r} must be finite, but is not")
            tokens[name] = source["target_tokens"]
    return wrong


def print_shares(plans: Sequence[dict[str, Any]], counts: dict[str, dict[str, Any]]) -> list[str]:
    """Print the shares asked for and trained; return the sources that are further off than the plans promise."""
    wrong = []
    bound = sum(plan["bound_any_position"] for plan in plans)  # rows
    total = sum(source["scheduled_rows"] for source in counts.values())
    for source in plans[0]["sources"]:
        name, asked, got = source["name"], source["weight_requested"], counts[source["name"]]
        print(f"{name:12s} {asked:7.2%} asked, {got['row_share']:7.2%} of rows, {got['token_share']:7.2%} of tokens")
        if abs(got["scheduled_rows"] - asked * total) > bound:
            wrong.append(f"source {name!r}: rows must be {asked:.2%} of {total}, but got {got['scheduled_rows']}")
    return wrong


def main(kind: str, path: str, *more: str) -> int:
    """Check one of both, and return the exit code."""
    try:
        wrong = check_run(Path(path)) if kind == "run" else check_tests(Path(path), *more)
    except (KeyError, json.JSONDecodeError, ET.ParseError) as error:
        wrong = [f"{path} must be whole, but got {error!r}"]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
