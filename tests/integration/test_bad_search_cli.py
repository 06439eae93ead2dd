"""What users of `cuvee search` get wrong, and the one sentence that each of them reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuvee.cli import main
from cuvee.errors import MixtureError
from cuvee.search import search
from searches import MIX, arguments, write_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with sources, a manifest and scores, and work in it."""
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "but"),
    [
        ([], "none"),
        (["--manifest", "mix.json", "other.json"], "MANIFEST 'other.json' and --manifest 'mix.json'"),
        (["mix.json", "--manifest", "other.json"], "MANIFEST 'mix.json' and --manifest 'other.json'"),
    ],
)
def test_a_manifest_is_given_once(given: list[str], but: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "--budget", "6", *given]) == 2
    said = f"error: manifest must be given once, as MANIFEST or --manifest, but got {but}\n"
    assert capsys.readouterr() == ("", said)


def test_wrong_options_of_a_method_begin_no_study(folder: Path) -> None:
    settings = {"method": "auto", "options": {"rungs": (0.5, 0.3)}, "storage": "sqlite:///search.db"}
    with pytest.raises(MixtureError, match="rungs must rise from above 0 to below 1, but got"):
        search(lambda weights, budget, seed: weights, ["a", "b"], budget=8, **settings)
    assert not (folder / "search.db").exists()


def test_a_manifest_that_is_not_there_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given in (["none.json"], ["--manifest", "none.json"]):
        assert main(["search", "--budget", "6", *given]) == 2
        assert 'manifest must be a file that can be read, but got "none.json"' in capsys.readouterr().err


BAD = [
    (["--budget", "1"], "--budget must be an integer in"),
    (["--budget", "2"], "--budget must leave a run for the search beside 3 of the audit, but got 2; give at least 4"),
    (["--audit-seeds", "9"], "beside 27 of the audit, but got 24; give at least 28, or fewer --audit-seeds"),
    (["--budget", "many"], '--budget must be an integer in 2..999999, but got "many"'),
    (["--method", "bandits"], ("error: --method must be one of ['auto', 'bandit', 'doe', 'regmix', 'doremi'], but got "
                               "'bandits'; did you mean 'bandit'?")),
    (["--rungs", "0.3"], "error: --rungs must come with --method auto, but got 'bandit'"),
    (["--method", "auto", "--rungs", "0.5,0.3"], "must be parts of a run that rise from above 0 to below 1, but got"),
    (["--method", "auto", "--rungs", "half"], "error: --rungs must be parts of a run that rise from above 0"),
    (["--fix", "d=0.1"], "error: --fix must be of domains ['a', 'b', 'c'], but got 'd'"),
    (["--fix", "a=0.1", "--lower", "a=0.2"], "error: --fix of 'a' must be within its bounds [0.2, 1], but got 0.1"),
    (["--lower", "a=2"], "error: --lower of 'a' must be in [0, 1], but got 2.0"),
    (["--upper", "a=2"], "error: --upper of 'a' must be in [0, 1], but got 2.0"),
    (["--upper", "a=0.1", "--lower", "a=0.2"], ("--lower of 'a' must be at most its upper bound 0.1, but got 0.2; "
                                                "upper bounds come from --upper, --fix and --max-repetition")),
    (["--target", "a=0"], "error: --target must not all have weight 0, but got {'a': 0.0}"),
    (["--dataset-loader-fn", "none.py"], "error: --dataset-loader-fn must be a Python file that exists"),
    (["--proxy", "huge"], "--proxy must be one of ['tiny'], but got 'huge'"),
    (["--lower", "a"], "--lower must be NAME=X, with a number of at least 0, but got 'a'"),
    (["--lower", "a=x"], "--lower must be NAME=X, with a number of at least 0, but got 'a=x'"),
    (["--lower", "d=0.1"], "error: --lower must be of domains ['a', 'b', 'c'], but got 'd'"),
    (["--lower", "a=0.6", "--lower", "b=0.6"], "lower bounds must sum to at most 1, but got 1.2; give less to -"),
    (["--fix", "a=0.1", "--fix", "a=0.2"], "--fix must be given once for each name, but got 'a' twice"),
    (["--max-repetition", "4"], "--max-repetition must come with --target-rows, but got 4.0 alone"),
    (["--max-repetition", "0"], '--max-repetition must be finite and above 0, but got "0"'),
    (["--max-repetition", "1", "--target-rows", "101"], ("upper bounds must sum to at least 1, but got 0.990099; raise "
                                                         "--upper, --fix or --max-repetition, or lower --target-rows")),
    (["--score", "none.py"], "--score must be FILE.py:function, a function of a Python file, but got 'none.py'"),
    (["--score", "quick.py:nothing"], "it defines: score"),
    (["--storage", "sqlite:///"], "--storage must be a file that all workers can open, but got 'sqlite:///'; name one"),
    (["--storage", "redis://host"], "--storage must be sqlite:///FILE.db, FILE.db, journal:FILE, FILE.log, or"),
    (["--write", "a.jsonl/out.json"], "--write must be in a folder that can be written to, but got 'a.jsonl/out.json'"),
    (["--write", "mix.json"], "--write must be another file than the manifest, but got 'mix.json'"),
    (["--write", "a.jsonl"], "--write must not replace data, but got 'a.jsonl' of source 'a'"),
    (["--write", "quick.py"], "--write must be another file than the score, but got 'quick.py'"),
    (["--write", "run/study.db"], "--write must be another file than the storage, but got 'run/study.db'"),
    (["--write", "run/receipt.json"], "--write must be another file than the receipt, but got 'run/receipt.json'"),
    (["--dataset-loader-fn", "load.py:rows", "--write", "load.py"],
     "--write must be another file than the loader, but got 'load.py'"),
    (["--output-dir", "mix.json"], "--output-dir must be a folder, but got 'mix.json'"),
    (["--workers", "0"], '--workers must be an integer in 1..1024, but got "0"'),
]  # fmt: skip


@pytest.mark.parametrize(("given", "says"), BAD, ids=[" ".join(given) for given, _ in BAD])
def test_mistakes_are_told_in_a_sentence(
    given: list[str], says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(*given)) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_run_that_fails_says_that_the_search_can_go_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments("--score", "failing.py")) == 2
    stopped, error = capsys.readouterr().err.splitlines()
    assert stopped.startswith("stopped after 0 of ")
    assert stopped.endswith("the same command goes on")
    assert "failing.py, line 2: score 'score' must return losses by name, but got ZeroDivisionError" in error


def test_a_score_that_fails_later_on_must_stay_as_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (folder / "quick.py").read_text().replace("def score", "def run") + (
        "\ndef score(weights, budget, seed):\n"
        "    if Path('begun').exists() and len(Path('begun').read_text().splitlines()) == 4 and CARD == 0:\n"
        "        raise ZeroDivisionError('no card')\n"
        "    return run(weights, budget, seed)\n"
    )
    (folder / "later.py").write_text(f"CARD = 0\n{text}")
    assert main(arguments(score="later.py:score")) == 2
    *_, stopped, error = capsys.readouterr().err.splitlines()
    assert stopped.startswith("stopped after 4 of 24 runs, lowest loss ")
    assert stopped.endswith(
        "the search is kept in run/study.db, and goes on with the --score file as it is; a mended file begins another "
        "search, with another --study or --output-dir"
    )
    assert "ZeroDivisionError: no card" in error
    (folder / "later.py").write_text(f"CARD = 1\n{text}")
    assert main(arguments(score="later.py:score")) == 2  # as was said
    assert "fingerprint of the --score of study 'mix' must be" in capsys.readouterr().err
    assert main(arguments("--study", "mended", score="later.py:score")) == 0


def test_a_score_that_failed_at_once_may_be_mended(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(score="failing.py")) == 2
    assert "the same command goes on\n" in capsys.readouterr().err
    (folder / "failing.py").write_text((folder / "quick.py").read_text())
    assert main(arguments(score="failing.py")) == 0


def test_a_score_cannot_end_the_search_without_a_word(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "leaving.py").write_text("import sys\ndef score(weights, budget, seed):\n    sys.exit(0)\n")
    assert main(arguments("--score", "leaving.py")) == 2
    assert (
        "leaving.py, line 3: score 'score' must return losses by name, but got SystemExit: 0" in capsys.readouterr().err
    )


def test_options_of_the_proxy_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["search", "mix.json", "--budget", "6"]
    assert main([*given, "--proxy-steps", "4", "--target-steps", "100"]) == 2
    assert main([*given, "--target", "d=1"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == "error: --proxy-steps must be at least 16 for --target-steps, but got 4"
    assert second == "error: --target must be of domains ['a', 'b', 'c'], but got 'd'"


CHANGED = {
    "--budget": ("23", "--budget of study 'mix' must be 24, as it was begun with, or more, but got 23"),
    "--seed": ("3", "--seed of study 'mix' must be 0"),
    "--round": ("5", "--round of study 'mix' must be 3"),
    "--audit-seeds": ("3", "--audit-seeds of study 'mix' must be 2"),
    "--method": ("auto", "--method of study 'mix' must be \"bandit\""),
    "--target": ("a=1", "--target of study 'mix' must be {"),
    "--lower": ("a=0.1", "lower bounds (--lower, --fix, --upper) of study 'mix' must be [0.0,0.0,0.0]"),
    "--upper": (
        "a=0.9",
        "upper bounds (--upper, --fix, --lower, --max-repetition) of study 'mix' must be [1.0,1.0,1.0]",
    ),
}


def test_options_of_another_study_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments()) == 0
    for option, (value, says) in CHANGED.items():
        capsys.readouterr()
        assert main(arguments(option, value)) == 2
        assert capsys.readouterr().err.startswith(f"error: {says}"), option


def test_stages_would_undo_what_was_learnt(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stages = [{"at": 50, "weights": {"a": 1, "b": 1, "c": 1}}]
    (folder / "mix.json").write_text(json.dumps(MIX | {"version": 2, "stages": stages}))
    assert main(arguments("--write", "learned.json")) == 2
    assert "--write must have a manifest without stages" in capsys.readouterr().err
    assert not (folder / "begun").exists()


def test_other_data_are_another_study(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments()) == 0
    (folder / "a.jsonl").write_text('{"text": "other"}\n' * 50)
    assert main(arguments()) == 2
    assert "fingerprints of the sources of study 'mix' must be" in capsys.readouterr().err


def test_the_receipt_of_another_search_is_not_replaced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments()) == 0
    kept = (folder / "run" / "receipt.json").read_bytes()
    (folder / "two.json").write_text(json.dumps(MIX | {"sources": MIX["sources"][:2]}))
    ran = (folder / "begun").read_bytes()
    capsys.readouterr()
    assert main(["two.json" if word == "mix.json" else word for word in arguments()]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: --output-dir must not hold the receipt.json of another search, but got 'run' with ")
    assert "names ['a', 'b', 'c'] where this one has ['a', 'b']; name another folder" in error
    assert (folder / "run" / "receipt.json").read_bytes() == kept
    assert (folder / "begun").read_bytes() == ran


def test_the_receipt_of_other_data_is_not_replaced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments()) == 0
    (folder / "a.jsonl").write_text('{"text": "other"}\n' * 50)
    assert main(arguments("--study", "other")) == 2
    said = "--output-dir must not hold the receipt.json of another search, but got 'run' with fingerprint '"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ['{"rule": {}, "overlap": {}, "result_hash": "x"}', "no JSON", "[]"])
def test_the_receipt_of_something_else_is_not_replaced(
    text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "receipt.json").write_text(text)
    assert main(arguments()) == 2
    said = "error: --output-dir must not hold the receipt.json of something else, but got 'run'; name another folder\n"
    assert capsys.readouterr() == ("", said)
    assert [path.name for path in (folder / "run").iterdir()] == ["receipt.json"]


@pytest.mark.parametrize(
    ("study", "called"),
    [("../../evil", "search-%2E.%2F..%2Fevil"), ("a/b", "search-a%2Fb"), ("first", "search-first"), ("n" * 300, None)],
)
def test_a_study_of_any_name_has_a_folder_of_its_own(study: str, called: str | None, folder: Path) -> None:
    given = arguments("--study", study)
    place = given.index("--output-dir")
    assert main([*given[:place], *given[place + 2 :]]) == 0
    (made,) = (folder / "runs").iterdir()
    assert called is None or made.name == called
    assert len(made.name) < 120
    assert (made / "receipt.json").is_file()
