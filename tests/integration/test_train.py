"""`cuvee train` from files to a model: what the plan says, what is told of it, killed and resumed, on two ranks too."""
# ruff: noqa: TID253

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cuvee import Mixture
from cuvee.run_log import METRICS_FILE, read_events

DATA = Path(__file__).parents[2] / "examples" / "data"
PLAN_FIELDS = {
    "version", "sampler_version", "weight_unit", "seed", "epoch", "policy", "shuffle_within_sources",
    "samples_per_epoch", "planned_rows", "termination_reason", "mix_spec_hash", "schedule_hash", "warnings", "sources",
}  # fmt: skip
SOURCE_FIELDS = {
    "name", "weight_requested", "expected_rows", "rows_available", "rows_selected", "duplicates", "observed_proportion",
}  # fmt: skip


def rows(name: str, count: int) -> list[dict[str, str]]:
    """Return sums to be learnt, short and of several lengths."""
    sums = ((i % 7, i * 3 % 11) for i in range(count))
    return [
        {"prompt": f"{a} {name} {b} = " * (1 + i % 3), "response": f"{a + b}" * (1 + i % 4)}
        for i, (a, b) in enumerate(sums)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a folder with two sources."""
    place = tmp_path_factory.mktemp("sources")
    for name, count in (("plus", 60), ("and", 40)):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(name, count)))
    return place


def command(folder: Path, run: Path, **options: object) -> list[str]:
    """Return the arguments of a run over both sources."""
    given = {"output-dir": run, "batch-size": 8, "logging-steps": 1, **options}
    flags = [f"--{name}" if value is True else f"--{name}={value}" for name, value in given.items()]
    sources = [
        f"--dataset-source={name}={folder / name}.jsonl:{share}" for name, share in (("plus", 0.7), ("and", 0.3))
    ]
    return [sys.executable, "-m", "cuvee", "train", *sources, *flags]


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "160", **more}


def train(folder: Path, run: Path, *, env: dict[str, str] | None = None, **options: object) -> str:
    """Run the command to its end and return what it printed."""
    done = subprocess.run(
        command(folder, run, **options), capture_output=True, text=True, timeout=300, check=False,
        env=environment(**(env or {})),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def of_stage(run: Path, stage: str) -> list[dict]:
    return [event for event in read_events(run) if event["stage"] == stage]


def losses(run: Path) -> list[tuple[int, float, dict[str, float]]]:
    """Return every step's loss, in all and by source: one wrong row would change them."""
    return [
        (event["step"], event["metrics"]["loss"], {name: source["loss"] for name, source in event["sources"].items()})
        for event in of_stage(run, "dataset_mix_progress")
    ]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory) -> Path:
    """Return the folder of an uninterrupted run of two epochs."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    train(folder, run, **{"epochs": 2, "save-steps": 4, "deterministic": True})
    return run


def test_run_folder_holds_all_of_a_run(whole) -> None:
    names = {path.name for path in whole.iterdir()}
    assert {"metrics.jsonl", "model", "run.yaml", "checkpoint-4", "checkpoint-26"} <= names
    assert ".unfinished" not in names
    assert len([name for name in names if name.startswith("dataset_mix_plan.")]) == 2
    assert (whole / "model" / "tokenizer.json").exists()


def recount(folder: Path, *, epochs: int, samples: int, limit: int | None = None) -> dict[str, tuple[int, ...]]:
    """Return scheduled, filtered and trained rows and target tokens by source, counted from the files themselves.

    A row of the tiny model is begin, role, the bytes of the prompt, end, role, the bytes of the response, end; the
    last two are to be learnt.
    """
    texts = [f"{name}={folder / name}.jsonl:{share}" for name, share in (("plus", 0.7), ("and", 0.3))]
    plan = Mixture.from_cli(texts, samples_per_epoch=samples).plan()
    counts = {name: [0, 0, 0, 0] for name in plan.names}
    data = {"plus": rows("plus", 60), "and": rows("and", 40)}
    for _ in range(epochs):
        for draw in plan:
            row, count = data[draw.name][draw.row], counts[draw.name]
            passes = limit is None or len(row["prompt"]) + len(row["response"]) + 5 <= limit
            count[0] += 1
            count[1] += not passes
            count[2] += passes
            count[3] += passes * (len(row["response"]) + 1)
        plan = plan.next_epoch()
    return {name: tuple(count) for name, count in counts.items()}


def told(event: dict) -> dict[str, tuple[int, ...]]:
    fields = ("scheduled_rows", "filtered_rows", "trained_rows", "target_tokens")
    return {name: tuple(source[field] for field in fields) for name, source in event["sources"].items()}


def test_accounts_equal_a_recount_from_the_files(folder, whole) -> None:
    ends = of_stage(whole, "dataset_mix_epoch_end")
    assert [event["epoch"] for event in ends] == [0, 1]
    for event in ends:
        assert told(event) == recount(folder, epochs=event["epoch"] + 1, samples=100)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_and_resumed_run_ends_with_the_very_same_bits(folder, whole, tmp_path, seed) -> None:
    """Killed twice, each time at a random moment, whatever was being done or written then."""
    options = {"epochs": 2, "save-steps": 4, "deterministic": True}
    run, chance = tmp_path / "run", random.Random(seed)
    for _ in range(2):
        resumed = {"resume": "latest"} if list(run.glob("checkpoint-*/dataset_mix_state.json")) else {}
        process = subprocess.Popen(
            command(folder, run, **options, **resumed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=environment(),
        )  # fmt: skip
        begun = len(list(run.glob("checkpoint-*")))
        deadline = time.monotonic() + 120
        while len(list(run.glob("checkpoint-*"))) <= begun and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chance.random() * 0.2)
        process.send_signal(signal.SIGKILL)
        process.wait()
    train(folder, run, **options, resume="latest")
    assert same(weights(run / "model"), weights(whole / "model"))
    assert losses(run) == losses(whole)
    last = [of_stage(place, "dataset_mix_epoch_end")[-1]["sources"] for place in (run, whole)]
    assert last[0] == last[1]
    optimizers = [torch.load(place / "checkpoint-26" / "optimizer.pt") for place in (run, whole)]
    assert all(
        torch.equal(optimizers[0]["state"][key]["exp_avg"], optimizers[1]["state"][key]["exp_avg"])
        for key in optimizers[1]["state"]
    )


@pytest.mark.slow
def test_two_ranks_train_on_the_same_steps_and_go_on_for_one(folder, whole, tmp_path) -> None:
    run = tmp_path / "run"
    train(folder, run, **{"epochs": 2, "save-steps": 4, "max-steps": 12, "world-size": 2, "mini-bs": 2})
    (reached,) = of_stage(run, "max_steps_reached")
    assert (reached["step"], reached["max_steps"]) == (12, 12)
    train(folder, run, **{"epochs": 2, "save-steps": 4, "resume": "latest"})
    ours, theirs = losses(run), losses(whole)
    assert [step for step, *_ in ours] == [step for step, *_ in theirs]
    # the schedule of the learning rate ends at another step in a run of 12, so only the first losses are alike
    for (_, loss, sources), (_, expected, by_source) in zip(ours[:3], theirs[:3], strict=True):
        assert loss == pytest.approx(expected, rel=1e-2)
        assert sources == pytest.approx(by_source, rel=1e-2)
    last = [of_stage(place, "dataset_mix_epoch_end")[-1]["sources"] for place in (run, whole)]
    assert last[0] == last[1]
    hashes = [{plan["schedule_hash"] for plan in of_stage(place, "dataset_mix_plan")} for place in (run, whole)]
    assert hashes[0] == hashes[1]


@pytest.mark.slow
def test_rows_over_the_limit_are_counted_as_filtered_and_batches_stay_full(folder, tmp_path) -> None:
    run = tmp_path / "run"
    train(folder, run, **{"max-length": 30, "batch-size": 8, "dataset-mix-samples-per-epoch": 117})
    (end,) = of_stage(run, "dataset_mix_epoch_end")
    assert sum(source["scheduled_rows"] for source in end["sources"].values()) == 117
    expected = recount(folder, epochs=1, samples=117, limit=30)
    assert told(end) == expected
    assert all(
        filtered > 0 and scheduled == filtered + trained for scheduled, filtered, trained, _ in expected.values()
    )
    trained = [
        sum(source["trained_rows"] for source in event["sources"].values())
        for event in of_stage(run, "dataset_mix_progress")
    ]
    assert trained[:-1] == [8 * (step + 1) for step in range(len(trained) - 1)]


@pytest.mark.slow
def test_token_shares_meet_the_weights_despite_the_filter(folder, tmp_path) -> None:
    manifest = tmp_path / "mix.json"
    sources = [{"name": name, "path": str(folder / f"{name}.jsonl"), "weight": 0.5} for name in ("plus", "and")]
    manifest.write_text(json.dumps({
        "version": 2, "seed": 42, "exhaustion": "cycle", "unit": "tokens", "samples_per_epoch": 400,
        "control_interval": 64, "window": 16, "sources": sources,
    }))  # fmt: skip
    run = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-m", "cuvee", "train", str(manifest), "--output-dir", str(run), "--max-length", "30",
         "--batch-size", "20", "--max-steps", "10", "--metrics-log-dir", str(tmp_path / "logs")],
        capture_output=True, text=True, timeout=300, check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    counts = of_stage(tmp_path / "logs", "max_steps_reached")[0]["sources"]
    assert sum(source["filtered_rows"] for source in counts.values()) > 20
    for source in counts.values():
        assert source["token_share"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.slow
def test_the_reference_command_on_shipped_data(tmp_path) -> None:
    """Two sources at 0.7 and 0.3, an epoch of 1,000 rows, whatever PYTHONHASHSEED is."""
    plans = []
    for hash_seed in range(5):
        run = tmp_path / f"run-{hash_seed}"
        arguments = [
            "--algo", "sft", "--ckpt", "tiny", f"--dataset-source=functions={DATA / 'functions.jsonl'}:0.7",
            f"--dataset-source=facts={DATA / 'facts.jsonl'}:0.3", "--dataset-mix-samples-per-epoch", "1000",
            "--max-prompt-tokens", "120", "--max-new-tokens", "80", "--batch-size", "10", "--output-dir", str(run),
            *([] if hash_seed == 0 else ["--max-steps", "1"]),
        ]  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "cuvee", "train", *arguments], capture_output=True, text=True, timeout=300,
            check=False, env=environment(PYTHONHASHSEED=str(hash_seed)),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (file,) = run.glob("dataset_mix_plan.*.epoch-0.json")
        plans.append(json.loads(file.read_text()))
    first = plans[0]
    assert first.keys() >= PLAN_FIELDS
    for source, share in zip(first["sources"], (0.7, 0.3), strict=True):
        assert source.keys() >= SOURCE_FIELDS
        assert source["weight_requested"] == pytest.approx(share)
        assert abs(source["rows_selected"] - 1000 * share) <= 1
    assert first["termination_reason"] == "samples_per_epoch"
    for plan in plans[1:]:
        assert (plan["mix_spec_hash"], plan["schedule_hash"]) == (first["mix_spec_hash"], first["schedule_hash"])
    told = [event["metrics"]["loss"] for event in of_stage(tmp_path / "run-0", "dataset_mix_progress")]
    assert sum(told[-3:]) < 0.8 * sum(told[:3])
    text = (tmp_path / "run-0" / METRICS_FILE).read_text()
    assert "HTTP status" not in text  # no sample's content
    (end,) = of_stage(tmp_path / "run-0", "dataset_mix_epoch_end")
    assert sum(source["scheduled_rows"] for source in end["sources"].values()) == 1000


def contents(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def refused(folder: Path, run: Path, **options: object) -> str:
    """Return what a run that cannot go on says; it must be one sentence, and leave everything as it was."""
    before = contents(run)
    done = subprocess.run(
        command(folder, run, **{"resume": "latest", "epochs": 2, **options}), capture_output=True, text=True,
        timeout=300, check=False, env=environment(),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert contents(run) == before
    (line,) = done.stderr.splitlines()
    return line


def test_refused_resume_leaves_every_byte_of_a_run_as_it_was(folder, whole, tmp_path) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    assert "--batch-size must be 8, as in the checkpoint, but got 4" in refused(folder, run, **{"batch-size": 4})
    changed = tmp_path / "changed"
    shutil.copytree(folder, changed)
    with (changed / "plus.jsonl").open("a") as file:
        file.write(json.dumps({"prompt": "one more", "response": "row"}) + "\n")
    assert "give --accept-changes ['plus']" in refused(changed, run)
    train(changed, run, resume="latest", epochs=3, **{"accept-changes": "plus"})
    assert told(of_stage(run, "dataset_mix_epoch_end")[-1])["plus"][0] > 140


@pytest.mark.slow
def test_checkpoint_that_the_model_cannot_go_on_from_is_one_sentence(folder, whole, tmp_path) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    model = run / "checkpoint-26" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:1000])
    assert "--resume must be of a checkpoint that --ckpt tiny can go on from" in refused(folder, run, epochs=3)


@pytest.mark.slow
def test_going_back_to_an_earlier_checkpoint_puts_later_ones_aside(folder, whole, tmp_path) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    options = {"epochs": 2, "save-steps": 5, "save-total-limit": 1, "max-steps": 14}
    train(folder, run, **options, resume=run / "checkpoint-8")
    assert [path.name for path in run.glob("checkpoint-*")] == ["checkpoint-14"]
    aside = {path.name for path in (run / "superseded").iterdir()}
    assert aside == {"checkpoint-12", "checkpoint-16", "checkpoint-20", "checkpoint-24", "checkpoint-26"}


def test_finished_run_has_nothing_left_to_train(folder, whole, tmp_path) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    kept = contents(run)
    shutil.rmtree(run / "model")
    assert "model" in train(folder, run, resume="latest", epochs=2)
    after = contents(run)
    assert after.keys() == kept.keys() - {"model/training_args.bin"}
    assert all(after[name] == kept[name] for name in after)


@pytest.mark.slow
def test_interrupted_run_says_how_to_go_on(folder, tmp_path) -> None:
    run = tmp_path / "run"
    process = subprocess.Popen(
        command(folder, run, **{"epochs": 500, "save-steps": 2}), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=environment(),
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not list(run.glob("checkpoint-*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert f"cuvee train --config {run}/run.yaml --output-dir {run} --resume latest" in err.splitlines()[-1]


@pytest.mark.slow
def test_sources_of_different_forms_train_together(tmp_path) -> None:
    chat = {"messages": [{"role": "user", "content": "2 + 2"}, {"role": "assistant", "content": "4"}]}
    for name, row in (("chat", chat), ("texts", {"text": "four is two and two"})):
        (tmp_path / f"{name}.jsonl").write_text((json.dumps(row) + "\n") * 20)
    sources = [f"--dataset-source={name}={tmp_path / name}.jsonl:1" for name in ("chat", "texts")]
    done = subprocess.run(
        [sys.executable, "-m", "cuvee", "train", *sources, "--output-dir", str(tmp_path / "run"), "--batch-size=10"],
        capture_output=True, text=True, timeout=300, check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (end,) = of_stage(tmp_path / "run", "dataset_mix_epoch_end")
    assert told(end) == {"chat": (20, 0, 20, 20 * 2), "texts": (20, 0, 20, 20 * 20)}


@pytest.mark.slow
def test_verify_compares_what_training_wrote_with_the_data(folder, tmp_path) -> None:
    run = tmp_path / "run"
    train(folder, run, **{"max-length": 30, "max-steps": 2})
    (plan,) = run.glob("dataset_mix_plan.*.json")
    shares = (("plus", 0.7), ("and", 0.3))
    sources = [f"--dataset-source={name}={folder / name}.jsonl:{share}" for name, share in shares]
    for record in (plan, run / "checkpoint-2"):
        for seed, code, word in ((42, 0, "agrees"), (43, 1, "differs")):
            done = subprocess.run(
                [sys.executable, "-m", "cuvee", "verify", str(record), *sources, f"--dataset-mix-seed={seed}"],
                capture_output=True, text=True, timeout=120, check=False, env=environment(),
            )  # fmt: skip
            assert (done.returncode, done.stdout.partition(":")[0]) == (code, word), done.stderr


@pytest.mark.slow
def test_tensorboard_gets_shares_and_losses_of_the_sources(folder, tmp_path) -> None:
    run = tmp_path / "run"
    train(folder, run, **{"max-steps": 3, "tensorboard": True})
    (events,) = (run / "tensorboard").glob("events.out.tfevents.*")
    content = events.read_bytes()
    for name in ("plus", "and"):
        for kind in ("row_share", "token_share", "loss"):
            assert f"mix/{kind}/{name}".encode() in content


def test_settings_of_a_run_repeat_it(folder, whole, tmp_path) -> None:
    again = tmp_path / "again"
    done = subprocess.run(
        [sys.executable, "-m", "cuvee", "train", "--config", str(whole / "run.yaml"), "--output-dir", str(again)],
        capture_output=True, text=True, timeout=300, check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert same(weights(again / "model"), weights(whole / "model"))
