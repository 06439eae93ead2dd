"""Online mixing behind one dataset: rows of categories whose weights follow what the model says of them.

    dataset = OnlineMixingDataset(dataset_dict, collators_dict, eval_dataset_dict, eval_collators_dict)
    for batch in StatefulDataLoader(dataset, batch_size=16):
        ...
        dataset.update_sampling_weights(model, accelerator=None, state=None)

`cuvee.odm.callback` does the same inside a Trainer of transformers.
"""

from ..categorize import AutoCategorizeConfig
from ..rewards import Reward
from .compute import compute_reward
from .dataset import OnlineMixingDataset
from .settings import OnlineSettings

__all__ = ["AutoCategorizeConfig", "OnlineMixingDataset", "OnlineSettings", "Reward", "compute_reward"]
