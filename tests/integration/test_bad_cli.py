"""What users get wrong on the command line, and the one sentence that each of them reads."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cuvee.cli import main

MATH = [{"prompt": f"{n}+{n}", "response": str(2 * n), "n_tokens": n % 7 + 1} for n in range(30)]
CODE = [{"prompt": f"f({n})", "response": "return"} for n in range(10)]
LOADER = """
def bad(data, name):
    return data if name == "math" else data["none"]

def other(data, name):
    return data
"""

INLINE = ["--dataset-source", "math=math.jsonl:0.7", "--dataset-source", "code=code.jsonl:0.3"]
ALL_FORMS = "mixture must be given once, as MANIFEST, --dataset-mix-config or --dataset-source, but got"
TWICE = "--dataset-source must be given at least twice, but got only"


def inline(second: str) -> list[str]:
    return ["plan", *INLINE[:2], "--dataset-source", second]


def manifest(**changes: object) -> dict[str, object]:
    sources = [
        {"name": "math", "path": "math.jsonl", "weight": 0.7},
        {"name": "code", "path": "code.jsonl", "weight": 0.3},
    ]
    return {"version": 1, "seed": 42, "exhaustion": "cycle", "sources": sources} | changes


# (what was wrong, the arguments, the sentence)
BAD: list[tuple[str, list[str], str]] = [
    ("no such command", ["plam"], "'plam'"),
    ("no such option", ["plan", "mix.json", "--jsn"], "--jsn"),
    ("an argument too many", ["plan", "mix.json", "mix2.json"], "mix2.json"),
    ("an option without its value", ["plan", "mix.json", "--epoch"], "--epoch"),
    ("no mixture", ["plan"], f"{ALL_FORMS} none"),
    (
        "data for a manifest",
        ["plan", "math.jsonl"],
        "which looks like data; mix data with --dataset-source NAME=math.jsonl",
    ),
    (
        "a source for output",
        ["plan", "mix.json", "-o", "math.jsonl"],
        "--output must not replace data, but got 'math.jsonl' of source 'math'",
    ),
    (
        "a link to a source for output",
        ["plan", *INLINE, "-o", "link.jsonl"],
        "--output must not replace data, but got 'link.jsonl' of source 'math'",
    ),
    (
        "a loader for output",
        ["plan", *INLINE, "--dataset-loader-fn", "loader.py:other", "-o", "loader.py"],
        "--output must be another file than the loader, but got 'loader.py'",
    ),
    ("a device for output", ["plan", *INLINE, "-o", "/dev/null"], "device or pipe '/dev/null'; use --json"),
    ("no mixture to verify against", ["verify", "plan.json"], f"{ALL_FORMS} none"),
    ("nothing to verify", ["verify"], "'FILE'"),
    (
        "manifest twice",
        ["plan", "mix.json", "--dataset-mix-config", "mix.json"],
        "but got MANIFEST 'mix.json' and --da",
    ),
    (
        "manifest and inline",
        ["plan", "mix.json", *INLINE],
        "MANIFEST 'mix.json' and --dataset-source 'math=math.jsonl:0.7'",
    ),
    (
        "config and inline",
        ["preview", "--dataset-mix-config", "mix.json", *INLINE],
        "--dataset-mix-config 'mix.json' and",
    ),
    ("one source", ["plan", *INLINE[:2]], f"{TWICE} 'math=math.jsonl:0.7'"),
    (
        "seed beside a manifest",
        ["plan", "mix.json", "--dataset-mix-seed", "7"],
        "--dataset-mix-seed 7 must come with --dataset-source, but got a manifest: 'mix.json'; set it there",
    ),
    (
        "policy beside a manifest",
        ["plan", "mix.json", "--dataset-mix-exhaustion", "stop"],
        "--dataset-mix-exhaustion stop",
    ),
    ("a source without =", inline("code.jsonl:0.3"), '"code.jsonl:0.3", which has no "="'),
    ("a source without weight", inline("code=code.jsonl"), '"code=code.jsonl", which has no weight at its end'),
    ("a weight that is no number", inline("code=code.jsonl:much"), 'weight must be a number, but got "much"'),
    ("a weight of 0", inline("code=code.jsonl:0"), "weight must be finite and positive, but got 0"),
    ("a negative weight", inline("code=code.jsonl:-0.3"), "weight must be finite and positive, but got -0.3"),
    ("an infinite weight", inline("code=code.jsonl:inf"), "but got Infinity"),
    ("a name twice", inline("math=code.jsonl:0.3"), '"math"'),
    ("no name", inline("=code.jsonl:0.3"), 'but got ""'),
    (
        "a seed that is no number",
        ["plan", *INLINE, "--dataset-mix-seed", "x"],
        '--dataset-mix-seed must be an integer in [0, 2**63), but got "x"',
    ),
    ("a negative seed", ["plan", *INLINE, "--dataset-mix-seed", "-1"], 'in [0, 2**63), but got "-1"'),
    ("a seed of 2**63", ["plan", *INLINE, "--dataset-mix-seed", str(2**63)], f'but got "{2**63}"'),
    ("a fractional seed", ["plan", *INLINE, "--dataset-mix-seed", "1.5"], 'but got "1.5"'),
    (
        "no such policy",
        ["plan", *INLINE, "--dataset-mix-exhaustion", "cylce"],
        '--dataset-mix-exhaustion must be stop, cycle or renormalize, but got "cylce"; did you mean "cycle"?',
    ),
    (
        "no rows in an epoch",
        ["plan", *INLINE, "--dataset-mix-samples-per-epoch", "0"],
        '--dataset-mix-samples-per-epoch must be an integer in [1, 2**63) or all_seen, but got "0"',
    ),
    (
        "a budget without cycle",
        ["plan", *INLINE, "--dataset-mix-exhaustion", "stop", "--dataset-mix-samples-per-epoch", "9"],
        "samples_per_epoch",
    ),
    (
        "a negative epoch",
        ["plan", "mix.json", "--epoch", "-1"],
        '--epoch must be an integer in [0, 2**62), but got "-1"',
    ),
    ("an epoch beyond the last", ["plan", "capped.json", "--epoch", "5"], "5"),
    ("no such manifest", ["plan", "nix.json"], "nix.json"),
    ("an empty name of a manifest", ["plan", ""], '"."'),
    ("a manifest that is a folder", ["plan", "folder"], "folder"),
    ("a manifest that is no JSON", ["plan", "math.jsonl"], "math.jsonl"),
    ("a field misspelt", ["plan", "misspelt.json"], 'unknown field "sede"; did you mean "seed"?'),
    ("a source that is not there", ["plan", "missing.json"], "source 'code'"),
    ("a source with a bad line", inline("code=broken.jsonl:0.3"), "broken.jsonl, line 2"),
    ("a loader that is no file", ["plan", "mix.json", "--dataset-loader-fn", "none.py:f"], "'none.py:f'"),
    ("a loader without its function", ["plan", "mix.json", "--dataset-loader-fn", "loader.py:good"], "'good'"),
    (
        "a loader that fails",
        ["plan", "mix.json", "--dataset-loader-fn", "loader.py:bad"],
        "source 'code': loader 'bad'",
    ),
    ("no such length column", ["plan", "mix.json", "--length-column", "tokns"], "(--length-column) must be one of"),
    (
        "an output that is a folder",
        ["plan", "mix.json", "-o", "folder"],
        "--output must be a file, but got the folder 'folder'",
    ),
    ("an output that is the manifest", ["plan", "mix.json", "-o", "./mix.json"], "but got 'mix.json'"),
    ("an output below a file", ["plan", "mix.json", "-o", "math.jsonl/plan.json"], "'math.jsonl/plan.json'"),
    (
        "no rows to preview",
        ["preview", "mix.json", "-n", "0"],
        '--count must be an integer in 1..100000, but got "0"',
    ),
    (
        "a start that is no number",
        ["preview", "mix.json", "--start", "end"],
        '--start must be an integer in [0, 2**63), but got "end"',
    ),
    (
        "a start beyond the epoch",
        ["preview", "mix.json", "--start", "40"],
        "--start must be in [0, 40), the epoch's positions, but got 40",
    ),
    ("no such record", ["verify", "none.json", "mix.json"], "'none.json': no such file or directory"),
    ("a record that is a folder", ["verify", "folder", "mix.json"], "'folder': is a directory"),
    (
        "a record that is no JSON",
        ["verify", "loader.py", "mix.json"],
        "'loader.py' must be JSON or written by torch.save",
    ),
    ("a record of something else", ["verify", "mix.json", "mix.json"], "'mix.json' must be a plan file"),
    ("a record of a later version", ["verify", "later.json", "mix.json"], "plan: version must be 1, but got 99"),
    ("a damaged record", ["verify", "damaged.json", "mix.json"], "damaged"),
    ("an argument to schema", ["schema", "mix.json"], "mix.json"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    documents = {
        "mix.json": manifest(),
        "capped.json": manifest(exhaustion="cycle", version=2, samples_per_epoch=30),
        "misspelt.json": manifest(sede=1),
        "missing.json": manifest(),
        "later.json": {"version": 99, "mix_spec": {}, "mix_spec_hash": "", "schedule_hash": "", "sources": []},
        "damaged.json": {"spec": {"order_format": 1}, "spec_hash": "", "plan_hash": "", "journal": {}, "version": 1},
    }
    for source in documents["capped.json"]["sources"]:  # type: ignore[attr-defined]
        source["max_epochs"] = 1
    documents["missing.json"]["sources"][1]["path"] = "absent.jsonl"  # type: ignore[index]
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document))
    (folder / "math.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in MATH))
    (folder / "code.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in CODE))
    (folder / "broken.jsonl").write_text('{"prompt": "a"}\n{"prompt": \n')
    (folder / "loader.py").write_text(LOADER)
    (folder / "folder").mkdir()
    (folder / "link.jsonl").symlink_to("math.jsonl")
    return folder


@pytest.fixture
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, bytes]]:
    """Work in the folder; return a function that reads all of it."""
    monkeypatch.chdir(folder)
    return lambda: {
        os.path.relpath(path, folder): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


@pytest.mark.parametrize(("arguments", "sentence"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_is_one_sentence(
    arguments: list[str],
    sentence: str,
    in_folder: Callable[[], dict[str, bytes]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = in_folder()
    code = main(arguments)
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    assert sentence in err
    assert in_folder() == before
