"""Mix three real corpora, stop, go on with twice the processes, check that nothing changed, and train a tiny model.

Run `make demo`, or `python examples/demo.py`. The picture, the run and its report go to demo-output/.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist
import torch.multiprocessing as mp
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from torch.utils.data import DataLoader

from cuvee import Ledger, MixedDataset, Mixture, MixtureSampler, Plan

ROOT = Path(__file__).resolve().parents[1]
MIX = ROOT / "examples" / "data" / "mix.json"
OUTPUT = ROOT / "demo-output"
GLOBAL_BATCH = 32  # rows of one step over all ranks
STOP_AFTER = 57  # batches, in the middle of a window of the order

NEXT = """\
  .venv/bin/cuvee plan examples/data/mix.json    what a mix will do; edit a copy
  .venv/bin/cuvee train --help                   the same with a model of yours
  .venv/bin/python examples/token_shares.py      shares of tokens, not of rows
  .venv/bin/python examples/replay.py            weights that change in the run
  docs/quickstart.md                             your own training loop"""

Rows = NDArray[np.int64]  # shape (n, 3): source, row, cycle


def open_mixture() -> Mixture:
    """Return the mix that examples/data/mix.json describes, with the tokens of each row."""
    return Mixture.from_manifest(MIX, length_column="n_tokens")


def loader_of(mixture: Mixture, sampler: MixtureSampler, workers: int) -> DataLoader[Any]:
    """Return a plain DataLoader that reads the sampler's batches in worker processes."""
    context = "fork" if sys.platform == "linux" else None  # starts in no time; "spawn" gives the same rows
    return DataLoader(
        MixedDataset(mixture), batch_sampler=sampler, num_workers=workers, multiprocessing_context=context
    )


def rows_of(batch: dict[str, Any], names: tuple[str, ...]) -> Rows:
    """Return which rows a batch holds, from the metadata that came through the loader with them."""
    metadata = batch["__cuvee_meta__"]
    sources = [names.index(name) for name in metadata["source"]]
    return np.stack([sources, metadata["source_index"].numpy(), metadata["cycle"].numpy()], axis=1)


def train(rank: int, world_size: int, folder: Path, stop_after: int | None) -> None:
    """Be one rank of a run: go on from the folder's checkpoint if it has one, and write the next one."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks-{world_size}", rank=rank, world_size=world_size)
    mixture, checkpoint = open_mixture(), folder / "checkpoint.json"
    sampler = MixtureSampler(mixture.plan(), rank=rank, world_size=world_size, batch_size=GLOBAL_BATCH // world_size)
    ledger = Ledger(mixture.names)
    if checkpoint.exists():
        state = json.loads(checkpoint.read_text())
        sampler.load_state_dict(state["sampler"])
        if rank == 0:
            ledger.load_state_dict(state["ledger"])  # it is the sum over ranks

    seen = []
    for batch in islice(sampler.track(loader_of(mixture, sampler, 2 // world_size)), stop_after):
        ledger.add_batch(batch["__cuvee_meta__"], batch["n_tokens"])  # a real run would train here
        seen.append(rows_of(batch, mixture.names))
    sampler.account(ledger)

    total = ledger.reduced()
    np.save(folder / f"seen-{world_size}-{rank}.npy", np.array(seen))
    if rank == 0:
        checkpoint.write_text(json.dumps({"sampler": sampler.state_dict(), "ledger": total.state_dict()}))
    dist.destroy_process_group()


def run_ranks(world_size: int, folder: Path, stop_after: int | None = None) -> Rows:
    """Run `train` in `world_size` processes, and return the rows they saw in the order of the run."""
    mp.spawn(train, args=(world_size, folder, stop_after), nprocs=world_size)
    ranks = [np.load(folder / f"seen-{world_size}-{rank}.npy") for rank in range(world_size)]
    by_step: Rows = np.concatenate(ranks, axis=1)  # each step's batches of all ranks, end to end
    return by_step.reshape(-1, 3)


def plan_table(summary: dict[str, Any]) -> Table:
    """Return what the plan will do, per source."""
    table = Table("source", box=box.SIMPLE_HEAD)
    for heading in ("asked", "rows", "drawn", "unused", "cycles", "token share"):
        table.add_column(heading, justify="right")
    for source in summary["sources"]:
        table.add_row(
            source["name"],
            f"{source['weight_requested']:.1%}",
            f"{source['rows_available']:,}",
            f"{source['rows_selected']:,}",
            f"{source['rows_unused']:,}",
            f"{source['cycles']:.2f}",
            f"{source['token_proportion']:.1%}",
        )
    return table


def interrupted(console: Console, folder: Path) -> tuple[Rows, Ledger]:
    """Run an epoch on one rank, stop it, finish it on two, and return the rows in order and the final ledger."""
    first = run_ranks(1, folder, STOP_AFTER)
    size = (folder / "checkpoint.json").stat().st_size
    console.print(f"  1 rank: stopped after {STOP_AFTER} batches; checkpoint of {size:,} bytes")
    second = run_ranks(2, folder)
    console.print(f"  2 ranks: went on at position {len(first):,}, {len(second):,} rows to the end of the epoch")
    ledger = Ledger.from_state(json.loads((folder / "checkpoint.json").read_text())["ledger"])
    ledger.check()
    return np.concatenate([first, second]), ledger


def show_plan(console: Console, plan: Plan) -> None:
    """Print what the plan will do, and what its author may want to know."""
    summary = plan.summary()
    console.print(plan_table(summary))
    console.print(f"  {summary['planned_rows']:,} rows; schedule hash {plan.schedule_hash()}")
    console.print(f"  certificate: no source is off by more than {summary['bound']:g} rows at any window's end")
    notes = [warning.partition("; ") for warning in summary["warnings"]]  # (what is so, "; ", what would change it)
    for note in (*(fact for fact, _, _ in notes), *dict.fromkeys(cure for _, _, cure in notes if cure)):
        console.print(Padding(f"note: {note}", (0, 0, 0, 2)))
    console.print()


def save_picture(plan: Plan, rows: Rows) -> Path:
    """Draw the run and return the path of the picture."""
    from picture import draw_picture  # here, so that the ranks need not load matplotlib

    OUTPUT.mkdir(exist_ok=True)
    draw_picture(OUTPUT / "shares.png", plan, rows[:, 0], resumed_at=STOP_AFTER * GLOBAL_BATCH)
    return OUTPUT / "shares.png"


def train_tiny() -> Path:
    """Train a tiny model on the mix with the command line, in seconds, and return the path of the report."""
    run = OUTPUT / "run"
    shutil.rmtree(run, ignore_errors=True)
    limits = ["--max-length", "400", "--batch-size", "16", "--max-steps", "40"]
    cuvee = [sys.executable, "-m", "cuvee"]
    command = [*cuvee, "train", MIX, "--ckpt", "tiny", *limits, "--output-dir", run]
    subprocess.run(command, check=True, stderr=subprocess.STDOUT)  # a live display, or a line now and then
    subprocess.run([*cuvee, "report", run], check=True, stdout=subprocess.DEVNULL)
    return run / "report.html"


def main() -> int:
    """Run the demo; the exit code is 1 if the interrupted run differs from the uninterrupted one."""
    console, began = Console(highlight=False), time.perf_counter()
    mixture = open_mixture()
    plan = mixture.plan()

    console.rule("[bold]1  The plan", align="left")
    show_plan(console, plan)

    console.rule("[bold]2  One epoch through a DataLoader with two workers", align="left")
    sampler = MixtureSampler(plan, batch_size=GLOBAL_BATCH)
    whole = np.concatenate([rows_of(batch, plan.names) for batch in loader_of(mixture, sampler, 2)])
    console.print(f"  {len(whole):,} rows in {len(sampler)} batches of {GLOBAL_BATCH}\n")

    console.rule("[bold]3  The same epoch, interrupted, and resumed on twice the ranks", align="left")
    with tempfile.TemporaryDirectory(prefix="cuvee-demo-") as folder:
        resumed, ledger = interrupted(console, Path(folder))
    same = np.array_equal(whole, resumed)
    verdict = "[green]the same rows in the same order" if same else "[red]DIFFERENT from the uninterrupted epoch"
    console.print(f"  {len(resumed):,} rows: {verdict}[/]\n")

    console.rule("[bold]4  The ledger", align="left")
    console.print(ledger.table(), "")

    console.rule("[bold]5  The picture", align="left")
    console.print(f"  requested and realised shares: {save_picture(plan, resumed).relative_to(ROOT)}\n")

    console.rule("[bold]6  A tiny model, trained on the mix by `cuvee train`; long rows are left out", align="left")
    console.print(f"  shares, losses and throughput of the run: {train_tiny().relative_to(ROOT)}\n")

    console.rule("[bold]What to try next", align="left")
    console.print(f"{NEXT}\n\ndone in {time.perf_counter() - began:.0f} s")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
