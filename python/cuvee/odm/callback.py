"""Online mixing inside a Trainer of transformers: updates, and the mix's place in every checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback  # noqa: TID253  (whoever imports this module trains)

from ..cache import write_atomically
from ..errors import CuveeError, StateError

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from .dataset import OnlineMixingDataset
    from .settings import OnlineSettings

FILE = "odm_state.json"


class OnlineMixingCallback(TrainerCallback):
    """Calls `update_sampling_weights` while a Trainer trains, and keeps the mix's state in its checkpoints.

        settings = OnlineSettings.from_yaml("odm.yaml")
        dataset = OnlineMixingDataset(..., **settings.dataset_options())
        Trainer(..., train_dataset=dataset, callbacks=[OnlineMixingCallback(dataset, settings)]).train()

    Args:
        dataset: the Trainer's `train_dataset`.
        settings: how often to update, and whether a run that a Trainer goes on with is one of an online mix.
    """

    def __init__(self, dataset: OnlineMixingDataset, settings: OnlineSettings) -> None:
        self._dataset = dataset
        self._settings = settings
        self._updated = 0  # the step of the last update

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Load the mix's state where the Trainer goes on with a checkpoint."""
        if state.global_step == 0:
            return
        if not args.ignore_data_skip:
            raise CuveeError(
                "ignore_data_skip must be True with an online mix, which goes on by its own state, but got False; give "
                "TrainingArguments(ignore_data_skip=True)"
            )
        resume = self._settings.resume_from_checkpoint
        if resume is False:
            raise CuveeError(
                f"resume_from_checkpoint must be true where the Trainer goes on at step {state.global_step}, but got "
                "False; the mix would begin anew"
            )
        folder = Path(str(args.output_dir), f"checkpoint-{state.global_step}") if resume is True else Path(resume)
        try:
            saved = json.loads((folder / FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StateError(f"{folder} must have the state of an online mix in {FILE}, but got {error}") from None
        self._dataset.load_state_dict(saved)
        self._updated = state.global_step

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Have steps logged where an update is due; where rewards are read off the log, the loss of that step alone."""
        control.should_log |= self._due(state.global_step)
        if {"loss_sum", "gradnorm"} & set(self._dataset.reward.needs):
            control.should_log |= self._due(state.global_step + 1)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:  # noqa: ARG002
        """Update the weights if it is time, with the step's own log in the trainer's state."""
        if state.global_step > self._updated and self._due(state.global_step):
            self._updated = state.global_step
            self._dataset.update_sampling_weights(kwargs["model"], None, state)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Write the mix's state into the checkpoint, as of the rows trained on."""
        if state.is_world_process_zero:
            content = json.dumps(self._dataset.state_dict()).encode()
            write_atomically(Path(str(args.output_dir), f"checkpoint-{state.global_step}", FILE), content)

    def _due(self, step: int) -> bool:
        return step % self._settings.update_interval == 0
