"""The settings of a training run: what each may be, where they come from, and the file that repeats a run."""

import dataclasses
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from cuvee import CuveeError, ManifestError, Mixture, SourceError
from cuvee.cli.command import app
from cuvee.cli.train import GROUPS
from cuvee.train.reading import read_settings
from cuvee.train.run_folder import EVENTS_FILE, NEEDED, STATE_FILE, check_writable, checkpoint_of, held
from cuvee.train.settings import TrainSettings, option_of, rules_of_settings
from cuvee.train.sources import open_mixture_input

SOURCES = ("math=math.jsonl:0.7", "code=code.jsonl:0.3")
ROWS = {"math": 30, "code": 10}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder: two corpora, a manifest, and no launcher around."""
    for name, size in ROWS.items():
        rows = [{"prompt": f"{name} {n}", "response": "r" * (n + 1)} for n in range(size)]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    write_manifest(tmp_path / "mix.json")
    for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_manifest(path: Path, **changes: object) -> None:
    sources = [
        {"name": "math", "path": "math.jsonl", "weight": 0.7},
        {"name": "code", "path": "code.jsonl", "weight": 0.3},
    ]
    path.write_text(json.dumps({"version": 2, "seed": 7, "exhaustion": "cycle", "sources": sources} | changes))


def settings(**values: Any) -> TrainSettings:
    if not {"dataset_mix_config", "dataset_source", "dataset_path"} & values.keys():
        values["dataset_mix_config"] = "mix.json"
    return TrainSettings(**values)


def make_run(folder: Path, *steps: int) -> Path:
    """Make the files by which the folder of a run is known."""
    for step in steps:
        (folder / f"checkpoint-{step}").mkdir(parents=True)
        for name in (STATE_FILE, *(patterns[0] for patterns in NEEDED)):
            (folder / f"checkpoint-{step}" / name).write_text("{}")
    (folder / EVENTS_FILE).write_text("")
    return folder


def typed(*arguments: str) -> TrainSettings:
    """Return the settings of a command line, read by the command itself."""
    train = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
    given = train.make_context("train", list(arguments)).params
    return read_settings(given, manifest=given.pop("manifest"), config=given.pop("config"))


# --- values


def test_defaults() -> None:
    made = settings()
    assert (made.algo, made.ckpt, made.batch_size, made.epochs, made.logging_steps) == ("sft", "tiny", 32, 1, 10)
    assert (made.seed, made.world_size, made.tp_size, made.max_steps, made.resume) == (42, 1, 1, None, None)
    assert made.output_dir.parent == Path("runs")
    assert made.metrics_folder == made.output_dir
    assert not made.output_dir.exists()


@pytest.mark.parametrize(("ckpt", "lr", "rate"), [("tiny", None, 1e-3), ("org/big", None, 2e-5), ("tiny", 0.5, 0.5)])
def test_learning_rate_depends_on_the_model(ckpt: str, lr: float | None, rate: float) -> None:
    assert settings(ckpt=ckpt, lr=lr).learning_rate == rate


def test_rows_are_dealt_to_processes_that_share_no_copy_of_the_model() -> None:
    made = settings(world_size=8, tp_size=2, batch_size=48, mini_bs=3)
    assert (made.dp_size, made.rows_per_rank, made.micro_batches) == (4, 12, 4)
    assert settings(world_size=4, batch_size=48).micro_batches == 1


def test_every_option_is_a_field_and_has_a_rule_and_help() -> None:
    shown = [name for group in GROUPS.values() for name in group]
    assert (
        sorted(shown)
        == sorted(rules_of_settings())
        == sorted(field.name for field in dataclasses.fields(TrainSettings))
    )


def test_help_tells_the_defaults_that_there_are() -> None:
    made = settings()
    for group in GROUPS.values():
        for name, shown in group.items():
            default = getattr(made, name)
            if isinstance(default, bool):
                assert shown.default == ("yes" if default else "no"), name
            elif isinstance(default, int | float):
                assert float(shown.default) == default, name
            elif isinstance(default, str):
                assert shown.default == default, name


WRONG: list[tuple[str, object, str]] = [
    ("algo", "dpo", 'must be sft, but got "dpo"'),
    ("batch_size", 0, "must be an integer in [1, 2**31), but got 0"),
    ("batch_size", True, "must be an integer in [1, 2**31), but got true"),
    ("batch_size", 32.0, "must be an integer in [1, 2**31), but got 32.0"),
    ("batch_size", "32", 'must be an integer in [1, 2**31), but got "32"'),
    ("batch_size", None, "must be an integer in [1, 2**31), but got null"),
    ("bf16", 1, "must be true or false, but got 1"),
    ("ckpt", "", "must be tiny, a folder or a name on the hub"),
    ("ckpt", None, "must be tiny, a folder or a name on the hub, but got null"),
    ("dataset_source", "math=math.jsonl:1", "must be a list of at least two NAME=PATH:WEIGHT"),
    ("dataset_source", [1, 2], "must be a list of at least two NAME=PATH:WEIGHT, but got [1, 2]"),
    ("dataset_mix_samples_per_epoch", "all_sen", 'must be an integer in [1, 2**63) or all_seen, but got "all_sen"'),
    ("epochs", 1.5, "must be an integer"),
    ("lr", 0, "must be finite and above 0, but got 0"),
    ("lr", True, "must be finite and above 0, but got true"),
    ("lr", float("nan"), "must be finite and above 0, but got NaN"),
    ("lr", 10**309, "must be finite and above 0"),
    ("lr_schedule", "cosin", 'must be linear, cosine or constant, but got "cosin"; did you mean "cosine"?'),
    ("mini_bs", 0, "must be an integer"),
    ("model_hub", "HF", 'must be hf, modelscope or local, but got "HF"; did you mean "hf"?'),
    ("output_dir", 3, "must be a folder, but got 3"),
    ("output_dir", "a\0b", "must be a folder"),
    ("output_dir", b"runs", "must be a folder"),
    ("seed", 2**32, f"must be an integer in [0, 2**32), but got {2**32}"),
    ("weight_decay", -0.1, "must be finite and at least 0, but got -0.1"),
    ("world_size", 2**20, "must be an integer in [1, 1048576)"),
]


@pytest.mark.parametrize(
    ("name", "value", "sentence"), WRONG, ids=[f"{case[0]}-{str(case[1])[:20]!a}" for case in WRONG]
)
def test_a_wrong_value_names_the_option_the_rule_and_the_value(name: str, value: object, sentence: str) -> None:
    with pytest.raises(CuveeError) as raised:
        settings(**{name: value})
    assert str(raised.value).startswith(f"{option_of(name)} {sentence}")
    assert "\n" not in str(raised.value)


def outcome(name: str, value: object) -> TrainSettings | str:
    """Return the settings with a value, or what is wrong with it."""
    try:
        return settings(**{name: value})
    except CuveeError as error:
        return str(error)


@pytest.mark.parametrize("name", rules_of_settings())
@given(
    value=st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text(), max_size=3))
)
def test_any_value_is_kept_or_refused_in_one_sentence(name: str, value: Any) -> None:
    made = outcome(name, value)
    if isinstance(made, str):
        assert "--" in made
        assert " must " in made
        assert made.isprintable()
        return
    kept = getattr(made, name)
    as_given = (
        value,
        tuple(value) if isinstance(value, list) else None,
        Path(value) if isinstance(value, str) else None,
    )
    assert type(kept) is not list
    assert any(kept == one for one in as_given if one is not None or value is None)


INLINE_ONLY = "must come with --dataset-source, but got"
NOT_WRITABLE = "must be a folder that can be written, but got"
CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"world_size": 4, "tp_size": 3}, "--tp-size must divide --world-size, which is 4, but got 3"),
    ({"tp_size": 2}, "--tp-size must divide --world-size, which is 1, but got 2"),
    ({"world_size": 6, "tp_size": 2}, "--batch-size must be a multiple of 3, the processes that train on different"),
    ({"world_size": 3}, "but got 32; give 30 or 33"),
    ({"world_size": 8, "batch_size": 5}, "but got 5; give 8"),
    ({"world_size": 2, "mini_bs": 5}, "--mini-bs must divide 16, the rows of a step on each process, but got 5"),
    ({"mini_bs": 64}, "--mini-bs must divide 32"),
    ({"max_steps": 10, "warmup_steps": 11}, "--warmup-steps must be at most --max-steps, which is 10, but got 11"),
    (
        {"dataset_source": SOURCES, "dataset_path": "a"},
        "but got --dataset-source 'math=math.jsonl:0.7' and --dataset-path 'a'",
    ),
    ({"dataset_mix_config": "mix.json", "dataset_path": "a"}, "--dataset-mix-config 'mix.json' and --dataset-path 'a'"),
    ({"dataset_source": SOURCES[:1]}, "--dataset-source must be given at least twice, but got only 'math=math.jsonl:"),
    ({"dataset_mix_seed": 1}, f"--dataset-mix-seed 1 {INLINE_ONLY} a manifest: 'mix.json'; set it there"),
    (
        {"dataset_path": "a", "dataset_mix_exhaustion": "stop"},
        f"--dataset-mix-exhaustion stop {INLINE_ONLY} a single dataset: --dataset-path 'a'",
    ),
    ({"output_dir": "math.jsonl"}, f"--output-dir {NOT_WRITABLE} 'math.jsonl'"),
    ({"output_dir": "math.jsonl/run"}, f"--output-dir {NOT_WRITABLE} 'math.jsonl/run'"),
    ({"output_dir": "x" * 300}, "file name too long"),
    ({"metrics_log_dir": "mix.json"}, f"--metrics-log-dir {NOT_WRITABLE} 'mix.json'"),
    ({"output_dir": "model", "ckpt": "./model"}, "--output-dir must be another folder than --ckpt, but got 'model'"),
    ({"ckpt": "./model"}, "--ckpt must be a folder that exists where it is a path, but got './model'"),
    ({"ckpt": "/mix.json/model"}, "--ckpt must be a folder that exists where it is a path"),
    ({"ckpt": "./" + "x" * 300}, "--ckpt must be a folder that exists where it is a path"),
    ({"ckpt": "~nobody/model"}, "--ckpt must be a folder that exists where it is a path"),
    ({"resume": "latest"}, "--resume latest must find a checkpoint in --output-dir, but got none in 'runs/"),
    ({"resume": "latest", "output_dir": "none"}, "but got none in 'none'; leave --resume out to begin a run"),
    ({"resume": "none"}, f"--resume must be latest or the folder of a checkpoint, with {STATE_FILE} in it, but got"),
    ({"resume": "x" * 300}, "--resume must be latest or the folder of a checkpoint"),
]


@pytest.mark.parametrize(("values", "sentence"), CONTRADICTIONS, ids=[str(case[0])[:60] for case in CONTRADICTIONS])
def test_contradictions_are_found_before_any_work(values: dict[str, Any], sentence: str, folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    with pytest.raises(CuveeError, match="must") as raised:
        settings(**values)
    assert sentence in str(raised.value)
    assert sorted(folder.rglob("*")) == before


def test_no_data_at_all_is_an_error() -> None:
    with pytest.raises(ManifestError, match="--dataset-source or --dataset-path, but got none"):
        TrainSettings()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_refused(folder: Path) -> None:
    (folder / "locked").mkdir(mode=0o500)
    with pytest.raises(CuveeError, match="--output-dir must be a folder that can be written, but got 'locked/run'"):
        settings(output_dir="locked/run")


# --- runs and checkpoints


def test_a_new_run_takes_a_folder_of_its_own(folder: Path) -> None:
    first = settings().output_dir
    first.mkdir(parents=True)
    assert settings().output_dir != first


@pytest.mark.parametrize("option", ["output_dir", "metrics_log_dir"])
def test_a_new_run_does_not_write_over_another(option: str, folder: Path) -> None:
    make_run(folder / "old", 20)
    with pytest.raises(CuveeError, match=f"{option_of(option)} must hold no run yet, but got 'old', which does"):
        settings(**{option: "old"})


def test_latest_is_the_highest_step_with_a_whole_checkpoint(folder: Path) -> None:
    run = make_run(folder / "run", 9, 20, 100)
    (run / "checkpoint-300").mkdir()  # torn: killed before its state was written
    (run / "checkpoint-best").mkdir()
    made = settings(output_dir="run", resume="latest")
    assert made.checkpoint == Path("run/checkpoint-100")
    make_run(folder / "run", 400)
    assert made.checkpoint == Path("run/checkpoint-100")  # what is saved later does not change it


def test_a_run_goes_on_where_its_checkpoint_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(folder / "run", 9, 20)
    assert typed("mix.json", "--resume", "run/checkpoint-9/").output_dir == run
    monkeypatch.chdir(run / "checkpoint-9")
    assert typed("../../mix.json", "--resume", ".").output_dir == run


def test_a_checkpoint_can_begin_another_run_but_not_in_the_folder_of_a_third(folder: Path) -> None:
    make_run(folder / "run", 9)
    make_run(folder / "third", 5)
    assert settings(resume="run/checkpoint-9", output_dir="fork").checkpoint == Path("run/checkpoint-9")
    with pytest.raises(CuveeError, match="--output-dir must hold no run yet, but got 'third'"):
        settings(resume="run/checkpoint-9", output_dir="third")


# --- launchers


def test_under_a_launcher_there_are_as_many_processes_as_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert settings(output_dir="run").world_size == 4
    assert settings(output_dir="run", world_size=4).world_size == 4
    with pytest.raises(CuveeError, match="--world-size must be 4, the WORLD_SIZE of the launcher"):
        settings(output_dir="run", world_size=2)
    with pytest.raises(
        CuveeError, match="--output-dir must be given under a launcher, so that all 4 processes use one"
    ):
        settings()


# --- files


def test_a_file_gives_options_and_the_command_line_goes_before_it(folder: Path) -> None:
    (folder / "run.yaml").write_text(
        "# a run\ndataset-mix-config: mix.json\nbatch_size: 8\nlr: 1e-4\nbf16: yes\nmax-steps: ~\nckpt: 'org/big'\n"
    )
    made = typed("--config", "run.yaml", "--batch-size", "16", "--no-bf16")
    assert (made.batch_size, made.lr, made.bf16, made.max_steps, made.ckpt) == (16, 1e-4, False, None, "org/big")


def test_paths_in_a_file_start_at_its_folder(folder: Path) -> None:
    (folder / "conf").mkdir()
    (folder / "conf" / "model").mkdir()
    (folder / "conf" / "code.jsonl").write_text("{}\n")
    (folder / "conf" / "run.yaml").write_text(
        "dataset-source: [math=../math.jsonl:0.7, code=code.jsonl:3e-1, hub=org/data:train:1]\n"
        "dataset-loader-fn: load.py:rows\nckpt: model\noutput-dir: out\n"
    )
    made = typed("--config", "conf/run.yaml")
    assert made.dataset_source == (
        f"math={folder}/math.jsonl:0.7",
        f"code={folder}/conf/code.jsonl:3e-1",
        "hub=org/data:train:1",
    )
    assert made.dataset_loader_fn == f"{folder}/conf/load.py:rows"
    assert (made.ckpt, made.output_dir) == (f"{folder}/conf/model", folder / "conf" / "out")


def test_data_named_on_the_command_line_replace_those_of_the_file(folder: Path) -> None:
    inline = "dataset-source:\n- math=math.jsonl:0.7\n- code=code.jsonl:0.3\ndataset-mix-seed: 5\n"
    (folder / "run.yaml").write_text(inline)
    assert typed("--config", "run.yaml", "--dataset-mix-exhaustion", "stop").dataset_mix_seed == 5
    assert typed("mix.json", "--config", "run.yaml").dataset_mix_seed is None
    single = typed("--config", "run.yaml", "--dataset-path", "math.jsonl")
    assert (single.dataset_path, single.dataset_source, single.dataset_mix_seed) == ("math.jsonl", (), None)
    sources = ["--dataset-source", "a=math.jsonl:1", "--dataset-source", "b=code.jsonl:1"]
    assert typed("--config", "run.yaml", *sources).dataset_mix_seed == 5


FREE_TEXT = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=12).filter(str.strip)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "num_workers": st.integers(0, 9),
    "max_length": st.none() | st.integers(1, 2**31 - 1),
    "max_new_tokens": st.none() | st.integers(1, 2**31 - 1),
    "ckpt": FREE_TEXT.map(lambda text: f"no-such/{text.replace('/', '')}"),
    "seed": st.integers(0, 2**32 - 1),
    "max_steps": st.none() | st.integers(1, 2**31 - 1),
    "lr": st.none() | st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    "weight_decay": st.floats(min_value=0, allow_infinity=False),
    "lr_schedule": st.sampled_from(["linear", "cosine", "constant"]),
    "bf16": st.booleans(),
    "tensorboard": st.booleans(),
    "save_total_limit": st.none() | st.integers(1, 9),
}
DATA: list[dict[str, Any]] = [
    {"dataset_mix_config": "mix.json"},
    {"dataset_path": "math.jsonl"},
    {"dataset_path": "org/data:config:train"},
    {"dataset_source": SOURCES, "dataset_mix_seed": 3, "dataset_mix_samples_per_epoch": "all_seen"},
    {"dataset_source": SOURCES, "dataset_mix_samples_per_epoch": 12, "dataset_loader_fn": "load.py"},
]


@given(values=st.fixed_dictionaries({}, optional=FIELDS), data=st.sampled_from(DATA))
def test_a_written_run_reads_back_the_same_from_anywhere(values: dict[str, Any], data: dict[str, Any]) -> None:
    made = settings(output_dir="run", **values, **data)
    Path("elsewhere").mkdir(exist_ok=True)
    Path("elsewhere/run.yaml").write_text(made.to_yaml())
    again = read_settings({"output_dir": "run"}, config=Path("elsewhere/run.yaml"))
    assert again.to_document() == made.to_document()
    assert again.to_yaml() == made.to_yaml()
    assert pickle.loads(pickle.dumps(made)) == made


def as_options(document: dict[str, Any]) -> list[str]:
    """Return the command line that says what a document says."""
    options: list[str] = []
    for option, value in document.items():
        if isinstance(value, bool):
            options.append(f"--{option}" if value else f"--no-{option}")
        else:
            options += [f"--{option}={one}" for one in (value if isinstance(value, list) else [value])]
    return options


@given(values=st.fixed_dictionaries({}, optional=FIELDS), data=st.sampled_from(DATA))
def test_a_file_means_what_the_same_options_mean_on_the_command_line(
    values: dict[str, Any], data: dict[str, Any]
) -> None:
    document = settings(output_dir="run", **values, **data).to_document()
    assert typed("--output-dir=run", *as_options(document)).to_document() == document


def test_a_name_that_is_not_unicode_survives(folder: Path) -> None:
    made = settings(output_dir="run", ckpt="no-such/\udcff")
    (folder / "run.yaml").write_text(made.to_yaml())
    assert typed("--config", "run.yaml", "--output-dir", "run").ckpt == made.ckpt


def test_a_document_holds_all_that_decides_a_run_and_not_where_it_is(folder: Path) -> None:
    document = settings(output_dir="run", metrics_log_dir="logs").to_document()
    assert document["dataset-mix-config"] == str(folder / "mix.json")
    assert document["lr"] == 1e-3
    assert not {"output-dir", "metrics-log-dir", "resume"} & document.keys()
    assert list(document) == list(settings(output_dir="other").to_document())


# --- what is trained on


def opened(**values: Any) -> tuple[Any, dict[str, Any]]:
    sources = open_mixture_input(settings(output_dir="run", **values))
    return sources, sources.open()


def test_all_forms_of_one_mixture_are_the_same_contract(folder: Path) -> None:
    write_manifest(folder / "mix.json", samples_per_epoch=20)
    hashes = set()
    for values in (
        {"dataset_mix_config": "mix.json"},
        {"dataset_source": SOURCES, "dataset_mix_seed": 7, "dataset_mix_samples_per_epoch": 20},
    ):
        sources, data = opened(**values)
        hashes.add(sources.mixture(data, fingerprints=sources.fingerprints(data)).spec_hash)
    assert hashes == {Mixture.from_manifest("mix.json").spec_hash}


def test_a_single_dataset_gives_each_row_once_an_epoch(folder: Path) -> None:
    sources, data = opened(dataset_path="math.jsonl", seed=3)
    assert (sources.names, sources.seed) == (("dataset",), 3)
    plan = sources.mixture(data, fingerprints=sources.fingerprints(data)).plan()
    assert sorted(plan.draws(0, len(plan)).row.tolist()) == list(range(ROWS["math"]))
    (folder / "math.jsonl").rename(folder / "renamed.jsonl")
    sources, data = opened(dataset_path="renamed.jsonl", seed=3)
    again = sources.mixture(data, fingerprints=sources.fingerprints(data)).plan()
    assert again.schedule_hash() == plan.schedule_hash()


def test_a_manifest_of_version_2_works_whole(folder: Path) -> None:
    policy: dict[str, Any] = {
        "weights": {"policy": "temperature", "tau": 2.0},
        "unit": "tokens",
        "window": 8,
        "control_interval": 16,
        "max_length": 25,
        "samples_per_epoch": 100,
        "stages": [{"at": 50, "weights": {"math": 1, "code": 0}, "interpolation": "cosine"}],
        "sources": [{"name": "math", "path": "math.jsonl", "max_epochs": 9}, {"name": "code", "path": "code.jsonl"}],
    }
    write_manifest(folder / "mix.json", **policy)
    sources, data = opened()
    assert sources.max_length == 25
    lengths = {name: np.arange(1, size + 1, dtype=np.int32) for name, size in ROWS.items()}
    fingerprints = sources.fingerprints(data)
    mixture = sources.mixture(data, fingerprints=fingerprints, lengths=lengths, max_length=25)
    direct = Mixture.from_manifest("mix.json", tokenizer=list)  # a token a character: of the prompt, too
    for field in ("seed", "unit", "window", "control_interval", "max_length", "samples_per_epoch", "stages"):
        assert getattr(mixture, field) == getattr(direct, field), field
    assert [source.max_epochs for source in mixture.sources] == [9, None]
    passing = np.array([sum(range(1, 26)), sum(range(1, 11))])
    assert mixture.weights == pytest.approx(np.sqrt(passing) / np.sqrt(passing).sum())


def test_a_length_is_limited_in_one_place(folder: Path) -> None:
    write_manifest(folder / "long.json", max_length=25)
    message = "--max-length must be left out where the manifest has max_length, which is 25, but got 30"
    with pytest.raises(ManifestError, match=message):
        open_mixture_input(settings(dataset_mix_config="long.json", max_length=30))
    assert open_mixture_input(settings(max_length=30)).max_length == 30
    assert open_mixture_input(settings(dataset_mix_config="long.json", max_new_tokens=9)).max_length == 25


def test_a_run_is_not_written_over_its_data(folder: Path) -> None:
    import datasets

    datasets.Dataset.from_dict({"text": ["a"]}).save_to_disk(folder / "saved")
    with pytest.raises(SourceError, match="--output-dir must not replace data, but got 'saved' of source 'dataset'"):
        open_mixture_input(settings(dataset_path="saved", output_dir="saved"))


def test_a_loader_is_found_before_data_are_opened(folder: Path) -> None:
    with pytest.raises(SourceError, match="loader must be a Python file that exists"):
        open_mixture_input(settings(dataset_path="nothing.jsonl", dataset_loader_fn="none.py"))


def test_settings_load_nothing_heavy(fresh_python: Callable[[str], str]) -> None:
    code = (
        "import sys, cuvee.train.reading, cuvee.train.sources, cuvee.cli.train; "
        "print([name for name in ('torch', 'transformers', 'datasets', 'pyarrow', 'yaml') if name in sys.modules])"
    )
    assert fresh_python(code) == "[]\n"


@pytest.mark.parametrize("patterns", NEEDED)
def test_checkpoint_without_something_to_go_on_from_is_refused(tmp_path, patterns) -> None:
    checkpoint = tmp_path / "run" / "checkpoint-5"
    checkpoint.mkdir(parents=True)
    for name in (STATE_FILE, *(others[0] for others in NEEDED if others != patterns)):
        (checkpoint / name).touch()
    for resume in ("latest", str(checkpoint)):
        with pytest.raises(CuveeError, match=rf"--resume must be of a whole checkpoint, .* without {patterns[0]}; to"):
            checkpoint_of(resume, tmp_path / "run")


def test_folder_is_of_one_run_at_a_time(tmp_path) -> None:
    run, logs = tmp_path / "run", tmp_path / "logs"
    with (
        held({run, logs}),
        pytest.raises(CuveeError, match="--output-dir must be of no other run under way"),
        held({logs}),
    ):
        pass
    with held({run}):
        pass


def test_folder_whose_name_is_no_utf8_is_refused(tmp_path) -> None:
    with pytest.raises(
        CuveeError, match=r"^--output-dir must be a folder that can be written, .*: its name is not in UTF-8"
    ):
        check_writable("--output-dir", tmp_path / "d\udcff")
