"""What `cuvee dedup` writes: nothing over what is there, indexes that belong to their data, and what was compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cuvee import Mixture
from cuvee.cli import main
from cuvee.cli.command import app
from cuvee.errors import SourceError
from cuvee.sources import load_function
from cuvee.sources.kept import read_index

pytest.importorskip("datasets")

PAGES = [" ".join(f"{letter}{i}" for i in range(20)) for letter in "abcdefgh"]
SOURCES = {"p": [*PAGES[:3], PAGES[0], ""], "q": [PAGES[3], PAGES[4], PAGES[1]]}
HALF = "def load(data, name):\n    return data.filter(lambda row: row['text'] != '')\n"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, with a manifest of two sources and a test set."""
    write(tmp_path, SOURCES)
    (tmp_path / "test.jsonl").write_text(json.dumps({"text": PAGES[2]}))
    (tmp_path / "load.py").write_text(HALF)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUVEE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


def write(folder: Path, sources: Mapping[str, list], name: str = "mix.json") -> None:
    """Write a manifest over sources of texts, or of rows, whose files are numbered."""
    specs = []
    for number, (source, rows) in enumerate(sources.items()):
        lines = [json.dumps({"text": row} if isinstance(row, str) else row) for row in rows]
        (folder / f"{number}.jsonl").write_text("\n".join(lines))
        specs.append({"name": source, "path": f"{number}.jsonl", "weight": 1})
    (folder / name).write_text(json.dumps({"version": 1, "seed": 1, "exhaustion": "stop", "sources": specs}))


def run(*arguments: str) -> str:
    """Return what `cuvee dedup` printed; nothing must go to stderr."""
    done = CliRunner().invoke(app, ["dedup", *arguments])
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    return done.stdout


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the error of a command that compares nothing."""
    capsys.readouterr()
    assert main(["dedup", *arguments]) == 2
    return capsys.readouterr().err


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "cache" not in path.parts}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["-o", "wf/work.json", "--work-folder", "wf"],
            "--output must not be in --work-folder, but got 'wf/work.json'",
        ),
        (
            ["-o", "wf/a/b.json", "--work-folder", "./wf"],
            "--output must not be in --work-folder, but got 'wf/a/b.json'",
        ),
        (
            ["-o", "k/mix.deduplicated.json", "--drop", "k"],
            "--output must be another file than mix.deduplicated.json of --drop, but got 'k/mix.deduplicated.json'",
        ),
        (["-o", "k/p.rows.npy", "--drop", "k"], "--output must be another file than p.rows.npy of --drop"),
        (["-o", "k/receipt.json", "--drop", "./k"], "--output must be another file than receipt.json of --drop"),
        (
            ["-o", "test.jsonl", "--evaluation", "t=test.jsonl"],
            "--output must be another file than evaluation set 't', but got 'test.jsonl'",
        ),
        (["-o", "x" * 238], "--output must have names of at most 237 bytes, but got 'xxx"),
        (["--drop", f"new/{'日' * 80}/kept"], "--drop must have names of at most 237 bytes, but got 'new/日"),
        (["-o", "load.py", "--dataset-loader-fn", "load.py"], "--output must be another file than the loader"),
    ],
)
def test_outputs_replace_nothing(
    data: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    before = files(data)
    assert f"error: {message}" in refused(capsys, "mix.json", *arguments)
    assert files(data) == before


def test_outputs_replace_no_index_that_is_read(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("mix.json", "--drop", "kept")
    before = files(data)
    kept = "kept/mix.deduplicated.json"
    said = refused(capsys, kept, "-o", "kept/p.rows.npy")
    assert "--output must not replace an index, but got 'kept/p.rows.npy' of source 'p'" in said
    (data / "copy.json").write_text((data / kept).read_text().replace("../", "").replace('"rows": "', '"rows": "kept/'))
    (data / "kept/r.npy").write_bytes((data / "kept/p.rows.npy").read_bytes())
    (data / "moved.json").write_text((data / "copy.json").read_text().replace("p.rows.npy", "r.npy"))
    said = refused(capsys, "copy.json", "--drop", "kept")
    assert "--drop must not replace an index, but got 'kept/p.rows.npy' of source 'p'" in said
    said = refused(capsys, "moved.json", "--drop", "kept", "--work-folder", "work")
    assert "error: --drop must not" in said
    assert not (data / "work").exists()  # before anything was compared
    assert {path: content for path, content in files(data).items() if path in before} == before


@pytest.mark.parametrize("content", ['{"format": 1, "method": "doe"}', "[]", "no json", '{"rule": {}}'])
def test_the_receipt_of_something_else_stays(data: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    (data / "kept").mkdir()
    (data / "kept" / "receipt.json").write_text(content)
    before = files(data)
    said = refused(capsys, "mix.json", "--drop", "kept", "--work-folder", "work")
    assert said == (
        "error: --drop must not hold the receipt.json of something else, but got 'kept'; name another folder\n"
    )
    assert files(data) == before


def test_an_older_result_is_replaced(data: Path) -> None:
    run("mix.json", "--drop", "kept")
    before = files(data / "kept")
    run("mix.json", "--drop", "kept", "--evaluation", "t=test.jsonl")
    assert files(data / "kept").keys() == before.keys()
    assert files(data / "kept") != before


def test_a_folder_in_the_place_of_a_file_is_told(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "kept" / "dropped.jsonl").mkdir(parents=True)
    said = refused(capsys, "mix.json", "--drop", "kept", "--work-folder", "work")
    assert "--drop must have a file or nothing as 'dropped.jsonl', but got 'kept/dropped.jsonl'" in said
    assert not (data / "work").exists()


def test_an_index_of_loaded_rows_needs_the_loader(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = run("mix.json", "--dataset-loader-fn", "load.py", "--drop", "kept", "-o", "receipt.json")
    assert printed.endswith(
        "Written to receipt.json\nWritten to kept/mix.deduplicated.json\n"
        "Use it with --dataset-loader-fn load.py, whose rows it numbers\n"
    )
    index = read_index(data / "kept" / "p.rows.npy", name="p")
    assert (index.rows.tolist(), index.size, index.loaded) == ([0, 1, 2], 4, True)
    kept = "kept/mix.deduplicated.json"
    with pytest.raises(SourceError, match=r"source 'p': rows '.*p\.rows\.npy' must be used with the .*-loader-fn\)"):
        Mixture.from_manifest(kept)
    assert "(--dataset-loader-fn)" in refused(capsys, kept)
    loaded = Mixture.from_manifest(kept, loader=load_function("load.py"))
    assert list(loaded.sources[0].data["text"]) == PAGES[:3]


def test_an_index_is_of_the_whole_data_even_when_made_in_two_steps(data: Path) -> None:
    (data / "load.py").write_text(HALF.replace("!= ''", "!= None"))
    loader = ["--dataset-loader-fn", "load.py"]
    run("mix.json", *loader, "--drop", "once")
    assert "Use it with" not in run("mix.json", "--drop", "plain")
    run("once/mix.deduplicated.json", *loader, "--drop", "twice", "--evaluation", "t=test.jsonl")
    for folder, rows, loaded in (("once", [0, 1, 2, 4], True), ("plain", [0, 1, 2, 4], False), ("twice", [0, 1, 4], 1)):
        index = read_index(data / folder / "p.rows.npy", name="p")
        assert (index.rows.tolist(), index.size, index.loaded) == (rows, 5, loaded)


def test_an_index_is_refused_where_the_data_has_grown(data: Path) -> None:
    run("mix.json", "--drop", "kept")
    (data / "0.jsonl").write_text((data / "0.jsonl").read_text() + '\n{"text": "new"}')
    with pytest.raises(SourceError, match="must be used with the 5 rows that they number, but got 6; make the index"):
        Mixture.from_manifest("kept/mix.deduplicated.json")


def test_names_that_are_one_file_somewhere_get_two(data: Path) -> None:
    names = ["A", "a", "é", "e\u0301", "x" * 300, "x" * 299 + "y", "日" * 90]
    write(data, {name: [page] for name, page in zip(names, PAGES, strict=False)})
    run("mix.json", "--drop", "kept")
    mixture = Mixture.from_manifest("kept/mix.deduplicated.json")
    assert {source.name: source.data["text"][0] for source in mixture.sources} == dict(zip(names, PAGES, strict=False))
    indexes = [path.name for path in (data / "kept").glob("*.npy")]
    assert len({name.casefold().replace("é", "e\u0301") for name in indexes}) == len(names)


WITHOUT = "leave it out of the manifest\n"


@pytest.mark.parametrize(
    ("sources", "arguments", "cure"),
    [
        ({"p": PAGES[:2], "q": PAGES[:1]}, [], "leave it out of the manifest, or take --keep first where it comes bef"),
        ({"p": PAGES[:2], "q": PAGES[:1]}, ["--keep", "first"], f"{WITHOUT[:-1]}, or name it before the others\n"),
        ({"p": PAGES[:2], "q": PAGES[2:3]}, ["--evaluation", "t=test.jsonl"], WITHOUT),
        ({"p": PAGES[:2], "q": PAGES[2:3]}, ["--evaluation", "t=test.jsonl", "--keep", "first"], WITHOUT),
        ({"p": PAGES[:2], "q": [f"{PAGES[2]} {PAGES[5]}"]}, ["--evaluation", "t=test.jsonl"], WITHOUT),
    ],
    ids=["longest", "first", "tested", "tested-first", "containing"],
)
def test_only_what_helps_is_said(
    data: Path, capsys: pytest.CaptureFixture[str], sources: dict[str, list], arguments: list[str], cure: str
) -> None:
    write(data, sources)
    said = refused(capsys, "mix.json", "--drop", "kept", "-o", "receipt.json", *arguments)
    assert json.loads((data / "receipt.json").read_text())["sources"][1]["kept"] == 0  # not all work is lost
    assert f"source 'q': at least one row must stay, but all went for others that are like them or in them; {cure}" in (
        said
    )


def test_what_is_compared_is_told(data: Path) -> None:
    (data / "quiz.jsonl").write_text(json.dumps({"id": "q1", "choices": ["a", "b"]}))
    arguments = ["mix.json", "--evaluation", "quiz=quiz.jsonl"]
    receipt = json.loads(run(*arguments, "--json"))
    assert [source["columns"] for source in receipt["sources"]] == [["text"], ["text"], ["id"]]
    assert "columns    what is compared: text of p and q; id of quiz\n" in run(*arguments)
    assert "\ncolumns " not in run("mix.json")
    rows = [{"prompt": page, "response": page} for page in PAGES]
    write(data, {"p": rows[:1], "q": rows[1:2]})
    assert [source["columns"] for source in json.loads(run("mix.json", "--json"))["sources"]] == [
        ["prompt", "response"]
    ] * 2
    assert "\ncolumns " not in run("mix.json")
    assert "columns    what is compared: response of p and q\n" in run("mix.json", "--column", "response")
    write(data, {f"s{i}": [{"bo\x1bdy": page}] for i, page in enumerate(PAGES)})
    assert "columns    what is compared: bo�dy of s0, s1, s2, s3 and 4 more\n" in run("mix.json")


def test_an_evaluation_set_has_a_name_that_can_be_printed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("\x1b[31mred", " t"):
        assert refused(capsys, "mix.json", "--evaluation", f"{name}=test.jsonl") == (
            f"error: --evaluation name must be printable text without surrounding white space, but got {name!r}\n"
        )


def test_the_rate_is_that_of_the_sources(data: Path) -> None:
    arguments = ["mix.json", "--evaluation", "t=test.jsonl"]
    receipt = json.loads(run(*arguments, "--json"))
    assert receipt["near_duplicate_rate"] == 5 / 8
    assert "8 documents of 2 sources: 62.50% are like another one\n" in run(*arguments)


def test_a_work_folder_is_of_one_column(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    turns = [[{"role": "user", "content": page}] for page in PAGES]
    rows = [{"chosen": turns[i // 2], "rejected": turns[i]} for i in range(8)]
    write(data, {"p": rows[:4], "q": rows[4:]})
    chosen = run("mix.json", "--column", "chosen", "--json")
    run("mix.json", "--column", "rejected", "--work-folder", "wf")
    said = refused(capsys, "mix.json", "--column", "chosen", "--work-folder", "wf")
    assert "error: --work-folder must be that of the same documents and settings" in said
    assert run("mix.json", "--column", "chosen", "--work-folder", "other", "--json") == chosen
    assert np.array(json.loads(chosen)["overlap"]["documents"]).tolist() == [[4, 0], [0, 4]]


def test_an_index_of_loaded_rows_needs_the_loader_where_there_are_as_many(data: Path) -> None:
    (data / "load.py").write_text("def load(data, name):\n    return data.select(range(len(data))[::-1])\n")
    run("mix.json", "--dataset-loader-fn", "load.py", "--drop", "kept")
    with pytest.raises(SourceError, match="must be used with the loader function whose rows they number, but got none"):
        Mixture.from_manifest("kept/mix.deduplicated.json")
    assert len(Mixture.from_manifest("kept/mix.deduplicated.json", loader=load_function("load.py")).sources) == 2
