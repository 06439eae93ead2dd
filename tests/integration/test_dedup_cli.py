"""`cuvee dedup` as users run it: receipt, the rows that stay as a manifest, evaluation sets, a Ray cluster."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cuvee import Mixture, manifest
from cuvee.cli import main
from cuvee.cli.command import app
from cuvee.errors import SourceError
from cuvee.sources import open_source
from near_duplicates import containment, edited_corpus, exact_pairs, jaccard, shingles

datasets = pytest.importorskip("datasets")

DOCUMENTS = edited_corpus(600)
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "dedup.md"
PARTS = {"web": DOCUMENTS[:300], "books": DOCUMENTS[250:520], "test": DOCUMENTS[510:]}
ON_TWO_WORKERS = """
import sys
import ray
from cuvee.cli import main
from cuvee.dedup import on_ray
on_ray._LOOKED_THROUGH = 100  # documents, so that several tasks look through a source
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
first = main(["dedup", "mix.json", "--engine", "ray", "--json", "--evaluation", "test=test.jsonl"])
sys.exit([first, main(["dedup", "torn.json", "--engine", "ray", "--json"])] != [0, 2])
"""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a manifest of two sources that share documents, and a test set; it is the working folder."""
    for name, documents in PARTS.items():
        lines = [json.dumps({"id": i, "text": text}) for i, text in enumerate(documents)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    sources = [{"name": name, "path": f"{name}.jsonl", "weight": 0.5} for name in ("web", "books")]
    document = {"version": 1, "seed": 3, "exhaustion": "stop", "sources": sources}
    (tmp_path / "mix.json").write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUVEE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def run(*arguments: str) -> str:
    """Return what `cuvee dedup` printed; nothing must go to stderr."""
    done = CliRunner().invoke(app, ["dedup", *arguments])
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    return done.stdout


def texts_of(path: Path) -> dict[str, list[str]]:
    mixture = Mixture.from_manifest(path)
    return {source.name: list(source.data["text"]) for source in mixture.sources}


def test_receipt_says_what_was_found(data: Path) -> None:
    receipt = json.loads(run("mix.json", "--json"))
    everything = PARTS["web"] + PARTS["books"]
    truth = exact_pairs(everything)
    assert receipt["pairs"] == len(truth)
    assert receipt["pairs_complete"]
    near = {i for pair in truth for i in pair}
    assert receipt["near_duplicate_rate"] == len(near) / len(everything)
    assert [s["near_duplicates"] for s in receipt["sources"]] == [
        sum(i < 300 for i in near), sum(i >= 300 for i in near)
    ]  # fmt: skip
    web_in_books = {i for i, j in truth if i < 300 <= j}
    assert receipt["overlap"]["documents"][0][1] == len(web_in_books) >= 50
    assert receipt["sources"][0]["fingerprint"] == Mixture.from_manifest("mix.json").sources[0].fingerprint
    assert receipt["rule"]["bands"] * receipt["rule"]["hashes_per_band"] == 64


def test_receipt_is_the_same_bytes_every_time(data: Path) -> None:
    first = run("mix.json", "--json", "--threads", "1", "--memory-limit", "0")
    assert run("mix.json", "--json", "--threads", "3", "--output", "receipt.json") == first
    assert (data / "receipt.json").read_text() == first
    assert run("mix.json", "--json", "--work-folder", "work") == first
    assert run("mix.json", "--json", "--work-folder", "work") == first


def rows_of(printed: str, *names: str) -> list[list[str]]:
    """Return the rows of tables that begin with these names, without them."""
    lines = [line.split() for line in printed.splitlines()]
    return [line[len(names) :] for line in lines if line[: len(names)] == list(names)]


def test_tables_say_what_sources_have_and_share(data: Path) -> None:
    receipt = json.loads(run("mix.json", "--evaluation", "test=test.jsonl", "--json"))
    printed = run("mix.json", "--evaluation", "test=test.jsonl")
    *sources, test = receipt["sources"]
    keys = ("documents", "near_duplicates", "exact_copies", "kept")
    for source in sources:
        assert rows_of(printed, source["name"])[0] == [str(source[key]) for key in keys]
    assert rows_of(printed, "total") == [[str(sum(source[key] for source in sources)) for key in keys]]
    assert "570 documents of 2 sources: " in printed
    web_in_books, books_in_web = receipt["overlap"]["documents"][0][1], receipt["overlap"]["documents"][1][0]
    assert rows_of(printed, "web", "books") == [
        [str(web_in_books), f"({web_in_books / 300:.2%})", str(books_in_web), f"({books_in_web / 270:.2%})"]
    ]
    in_test = receipt["overlap"]["documents"][1][2]
    assert rows_of(printed, "books", "test")[0][:2] == [str(in_test), f"({in_test / 270:.2%})"]
    assert printed.index("books   test") < printed.index("web     books")  # what is tested on comes first
    assert test["evaluation"]
    for column in ("alike", "copies", "stay", "next"):
        assert f"\n{column:11}" in printed
    assert f"--drop FOLDER writes a manifest of the {rows_of(printed, 'total')[0][3]} documents that stay" in (
        " ".join(printed.split())
    )


def test_a_set_that_nothing_is_like_is_said_to_be_clean(data: Path) -> None:
    (data / "new.jsonl").write_text('{"text": "nobody wrote this before, in no source at all"}\n')
    printed = run("mix.json", "--evaluation", "test=test.jsonl", "--evaluation", "new=new.jsonl")
    assert "no document of a source is like one of new\n" in printed
    assert rows_of(printed, "books", "test")
    assert not rows_of(printed, "books", "new")


def test_the_page_shows_what_the_command_prints(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, shown = PAGE.read_text().split(
        "cuvee dedup examples/data/mix.json --evaluation test=test.jsonl\n```\n\n```text\n"
    )
    rows = (ROOT / "examples/data/facts.jsonl").read_text().splitlines()
    (data / "test.jsonl").write_text("\n".join(rows[-20:]))
    printed = run(str(ROOT / "examples/data/mix.json"), "--evaluation", "test=test.jsonl")
    assert shown.split("```")[0].strip().splitlines() == [line.rstrip() for line in printed.strip().splitlines()]


def test_the_page_has_its_commands_in_fences() -> None:
    text = re.sub(r"^```.*?^```$", "", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^ +.*\bcuvee .*$", text, re.MULTILINE) == []


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_tables_fit_the_terminal_with_all_of_every_name(
    data: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    document = json.loads((data / "mix.json").read_text())
    names = [
        "web",
        "organisation/a_dataset_with_a_long_name:train[:50%]",
        *(f"more-of-the-books-{i}" for i in range(6)),
    ]
    document["sources"] = [
        {"name": name, "path": f"{'books' if i else 'web'}.jsonl", "weight": 1} for i, name in enumerate(names)
    ]
    (data / "mix.json").write_text(json.dumps(document))
    printed = run("mix.json")
    assert max(map(len, printed.splitlines())) <= width
    assert "…" not in printed
    assert "2,190" in printed  # the total of documents
    folded = [line.split("  ")[0].strip() for line in printed.splitlines()]
    assert all(name in "".join(folded) for name in names)
    assert "and 8 pairs with less, which --json has" in printed  # of 28, in which all books are


def test_the_rows_that_stay_are_a_manifest(data: Path) -> None:
    printed = run("mix.json", "--drop", "kept/here")
    assert "Written to kept/here/mix.deduplicated.json" in printed
    kept = texts_of(data / "kept/here/mix.deduplicated.json")
    receipt = json.loads((data / "kept/here/receipt.json").read_text())
    assert {name: len(texts) for name, texts in kept.items()} == {s["name"]: s["kept"] for s in receipt["sources"]}
    assert exact_pairs(kept["web"] + kept["books"]) == {}
    dropped = [json.loads(line) for line in (data / "kept/here/dropped.jsonl").read_text().splitlines()]
    assert len(dropped) == sum(s["documents"] - s["kept"] for s in receipt["sources"])
    for line in dropped:
        text, match = (PARTS[place["source"]][place["row"]] for place in (line, line["match"]))
        assert jaccard(shingles(text), shingles(match)) == line["match"]["similarity"] >= 0.8
        assert PARTS[line["kept"]["source"]][line["kept"]["row"]] in kept[line["kept"]["source"]]
    again = json.loads(run("kept/here/mix.deduplicated.json", "--json"))
    assert again["pairs"] == 0


def test_indexes_add_up(data: Path) -> None:
    run("mix.json", "--drop", "once", "--threshold", "0.95")
    run("once/mix.deduplicated.json", "--drop", "twice")
    run("mix.json", "--drop", "at-once")
    rows = np.load(data / "twice/web.rows.npy")
    assert [PARTS["web"][row] for row in rows] == texts_of(data / "twice/mix.deduplicated.json")["web"]
    assert exact_pairs([PARTS["web"][row] for row in rows]) == {}


def test_what_is_like_an_evaluation_set_goes(data: Path) -> None:
    run("mix.json", "--drop", "kept", "--evaluation", "test=test.jsonl")
    kept = texts_of(data / "kept/mix.deduplicated.json")
    training = kept["web"] + kept["books"]
    assert len(exact_pairs(PARTS["test"])) > 0  # its own near-duplicates are its own affair
    assert [pair for pair in exact_pairs(training + PARTS["test"]) if pair[0] < len(training)] == []


def test_what_went_names_what_it_is_like(data: Path) -> None:
    run("mix.json", "--drop", "kept", "--evaluation", "test=test.jsonl")
    dropped = [json.loads(line) for line in (data / "kept" / "dropped.jsonl").read_text().splitlines()]
    assert any(line.get("match", {}).get("source") == "test" for line in dropped)  # books and test share documents
    for line in dropped:
        ours = PARTS[line["source"]][line["row"]]
        assert {"match", "contains"} & line.keys()
        if "match" in line:
            other = PARTS[line["match"]["source"]][line["match"]["row"]]
            assert 0.8 <= line["match"]["similarity"] <= 1
            assert (ours.lower().split() == other.lower().split()) == (line["match"]["similarity"] == 1)
        within = {row: containment(shingles(test), shingles(ours)) for row, test in enumerate(PARTS["test"])}
        first = next(({"source": "test", "row": row, "containment": c} for row, c in within.items() if c >= 0.8), None)
        assert line.get("contains") == first


def test_a_manifest_over_kept_rows_is_another_mixture(data: Path) -> None:
    run("mix.json", "--drop", "kept")
    whole, part = Mixture.from_manifest("mix.json"), Mixture.from_manifest("kept/mix.deduplicated.json")
    assert part.sources[0].fingerprint != whole.sources[0].fingerprint
    moved = data / "elsewhere" / "mix.json"
    moved.parent.mkdir()
    manifest.dump(manifest.load("kept/mix.deduplicated.json"), moved)
    assert Mixture.from_manifest(moved).plan().spec_hash == part.plan().spec_hash


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--threshold", "2"], 'error: --threshold must be a number in [0.01, 1], but got "2"\n'),
        (["--threshold", "abc"], 'error: --threshold must be a number in [0.01, 1], but got "abc"\n'),
        (["--threshold", "nan"], 'error: --threshold must be a number in [0.01, 1], but got "nan"\n'),
        (["--shingle", "letters"], "--shingle must be words or characters, but got 'letters'"),
        (["--shingle-size", "0"], "--shingle-size must be an integer in [1, 2**31), but got"),
        (["--memory-limit", "much"], "--memory-limit must be bytes, such as 500M or 4G, but got 'much'"),
        (["--engine", "spark"], "--engine must be local or ray, but got 'spark'"),
        (["--column", "txt"], "source 'web': --column must be one of ['id', 'text'], but got 'txt'; did you mean"),
        (["--column", "id"], "row 0: must hold a string, but got 0"),
        (["--evaluation", "test.jsonl"], "--evaluation must be NAME=PATH, but got 'test.jsonl'"),
        (
            ["--evaluation", "web=test.jsonl"],
            "error: --evaluation sets must have other names than sources, but got ['web']",
        ),
        (["--evaluation", "t=none.jsonl"], "error: --evaluation 't': path must be a file or folder that exists"),
        (["--dataset-loader-fn", "none.py"], "error: --dataset-loader-fn must be a Python file that exists"),
        (["--work-folder", "mix.json"], "error: --work-folder must be a folder, but got the file 'mix.json'"),
        (["--output", "web.jsonl"], "--output must not replace data, but got 'web.jsonl' of source 'web'"),
        (["--output", "mix.json"], "--output must be another file than the manifest"),
        (["--drop", "mix.json"], "--drop must be a folder, but got the file 'mix.json'"),
        (["--output", "mix.json/a"], "--output must be in a folder that can be written to, but got 'mix.json/a'"),
        (["--drop", "mix.json/a"], "--drop must be in a folder that can be written to, but got 'mix.json/a'"),
        (["--work-folder", "web.jsonl/a"], "--work-folder must be in a folder that can be written to, but got 'web.j"),
    ],
)
def test_what_is_wrong_is_told(
    data: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["dedup", "mix.json", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert (data / "web.jsonl").read_text().count("\n") == 299


def test_paths_of_evaluation_sets_start_at_the_working_folder(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "elsewhere").mkdir()
    (data / "elsewhere" / "probe.jsonl").write_text(json.dumps({"text": PARTS["web"][7]}))
    (data / "probe.jsonl").write_text('{"text": "beside the manifest"}')
    monkeypatch.chdir(data / "elsewhere")
    receipt = json.loads(run("../mix.json", "--evaluation", "probe=probe.jsonl", "--json"))
    assert receipt["overlap"]["documents"][2][0] == 1


def test_as_many_threads_as_the_option_says(data: Path) -> None:
    assert json.loads(run("mix.json", "--json", "--threads", "1024")) == json.loads(run("mix.json", "--json"))


def test_a_work_folder_of_others_is_told(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("mix.json", "--work-folder", "work")
    assert main(["dedup", "mix.json", "--work-folder", "work", "--threshold", "0.9"]) == 2
    assert "error: --work-folder must be that of the same documents and settings" in capsys.readouterr().err


def test_columns_that_could_be_meant_are_to_be_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "web.jsonl").write_text('{"one": "a", "two": "b"}')
    assert main(["dedup", "mix.json"]) == 2
    assert "but got ['one', 'two']; name it with --column" in capsys.readouterr().err


def test_nothing_is_written_over_what_is_read(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("mix.json", "--drop", "kept")
    assert main(["dedup", "kept/mix.deduplicated.json", "--drop", "kept"]) == 2
    assert "--drop must be another folder than that of the manifest" in capsys.readouterr().err


def test_a_source_that_would_be_empty_is_told(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "books.jsonl").write_text(json.dumps({"id": 0, "text": PARTS["web"][0]}))
    assert main(["dedup", "mix.json", "--drop", "kept"]) == 2
    said = capsys.readouterr().err
    assert "source 'books': at least one row must stay" in said
    assert "or take --keep first where it comes before the others" in said
    assert not (data / "kept").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.array([0, 300]), r"rows '.*' must be in 0..299, but got 0 to 300; an index belongs to the data"),
        (np.array([-1, 2]), "must be in 0..299, but got -1 to 2"),
        (np.array([2, 2]), "2 before 2"),
        (np.array([0.5]), "holds something else"),
        (np.array([[1]]), "holds something else"),
        (np.array([], np.int64), "must have at least one row"),
        (np.array([None]), "rows must be a .npy file of row numbers"),
        (b"no array", "rows must be a .npy file of row numbers, int64 and rising, but got"),
        (None, "No such file"),
    ],
)
def test_an_index_must_fit_the_data(data: Path, content: np.ndarray | bytes | None, message: str) -> None:
    if isinstance(content, bytes):
        (data / "rows.npy").write_bytes(content)
    elif content is not None:
        np.save(data / "rows.npy", content)
    with pytest.raises(SourceError, match=message):
        open_source("web.jsonl", name="web", rows="rows.npy")


def test_an_index_chooses_rows_of_any_data(data: Path) -> None:
    np.save(data / "rows.npy", np.array([1, 5, 299]))
    opened = open_source("web.jsonl", name="web", rows="rows.npy")
    assert list(opened["text"]) == [PARTS["web"][i] for i in (1, 5, 299)]

    def rows(data: object, name: str) -> list[dict]:
        return [{"text": text, "name": name} for text in data["text"]]

    loaded = open_source("web.jsonl", name="web", rows="rows.npy", loader=rows)
    assert len(loaded) == 3
    assert loaded[2] == {"text": PARTS["web"][299], "name": "web"}
    assert loaded.__getitems__([2, 0]) == [loaded[2], loaded[0]]


@pytest.mark.slow
def test_a_cluster_of_two_workers_gives_the_same_receipt(data: Path) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    receipt = run("mix.json", "--json", "--evaluation", "test=test.jsonl")
    assert json.loads(receipt)["contamination"]["containing"][1][0] > 0
    (data / "torn.jsonl").write_text('{"text": "a"}\n{"text": null}')
    (data / "torn.json").write_text((data / "mix.json").read_text().replace("books.jsonl", "torn.jsonl"))
    command = [sys.executable, "-c", ON_TWO_WORKERS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == receipt
    assert done.stderr.splitlines()[-1] == "error: source 'books', document 1: must be a string, but got None"


def test_without_ray_the_engine_is_told(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.data", None)
    assert main(["dedup", "mix.json", "--engine", "ray"]) == 2
    assert "error: --engine ray must have the package ray" in capsys.readouterr().err
