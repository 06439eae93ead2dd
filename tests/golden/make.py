"""Write the golden files: hashes, first draws and a checkpoint of mixtures that never change between versions.

    python tests/golden/make.py            writes tests/golden/orders-<order format>.json
    python tests/golden/make.py --print    prints what this build gives instead

Run it only when the order format number goes up; the files of earlier formats stay.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cuvee import Mixture, Plan, Source, Stage
from cuvee._core import ORDER_FORMAT

FOLDER = Path(__file__).parent
DRAWS = 24  # first draws written out, for people to look at


def zipf(count: int, *, rows: int = 1000, **settings: Any) -> Mixture:
    """Return a mixture of `count` sources with weights 1, 1/2, 1/3, ... and ever fewer rows."""
    sources = [Source(f"source-{k}", rows=rows // k + 1, weight=1 / k) for k in range(1, count + 1)]
    return Mixture(sources, **settings)


def in_tokens() -> Mixture:
    """Return a token mixture whose rows are of many lengths, with a length limit."""
    sources = []
    for k, (rows, largest) in enumerate([(5000, 300), (800, 4000), (60, 900)]):
        lengths = (np.arange(rows, dtype=np.int64) * 2654435761 % largest + 1).astype(np.int32)
        sources.append(Source(f"corpus-{k}", rows=rows, weight=[5.0, 4.0, 1.0][k], lengths=lengths))
    return Mixture(sources, unit="tokens", control_interval=512, max_length=3500, samples_per_epoch=9000)


def staged() -> Mixture:
    """Return a curriculum: a step, then a linear and a cosine ramp."""
    stages = [
        Stage(1000, {"a": 0.2, "b": 0.8, "c": 0.0}),
        Stage(4000, {"a": 0.1, "b": 0.1, "c": 0.8}, "linear"),
        Stage(7001, {"a": 0.6, "b": 0.2, "c": 0.2}, "cosine"),
    ]
    sources = [Source(name, rows=n, weight=w) for name, n, w in [("a", 900, 0.5), ("b", 70, 0.3), ("c", 4000, 0.2)]]
    return Mixture(sources, stages=stages, control_interval=256, samples_per_epoch=10_000)


def updated() -> Plan:
    """Return a plan whose weights changed, with a source that joined, one that left and one that came back."""
    plan = zipf(4, samples_per_epoch=5000, seed=7).plan()
    one, two, three, four = plan.names
    plan.update({one: 1, two: 0, three: 3, four: 1}, at=640, reason="two leaves")
    joined = [Source("joined", rows=333)]
    plan.update({one: 1, two: 0, three: 1, four: 1, "joined": 2}, at=1280, add=joined, reason="one joins")
    plan.update({one: 1, two: 2, three: 1, four: 0, "joined": 2}, at=2560, reason="two is back")
    return plan


CASES: dict[str, Callable[[], Mixture | Plan]] = {
    "cycle, 2 sources": lambda: zipf(2),
    "cycle, 3 sources, seed 0": lambda: zipf(3, seed=0),
    "cycle, 8 sources, epochs of 777": lambda: zipf(8, samples_per_epoch=777),
    "cycle, 32 sources, window 1": lambda: zipf(32, window=1),
    "cycle, 32 sources, window 100": lambda: zipf(32, window=100, samples_per_epoch=3000),
    "cycle, 1024 sources": lambda: zipf(1024, samples_per_epoch=20_000),
    "cycle, in the sources' own order": lambda: zipf(3, shuffle_within_sources=False),
    "cycle, until all were seen": lambda: zipf(5, rows=100, samples_per_epoch="all_seen"),
    "stop, 8 sources": lambda: zipf(8, exhaustion="stop"),
    "renormalize, 3 sources": lambda: zipf(3, exhaustion="renormalize"),
    "renormalize, 200 sources": lambda: zipf(200, exhaustion="renormalize"),
    "sources above 2**32 rows": lambda: zipf(3, rows=2**40, samples_per_epoch=4000),
    "tiny sources": lambda: Mixture([Source(f"n{n}", rows=n) for n in range(1, 18)], samples_per_epoch=2000),
    "tokens, with a length limit": in_tokens,
    "stages and ramps": staged,
    "updates, joins and returns": updated,
}


def record(case: Mixture | Plan) -> dict[str, Any]:
    """Return what must never change of one case."""
    plan = case if isinstance(case, Plan) else case.plan()
    after = plan.next_epoch()
    first = plan.draws(0, min(DRAWS, len(plan)))
    columns = (first.source.tolist(), first.row.tolist(), first.cycle.tolist())
    return {
        "spec_hash": plan.spec_hash,
        "plan_hash": plan.plan_hash,
        "rows": len(plan),
        "schedule_hash": plan.schedule_hash(),
        "schedule_hash_of_next_epoch": after.schedule_hash(),
        "counts": plan.counts(len(plan)).tolist()[:8],
        "first": [list(draw) for draw in zip(*columns, strict=True)],
    }


def records() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, build in CASES.items():
        yield name, record(build())


def document() -> dict[str, Any]:
    """Return the whole golden file."""
    return {"order_format": ORDER_FORMAT, "orders": dict(records()), "checkpoint": updated().state_dict(issued=3000)}


def as_text(golden: dict[str, Any]) -> str:
    """Return a golden file as text: one line per case, so that a difference shows where it is."""
    lines = [f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in golden["orders"].items()]
    checkpoint = json.dumps(golden["checkpoint"])
    orders = ",\n".join(lines)
    return f'{{"order_format": {golden["order_format"]},\n"checkpoint": {checkpoint},\n"orders": {{\n{orders}\n}}}}\n'


def path_of(order_format: int) -> Path:
    return FOLDER / f"orders-{order_format}.json"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", help="print instead of writing")
    text = as_text(document())
    if parser.parse_args().print:
        print(text, end="")
    else:
        path_of(ORDER_FORMAT).write_text(text)
        print(f"wrote {path_of(ORDER_FORMAT)}")
