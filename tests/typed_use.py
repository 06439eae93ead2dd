"""What users write, for the type checker: `make lint-types` and tests/unit/test_types.py run it over this file."""

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset  # noqa: TID253

import cuvee
from cuvee import EXP3, Draw, Manifest, MixedDataset, Mixture, MixtureSampler, OnlineMixer, Plan, Source

mixture = Mixture([Source("math", [{"text": "1 + 1"}], 0.7), Source("code", [{"text": "pass"}], 0.3)])
plan = mixture.plan()
rows = MixedDataset(mixture)
sampler = MixtureSampler(plan, batch_size=32, rank=0, world_size=4)

assert_type(plan, Plan)
assert_type(plan[7], Draw)
assert_type(plan.draws(0, 4).row, NDArray[np.int64])
assert_type(cuvee.__version__, str)
assert_type(cuvee.manifest.load("mix.json"), Manifest)
assert_type(cuvee.sources.lengths_of([{"tokens": [1]}]), NDArray[np.int32])

loader: DataLoader[Any] = DataLoader(rows, batch_sampler=sampler, num_workers=2)
in_order: DataLoader[Any] = DataLoader(rows.in_order(plan), batch_size=32)
map_style: list[Dataset[Any]] = [rows, rows.in_order(plan)]
for _batch in sampler.track(loader):
    state = sampler.state_dict()
again = Plan.load_state_dict(mixture, state["plan"], add=[Source("more", rows=10)])

mixer = OnlineMixer(sampler, EXP3(2), cuvee.rewards.TrainLoss(2), global_batch_size=128, update_interval=10, lag=3)
mixer.observe([0, 1], loss_sum=[2.5, 1.5], tokens=[3, 4])
decided = mixer.step()
assert_type(decided, cuvee.online.Decision | None)
