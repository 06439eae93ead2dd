"""Does mixing online help? Trains small models on suites P and H under every policy and reward; see learning/.

python benchmarks/bench_learning.py                  # goes on where runs.jsonl ends; about 100 minutes of one core
python benchmarks/bench_learning.py --only-report    # table and picture of the runs that there are
"""

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from learning.arms import UNIFORM, arms
from learning.corpora import SUITES
from learning.report import write_report
from learning.trial import Arm, run
from learning.tuned import proxies, tuned_weights

FOLDER = Path(__file__).parent / "learning"
Job = tuple[str, Arm, int, int | None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2, help="processes, of one thread each")
    parser.add_argument("--runs", type=Path, default=FOLDER / "runs.jsonl", help="where runs are kept")
    parser.add_argument("--only-report", action="store_true")
    options = parser.parse_args()
    kept = Kept(options.runs)
    if not options.only_report:
        with ProcessPoolExecutor(options.workers) as pool:
            kept.make([job for suite in SUITES for job in proxies(suite)], pool)
            tuned = {suite: tuned_weights(suite, kept.of(proxies(suite))) for suite in SUITES}
            for seed in range(options.seeds):
                kept.make([(suite, UNIFORM, seed, None) for suite in SUITES], pool)
                kept.make(list(_compared(kept, tuned, seed)), pool)
    print(write_report(list(kept.runs.values()), FOLDER))


def _compared(kept: "Kept", tuned: dict[str, list[float]], seed: int) -> Iterator[Job]:
    for suite in SUITES:
        reference = kept.of([(suite, UNIFORM, seed, None)])[0]["losses"]
        yield from ((suite, arm, seed, None) for arm in arms(suite, tuned[suite], reference))


class Kept:
    """The runs made so far, a JSON line each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.runs = {(run["suite"], run["arm"], run["seed"]): run for run in map(json.loads, lines)}

    def make(self, jobs: list[Job], pool: ProcessPoolExecutor) -> None:
        """Make those of the jobs that were not made yet."""
        missing = [job for job in jobs if (job[0], job[1].name, job[2]) not in self.runs]
        for made in pool.map(_run, missing):
            with self._path.open("a") as file:
                file.write(json.dumps(made) + "\n")
            self.runs[made["suite"], made["arm"], made["seed"]] = made
            print(
                f"{made['suite']} seed {made['seed']} {made['arm']:32s} {made['mean']:.4f} {made['worst']:.4f}",
                flush=True,
            )

    def of(self, jobs: list[Job]) -> list[dict[str, Any]]:
        return [self.runs[suite, arm.name, seed] for suite, arm, seed, _ in jobs]


def _run(job: Job) -> dict[str, Any]:
    suite, arm, seed, until = job
    return run(suite, arm, seed, until=until)


if __name__ == "__main__":
    main()
