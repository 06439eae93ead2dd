"""Which runs can be split over processes, who trains on which rows, and which failed rank is to blame."""
# ruff: noqa: TID253

from __future__ import annotations

import pickle
import signal
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import (  # noqa: E402
    GPT2Config,
    LlamaConfig,
    LlavaConfig,
    Qwen2Config,
    get_cosine_schedule_with_warmup,
)

from cuvee.errors import CuveeError, SourceError  # noqa: E402
from cuvee.train.launch import Failure, RankInfo, first_error, rank_info, ranks_to_launch  # noqa: E402
from cuvee.train.parallel import (  # noqa: E402
    check_parallel,
    check_resume,
    load_parallel_model,
    split_callbacks,
    training_arguments_for,
)
from cuvee.train.run_folder import SPLIT_FILE  # noqa: E402
from cuvee.train.split_state import SplitState, load_whole_optimizer, whole_optimizer  # noqa: E402

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}


def test_one_process_is_rank_0_of_1() -> None:
    assert rank_info({}) == RankInfo(rank=0, world_size=1, local_rank=0, local_world_size=1)
    assert rank_info({}).is_main


def test_a_launcher_says_which_rank_this_is() -> None:
    assert rank_info(TORCHRUN) == RankInfo(rank=5, world_size=8, local_rank=1, local_world_size=4)
    assert not rank_info(TORCHRUN).is_main
    assert rank_info({"RANK": "1", "WORLD_SIZE": "2"}) == RankInfo(
        rank=1, world_size=2, local_rank=1, local_world_size=2
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"RANK": "8"}, r"^RANK must be an integer in \[0, 8\), but got 8$"),
        ({"WORLD_SIZE": "0"}, r"^WORLD_SIZE must be an integer in \[1, 1048576\), but got 0$"),
        ({"RANK": "one"}, r"^RANK must be an integer in \[0, 8\), but got 'one'$"),
        ({"LOCAL_RANK": "4"}, r"^LOCAL_RANK must be an integer in \[0, 4\), but got 4$"),
        ({"LOCAL_WORLD_SIZE": "9"}, r"^LOCAL_WORLD_SIZE must be an integer in \[1, 9\), but got 9$"),
        ({"WORLD_SIZE": None}, r"^WORLD_SIZE must be set where RANK or WORLD_SIZE is, but got none; start with torch"),
    ],
)
def test_what_a_launcher_says_is_checked(changes: dict[str, str | None], message: str) -> None:
    said = {name: value for name, value in (TORCHRUN | changes).items() if value is not None}
    with pytest.raises(CuveeError, match=message):
        rank_info(said)


def test_as_many_ranks_are_launched_as_asked_for_unless_a_launcher_did() -> None:
    assert [ranks_to_launch(asked, {}) for asked in (None, 1, 4)] == [1, 1, 4]
    assert [ranks_to_launch(asked, TORCHRUN) for asked in (None, 8)] == [1, 1]
    with pytest.raises(
        CuveeError, match=r"^--world-size must be 8, the WORLD_SIZE of the launcher .* but got 4; leave"
    ):
        ranks_to_launch(4, TORCHRUN)
    with pytest.raises(CuveeError, match=r"^--world-size must be an integer in \[1, 1048576\), but got 0$"):
        ranks_to_launch(0, {})


@pytest.mark.parametrize(
    ("config", "tp_size"),
    [
        (LlamaConfig(num_attention_heads=8, num_key_value_heads=4), 4),
        (LlamaConfig(num_attention_heads=8, num_key_value_heads=2, vocab_size=263, intermediate_size=131), 2),
        (Qwen2Config(num_attention_heads=12, num_key_value_heads=3), 3),
        (LlavaConfig(text_config=LlamaConfig(num_attention_heads=4, num_key_value_heads=4)), 2),
        (GPT2Config(), 1),
    ],
)
def test_models_with_a_plan_and_enough_heads_can_be_split(config: LlamaConfig, tp_size: int) -> None:
    check_parallel(2 * tp_size, tp_size, config, gpus=0)


def test_what_cannot_be_split_is_told_before_it_is_loaded() -> None:
    heads = LlamaConfig(hidden_size=96, num_attention_heads=6, num_key_value_heads=3)
    with pytest.raises(
        CuveeError, match=r"^--tp-size must divide the model's num_key_value_heads, which is 3, but got 2"
    ):
        check_parallel(2, 2, heads, gpus=0)
    with pytest.raises(
        CuveeError, match=r"^--tp-size must divide the model's num_attention_heads, which is 6, but got 4"
    ):
        check_parallel(4, 4, heads, gpus=0)
    with pytest.raises(CuveeError, match=r"^--tp-size must be 1 for models of type 'gpt2', which transformers cannot"):
        check_parallel(2, 2, GPT2Config(), gpus=0)
    with pytest.raises(CuveeError, match=r"^--tp-size must divide --world-size, which is 4, but got 3$"):
        check_parallel(4, 3, gpus=0)


def test_each_process_needs_a_gpu_of_its_own_where_there_are_any() -> None:
    check_parallel(4, 2, gpus=4)
    check_parallel(4, 2, gpus=0)
    check_parallel(1, 1, gpus=1)
    with pytest.raises(
        CuveeError, match=r"^--world-size must be at most 2, the GPUs of this machine, but got 4; set CUDA"
    ):
        check_parallel(4, 2, gpus=2)


def test_training_arguments_follow_the_processes() -> None:
    assert training_arguments_for(1, 1).keys() == {"use_cpu", "ddp_find_unused_parameters"}
    assert training_arguments_for(2, 1)["ddp_find_unused_parameters"] is False
    assert training_arguments_for(2, 1, images=True)["ddp_find_unused_parameters"] is True
    assert training_arguments_for(2, 2)["save_only_model"] is True
    assert "save_only_model" not in training_arguments_for(2, 1)


def test_a_whole_model_needs_no_callback() -> None:
    assert split_callbacks(1, None) == []
    assert type(load_parallel_model("tiny", world_size=1, tp_size=1)).__name__ == "LlamaForCausalLM"


def test_a_split_model_resumes_from_what_a_split_model_left(tmp_path: Path) -> None:
    with pytest.raises(
        CuveeError, match=f"^--tp-size must be 1 to resume .* but got 2 for .*, which has no {SPLIT_FILE}; to"
    ):
        check_resume(2, tmp_path)
    check_resume(1, tmp_path)
    check_resume(2, None)
    assert split_callbacks(1, tmp_path) == []
    (tmp_path / SPLIT_FILE).touch()
    (resumed,) = split_callbacks(1, tmp_path)
    (split,) = split_callbacks(2, tmp_path)
    assert isinstance(resumed, SplitState)
    assert isinstance(split, SplitState)
    assert (resumed.writes, resumed.resume) == (False, tmp_path)
    assert (split.writes, split.resume) == (True, tmp_path)


def test_an_optimizer_kept_by_names_goes_on_as_if_never_stopped(tmp_path: Path) -> None:
    whole, resumed = (_stepping() for _ in range(2))
    for _ in range(3):
        _step(*whole)
    torch.save(
        {
            "optimizer": whole_optimizer(whole[0], whole[1]),
            "steps": whole[2].last_epoch,
            "rate": whole[2].get_last_lr()[0],
        },
        tmp_path / SPLIT_FILE,
    )
    resumed[0].load_state_dict(whole[0].state_dict())
    SplitState(writes=False, resume=tmp_path).on_train_begin(
        model=resumed[0], optimizer=resumed[1], lr_scheduler=resumed[2]
    )
    for _ in range(3):
        _step(*whole)
        _step(*resumed)
    assert resumed[2].get_last_lr() == whole[2].get_last_lr()
    for one, other in zip(whole[0].parameters(), resumed[0].parameters(), strict=True):
        assert torch.equal(one, other)


def test_parameters_without_a_state_stay_fresh() -> None:
    model, optimizer, _ = _stepping()
    load_whole_optimizer(model, optimizer, {"bias": {"step": torch.tensor(2.0), "exp_avg": torch.ones(2)}})
    assert whole_optimizer(model, optimizer).keys() == {"bias"}
    assert optimizer.state[model.bias]["exp_avg"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("failures", "codes", "message"),
    [
        ({1: (5.0, SourceError("root")), 0: (5.1, RuntimeError("later"))}, {0: 1, 1: 1}, "root"),
        (
            {1: (5.0, _lost := RuntimeError("Connection closed by peer [::1]")), 0: (5.1, SourceError("root"))},
            {},
            "root",
        ),
        ({1: (5.0, _lost)}, {1: 1, 0: -9}, "rank 0 must run to its end, but got killed by signal SIGKILL; if memory"),
        ({1: (5.0, _lost)}, {1: 1, 0: -15}, "Connection closed by peer"),
        ({}, {0: -6, 1: -11}, "rank 1 must run to its end, but got killed by signal SIGSEGV"),
        ({}, {0: 130, 1: 7}, "rank 1 must run to its end, but got exit code 7"),
        ({}, {0: -15}, "rank 0 must run to its end, but got killed by signal SIGTERM"),
        ({}, {0: -64}, "rank 0 must run to its end, but got killed by signal SIGRTMAX"),
    ],
)
def test_the_first_cause_is_told_not_what_followed(
    tmp_path: Path, failures: dict[int, tuple[float, Exception]], codes: dict[int, int], message: str
) -> None:
    for rank, (time, error) in failures.items():
        failure = Failure(rank=rank, time=time, error=error, trace="")
        (tmp_path / f"failure-{rank}.pickle").write_bytes(pickle.dumps(failure))
    assert str(first_error(tmp_path, codes)).startswith(message)


def test_last_words_are_quoted_once_and_short(tmp_path: Path) -> None:
    (tmp_path / "stderr-1").write_text("first\n" + "x" * 1000 + "\n\n")
    text = str(first_error(tmp_path, {1: -signal.SIGSEGV}))
    assert text.startswith("rank 1 must run to its end, but got killed by signal SIGSEGV; its last line was 'xxx")
    assert len(text) < 500
    assert "\n" not in text


def _stepping() -> tuple[torch.nn.Linear, torch.optim.AdamW, torch.optim.lr_scheduler.LambdaLR]:
    model = torch.nn.Linear(3, 2)
    torch.nn.init.constant_(model.weight, 0.5)
    torch.nn.init.zeros_(model.bias)
    groups = [{"params": [model.weight], "weight_decay": 0.1}, {"params": [model.bias], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    return model, optimizer, get_cosine_schedule_with_warmup(optimizer, 2, 10)


def _step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, scheduler: torch.optim.lr_scheduler.LambdaLR
) -> None:
    (model(torch.arange(6.0).reshape(2, 3)) ** 2).sum().backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
