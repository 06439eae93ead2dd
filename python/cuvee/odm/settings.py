"""The settings of online mixing as a run's YAML file gives them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..bandits import EXP3
from ..checks import as_int, nearest
from ..errors import CuveeError
from ..rewards import Reward, make_reward

MOST = 2**31
FOLDED_IN = ("training", "dataprocessor", "odm")  # mappings that the settings may lie in


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineSettings:
    """How often weights move, and by what.

    Args:
        update_interval: optimizer steps between updates.
        sampling_interval: rows of one category in a row.
        reward_type: a member of `Reward`, its name, or the name of a registered reward.
        gamma: share of the uniform distribution, 0..1.
        eta: learning rate, over 0.
        resume_from_checkpoint: whether to go on with the newest checkpoint, or the folder of one.

    Raises:
        CuveeError: naming the setting and the value.
    """

    update_interval: int = 1
    sampling_interval: int = 1
    reward_type: str = Reward.ENTROPY
    gamma: float = 0.1
    eta: float = 0.3
    resume_from_checkpoint: bool | str = False

    def __post_init__(self) -> None:
        as_int(self.update_interval, "update_interval", 1, MOST, CuveeError)
        as_int(self.sampling_interval, "sampling_interval", 1, MOST, CuveeError)
        make_reward(self.reward_type, 1)
        EXP3(1, eta=self.eta, gamma=self.gamma, normalize="none")
        if not isinstance(self.resume_from_checkpoint, bool | str):
            raise CuveeError(
                "resume_from_checkpoint must be true, false or a checkpoint's folder, but got "
                f"{self.resume_from_checkpoint!r}"
            )

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> OnlineSettings:
        """Return the settings in a YAML file: at its top, or under `odm`, also inside `training` or `dataprocessor`.

        Raises:
            CuveeError: if the file cannot be read, is no mapping, or has a setting that there is not.
        """
        import yaml

        try:
            document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, TypeError, ValueError, yaml.YAMLError) as error:
            raise CuveeError(f"{path} must be a YAML file that can be read, but got {error}") from None
        found = _folded_out({} if document is None else document)
        if not isinstance(found, Mapping):
            raise CuveeError(f"{path} must map settings to values, but got {found!r:.60}")
        known = [field.name for field in fields(cls)]
        for name in found:
            if name not in known:
                raise CuveeError(f"{path} must have settings among {known}, but got {name!r}{nearest(name, known)}")
        return cls(**found)

    def dataset_options(self) -> dict[str, Any]:
        """Return the arguments of `OnlineMixingDataset` among the settings."""
        names = ("sampling_interval", "reward_type", "gamma", "eta")
        return {name: getattr(self, name) for name in names}


def _folded_out(document: Any) -> Any:
    """Return the innermost mapping that holds the settings."""
    while isinstance(document, Mapping):
        inner = next((document[name] for name in FOLDED_IN if isinstance(document.get(name), Mapping)), None)
        if inner is None:
            break
        document = inner
    return document
