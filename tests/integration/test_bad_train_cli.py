"""What users get wrong when they start a training run, and the one sentence that each of them reads."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cuvee.cli import main
from cuvee.train.run_folder import EVENTS_FILE, STATE_FILE

INLINE = ["--dataset-source", "math=math.jsonl:0.7", "--dataset-source", "code=code.jsonl:0.3"]
ALL_FORMS = "mixture must be given once, as MANIFEST, --dataset-mix-config, --dataset-source or --dataset-path, but got"
INTEGER = "must be an integer in [1, 2**31), but got"
NOT_WRITABLE = "must be a folder that can be written, but got"
MIX = {
    "version": 1,
    "seed": 42,
    "exhaustion": "cycle",
    "sources": [
        {"name": "math", "path": "math.jsonl", "weight": 0.7},
        {"name": "code", "path": "code.jsonl", "weight": 0.3},
    ],
}

# (what was wrong, the arguments, the sentence)
BAD_OPTIONS: list[tuple[str, list[str], str]] = [
    ("nothing given", [], f"{ALL_FORMS} none"),
    ("no such option", ["mix.json", "--batchsize", "8"], "--batchsize"),
    ("an argument too many", ["mix.json", "mix.json"], "mix.json"),
    ("an option without its value", ["mix.json", "--lr"], "--lr"),
    (
        "an option twice that is no list",
        ["mix.json", "--lr", "x", "--lr", "0"],
        '--lr must be finite and above 0, but got "0"',
    ),
    ("a value for a flag", ["mix.json", "--bf16=yes"], "--bf16"),
    (
        "manifest twice",
        ["mix.json", "--dataset-mix-config", "m.json"],
        "MANIFEST 'mix.json' and --dataset-mix-config 'm.j",
    ),
    ("manifest and inline", ["mix.json", *INLINE], "MANIFEST 'mix.json' and --dataset-source 'math=math.jsonl:0.7'"),
    (
        "manifest and a single dataset",
        ["mix.json", "--dataset-path", "a"],
        "MANIFEST 'mix.json' and --dataset-path 'a'",
    ),
    (
        "inline and a single dataset",
        [*INLINE, "--dataset-path", "a"],
        "--dataset-source 'math=math.jsonl:0.7' and --da",
    ),
    ("one source", INLINE[:2], "--dataset-source must be given at least twice, but got only 'math=math.jsonl:0.7'"),
    (
        "a seed beside a manifest",
        ["mix.json", "--dataset-mix-seed", "7"],
        "--dataset-mix-seed 7 must come with --dataset",
    ),
    (
        "a policy beside a dataset",
        ["--dataset-path", "a", "--dataset-mix-exhaustion", "stop"],
        "a single dataset: --data",
    ),
    ("no such policy", [*INLINE, "--dataset-mix-exhaustion", "stopp"], 'but got "stopp"; did you mean "stop"?'),
    (
        "half a row in an epoch",
        [*INLINE, "--dataset-mix-samples-per-epoch", "0.5"],
        "in [1, 2**63) or all_seen, but got",
    ),
    (
        "an empty name of a dataset",
        ["--dataset-path", ""],
        "--dataset-path must be the path or Hub reference of a dataset",
    ),
    (
        "an empty name of a loader",
        ["mix.json", "--dataset-loader-fn", ""],
        "--dataset-loader-fn must be FILE.py or FILE.p",
    ),
    ("no such algorithm", ["mix.json", "--algo", "ppo"], '--algo must be sft, but got "ppo"'),
    ("an empty model", ["mix.json", "--ckpt", " "], '--ckpt must be tiny, a folder or a name on the hub, but got " "'),
    ("no such hub", ["mix.json", "--model-hub", "model-scope"], 'but got "model-scope"; did you mean "modelscope"?'),
    ("no rows in a step", ["mix.json", "--batch-size", "0"], f'--batch-size {INTEGER} "0"'),
    ("rows in words", ["mix.json", "--batch-size", "many"], f'--batch-size {INTEGER} "many"'),
    ("rows with a point", ["mix.json", "--batch-size", "8.0"], f'--batch-size {INTEGER} "8.0"'),
    ("rows in hexadecimal", ["mix.json", "--batch-size", "0x20"], f'--batch-size {INTEGER} "0x20"'),
    ("5,000 digits", ["mix.json", "--batch-size", "9" * 5000], f'--batch-size {INTEGER} "9999'),
    ("a negative number of rows", ["mix.json", "--mini-bs", "-8"], f'--mini-bs {INTEGER} "-8"'),
    ("no epochs", ["mix.json", "--epochs", "0"], f'--epochs {INTEGER} "0"'),
    ("no steps", ["mix.json", "--max-steps", "0"], f'--max-steps {INTEGER} "0"'),
    ("no learning", ["mix.json", "--lr", "0"], '--lr must be finite and above 0, but got "0"'),
    ("a learning rate that is none", ["mix.json", "--lr", "nan"], 'but got "nan"'),
    ("an infinite learning rate", ["mix.json", "--lr", "1e999"], 'but got "1e999"'),
    (
        "a negative decay",
        ["mix.json", "--weight-decay", "-0.1"],
        "--weight-decay must be finite and at least 0, but got",
    ),
    ("no such schedule", ["mix.json", "--lr-schedule", "Cosine"], 'but got "Cosine"; did you mean "cosine"?'),
    (
        "a warm-up beyond the end",
        ["mix.json", "--max-steps", "9", "--warmup-steps", "10"],
        "--max-steps, which is 9, but",
    ),
    ("no tokens", ["mix.json", "--max-length", "0"], f'--max-length {INTEGER} "0"'),
    ("tokens with a unit", ["mix.json", "--max-new-tokens", "4k"], f'--max-new-tokens {INTEGER} "4k"'),
    ("a seed below 0", ["mix.json", "--seed", "-1"], '--seed must be an integer in [0, 2**32), but got "-1"'),
    (
        "three processes for 32 rows",
        ["mix.json", "--world-size", "3"],
        "--batch-size must be a multiple of 3, the process",
    ),
    (
        "a copy of the model over too many",
        ["mix.json", "--tp-size", "2"],
        "--tp-size must divide --world-size, which is 1",
    ),
    ("parts that do not fit", ["mix.json", "--mini-bs", "5"], "--mini-bs must divide 32, the rows of a step on each"),
    (
        "a million processes",
        ["mix.json", "--world-size", "9999999"],
        "--world-size must be an integer in [1, 1048576), but",
    ),
    ("an output that is a file", ["mix.json", "--output-dir", "mix.json"], f"--output-dir {NOT_WRITABLE} 'mix.json'"),
    ("an output below a file", ["mix.json", "--output-dir", "mix.json/a"], f"--output-dir {NOT_WRITABLE} 'mix.json/a'"),
    (
        "an output that is a device",
        ["mix.json", "--output-dir", "/dev/null"],
        f"--output-dir {NOT_WRITABLE} '/dev/null'",
    ),
    ("an output without a name", ["mix.json", "--output-dir", ""], '--output-dir must be a folder, but got ""'),
    ("an output with too long a name", ["mix.json", "--output-dir", "x" * 256], "file name too long"),
    (
        "a link that leads nowhere",
        ["mix.json", "--output-dir", "nowhere/run"],
        f"--output-dir {NOT_WRITABLE} 'nowhere/run'",
    ),
    (
        "an output that holds a run",
        ["mix.json", "--output-dir", "run"],
        "--output-dir must hold no run yet, but got 'run'",
    ),
    (
        "metrics of another run",
        ["mix.json", "--metrics-log-dir", "run"],
        "--metrics-log-dir must hold no run yet, but got",
    ),
    (
        "metrics in a file",
        ["mix.json", "--metrics-log-dir", "mix.json"],
        f"--metrics-log-dir {NOT_WRITABLE} 'mix.json'",
    ),
    (
        "nothing to go on from",
        ["mix.json", "--resume", "latest"],
        "--resume latest must find a checkpoint in --output-dir",
    ),
    (
        "no such checkpoint",
        ["mix.json", "--resume", "run/checkpoint-9"],
        f"with {STATE_FILE} in it, but got 'run/checkp",
    ),
    ("a run for a checkpoint", ["mix.json", "--resume", "run"], f"with {STATE_FILE} in it, but got 'run'"),
    ("no checkpoints kept", ["mix.json", "--save-total-limit", "0"], f'--save-total-limit {INTEGER} "0"'),
    (
        "no such configuration",
        ["--config", "nun.yaml"],
        '--config must be a YAML file that can be read, but got "nun.yaml"',
    ),
    (
        "a folder for a configuration",
        ["--config", "run"],
        '--config must be a YAML file, but got "run", which is a folder',
    ),
    ("a device for a configuration", ["--config", "/dev/zero"], 'but got "/dev/zero", which is a device or pipe'),
]

# (what was wrong, the file, the sentence)
BAD_FILES: list[tuple[str, str | bytes, str]] = [
    ("an unknown option", "batchsize: 8", 'bad.yaml, line 1: unknown option "batchsize"; did you mean "batch-size"?'),
    ("an option like no other", "zzz: 8", 'bad.yaml, line 1: unknown option "zzz"; `cuvee train --help` lists them'),
    ("config in a config", "config: other.yaml", 'bad.yaml, line 1: unknown option "config"'),
    ("dashes in front", "--lr: 1", 'bad.yaml, line 1: unknown option "--lr"; did you mean "lr"?'),
    ("a key twice", "lr: 1\nseed: 2\nlr: 2", 'bad.yaml, line 3: each option must be given once, but got "lr" twice'),
    (
        "two spellings of a key",
        "mini-bs: 1\nmini_bs: ~",
        'bad.yaml, line 2: each option must be given once, but got "mini-bs',
    ),
    ("words for a number", "batch-size: many", f'bad.yaml, line 1: --batch-size {INTEGER} "many"'),
    ("a bool for a number", "seed: 1\nbatch-size: true", f'bad.yaml, line 2: --batch-size {INTEGER} "true"'),
    ("a number for a bool", "bf16: 1", 'bad.yaml, line 1: --bf16 must be true or false, but got "1"'),
    (
        "a number in quotes",
        "batch-size: '8'",
        f"bad.yaml, line 1: --batch-size {INTEGER} '8' in quotes; write it without",
    ),
    ("a bool in quotes", 'bf16: "false"', "bad.yaml, line 1: --bf16 must be true or false, but got 'false' in quotes"),
    ("a fraction", "batch-size: 1.5", f'bad.yaml, line 1: --batch-size {INTEGER} "1.5"'),
    ("a number that is none", "lr: .nan", '--lr must be finite and above 0, but got ".nan"'),
    ("a time for a number", "epochs: 1:30", f'--epochs {INTEGER} "1:30"'),
    ("a list for a number", "lr: [1e-3]", "bad.yaml, line 1: --lr must be finite and above 0, but got a list"),
    ("an empty list", "lr: []", "bad.yaml, line 1: --lr must be finite and above 0, but got a list"),
    ("a mapping for a number", "lr: {max: 1}", "bad.yaml, line 1: --lr must be finite and above 0, but got a mapping"),
    ("an empty mapping", "lr: {}", "bad.yaml, line 1: --lr must be finite and above 0, but got a mapping"),
    (
        "a text for a list",
        "dataset-source: a=b:1",
        "--dataset-source must be a list of at least two NAME=PATH:WEIGHT, but",
    ),
    (
        "sources as a mapping",
        "dataset-source:\n  math: {path: a}",
        "--dataset-source must be a text or a list of texts, but got a mapping of mappings",
    ),
    (
        "lists in a list",
        "dataset-source: [[a=b:1]]",
        "--dataset-source must be a text or a list of texts, but got a list of lists",
    ),
    ("a list", "- lr: 1", "bad.yaml must map options to values, but got a list"),
    ("a text", "hello", 'bad.yaml must map options to values, but got "hello"'),
    ("a list for a key", "? [a, b]\n: 1", "bad.yaml, line 1: the name of an option must be text, but got a list"),
    ("two documents", "lr: 1\n---\nlr: 2", "bad.yaml, line 2: a file must hold one document, but got another"),
    (
        "an anchor",
        "lr: &rate 1\nweight-decay: *rate",
        'bad.yaml, line 1: values must be written out, but got the anchor "',
    ),
    ("an alias of nothing", "lr: *rate", "bad.yaml, line 1"),
    ("a merge key", "<<: {lr: 1}", 'bad.yaml, line 1: unknown option "<<"'),
    (
        "a bomb of anchors",
        "a: &a [x, x]\n"
        + "".join(f"{new}: &{new} [*{old}, *{old}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)),
        "bad.yaml, line 1",
    ),
    (
        "a tag",
        "ckpt: !!python/object/apply:os.system ['touch pwned']",
        "bad.yaml, line 1: values must have no tag, but got",
    ),
    ("a tag of a text", "ckpt: !secret key", 'bad.yaml, line 1: values must have no tag, but got "!secret"'),
    ("deep brackets", "lr: " + "[" * 100_000, "--lr must be a text or a list of texts, but got a list of lists"),
    ("an open bracket", "lr: [1,\nseed", "bad.yaml, line 2, column"),
    ("an open quote", "ckpt: 'tiny\n", "must be YAML, but got a fault: found unexpected end of stream"),
    ("a tab for spaces", "dataset-source:\n\t- a=b:1", "bad.yaml, line 2, column 1 must be YAML, but got a fault"),
    (
        "a colon in a text",
        "ckpt: a: b",
        "bad.yaml, line 1, column 8 must be YAML, but got a fault: mapping values are not",
    ),
    (
        "a control character",
        "ckpt: a\x01b",
        "bad.yaml must be YAML, but got a fault: special characters are not allowed",
    ),
    ("another encoding", "ckpt: Cuvée".encode("latin-1"), "bad.yaml must be UTF-8 text, but got byte 0xe9 at offset 9"),
    ("a binary file", b"\x80\x02}q\x00.", "bad.yaml must be UTF-8 text, but got byte 0x80 at offset 0"),
    ("a model for a configuration", b"x" * (1 << 20), "--config must be at most 262,144 bytes long, but got"),
    ("no data in an empty file", "", f"{ALL_FORMS} none"),
    ("no data beside comments", "# lr: 1\n", f"{ALL_FORMS} none"),
    ("no data beside a null", "~", f"{ALL_FORMS} none"),
    ("two forms in one file", "dataset-path: a\ndataset-mix-config: mix.json", "--dataset-mix-config"),
    (
        "what contradicts the machine",
        "dataset-path: a\ntp-size: 2",
        "--tp-size must divide --world-size, which is 1, but got 2",
    ),
    (
        "NUL in a path",
        'dataset-path: "a\\0b"',
        "bad.yaml, line 1: --dataset-path must be the path or Hub reference of a data",
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad-train")
    (folder / "mix.json").write_text(json.dumps(MIX))
    for name in ("math", "code"):
        (folder / f"{name}.jsonl").write_text('{"prompt": "a", "response": "b"}\n' * 9)
    (folder / "run").mkdir()
    (folder / "run" / EVENTS_FILE).write_text("")
    (folder / "nowhere").symlink_to("absent")
    return folder


@pytest.fixture
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, bytes]]:
    """Work in the folder, with no launcher around; return a function that reads all of it."""
    for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(folder)
    return lambda: {
        os.path.relpath(path, folder): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")
    }


def check_refused(
    arguments: list[str],
    sentence: str,
    in_folder: Callable[[], dict[str, bytes]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = in_folder()
    code = main(["train", *arguments])
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    assert sentence in err
    assert len(err) < 1000
    assert in_folder() == before


@pytest.mark.parametrize(
    ("arguments", "sentence"), [case[1:] for case in BAD_OPTIONS], ids=[case[0] for case in BAD_OPTIONS]
)
def test_bad_options_are_one_sentence(
    arguments: list[str],
    sentence: str,
    in_folder: Callable[[], dict[str, bytes]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    check_refused(arguments, sentence, in_folder, capsys)


@pytest.mark.parametrize(("content", "sentence"), [case[1:] for case in BAD_FILES], ids=[case[0] for case in BAD_FILES])
def test_bad_files_are_one_sentence(
    content: str | bytes,
    sentence: str,
    in_folder: Callable[[], dict[str, bytes]],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "bad.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    check_refused(["--config", "bad.yaml"], sentence, in_folder, capsys)


def test_a_launcher_that_is_half_there_is_one_sentence(
    in_folder: Callable[[], dict[str, bytes]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "two")
    monkeypatch.setenv("RANK", "0")
    check_refused(["mix.json"], "WORLD_SIZE must be an integer", in_folder, capsys)
