"""The command line as users and scripts run it: on the example data, on small files, in real processes."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import cuvee
from cuvee import manifest
from cuvee.cli import main
from cuvee.cli.command import app

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "data"
PAGE = ROOT / "docs" / "cli.md"
COMMAND = [sys.executable, "-W", "error", "-c", "import sys; from cuvee.cli import main; sys.exit(main())"]
INLINE = ["--dataset-source", "functions=functions.jsonl:0.5", "--dataset-source", "facts=facts.jsonl:0.5"]
ODD_ROWS = r"""
import numpy as np

def odd(data, name):
    row = {"text": "a\n\x1b[31mb", "blob": b"123", "vector": np.arange(2), "nan": float("nan"), "[bold]": {1}}
    return [row | {"\x1b": 0}]
"""
RECEIPT = {
    "version", "sampler_version", "weight_unit", "seed", "epoch", "policy", "shuffle_within_sources",
    "samples_per_epoch", "planned_rows", "termination_reason", "mix_spec_hash", "schedule_hash", "warnings", "sources",
}  # fmt: skip
RECEIPT_OF_SOURCE = {
    "name", "weight_requested", "expected_rows", "rows_available", "rows_selected", "duplicates",
    "observed_proportion",
}  # fmt: skip


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the example data, which is the working folder."""
    for name in ("mix.json", "mix-tokens.json", "functions.jsonl", "reference.parquet", "facts.jsonl"):
        shutil.copy(EXAMPLES / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def run(*arguments: str, code: int = 0) -> str:
    """Return what a command printed; nothing must go to stderr."""
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stderr) == (code, ""), done.output
    return done.stdout


def verify(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["verify", *arguments])
    out, err = capsys.readouterr()
    assert err == ""
    return code, out


def run_process(*arguments: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def drop_rows(path: Path, count: int = 1) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-count]))


# --- plan


def test_plan_is_a_table_that_fits_the_terminal(data: Path) -> None:
    out = run("plan", "mix.json")
    assert "Epoch 0: 4,000 rows of 3 sources" in out
    assert re.search(r"^functions +50\.00% +50\.00% +3,000 +2,000 +1,000 +0 +0\.67 +\d+$", out, re.MULTILINE)
    assert re.search(r"^facts +20\.00% +20\.00% +120 +800 +0 +680 +6\.67 +\d+$", out, re.MULTILINE)
    assert re.search(r"^total +3,920 +4,000 +1,000 +1,080$", out, re.MULTILINE)
    assert "warning: each row of source 'facts' is drawn 6.67 times on average" in out
    plan = cuvee.Mixture.from_manifest("mix.json").plan()
    for value in (plan.spec_hash, plan.plan_hash, plan.schedule_hash()):
        assert value in out
    assert all(len(line) <= 80 and line == line.rstrip() for line in out.splitlines())


def test_plan_shows_tokens_where_they_are_known(data: Path) -> None:
    out = run("plan", "mix-tokens.json")
    assert re.search(r"^reference +35\.00% +3\d\.\d\d% +\d\d,\d{3} +\d+\.\d$", out, re.MULTILINE)
    rows = run("plan", "mix.json")
    assert "tokens" not in rows
    counted = run("plan", "mix.json", "--length-column", "n_tokens")
    assert re.search(r"^functions +\d\d\.\d\d% +\d\d,\d{3} +\d+\.\d$", counted, re.MULTILINE)
    assert "of the tokens" in counted


@pytest.mark.parametrize("width", [20, 40, 60])
def test_plan_becomes_blocks_in_a_narrow_terminal(width: int, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = run("plan", "mix.json")
    assert all(len(line) <= width for line in out.splitlines())
    words = " ".join(out.split())
    assert "facts asked 20.00%, row share 20.00%, rows 120, drawn 800, unused 0, repeats 680, cycles 6.67" in words


def test_plan_as_json_is_the_receipt(data: Path) -> None:
    document = json.loads(run("plan", "mix.json", "--json"))
    assert document.keys() >= RECEIPT
    assert all(source.keys() >= RECEIPT_OF_SOURCE for source in document["sources"])
    plan = cuvee.Mixture.from_manifest("mix.json").plan()
    assert document["schedule_hash"] == plan.schedule_hash()
    assert document["mix_spec_hash"] == plan.spec_hash
    assert document["mix_spec"] == plan.mixture.spec()
    assert (
        [source["rows_selected"] for source in document["sources"]] == plan.counts(4000).tolist() == [2000, 1200, 800]
    )
    assert document["sources"][2]["duplicates"] == 680
    assert document["warnings"] == ["each row of source 'facts' is drawn 6.67 times on average"]


def test_plan_writes_what_it_prints_as_json(data: Path) -> None:
    out = run("plan", "mix.json", "--json", "--output", "new/plan.json")
    assert (data / "new" / "plan.json").read_text() == out
    assert sorted(path.name for path in (data / "new").iterdir()) == ["plan.json"]


def test_plan_holds_no_sample(data: Path) -> None:
    assert "What does HTTP status" not in run("plan", "mix.json", "--json")


def test_plan_of_another_epoch(data: Path) -> None:
    first, later = (json.loads(run("plan", "mix.json", "--json", "--epoch", epoch)) for epoch in "03")
    assert later["epoch"] == 3
    assert later["mix_spec_hash"] == first["mix_spec_hash"]
    assert later["schedule_hash"] != first["schedule_hash"]
    assert later["sources"][1]["cycles"] == 4 * first["sources"][1]["cycles"] == 6.0


def test_the_inline_form_is_the_manifest(data: Path) -> None:
    sources = [
        {"name": "functions", "path": "functions.jsonl", "weight": 0.5},
        {"name": "facts", "path": "facts.jsonl", "weight": 0.5},
    ]
    document = {"version": 1, "seed": 7, "exhaustion": "cycle", "samples_per_epoch": 100, "sources": sources}
    (data / "two.json").write_text(json.dumps(document))
    settings = [
        "--dataset-mix-seed",
        "7",
        "--dataset-mix-samples-per-epoch",
        "100",
        "--dataset-mix-exhaustion",
        "cycle",
    ]
    inline = run("plan", "--json", *INLINE, *settings)
    assert inline == run("plan", "--json", "two.json") == run("plan", "--json", "--dataset-mix-config", "two.json")


@pytest.mark.parametrize(
    ("options", "end", "rows"),
    [
        (["--dataset-mix-exhaustion", "renormalize"], "when every source is used up", "3,120"),
        (["--dataset-mix-exhaustion", "stop"], "with the last row of facts", None),
        (["--dataset-mix-samples-per-epoch", "all_seen"], "once every row was drawn", None),
        ([], "after 3,120 rows, the epoch's budget", "3,120"),
    ],
)
def test_plan_says_why_it_ends(options: list[str], end: str, rows: str | None, data: Path) -> None:
    out = run("plan", *INLINE, *options)
    assert f"ends      {end}" in out
    assert rows is None or f"Epoch 0: {rows} rows" in out


def test_plan_warns_of_what_surprises(data: Path) -> None:
    sources = ["--dataset-source", "functions=functions.jsonl:1", "--dataset-source", "facts=facts.jsonl:0.003"]
    out = run("plan", *sources, "--dataset-mix-samples-per-epoch", "100")
    assert "warning: source 'facts' is owed 0.3 rows per epoch" in out


def test_a_loader_is_applied(data: Path) -> None:
    (data / "loader.py").write_text("def short(data, name):\n    return data.select(range(20))\n")
    document = json.loads(run("plan", *INLINE, "--json", "--dataset-loader-fn", "loader.py:short"))
    assert document["planned_rows"] == 40


def test_plan_can_be_printed_without_unicode(data: Path) -> None:
    out = CliRunner(charset="ascii").invoke(app, ["plan", "mix.json"]).stdout
    assert "---------  ------" in out


# --- preview


def test_preview_shows_rows_in_order(data: Path) -> None:
    out = run("preview", "mix.json", "--start", "1000", "-n", "3")
    plan = cuvee.Mixture.from_manifest("mix.json").plan()
    headings = [f"{at:,}  {plan[at].name}  row {plan[at].row:,}, cycle {plan[at].cycle}" for at in (1000, 1001, 1002)]
    assert [line for line in out.splitlines() if not line.startswith(" ")] == headings
    assert out.count("  prompt    ") == out.count("  response  ") == 3
    assert "…" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_preview_as_json_lines_holds_whole_rows(data: Path) -> None:
    records = [json.loads(line) for line in run("preview", "mix.json", "--json", "-n", "50").splitlines()]
    mixture = cuvee.Mixture.from_manifest("mix.json")
    plan = mixture.plan()
    assert [record["position"] for record in records] == list(range(50))
    for record in records:
        draw = plan[record["position"]]
        assert (record["source"], record["row"], record["cycle"]) == (draw.name, draw.row, draw.cycle)
        assert record["data"] == mixture.sources[draw.source].data[draw.row]


def test_preview_stops_at_the_end_of_the_epoch(data: Path) -> None:
    assert len(run("preview", "mix.json", "--json", "--start", "3995").splitlines()) == 5


def test_preview_marks_rows_over_the_limit(data: Path) -> None:
    document = json.loads((data / "mix.json").read_text()) | {"version": 2, "max_length": 50}
    (data / "short.json").write_text(json.dumps(document))
    records = [json.loads(line) for line in run("preview", "short.json", "--json", "-n", "40").splitlines()]
    assert [record["filtered"] for record in records] == [record["data"]["n_tokens"] > 50 for record in records]
    assert "over the length limit, skipped" in run("preview", "short.json", "-n", "40")


def test_preview_shows_any_row_on_one_line(data: Path) -> None:
    (data / "loader.py").write_text(ODD_ROWS)
    arguments = [*INLINE, "--dataset-loader-fn", "loader.py", "-n", "1"]
    out = run("preview", *arguments)
    assert "\x1b" not in out
    assert "  text    a �[31mb\n" in out
    assert "  [bold]  {1}\n" in out
    record: dict[str, Any] = json.loads(run("preview", *arguments, "--json"))
    assert record["data"] == {
        "text": "a\n\x1b[31mb",
        "blob": "<3 bytes>",
        "vector": [0, 1],
        "nan": "nan",
        "[bold]": "{1}",
        "\x1b": 0,
    }


# --- verify


def states(data: Path) -> list[str]:
    """Write records of the token mixture of every kind, and return their files."""
    import torch

    plan = cuvee.Mixture.from_manifest("mix-tokens.json").plan()
    plan.issue(1000)
    (data / "state.json").write_text(json.dumps(plan.state_dict()))
    (data / "checkpoint.json").write_text(
        json.dumps({"step": 9, "loaders": [{"sampler": {"plan": plan.state_dict()}}]})
    )
    torch.save({"model": {"w": torch.zeros(2)}, "loader": {"plan": plan.state_dict()}}, data / "checkpoint.pt")
    run("plan", "mix-tokens.json", "--output", "plan.json")
    return ["plan.json", "state.json", "checkpoint.json", "checkpoint.pt"]


def test_verify_agrees_then_names_what_differs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = states(data)
    for file in files:
        code, out = verify(file, "mix-tokens.json", capsys=capsys)
        assert (code, out) == (
            0,
            f"agrees: {file} ({'plan' if file == 'plan.json' else 'state'} of epoch 0, 3 sources)\n",
        )
    drop_rows(data / "facts.jsonl")
    for file in files:
        code, out = verify(file, "mix-tokens.json", capsys=capsys)
        assert code == 1
        assert re.search(r"source 'facts'\n  rows +was 120\n +now 119\n  fingerprint +was \w{32}\n +now \w{32}\n", out)
        assert ("accept_changes=['facts']" in out) == (file != "plan.json")


def test_verify_does_not_mind_counted_tokens(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("plan", "mix.json", "--output", "rows.json")
    run("plan", "mix.json", "--length-column", "n_tokens", "--output", "tokens.json")
    counted, plain = (json.loads(Path(file).read_text()) for file in ("tokens.json", "rows.json"))
    assert counted["mix_spec_hash"] == plain["mix_spec_hash"]
    assert (counted["tokens"] is None, plain["tokens"] is None) == (False, True)
    assert verify("tokens.json", "mix.json", capsys=capsys)[0] == 0
    assert verify("rows.json", "mix.json", "--length-column", "n_tokens", capsys=capsys)[0] == 0


def test_verify_as_json(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("plan", "mix.json", "--output", "plan.json")
    code, out = verify("plan.json", "mix.json", "--json", capsys=capsys)
    assert (code, json.loads(out)["agrees"], json.loads(out)["differences"]) == (0, True, [])
    content = (data / "functions.jsonl").read_text()
    (data / "functions.jsonl").write_text(content.replace("the", "teh", 1))
    code, out = verify("plan.json", "mix.json", "--json", capsys=capsys)
    report = json.loads(out)
    assert (code, report["agrees"], report["kind"]) == (1, False, "plan")
    (difference,) = report["differences"]
    assert (difference["source"], difference["field"]) == ("functions", "fingerprint")
    assert difference["was"] != difference["now"]


def test_verify_does_not_mind_moved_files_and_reordered_keys(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("plan", "mix.json", "--output", "plan.json")
    moved = data / "elsewhere"
    moved.mkdir()
    for name in ("functions.jsonl", "reference.parquet", "facts.jsonl"):
        shutil.move(data / name, moved / name)
    document = json.loads((data / "mix.json").read_text())
    (moved / "other.json").write_text(json.dumps(dict(reversed(document.items()))))
    assert verify("plan.json", "elsewhere/other.json", capsys=capsys)[0] == 0


@pytest.mark.parametrize(
    ("change", "field", "values"),
    [
        ({"seed": 43}, "seed", (42, 43)),
        ({"exhaustion": "renormalize", "samples_per_epoch": None}, "exhaustion", ("cycle", "renormalize")),
        ({"shuffle_within_sources": False}, "shuffle_within_sources", (True, False)),
        ({"version": 2, "window": 32}, "window", (64, 32)),
    ],
)
def test_verify_names_settings(
    change: dict[str, Any], field: str, values: tuple[Any, Any], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("plan", "mix.json", "--output", "plan.json")
    document = json.loads((data / "mix.json").read_text()) | change
    (data / "mix.json").write_text(json.dumps(document))
    code, out = verify("plan.json", "mix.json", "--json", capsys=capsys)
    found = [(each["was"], each["now"]) for each in json.loads(out)["differences"] if each["field"] == field]
    assert (code, found) == (1, [values])


def test_verify_finds_a_plan_file_that_was_edited(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("plan", "mix.json", "--output", "plan.json")
    document = json.loads((data / "plan.json").read_text())
    document["sources"][1]["rows_selected"] = 1300
    document["schedule_hash"] = "0" * 32
    (data / "plan.json").write_text(json.dumps(document))
    code, out = verify("plan.json", "mix.json", "--json", capsys=capsys)
    differences = {(each["source"], each["field"]): each["was"] for each in json.loads(out)["differences"]}
    assert (code, differences) == (1, {(None, "schedule_hash"): "0" * 32, ("reference", "rows_selected"): 1300})


def test_verify_says_when_the_order_was_steered(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from cuvee.plan.file import plan_document, write_document

    plan = cuvee.Mixture.from_manifest("mix.json").plan()
    plan.update({"functions": 1.0, "reference": 1.0, "facts": 1.0}, at=640)
    write_document(plan_document(plan), data / "plan.json")
    code, out = verify("plan.json", "mix.json", capsys=capsys)
    assert code == 0
    assert "The order was not compared: weights were updated" in out
    (data / "state.json").write_text(json.dumps(plan.state_dict()))
    assert verify("state.json", "mix.json", capsys=capsys)[0] == 0


# --- the documentation, schema, and the command as a process


def test_the_page_shows_what_is_printed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the commands of docs/cli.md in order; `...` stands for any hash."""
    blocks = re.findall(r"^```console\n\$ cuvee (.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    shown = 0
    for block in blocks:
        if "differs:" in block:
            drop_rows(data / "facts.jsonl", 5)
        for text in block.split("$ cuvee "):
            command, _, expected = text.partition("\n")
            if "|" in command:
                continue
            main(command.split(" > ")[0].split())
            out, err = capsys.readouterr()
            assert err == ""
            if ">" not in command:
                assert re.fullmatch(r"\w+".join(map(re.escape, re.split(r"(?<= )\.\.\.(?=\n)", expected))), out), out
                shown += 1
    assert shown == 4


def test_schema_is_that_of_manifests() -> None:
    assert json.loads(run("schema")) == manifest.json_schema()


def test_help_names_the_commands_and_whole_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run() == run("--help")
    for command in ("plan", "preview", "verify", "schema"):
        assert f"  {command}" in run("--help")
        assert run(command, "--help").startswith(f"Usage: cuvee {command}") or "Usage: " in run(command, "--help")
    for option in ("source", "mix-config", "mix-seed", "mix-exhaustion", "mix-samples-per-epoch", "loader-fn"):
        assert f"--dataset-{option} " in run("plan", "--help")


def test_version() -> None:
    assert run("--version") == f"cuvee {cuvee.__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from cuvee.cli import main; main(['--help']); "
        "print([name for name in ('torch', 'datasets', 'pyarrow', 'pandas', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_process_gives_json_to_pipes_and_codes_to_scripts(data: Path) -> None:
    done = run_process("plan", "mix.json", "--json")
    assert done.stderr == ""
    (data / "plan.json").write_text(done.stdout)
    drop_rows(data / "facts.jsonl")
    assert "source 'facts'" in run_process("verify", "plan.json", "mix.json", code=1).stdout
    wrong = run_process("plan", "nix.json", code=2)
    assert wrong.stdout == ""
    assert wrong.stderr.count("\n") == 1
    assert "Traceback" not in wrong.stderr


@pytest.mark.skipif(not shutil.which("script"), reason="needs a terminal: `script` of util-linux")
@pytest.mark.parametrize("colourless", [False, True])
def test_colours_only_where_they_are_wanted(colourless: bool, data: Path) -> None:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")
    }
    environment |= {"TERM": "xterm-256color"} | ({"NO_COLOR": "1"} if colourless else {})
    command = f"{sys.executable} -c 'import sys; from cuvee.cli import main; sys.exit(main())' plan nix.json"
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )
    assert done.returncode == 2
    assert ("\x1b[1;31merror:" in done.stdout) != colourless


@pytest.mark.parametrize("columns", ["", "0", "00", "-1", "x", "²", "9" * 5000])
def test_columns_that_are_no_number_of_columns_are_as_if_unset(
    columns: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    expected = run("plan", str(data / "mix.json"))
    monkeypatch.setenv("COLUMNS", columns)
    assert run("plan", str(data / "mix.json")) == expected


CHATTY = """
print("here")
class Rows(list):
    def __getitem__(self, row):
        print("row", row)
        return super().__getitem__(row)
def load(data, name):
    print(name)
    return Rows(data)
def leave(data, name):
    raise SystemExit(0)
"""


@pytest.mark.parametrize("command", ["plan", "preview", "verify"])
def test_what_a_loader_prints_is_not_output(command: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "chatty.py").write_text(CHATTY)
    options = [str(data / "mix.json"), "--dataset-loader-fn", f"{data / 'chatty.py'}:load", "--json"]
    if command == "verify":
        assert main(["plan", *options, "-o", str(data / "plan.json")]) == 0
        options.insert(0, str(data / "plan.json"))
        capsys.readouterr()
    assert main([command, *options]) in (0, 1)
    out, err = capsys.readouterr()
    lines = out.splitlines() if command == "preview" else [out]
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert "here" in err


def test_a_loader_that_leaves_is_an_error(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "chatty.py").write_text(CHATTY)
    assert main(["plan", str(data / "mix.json"), "--dataset-loader-fn", f"{data / 'chatty.py'}:leave"]) == 2
    assert "but got SystemExit: 0" in capsys.readouterr().err


@pytest.mark.parametrize(("redirection", "problem"), [(">&-", "stdout must be open"), (">/dev/full", "stdout must be")])
def test_output_that_cannot_be_written_is_an_error(redirection: str, problem: str, data: Path) -> None:
    code = "import sys; from cuvee.cli import main; sys.exit(main(sys.argv[1:]))"
    command = ["bash", "-c", f'"$0" "$@" {redirection}', sys.executable, "-c", code, "schema"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: {problem}")
    assert ended.stderr.count("\n") == 1


def test_an_interrupt_ends_quietly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cuvee.manifest.json_schema", interrupted)
    assert main(["schema"]) == 130
    assert capsys.readouterr().out.strip() == ""
