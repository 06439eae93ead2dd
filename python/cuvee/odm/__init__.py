"""Online mixing behind one dataset: rows of categories whose weights follow what the model says of them.

    dataset = OnlineMixingDataset(dataset_dict, collators_dict, eval_dataset_dict, eval_collators_dict)
    for batch in StatefulDataLoader(dataset, batch_size=16):
        ...
        dataset.update_sampling_weights(model, accelerator=None, state=None)

`cuvee.odm.callback` does the same inside a Trainer of transformers.
"""

from ..categorize import AutoCategorizeConfig
from ..errors import INSTALL_HF
from ..rewards import Reward

try:
    from .compute import compute_reward
    from .dataset import OnlineMixingDataset
    from .settings import OnlineSettings
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "torch":
        raise
    raise ModuleNotFoundError(
        f"OnlineMixingDataset must have the package torch, but it is not installed; {INSTALL_HF}", name="torch"
    ) from None

__all__ = ["AutoCategorizeConfig", "OnlineMixingDataset", "OnlineSettings", "Reward", "compute_reward"]
