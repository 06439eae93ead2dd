"""Manifests that are right: what they mean, how they are written, and what they have in common."""

import json
import os
import random
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuvee import manifest
from cuvee.errors import ManifestError
from cuvee.manifest.inline import split_source
from cuvee.manifest.model import Manifest
from cuvee.manifest.policies import Proportional, Temperature, Uniform, Unimax, normalised

Document = dict[str, Any]

EXAMPLE = """
{"version": 1, "seed": 42, "exhaustion": "cycle", "shuffle_within_sources": true, "samples_per_epoch": 1000,
 "sources": [{"name": "math", "path": "math.jsonl", "weight": 0.7},
             {"name": "code", "path": "code.jsonl", "weight": 0.3}]}
"""

EVERYTHING: Document = {
    "version": 2,
    "seed": 2**63 - 1,
    "exhaustion": "cycle",
    "shuffle_within_sources": False,
    "samples_per_epoch": "all_seen",
    "unit": "tokens",
    "window": 128,
    "control_interval": 1024,
    "max_length": 2048,
    "sources": [
        {"name": "math", "path": "math.jsonl", "weight": 1, "max_epochs": 4},
        {"name": "web pages", "path": "org/web:en", "weight": 3.5, "split": "train", "columns": ["prompt", "response"]},
        {"name": "código", "path": "/data/code", "weight": 0},
    ],
    "stages": [
        {"at": 1000, "weights": {"código": 1, "math": 1, "web pages": 0}},
        {"at": 9000, "weights": {"math": 0.5, "web pages": 0.25, "código": 0.25}, "interpolation": "cosine"},
    ],
}  # fmt: skip

names = st.lists(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda s: s.isprintable() and s == s.strip()),
    min_size=2,
    max_size=5,
    unique=True,
)
weights = st.floats(min_value=0, max_value=1e300, exclude_min=True)
counts = st.integers(1, 2**63 - 1)


@st.composite
def optional(draw: st.DrawFn, fields: dict[str, st.SearchStrategy[Any]]) -> Document:
    """Return some of the fields."""
    return {name: draw(value) for name, value in fields.items() if draw(st.booleans())}


@st.composite
def policies(draw: st.DrawFn) -> Document:
    field = draw(st.sampled_from([None, "tau", "max_epochs"]))
    if field is None:
        return {"policy": draw(st.sampled_from(["proportional", "uniform"]))}
    return {"policy": {"tau": "temperature", "max_epochs": "unimax"}[field], field: draw(weights)}


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Return any valid document of version 1 or 2."""
    version, exhaustion = draw(st.sampled_from([1, 2])), draw(st.sampled_from(["stop", "cycle", "renormalize"]))
    document: Document = {"version": version, "seed": draw(st.integers(0, 2**63 - 1)), "exhaustion": exhaustion}
    document |= draw(optional({"shuffle_within_sources": st.booleans()}))
    document["sources"] = [{"name": name, "path": f"{name}.jsonl", "weight": draw(weights)} for name in draw(names)]
    epochs = counts if version == 1 else counts | st.just("all_seen")
    document |= draw(optional({"samples_per_epoch": epochs})) if exhaustion == "cycle" else {}
    return document if version == 1 else draw(version_2(document))


@st.composite
def version_2(draw: st.DrawFn, document: Document) -> Document:
    sources = document["sources"]
    every = {source["name"]: st.floats(0, 1e300, exclude_min=True) for source in sources}
    positions = sorted(draw(st.sets(counts, min_size=1, max_size=3)))
    stages = [
        {"at": at, "weights": draw(st.fixed_dictionaries(every))}
        | draw(optional({"interpolation": st.sampled_from(["linear", "cosine", None])}))
        for at in positions
    ]
    document = document | draw(
        optional(
            {
                "unit": st.sampled_from(["rows", "tokens"]),
                "window": st.integers(1, 65536),
                "control_interval": counts,
                "max_length": st.integers(1, 2**31 - 1),
                "weights": policies(),
                "stages": st.just(stages),
            }
        )
    )
    added = {
        "max_epochs": st.integers(1, 2**32 - 1),
        "split": st.just("train[:10%]"),
        "columns": st.lists(st.text(min_size=1), min_size=1),
    }
    kept = ("name", "path") if "weights" in document else ("name", "path", "weight")
    document["sources"] = [{name: source[name] for name in kept} | draw(optional(added)) for source in sources]
    return document


def shuffled(value: Any, order: random.Random) -> Any:
    """Return `value` with the keys of every object in another order."""
    if isinstance(value, dict):
        keys = list(value)
        order.shuffle(keys)
        return {key: shuffled(value[key], order) for key in keys}
    return [shuffled(item, order) for item in value] if isinstance(value, list) else value


def sources(*specs: Document, **others: Any) -> Manifest:
    return manifest.parse({"version": 2, "seed": 1, "exhaustion": "cycle", "sources": list(specs)} | others)


# --- loading


def test_example_loads(tmp_path: Path) -> None:
    (tmp_path / "mix.json").write_text(EXAMPLE)
    loaded = manifest.load(tmp_path / "mix.json")
    assert (loaded.version, loaded.seed, loaded.exhaustion, loaded.samples_per_epoch) == (1, 42, "cycle", 1000)
    assert [(spec.name, spec.path, spec.weight) for spec in loaded.sources] == [
        ("math", "math.jsonl", 0.7),
        ("code", "code.jsonl", 0.3),
    ]
    assert manifest.source_path(loaded, loaded.sources[0]) == str(tmp_path.resolve() / "math.jsonl")
    assert (loaded.stages, loaded.weights, loaded.unit, loaded.window, loaded.control_interval) == (
        None, None, "rows", 64, 4096,
    )  # fmt: skip


def test_every_field_is_kept() -> None:
    parsed = manifest.parse(EVERYTHING)
    assert (parsed.seed, parsed.samples_per_epoch, parsed.unit, parsed.max_length) == (
        2**63 - 1,
        "all_seen",
        "tokens",
        2048,
    )
    web = parsed.sources[1]
    assert (web.name, web.weight, web.split, web.columns) == ("web pages", 3.5, "train", ("prompt", "response"))
    assert parsed.sources[0].max_epochs == 4
    assert parsed.stages is not None
    assert [(stage.at, stage.interpolation) for stage in parsed.stages] == [(1000, None), (9000, "cosine")]
    assert parsed.stages[1].weights == {"math": 0.5, "web pages": 0.25, "código": 0.25}


def test_optional_fields_may_be_null() -> None:
    document = json.loads(EXAMPLE) | {"samples_per_epoch": None}
    assert manifest.parse(document).samples_per_epoch is None
    assert jsonschema.Draft202012Validator(manifest.json_schema()).is_valid(document)


def test_byte_order_mark_is_no_part_of_the_document(tmp_path: Path) -> None:
    (tmp_path / "mix.json").write_text(EXAMPLE, encoding="utf-8-sig")
    assert manifest.load(tmp_path / "mix.json").seed == 42


def test_manifest_is_frozen() -> None:
    parsed = manifest.parse(EVERYTHING)
    with pytest.raises(ValueError, match="frozen"):
        parsed.seed = 1


def test_any_mapping_is_an_object() -> None:
    def proxied(value: Any) -> Any:
        if isinstance(value, dict):
            return MappingProxyType({key: proxied(item) for key, item in value.items()})
        return tuple(proxied(item) for item in value) if isinstance(value, list) else value

    unweighted: Document = {
        "sources": [{"name": name, "path": name} for name in "ab"],
        "weights": {"policy": "uniform"},
    }
    for document in (EVERYTHING, json.loads(EXAMPLE), json.loads(EXAMPLE) | {"version": 2} | unweighted):
        assert manifest.parse(proxied(document)) == manifest.parse(document)


def test_parsing_leaves_the_document_as_it_was() -> None:
    before = json.dumps(EVERYTHING)
    manifest.parse(EVERYTHING)
    assert json.dumps(EVERYTHING) == before


@pytest.mark.parametrize("policy", [{"policy": "proportional"}, {"policy": "temperature", "tau": 3}])
def test_policy_replaces_weights(policy: Document) -> None:
    parsed = sources({"name": "a", "path": "a"}, {"name": "b", "path": "b"}, weights=policy)
    assert parsed.weights is not None
    assert parsed.weights.model_dump() == policy
    assert [spec.weight for spec in parsed.sources] == [None, None]


# --- schema


def test_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(manifest.json_schema())


@pytest.mark.parametrize("document", [json.loads(EXAMPLE), EVERYTHING], ids=["version 1", "version 2"])
def test_schema_accepts_the_examples(document: Document) -> None:
    jsonschema.validate(document, manifest.json_schema(), cls=jsonschema.Draft202012Validator)


VALIDATOR = jsonschema.Draft202012Validator(manifest.json_schema())


@given(document=documents())
def test_schema_accepts_what_the_model_accepts(document: Document) -> None:
    manifest.parse(document)
    VALIDATOR.validate(document)


# --- canonical bytes


@given(document=documents(), order=st.randoms(use_true_random=False))
def test_canonical_bytes_do_not_depend_on_the_order_of_keys(document: Document, order: random.Random) -> None:
    one, other = manifest.parse(document), manifest.parse(shuffled(document, order))
    assert manifest.canonical_bytes(one) == manifest.canonical_bytes(other)


def test_canonical_bytes_do_not_depend_on_where_the_data_are(tmp_path: Path) -> None:
    document = json.loads(EXAMPLE)
    here = manifest.canonical_bytes(manifest.parse(document))
    moved = [source | {"path": f"elsewhere/{source['path']}"} for source in document["sources"]]
    assert manifest.canonical_bytes(manifest.parse(document | {"sources": moved}, folder=tmp_path)) == here


def test_canonical_bytes_do_not_depend_on_how_it_is_said() -> None:
    document = json.loads(EXAMPLE)
    inline = manifest.from_inline(["math=m.csv:0.7", "code=c.csv:0.3"], samples_per_epoch=1000)
    spelt_out = manifest.parse(
        document | {"version": 2, "unit": "rows", "window": 64, "stages": None, "max_length": None}
    )
    assert len({manifest.canonical_bytes(each) for each in (manifest.parse(document), inline, spelt_out)}) == 1


def test_canonical_bytes_hold_shares_and_are_ascii() -> None:
    by_halves = manifest.canonical_bytes(manifest.from_inline(["ä=a:0.5", "b=b:0.5"]))
    assert by_halves == manifest.canonical_bytes(manifest.from_inline(["ä=x:2", "b=y:2"]))
    assert by_halves.isascii()
    assert json.loads(by_halves)["sources"][0] == {"name": "ä", "weight": 0.5, "max_epochs": None}


SOURCES, STAGES = EVERYTHING["sources"], EVERYTHING["stages"]
CHANGES: dict[str, Document] = {
    "seed": {"seed": 1},
    "exhaustion": {"exhaustion": "renormalize", "samples_per_epoch": None},
    "shuffle": {"shuffle_within_sources": True},
    "epoch": {"samples_per_epoch": 10},
    "unit": {"unit": "rows"},
    "window": {"window": 64},
    "control interval": {"control_interval": 1},
    "length filter": {"max_length": 10},
    "order of sources": {"sources": [*SOURCES[1:], SOURCES[0]]},
    "weight": {"sources": [SOURCES[0] | {"weight": 2}, *SOURCES[1:]]},
    "cap": {"sources": [SOURCES[0] | {"max_epochs": 5}, *SOURCES[1:]]},
    "a stage less": {"stages": STAGES[:1]},
    "interpolation": {"stages": [STAGES[0], STAGES[1] | {"interpolation": "linear"}]},
    "position of a stage": {"stages": [STAGES[0], STAGES[1] | {"at": 9001}]},
    "weights of a stage": {"stages": [STAGES[0], STAGES[1] | {"weights": STAGES[0]["weights"]}]},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_canonical_bytes_depend_on_all_that_decides_the_order(change: Document) -> None:
    before = manifest.canonical_bytes(manifest.parse(EVERYTHING))
    assert manifest.canonical_bytes(manifest.parse(EVERYTHING | change)) != before


def test_canonical_bytes_tell_policies_apart() -> None:
    pair = [{"name": "a", "path": "a"}, {"name": "b", "path": "b"}]
    settings: list[Document] = [
        {"policy": "uniform"},
        {"policy": "proportional"},
        {"policy": "temperature", "tau": 2},
        {"policy": "temperature", "tau": 3},
        {"policy": "unimax", "max_epochs": 2},
    ]
    assert len({manifest.canonical_bytes(sources(*pair, weights=each)) for each in settings}) == 5


# --- writing


@given(document=documents())
def test_dump_loads_back_equal(document: Document, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    parsed = manifest.parse(document, folder=folder)
    manifest.dump(parsed, folder / "copy.json")
    assert manifest.load(folder / "copy.json") == parsed


def test_dump_writes_only_what_was_said(tmp_path: Path) -> None:
    document = json.loads(EXAMPLE)
    manifest.dump(manifest.parse(document, folder=tmp_path), tmp_path / "mix.json")
    assert json.loads((tmp_path / "mix.json").read_text()) == document


def test_dump_into_another_folder_points_to_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "saved").mkdir(parents=True)
    (tmp_path / "runs" / "1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    made = manifest.from_inline(
        [
            "a=a.jsonl:1",
            "b=../b.csv:1",
            "c=./saved:1",
            "d=/data/d.arrow:1",
            "e=org/repo:en:1",
            "f=hf://org/f.json:1",
            "g=~/g.csv:1",
        ]
    )
    manifest.dump(made, tmp_path / "runs" / "1" / "mix.json")
    monkeypatch.chdir(tmp_path)
    loaded = manifest.load("runs/1/mix.json")
    assert [spec.path for spec in loaded.sources] == [
        "../../here/a.jsonl",
        "../../b.csv",
        "../../here/saved",
        "/data/d.arrow",
        "org/repo:en",
        "hf://org/f.json",
        "~/g.csv",
    ]
    there = [manifest.source_path(loaded, spec) for spec in loaded.sources]
    assert there == [manifest.source_path(made, spec) for spec in made.sources]
    assert manifest.canonical_bytes(loaded) == manifest.canonical_bytes(made)


def test_dump_into_the_folder_above_keeps_paths_local(tmp_path: Path) -> None:
    (tmp_path / "org").mkdir()
    made = manifest.parse(json.loads(EXAMPLE), folder=tmp_path / "org")
    manifest.dump(made, tmp_path / "mix.json")
    assert [spec.path for spec in manifest.load(tmp_path / "mix.json").sources] == [
        "./org/math.jsonl",
        "./org/code.jsonl",
    ]


def test_failed_dump_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = manifest.parse(EVERYTHING, folder=tmp_path)
    manifest.dump(parsed, tmp_path / "mix.json")
    before = (tmp_path / "mix.json").read_bytes()

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ManifestError, match=r'manifest must be written to a file, but got ".*mix.json": no space left'):
        manifest.dump(manifest.parse(json.loads(EXAMPLE)), tmp_path / "mix.json")
    assert (tmp_path / "mix.json").read_bytes() == before
    assert list(tmp_path.iterdir()) == [tmp_path / "mix.json"]


# --- inline form


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("math=math.jsonl:0.7", ("math", "math.jsonl", 0.7)),
        ("web=C:\\data\\web.jsonl:2", ("web", "C:\\data\\web.jsonl", 2.0)),
        ("web=https://host:8080/a?b=c&d=e:1e-3", ("web", "https://host:8080/a?b=c&d=e", 0.001)),
        ("wiki=org/wiki:20231101.en:train:.5", ("wiki", "org/wiki:20231101.en:train", 0.5)),
        ("a:b=c=d:+3.", ("a:b", "c=d", 3.0)),
        ("two words=my data.csv:1", ("two words", "my data.csv", 1.0)),
    ],
)
def test_inline_source_splits_at_first_equals_and_last_colon(text: str, parts: tuple[str, str, float]) -> None:
    assert split_source(text) == parts


def test_inline_form_has_the_defaults_of_the_command_line() -> None:
    made = manifest.from_inline(["math=m.jsonl:0.7", "code=c.jsonl:0.3"])
    assert (made.version, made.seed, made.exhaustion, made.samples_per_epoch) == (1, 42, "cycle", None)
    assert made.folder == Path.cwd().resolve()


def test_inline_form_is_the_manifest_it_stands_for() -> None:
    inline = manifest.from_inline(["math=math.jsonl:0.7", "code=code.jsonl:0.3"], samples_per_epoch=1000)
    assert inline == manifest.parse(json.loads(EXAMPLE))


def test_inline_form_takes_all_seen() -> None:
    assert manifest.from_inline(["a=a:1", "b=b:1"], samples_per_epoch="all_seen").samples_per_epoch == "all_seen"


# --- where paths point


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("math.jsonl", "{folder}/math.jsonl"),
        ("data/math.parquet", "{folder}/data/math.parquet"),
        ("./org/repo", "{folder}/org/repo"),
        ("../math.csv.gz", "{above}/math.csv.gz"),
        ("/abs/math.csv", "/abs/math.csv"),
        ("saved/train", "{folder}/saved/train"),
        ("saved/trian", "{folder}/saved/trian"),
        ("org/repo", "org/repo"),
        ("org/repo.v2:config:train[:10%]", "org/repo.v2:config:train[:10%]"),
        ("squad:plain", "squad:plain"),
        ("hf://datasets/org/repo/a.jsonl", "hf://datasets/org/repo/a.jsonl"),
        ("C:\\data\\math.jsonl", "C:\\data\\math.jsonl"),
    ],
)
def test_source_path(path: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "mix" / "saved" / "train").mkdir(parents=True)
    parsed = manifest.parse(json.loads(EXAMPLE), folder=tmp_path / "mix")
    spec = parsed.sources[0].model_copy(update={"path": path})
    folder = (tmp_path / "mix").resolve()
    assert manifest.source_path(parsed, spec) == expected.format(folder=folder, above=folder.parent)


def test_source_path_stays_when_the_process_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = manifest.from_inline(["a=a.csv:1", "b=b.csv:1"])
    before = manifest.source_path(made, made.sources[0])
    monkeypatch.chdir(tmp_path)
    assert manifest.source_path(made, made.sources[0]) == before


# --- weights by policy


def test_proportional() -> None:
    assert manifest.resolve_weights(Proportional(policy="proportional"), [1, 2, 5]) == [0.125, 0.25, 0.625]


def test_uniform_leaves_out_empty_sources() -> None:
    assert manifest.resolve_weights(Uniform(policy="uniform"), [1, 0, 99]) == [0.5, 0.0, 0.5]


@pytest.mark.parametrize(
    ("tau", "rows", "expected"),
    [
        (1, [1, 3], [1 / 4, 3 / 4]),
        (2, [100, 400, 2500], [10 / 80, 20 / 80, 50 / 80]),
        (3, [1, 8, 0], [1 / 3, 2 / 3, 0]),
        (0.5, [1, 2], [1 / 5, 4 / 5]),
        (1e12, [1, 2**62], [1 / 2, 1 / 2]),
        (1e-310, [1, 2, 2], [0, 1 / 2, 1 / 2]),
    ],
)
def test_temperature(tau: float, rows: list[int], expected: list[float]) -> None:
    policy = Temperature(policy="temperature", tau=tau)
    assert manifest.resolve_weights(policy, rows) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("rows", "max_epochs", "budget", "given"),
    [
        ([10, 100, 1000], 2, 420, [20, 200, 200]),  # 140 each; 10 rows give 20 at most, 400 left for two
        ([1000, 10, 100], 2, 420, [200, 20, 200]),  # whatever the order of the sources
        ([10, 100, 1000], 1, 300, [10, 100, 190]),  # 100 each; 290 for two, 145 each; 100 rows give 100; 190 left
        ([10, 100, 1000], 2, 30, [10, 10, 10]),  # a small budget caps nobody
        ([10, 100, 1000], 2, 10_000, [20, 200, 2000]),  # a large one caps everybody: proportional
        ([10, 30], 0.5, 20, [5, 15]),
        ([10, 30], 1, None, [10, 30]),  # the budget is 40: 20 each; 10; 30 left
        ([0, 30, 30], 1, 30, [0, 15, 15]),
    ],
)
def test_unimax(rows: list[int], max_epochs: float, budget: int | None, given: list[int]) -> None:
    policy = Unimax(policy="unimax", max_epochs=max_epochs)
    expected = [part / sum(given) for part in given]
    assert manifest.resolve_weights(policy, rows, budget) == pytest.approx(expected, rel=1e-12)


@given(rows=st.lists(st.integers(1, 10**12), min_size=1, max_size=8), max_epochs=st.floats(1, 50), data=st.data())
def test_unimax_repeats_none_beyond_its_passes_and_is_even_below(
    rows: list[int], max_epochs: float, data: st.DataObject
) -> None:
    budget = data.draw(st.integers(1, int(sum(rows) * max_epochs)))
    given = [w * budget for w in manifest.resolve_weights(Unimax(policy="unimax", max_epochs=max_epochs), rows, budget)]
    capped = [n * max_epochs for n in rows]
    assert all(g <= cap * (1 + 1e-9) for g, cap in zip(given, capped, strict=True))
    below = [g for g, cap in zip(given, capped, strict=True) if g < cap * (1 - 1e-9)]
    assert not below or min(below) == pytest.approx(max(given), rel=1e-9)


@pytest.mark.parametrize("rows", [[], [0, 0], [3, -1]])
def test_sizes_that_no_policy_can_weigh(rows: list[int]) -> None:
    with pytest.raises(ManifestError, match="rows must be 0 or more and not all 0") as caught:
        manifest.resolve_weights(Proportional(policy="proportional"), rows)
    assert str(rows) in str(caught.value)


def test_budget_must_be_positive() -> None:
    with pytest.raises(ManifestError, match="budget must be positive, but got 0"):
        manifest.resolve_weights(Unimax(policy="unimax", max_epochs=1), [1, 2], 0)


@given(st.lists(weights, min_size=1, max_size=20))
def test_normalised_sums_to_1_at_any_scale(values: list[float]) -> None:
    assert sum(normalised(values)) == pytest.approx(1, abs=1e-12)
