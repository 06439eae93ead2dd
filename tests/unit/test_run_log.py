"""A run's events can be read at any time, after any crash, and hold after a resume what the run really did."""

from __future__ import annotations

import json
import resource

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuvee import Ledger, Mixture, Source, StateError
from cuvee.plan.file import plan_document
from cuvee.run_log import METRICS_FILE, RunLog, read_events

NAMES = ("math", "code")
printable = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1)


def plan(names=NAMES, epoch=0):
    sources = [Source(name, rows=50, weight=weight) for weight, name in enumerate(names, start=1)]
    return Mixture(sources, samples_per_epoch=30).plan(epoch)


def ledger(names=NAMES, rows=30) -> Ledger:
    counted = Ledger(names)
    source = np.arange(rows) % len(names)
    counted.add_scheduled(source, passed=np.arange(rows) % 10 > 0)
    counted.add_trained(source[np.arange(rows) % 10 > 0], np.arange(rows)[np.arange(rows) % 10 > 0])
    return counted


def log_of(folder, steps=(), *, step=0, resumed_from=None) -> RunLog:
    """Return the log of a run that told its progress at `steps`."""
    log = RunLog(folder, names=NAMES)
    log.start(step=step, resumed_from=resumed_from)
    for at in steps:
        log.progress(ledger(), step=at, epoch=0, position=at, losses={}, metrics={})
    return log


def told(events) -> list[tuple[str, int]]:
    return [(event["stage"], event["step"]) for event in events]


# --- what is written


def test_a_run_tells_what_it_did(tmp_path) -> None:
    log = RunLog(tmp_path / "runs" / "one", names=NAMES)
    log.start(world_size=2, rows_per_step=8)
    file = log.plan(plan(), step=0)
    log.progress(ledger(), step=2, epoch=0, position=16, losses={"code": 1.5}, metrics={"loss": 2.0, "rows": 7})
    log.epoch_end(ledger(), step=4, plan=plan())
    log.max_steps_reached(ledger(), step=4, max_steps=4)
    log.end(step=4, metrics={"train_loss": 1.75})

    start, planned, progress, epoch_end, reached, end = events = read_events(tmp_path / "runs" / "one")
    assert told(events) == [
        ("run_start", 0), ("dataset_mix_plan", 0), ("dataset_mix_progress", 2), ("dataset_mix_epoch_end", 4),
        ("max_steps_reached", 4), ("run_end", 4),
    ]  # fmt: skip
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    assert (start["version"], start["resumed_from"], start["names"]) == (1, None, list(NAMES))
    assert (start["world_size"], start["rows_per_step"]) == (2, 8)
    assert progress["metrics"] == {"loss": 2.0, "rows": 7}
    assert (progress["epoch"], progress["position"]) == (0, 16)
    assert (epoch_end["epoch"], epoch_end["planned_rows"]) == (0, 30)
    assert epoch_end["termination_reason"] == "samples_per_epoch"
    assert reached["max_steps"] == 4
    assert end["metrics"] == {"train_loss": 1.75}

    counted = ledger().event()["sources"]
    assert epoch_end["sources"] == reached["sources"] == counted
    assert progress["sources"] == {
        "math": counted["math"] | {"loss": None},
        "code": counted["code"] | {"loss": 1.5},
    }
    document = plan_document(plan())
    assert json.loads(file.read_text()) == document
    assert file.name == planned["plan_file"]
    assert document == {"mix_spec": document["mix_spec"]} | {
        name: value for name, value in planned.items() if name in document
    }
    assert "mix_spec" not in planned


def test_every_event_is_in_the_file_at_once(tmp_path) -> None:
    log = log_of(tmp_path)
    for step in range(1, 4):
        log.progress(ledger(), step=step, epoch=0, position=0, losses={}, metrics={})
        assert told(read_events(tmp_path))[-1] == ("dataset_mix_progress", step)


def test_other_ranks_write_nothing(tmp_path) -> None:
    log = RunLog(tmp_path / "run", rank=1, names=NAMES)
    log.start()
    assert log.plan(plan(), step=0) is None
    log.progress(ledger(), step=1, epoch=0, position=0, losses={}, metrics={})
    log.epoch_end(ledger(), step=1, plan=plan())
    log.max_steps_reached(ledger(), step=1, max_steps=1)
    log.end(step=1, metrics={})
    assert list(tmp_path.iterdir()) == []


def test_what_json_lacks_is_null_and_foreign_numbers_are_numbers(tmp_path) -> None:
    import torch

    log = log_of(tmp_path)
    losses = {"math": float("nan"), "code": np.float32(0.5)}
    metrics = {"loss": torch.tensor(2.5), "grad_norm": float("inf"), "lr": np.float64(1e-3), "steps": 3, "none": None}
    log.progress(ledger(), step=1, epoch=0, position=0, losses=losses, metrics=metrics)
    event = json.loads((tmp_path / METRICS_FILE).read_text().splitlines()[-1], parse_constant=pytest.fail)
    assert event["metrics"] == {"loss": 2.5, "grad_norm": None, "lr": 1e-3, "steps": 3, "none": None}
    assert [event["sources"][name]["loss"] for name in NAMES] == [None, 0.5]


@given(
    names=st.lists(
        printable | st.sampled_from(["NaN", "<script>", '"', "\\", "stage", "数据"]), min_size=2, unique=True
    )
)
def test_sources_may_have_any_name(tmp_path_factory, names) -> None:
    folder = tmp_path_factory.mktemp("run")
    log = RunLog(folder, names=names)
    log.start()
    log.plan(plan(names), step=0)
    losses = {name: float(number) for number, name in enumerate(names)}
    log.progress(ledger(names), step=1, epoch=0, position=0, losses=losses, metrics={})
    start, planned, progress = read_events(folder)
    assert start["names"] == list(progress["sources"]) == [source["name"] for source in planned["sources"]] == names
    assert [source["loss"] for source in progress["sources"].values()] == list(losses.values())


# --- after a crash


def test_a_file_cut_at_any_byte_holds_the_events_before_it(tmp_path) -> None:
    log = log_of(tmp_path, [1, 2])
    log.plan(plan(), step=2)
    log.end(step=2, metrics={})
    path = tmp_path / METRICS_FILE
    content, events = path.read_bytes(), read_events(tmp_path)
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        assert read_events(tmp_path) == events[: content[:size].count(b"\n")]


@given(left=st.floats(0, 1))
def test_a_run_goes_on_after_a_cut_at_any_byte(tmp_path_factory, left) -> None:
    folder = tmp_path_factory.mktemp("run")
    log_of(folder, [10, 20, 30])
    path = folder / METRICS_FILE
    content = path.read_bytes()
    path.write_bytes(content[: round(left * len(content))])
    before = read_events(folder)
    log_of(folder, [25], step=20, resumed_from="checkpoint-20")
    expected = [event for event in told(before) if event[1] <= 20]
    assert told(read_events(folder)) == [*expected, ("run_start", 20), ("dataset_mix_progress", 25)]


@given(
    parts=st.lists(
        st.tuples(st.booleans(), st.integers(0, 6), st.lists(st.integers(1, 3), max_size=4)), min_size=1, max_size=5
    )
)
def test_a_resume_drops_what_it_repeats(tmp_path_factory, parts) -> None:
    folder = tmp_path_factory.mktemp("run")
    expected: list[tuple[str, int]] = []
    for resumed, start, gaps in parts:
        step = start if resumed else 0
        log = log_of(folder, step=step, resumed_from=f"checkpoint-{step}" if resumed else None)
        expected = [event for event in expected if resumed and event[1] <= step] + [("run_start", step)]
        for at in (step + np.cumsum(gaps, dtype=np.int64)).tolist():
            log.progress(ledger(), step=at, epoch=0, position=0, losses={}, metrics={})
            expected.append(("dataset_mix_progress", at))
    assert told(read_events(folder)) == expected


def test_a_full_disk_is_named_and_leaves_whole_lines(tmp_path) -> None:
    log = log_of(tmp_path, [1])
    before = (tmp_path / METRICS_FILE).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
    try:
        with pytest.raises(StateError, match=r"events must be written to a file, but got .*metrics\.jsonl': no space"):
            log.end(step=2, metrics={})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / METRICS_FILE).read_bytes() == before


# --- what is refused


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "line 2 must be an event in JSON"),
        ('{"stage": "run_end", "ti', "line 2 must be an event in JSON"),
        ('{"stage": "run_end", "step": NaN}', "line 2 must be an event in JSON.*NaN is no number"),
        ("[1]", "line 2 must be an event with a stage, but got b'\\[1\\]"),
        ('{"step": 1}', "line 2 must be an event with a stage"),
        ('{"stage": "run_end"}', r"line 2: step must be an integer in \[0, 2\*\*63\), but got None"),
        ('{"stage": "run_end", "step": -1}', "line 2: step must be .* but got -1"),
        ('{"stage": "run_start", "step": 1, "version": 2}', "line 2: version must be 1, but got 2"),
        (
            '{"stage": "run_start", "step": 1, "version": 1}',
            "line 2: resumed_from must be a name or null, but got None",
        ),
        ("\x00" * 9, "line 2 must be an event in JSON"),
    ],
)
def test_a_broken_line_is_named(tmp_path, line, message) -> None:
    log_of(tmp_path)
    with (tmp_path / METRICS_FILE).open("a") as file:
        file.write(line + "\n")
    log_of(tmp_path, [1], resumed_from="checkpoint-0")
    with pytest.raises(StateError, match=rf"'{tmp_path}/metrics\.jsonl', {message}"):
        read_events(tmp_path)


def test_a_file_must_begin_with_a_run(tmp_path) -> None:
    (tmp_path / METRICS_FILE).write_text('{"stage": "run_end", "step": 0}\n')
    with pytest.raises(StateError, match="line 1 must be of stage 'run_start', but got 'run_end'"):
        read_events(tmp_path)


@pytest.mark.parametrize("name", ["none", "file/none", "file"])
def test_a_folder_without_a_run_is_named(tmp_path, name) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"run folder must hold metrics\.jsonl, .* but got .*: no"):
        read_events(tmp_path / name)


@pytest.mark.parametrize("content", ['{"loss": 1}\n', "step,loss", '{"stage": "run_end", "step": 1}\n', "\n"])
def test_a_foreign_file_is_refused_and_left_alone(tmp_path, content) -> None:
    (tmp_path / METRICS_FILE).write_text(content)
    with pytest.raises(StateError, match=r"metrics\.jsonl' must be of a run of cuvee train, .* choose another folder"):
        log_of(tmp_path)
    assert (tmp_path / METRICS_FILE).read_text() == content


def test_a_folder_that_cannot_be_written_is_named(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "run" / METRICS_FILE).mkdir(parents=True)
    for name in ("file", "file/run", "run"):
        with pytest.raises(StateError, match=rf"events must be written to a file, but got '{tmp_path}/{name}/metrics"):
            log_of(tmp_path / name)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda log: log.start(names=["a"], time=3), r"facts must have names .* but got \['names', 'time'\]"),
        (lambda log: log.start(model=object()), "event fields must be JSON values"),
        (lambda log: log.end(step=-1, metrics={}), "step must be an integer in .* but got -1"),
        (
            lambda log: log.progress(ledger(), step=1, epoch=0, position=0, losses={"maths": 1.0}, metrics={}),
            r"losses must be of \['math', 'code'\], but got 'maths'; did you mean 'math'\?",
        ),
    ],
)
def test_wrong_events_are_refused_and_not_written(tmp_path, use, message) -> None:
    log = log_of(tmp_path)
    with pytest.raises(StateError, match=message):
        use(log)
    assert told(read_events(tmp_path)) == [("run_start", 0)]


def test_a_run_starts_before_it_tells_more(tmp_path) -> None:
    with pytest.raises(StateError, match="first event must be 'run_start', but got 'run_end'; call start"):
        RunLog(tmp_path, names=NAMES).end(step=0, metrics={})
    assert list(tmp_path.iterdir()) == []
