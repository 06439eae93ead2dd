"""Run every benchmark and write one Markdown table: ours beside the peers, goals and verdicts.

Without `--here` the benchmarks' own environment `.venv-bench` is made (or brought up to date) first, and used.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import table

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE.parent / ".venv-bench"
BENCHMARKS = (
    "schedule",
    "random_access",
    "bijection",
    "loader",
    "training",
    "scale",
    "hash",
    "logits",
    "bandit",
    "dedup",
    "laws",
    "proxy",
    "repetition",
    "search",
)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all? (verdicts mean nothing)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "RESULTS.md", help="the Markdown file to write")
    parser.add_argument("--enforce-goals", action="store_true", help="exit with 1 if a goal is not met")
    parser.add_argument("--here", action="store_true", help="use this interpreter's packages; set nothing up")
    parser.add_argument(
        "--measured", nargs="+", type=Path, metavar="JSON", help="run nothing: a table of what --json has kept"
    )
    return parser.parse_args()


def enter_environment() -> None:
    """Set up `.venv-bench` and go on in it; does not return."""
    subprocess.run([HERE / "setup.sh"], check=True, env={"PYTHON": sys.executable, **os.environ})
    python = ENVIRONMENT / "bin" / "python"
    os.execv(python, [str(python), str(HERE / "run.py"), *sys.argv[1:], "--here"])


def run_benchmark(name: str, arguments: argparse.Namespace, folder: Path) -> table.Outcome:
    """Run one benchmark in a process of its own; of a failed one what it had measured is kept."""
    output = folder / f"{name}.json"
    command = [sys.executable, str(HERE / f"bench_{name}.py"), "--json", str(output), "--rounds", str(arguments.rounds)]
    print(f"== {name}", flush=True)
    done = subprocess.run(command + ["--quick"] * arguments.quick, check=False)
    found = kept(output) if output.exists() else table.Outcome()
    return found + table.Outcome(failed=(name,) if done.returncode else ())


def kept(path: Path) -> table.Outcome:
    """Return what a benchmark wrote with --json."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return table.Outcome(measures=tuple(document["measures"]), skipped=document["skipped"])


def main() -> int:
    arguments = parse_arguments()
    if not (arguments.here or arguments.measured):
        enter_environment()
    goals = table.load_goals(HERE / "goals.toml")
    if arguments.measured:
        outcome = sum(map(kept, arguments.measured), table.Outcome()).once()
        goals = tuple(goal for goal in goals if any(map(goal.fits, outcome.measures)))
    else:
        with tempfile.TemporaryDirectory() as folder:
            runs = [run_benchmark(name, arguments, Path(folder)) for name in arguments.only]
        outcome = sum(runs, table.Outcome())
    arguments.out.write_text(table.render(outcome, goals), encoding="utf-8")
    missed = table.missed(outcome, goals)
    print(f"\n{arguments.out}: {len(outcome.measures)} measures, {len(goals)} goals, not met: {len(missed)}")
    for line in missed:
        print(f"  {line}")
    return 1 if outcome.failed or (arguments.enforce_goals and missed) else 0


if __name__ == "__main__":
    sys.exit(main())
