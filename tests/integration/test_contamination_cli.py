"""`cuvee dedup --evaluation`: tests within longer documents, in the receipt, the tables and what goes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cuvee.cli import main
from cuvee.cli.command import app
from cuvee.dedup import near_duplicates
from near_duplicates import containment, edited_corpus, shingles

pytest.importorskip("datasets")

QUESTIONS = [
    "how many litres of water does a bath of two metres by one hold when it is full",
    "which of the planets has the shortest day of them all and how long does it last",
    "too short",
    "nobody wrote this before in no source at all and nobody will",
]
PAGES = [" ".join(f"{letter}{i}" for i in range(60)) for letter in "pqrstu"]
WITH_FIRST = f"{PAGES[0]} {QUESTIONS[0]} {PAGES[1]}"
TWIN = f"{PAGES[2]} {PAGES[3]} {PAGES[4]}"  # of which the longer one quotes a question
WEB = [WITH_FIRST, TWIN, f"{TWIN} {QUESTIONS[1]}", PAGES[5], "too short"]
BOOKS = [f"{WITH_FIRST} {QUESTIONS[1]}", f"a page of {QUESTIONS[3][:20]}", f"too short {PAGES[5][:90]}"]
TESTS = ["--evaluation", "test=test.jsonl"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a manifest of two sources that quote a test set; it is the working folder."""
    for name, texts in {"web": WEB, "books": BOOKS, "test": QUESTIONS, "new": QUESTIONS[3:]}.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    sources = [{"name": name, "path": f"{name}.jsonl", "weight": 1} for name in ("web", "books")]
    (tmp_path / "mix.json").write_text(json.dumps({"version": 1, "seed": 3, "exhaustion": "stop", "sources": sources}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUVEE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def run(*arguments: str) -> str:
    """Return what `cuvee dedup mix.json` printed; nothing must go to stderr."""
    done = CliRunner().invoke(app, ["dedup", "mix.json", *arguments])
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    return done.stdout


def dropped(folder: Path) -> dict[tuple[str, int], dict]:
    lines = [json.loads(line) for line in (folder / "dropped.jsonl").read_text().splitlines()]
    return {(line.pop("source"), line.pop("row")): line for line in lines}


def test_the_receipt_counts_what_is_contained(data: Path) -> None:
    receipt = json.loads(run(*TESTS, "--evaluation", "new=new.jsonl", "--json"))
    assert receipt["version"] == 2
    assert receipt["rule"]["containment"] == 0.8
    assert receipt["contamination"] == {
        "sources": ["web", "books"],
        "evaluation": ["test", "new"],
        "contaminated": [[3, 0], [2, 0]],
        "containing": [[3, 0], [1, 0]],
        "shorter_than_a_shingle": [1, 0],
    }
    assert [source["containing"] for source in receipt["sources"]] == [3, 1, 0, 0]
    assert [source["kept"] for source in receipt["sources"]] == [2, 2, 4, 1]


def test_without_an_evaluation_set_nothing_is_contained(data: Path) -> None:
    receipt = json.loads(run("--json"))
    nothing = {"sources": ["web", "books"], "evaluation": [], "shorter_than_a_shingle": []}
    assert receipt["contamination"] == nothing | {"contaminated": [[], []], "containing": [[], []]}
    assert "contain" not in run()


def test_the_receipt_is_the_same_bytes_every_time(data: Path) -> None:
    first = run(*TESTS, "--json", "--threads", "1", "--memory-limit", "0")
    assert run(*TESTS, "--json", "--threads", "3") == first
    for _ in range(2):
        assert run(*TESTS, "--json", "--work-folder", "work") == first


def test_the_hash_is_that_of_what_is_contained_too(data: Path) -> None:
    receipts = [json.loads(run(*TESTS, "--json", "--containment", share)) for share in ("0.8", "1")]
    assert receipts[0]["result_hash"] == receipts[1]["result_hash"]  # what is quoted here is quoted in full
    text = (data / "test.jsonl").read_text().replace("nobody wrote this before", f"{BOOKS[1]} this before")
    (data / "test.jsonl").write_text(text)
    other = json.loads(run(*TESTS, "--json"))
    assert [other[key] == receipts[0][key] for key in ("overlap", "contamination", "result_hash")] == [
        True,
        True,
        False,
    ]


def test_the_table_says_which_source_contains_how_many(data: Path) -> None:
    printed = run(*TESTS, "--evaluation", "new=new.jsonl")
    rows = [line.split() for line in printed.splitlines()]
    assert ["source", "set", "containing", "contained"] in rows
    assert ["web", "test", "3", "(60.00%)", "3", "(75.00%)"] in rows
    assert ["books", "test", "1", "(33.33%)", "2", "(50.00%)"] in rows
    assert "no document of a source contains one of new\n" in printed
    said = " ".join(printed.split())
    assert "and none that contains one" in said
    assert "of whose runs of 5 words one document of the source has 80% or more" in said
    assert "tests of fewer than 5 words (1 of test): they are found only where a whole document is one" in said
    assert "writes a manifest of the 4 documents that stay" in said


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_table_fits_the_terminal(data: Path, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    printed = run("--evaluation", "a_test_set_with_a_long_name=test.jsonl")
    assert max(map(len, printed.splitlines())) <= width
    assert "(75.00%)" in printed


def test_containment_may_be_less_or_more(data: Path) -> None:
    part = " ".join(QUESTIONS[3].split()[:9])
    (data / "books.jsonl").write_text(json.dumps({"text": f"{PAGES[1]} {part} {PAGES[0]}"}) + '\n{"text": "b"}')
    share = 5 / (len(QUESTIONS[3].split()) - 4)
    for given, expected in ((str(share), 1), (str(share + 0.01), 0)):
        receipt = json.loads(run("--evaluation", "new=new.jsonl", "--containment", given, "--json"))
        assert receipt["contamination"]["containing"] == [[0], [expected]]


def test_documents_that_contain_a_test_go(data: Path) -> None:
    run(*TESTS, "--drop", "kept")
    gone = dropped(data / "kept")
    full = {"containment": 1.0}
    assert gone.keys() == {("web", 0), ("web", 2), ("web", 4), ("books", 0)}
    assert gone["web", 4]["match"] == {"source": "test", "row": 2, "similarity": 1.0}
    assert gone["web", 0]["contains"] == gone["books", 0]["contains"] == {"source": "test", "row": 0} | full
    assert gone["web", 0]["kept"] == gone["books", 0]["kept"] == {"source": "test", "row": 0}  # nothing of both stays
    assert gone["web", 2]["contains"] == {"source": "test", "row": 1} | full
    assert gone["web", 2]["kept"] == {"source": "web", "row": 1}  # the twin that contains none, though it is shorter
    receipt = json.loads((data / "kept" / "receipt.json").read_text())
    assert sum(source["documents"] - source["kept"] for source in receipt["sources"]) == len(gone)
    document = json.loads((data / "kept" / "mix.deduplicated.json").read_text())
    assert len(document["sources"]) == 2
    (data / "mix.json").write_text((data / "kept" / "mix.deduplicated.json").read_text().replace("../", ""))
    for name in ("web", "books"):
        (data / f"{name}.rows.npy").write_bytes((data / "kept" / f"{name}.rows.npy").read_bytes())
    again = json.loads(run(*TESTS, "--json"))
    assert again["contamination"]["containing"] == [[0], [0]]
    assert [source["documents"] for source in again["sources"]] == [2, 2, 4]


@pytest.mark.parametrize("keep", ["longest", "first"])
def test_what_stays_contains_no_test_and_of_each_cluster_one_that_contains_none_stays(data: Path, keep: str) -> None:
    tests = edited_corpus(60, words=15, seed=1)
    web = [f"{page} {tests[i % 60]}" if i % 7 < 3 else page for i, page in enumerate(edited_corpus(60) * 3)]
    for name, texts in {"web": web, "test": tests}.items():
        (data / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    run(*TESTS, "--drop", "kept", "--keep", keep)
    kept, gone = set(np.load(data / "kept" / "web.rows.npy").tolist()), dropped(data / "kept")
    inner, outer = ([shingles(text) for text in texts] for texts in (tests, web))
    clean = {row for row, page in enumerate(outer) if all(containment(test, page) < 0.8 for test in inner)}
    assert 0 < len(clean) < len(web)
    assert kept <= clean
    for cluster in near_duplicates(web).clusters:
        assert len(kept & set(cluster.tolist())) == bool(clean & set(cluster.tolist()))
    for row in range(len(web)):
        assert (row in kept) != (("web", row) in gone)
        assert ("contains" in gone.get(("web", row), {})) == (row not in clean)


def test_a_source_of_which_all_contain_a_test_is_told(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "books.jsonl").write_text(json.dumps({"text": WITH_FIRST}))
    assert main(["dedup", "mix.json", *TESTS, "--drop", "kept"]) == 2
    assert "source 'books': at least one row must stay, but all went for others that are like them or in them" in (
        capsys.readouterr().err
    )
    assert not (data / "kept").exists()


@pytest.mark.parametrize("value", ["0", "1.1", "nan", "much"])
def test_a_containment_that_is_none_is_told(data: Path, capsys: pytest.CaptureFixture[str], value: str) -> None:
    assert main(["dedup", "mix.json", "--containment", value]) == 2
    assert f'error: --containment must be a number in [0.01, 1], but got "{value}"\n' in capsys.readouterr().err
