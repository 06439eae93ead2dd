"""Plain PyTorch, any number of processes: torchrun --nproc_per_node=2 examples/train_torchrun.py."""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from cuvee import Ledger, MixedDataset, Mixture, MixtureSampler
from cuvee.run_log import RunLog
from tiny_model import collate, loss_of, tiny_model

MIX = Path(__file__).parent / "data" / "mix.json"
ROWS = 32  # of a step, over all processes


def train(folder: Path, *, resume: bool, until: int) -> Ledger:
    """Train up to step `until`, save, and return the counts of all processes."""
    rank, ranks, mixture = dist.get_rank(), dist.get_world_size(), Mixture.from_manifest(MIX)
    sampler = MixtureSampler(mixture.plan(), rank=rank, world_size=ranks, batch_size=ROWS // ranks)
    ledger, log = Ledger(mixture.names), RunLog(folder, rank=rank, names=mixture.names)
    model = torch.nn.parallel.DistributedDataParallel(tiny_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    parts = {"model": model, "optimizer": optimizer, "sampler": sampler, "ledger": ledger}
    state = torch.load(folder / "state.pt") if resume else {"step": 0}
    for name in parts.keys() & state.keys() - ({"ledger"} if rank else set()):  # the counts of all go on in one
        parts[name].load_state_dict(state[name])
    log.start(step=state["step"], resumed_from="state.pt" if resume else None, world_size=ranks, rows_per_step=ROWS)
    log.plan(sampler.plan, step=state["step"])
    loader = DataLoader(MixedDataset(mixture), batch_sampler=sampler, collate_fn=collate)
    for step, batch in enumerate(sampler.track(loader), start=state["step"] + 1):  # compares what comes with the plan
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        ledger.add_batch(batch["__cuvee_meta__"], batch["targets"])
        if step == until:
            break
    sampler.account(ledger)
    total, states = ledger.reduced(), {name: part.state_dict() for name, part in parts.items()}
    log.progress(total, step=step, epoch=0, position=step * ROWS, losses={}, metrics={"loss": loss.item()})
    if rank == 0:
        torch.save({**states, "ledger": total.state_dict(), "step": step}, folder / "state.pt")
        print(f"step {step}: loss {loss.item():.2f}, rows", dict(zip(total.names, total.trained.tolist(), strict=True)))
    dist.barrier()
    return total


if __name__ == "__main__":
    alone = {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group("gloo", **alone)
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    train(Path(folder[0]), resume=False, until=70)
    train(Path(folder[0]), resume=True, until=125).check()
    dist.destroy_process_group()
