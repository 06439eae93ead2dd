"""Sources, stages and mixtures: what they accept, what they say about what they refuse, what their hash covers."""

import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuvee import ManifestError, Mixture, MixtureError, Plan, Source, SourceError, Stage, StateError

datasets = pytest.importorskip("datasets")


def pair(**settings: Any) -> Mixture:
    return Mixture([Source("a", rows=10, weight=3), Source("b", rows=20)], **settings)


def test_source_counts_the_rows_of_its_data() -> None:
    assert Source("a", ["x", "y", "z"]).rows == 3
    assert Source("a", np.zeros((4, 2)), rows=4).rows == 4


def test_lengths_are_kept_as_read_only_int32() -> None:
    source = Source("a", rows=3, lengths=[5, 0, 7])
    assert source.lengths is not None
    assert source.lengths.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        source.lengths[0] = 1


def test_lengths_given_as_an_array_stay_writable_for_their_owner() -> None:
    lengths = np.array([5, 0, 7], dtype=np.int32)
    source = Source("a", rows=3, lengths=lengths)
    lengths[0] = 6
    assert source.lengths is not None
    assert source.lengths.tolist() == [5, 0, 7]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Mixture(None), "sources must be Source objects, but got None"),  # type: ignore[arg-type]
        (lambda: Mixture(5), "sources must be Source objects, but got 5"),  # type: ignore[arg-type]
        (lambda: pair(stages=5), "stages must be Stage objects, but got 5"),
    ],
)
def test_what_is_no_sequence_is_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(MixtureError, match=says):
        make()


def test_caps_follow_policy_and_max_epochs() -> None:
    once, twice = Source("a", rows=10), Source("a", rows=10, max_epochs=2)
    assert (once.cap("stop"), once.cap("renormalize"), once.cap("cycle")) == (10, 10, 2**63 - 1)
    assert (twice.cap("stop"), twice.cap("cycle")) == (20, 20)


class Stream:
    """Iterable only, like a streaming dataset."""

    def __iter__(self) -> Any:
        return iter(())


BAD_SOURCES: list[tuple[str, Callable[[], object], str]] = [
    ("name empty", lambda: Source("", rows=1), "''"),
    ("name spaces", lambda: Source(" a", rows=1), "' a'"),
    ("name control", lambda: Source("a\n", rows=1), r"'a\\n'"),
    ("name no text", lambda: Source(7, rows=1), "got 7"),  # type: ignore[arg-type]
    ("weight nan", lambda: Source("a", rows=1, weight=math.nan), "'a': weight .* got nan"),
    ("weight inf", lambda: Source("a", rows=1, weight=math.inf), "got inf"),
    ("weight negative", lambda: Source("a", rows=1, weight=-1), "got -1"),
    ("weight bool", lambda: Source("a", rows=1, weight=True), "got True"),
    ("weight text", lambda: Source("a", rows=1, weight="0.5"), "got '0.5'"),  # type: ignore[arg-type]
    ("weight huge", lambda: Source("a", rows=1, weight=10**400), "finite"),
    ("no rows", lambda: Source("a"), "rows must be given"),
    ("rows negative", lambda: Source("a", rows=-1), "got -1"),
    ("rows float", lambda: Source("a", rows=2.0), "got 2.0"),  # type: ignore[arg-type]
    ("rows bool", lambda: Source("a", rows=True), "got True"),
    ("rows too many", lambda: Source("a", rows=2**62 + 1), r"\[0, 4611686018427387905\)"),
    ("rows differ", lambda: Source("a", [1, 2], rows=3), r"len\(data\) = 2, but got 3"),
    ("iterable only", lambda: Source("a", Stream()), "map-style dataset.* got Stream"),
    ("lengths float", lambda: Source("a", rows=1, lengths=[1.5]), "dtype float64"),
    ("lengths bool", lambda: Source("a", rows=1, lengths=[True]), "dtype bool"),
    ("lengths shape", lambda: Source("a", rows=2, lengths=[1]), r"\(2,\).*got \(1,\)"),
    ("lengths 2-D", lambda: Source("a", rows=1, lengths=[[1]]), r"got \(1, 1\)"),
    ("lengths negative", lambda: Source("a", rows=2, lengths=[4, -1]), "from -1 to 4"),
    ("lengths big", lambda: Source("a", rows=1, lengths=[2**31]), "2147483648"),
    ("max_epochs zero", lambda: Source("a", rows=1, max_epochs=0), "max_epochs .* got 0"),
    ("max_epochs float", lambda: Source("a", rows=1, max_epochs=1.5), "got 1.5"),  # type: ignore[arg-type]
    ("cap too large", lambda: Source("a", rows=2**62, max_epochs=2), "below 2\\*\\*63"),
    ("fingerprint empty", lambda: Source("a", rows=1, fingerprint=""), "fingerprint .* got ''"),
    ("stage at", lambda: Stage(-1, {"a": 1}), "got -1"),
    ("stage at 0", lambda: Stage(0, {"a": 1}), "at least 1, but got 0; give weights .* to the sources"),
    ("stage weights", lambda: Stage(1, [1]), r"got \[1\]"),  # type: ignore[arg-type]
    ("stage interpolation", lambda: Stage(1, {"a": 1}, "linar"), "did you mean 'linear'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "says"), [row[1:] for row in BAD_SOURCES], ids=[row[0] for row in BAD_SOURCES])
def test_bad_source_is_refused_with_its_value(make: Callable[[], object], says: str) -> None:
    with pytest.raises(MixtureError, match=says):
        make()


BAD_MIXTURES: list[tuple[str, Callable[[], object], str]] = [
    ("no source", lambda: Mixture([]), r"got \[\]"),
    ("no Source", lambda: Mixture(["a"]), "got 'a'"),  # type: ignore[list-item]
    ("same name", lambda: Mixture([Source("a", rows=1), Source("a", rows=2)]), "unique, but got 'a' twice"),
    ("empty", lambda: Mixture([Source("a", rows=1), Source("none", rows=0)]), "'none'.*allow_empty"),
    ("all zero", lambda: Mixture([Source(n, rows=1, weight=0) for n in "ab"]), r"got \[0.0, 0.0\]"),
    (
        "zero but empty",
        lambda: Mixture([Source("a", rows=1, weight=0), Source("b", rows=0)], allow_empty=True),
        "above 0",
    ),
    ("seed negative", lambda: pair(seed=-1), "seed .* got -1"),
    ("seed too big", lambda: pair(seed=2**63), r"\[0, 2\*\*63\)"),
    ("seed float", lambda: pair(seed=1.0), "got 1.0"),
    ("exhaustion", lambda: pair(exhaustion="cycles"), "did you mean 'cycle'"),
    ("shuffle", lambda: pair(shuffle_within_sources="no"), "True or False, but got 'no'"),
    ("allow_empty", lambda: pair(allow_empty=1), "True or False, but got 1"),
    ("unit", lambda: pair(unit="token"), "did you mean 'tokens'"),
    ("window 0", lambda: pair(window=0), "window .* got 0"),
    ("window big", lambda: pair(window=65537), "got 65537"),
    ("interval", lambda: pair(control_interval=0), "control_interval .* got 0"),
    ("epoch 0", lambda: pair(samples_per_epoch=0), "samples_per_epoch .* got 0"),
    ("epoch text", lambda: pair(samples_per_epoch="all"), "'all_seen'.* got 'all'"),
    ("epoch with stop", lambda: pair(exhaustion="stop", samples_per_epoch=5), "5 with 'stop'"),
    ("max_length 0", lambda: pair(max_length=0), "max_length .* got 0"),
    ("lengths unknown", lambda: pair(max_length=5), "'a': lengths .* max_length=5, but got None"),
    ("tokens unknown", lambda: pair(unit="tokens"), "'a': lengths .*unit=\"tokens\", but got None"),
    (
        "no tokens",
        lambda: Mixture([Source("a", rows=2, lengths=[9, 9])], unit="tokens", max_length=5),
        "'a': .*max_length=5, but got values from 9 to 9",
    ),
    ("stage type", lambda: pair(stages=[{"at": 3}]), "Stage objects"),
    ("stage missing", lambda: pair(stages=[Stage(3, {"a": 1})]), "none for 'b'"),
    ("stage unknown", lambda: pair(stages=[Stage(3, {"a": 1, "bb": 2})]), "'bb'; did you mean 'b'"),
    ("stage zero", lambda: pair(stages=[Stage(3, {"a": 0, "b": 0})]), r"stage at 3.*got \[0.0, 0.0\]"),
    ("stage nan", lambda: pair(stages=[Stage(3, {"a": 0, "b": math.nan})]), "got nan"),
    ("unsorted", lambda: pair(stages=[Stage(5, {"a": 1, "b": 1}), Stage(5, {"a": 1, "b": 2})]), r"got \[5, 5\]"),
]


@pytest.mark.parametrize(("make", "says"), [row[1:] for row in BAD_MIXTURES], ids=[row[0] for row in BAD_MIXTURES])
def test_bad_mixture_is_refused_with_its_value(make: Callable[[], object], says: str) -> None:
    with pytest.raises(MixtureError, match=says):
        make()


def test_data_with_the_reserved_field_is_refused_at_once() -> None:
    for data in ([{"x": 1, "__cuvee_meta__": {}}], datasets.Dataset.from_dict({"x": [1], "__cuvee_meta__": [2]})):
        with pytest.raises(SourceError, match="source 'bad': a row must not have the reserved field '__cuvee_meta__'"):
            Source("bad", data)


def test_data_that_cannot_share_a_batch_is_refused_at_once() -> None:
    numbers, texts = Source("numbers", [{"x": 1}]), Source("texts", datasets.Dataset.from_dict({"x": ["1"]}))
    with pytest.raises(SourceError, match="'numbers' and 'texts': column 'x' must have the same type"):
        Mixture([numbers, texts])
    with pytest.raises(SourceError, match="'numbers' and 'other': must share a column"):
        Mixture([numbers, Source("other", [{"y": 1}])])


def test_data_whose_first_row_cannot_be_read_is_refused_at_once() -> None:
    class Broken(list[Any]):
        def __getitem__(self, row: Any) -> Any:
            raise RuntimeError("no such shard")

    with pytest.raises(SourceError, match="source 'bad': row 0 must be readable, but got RuntimeError: no such shard"):
        Source("bad", Broken([1]))


def test_checking_data_reads_one_row_and_imports_nothing_heavy(fresh_python: Callable[[str], str]) -> None:
    code = """
import sys, cuvee
class Rows(list):
    def __getitem__(self, row):
        assert row == 0
        return super().__getitem__(row)
cuvee.Mixture([cuvee.Source(name, Rows([{"x": 1}] * 1000)) for name in "ab"])
print(*(name for name in ("datasets", "pyarrow", "torch", "rich") if name in sys.modules))
"""
    assert fresh_python(code).split() == []


def test_weights_are_normalised_whatever_their_size() -> None:
    for scale in (1e-300, 1.0, 1e308):
        mixture = Mixture([Source("a", rows=1, weight=scale), Source("b", rows=1, weight=scale / 4)])
        assert mixture.weights.tolist() == [0.8, 0.2]


def test_weights_need_not_sum_to_one_exactly() -> None:
    tenth = Mixture([Source(str(i), rows=1, weight=0.1) for i in range(10)])
    assert math.fsum(tenth.weights) == pytest.approx(1, abs=1e-15)
    assert len(Mixture([Source(str(i), rows=1, weight=0.5 if i == 0 else 0.05) for i in range(11)]).names) == 11


def test_an_empty_source_has_no_share() -> None:
    mixture = Mixture([Source("a", rows=1), Source("none", rows=0)], allow_empty=True)
    assert mixture.weights.tolist() == [1.0, 0.0]


def test_default_epoch_is_the_sum_of_rows() -> None:
    assert pair().samples_per_epoch == 30
    assert pair(exhaustion="stop").samples_per_epoch is None


def test_spec_is_json_and_says_what_determines_the_order() -> None:
    spec = json.loads(json.dumps(pair(stages=[Stage(7, {"a": 1, "b": 3}, "cosine")]).spec()))
    assert spec["sources"][0] == {
        "name": "a",
        "rows": 10,
        "cap": 2**63 - 1,
        "fingerprint": None,
        "lengths": None,
        "weight": 0.75,
    }
    assert spec["stages"] == [{"at": 7, "interpolation": "cosine", "weights": [0.25, 0.75]}]


def test_spec_hash_ignores_what_does_not_matter() -> None:
    same = Mixture([Source("a", list(range(10)), 6), Source("b", list(range(20)), 2)])
    assert same.spec_hash == pair().spec_hash
    assert len(same.spec_hash) == 32


def pair_of_lengths(longest: int = 3, **settings: Any) -> Mixture:
    lengths = [1] * 9 + [longest]
    return Mixture(
        [Source("a", rows=10, weight=3, lengths=lengths), Source("b", rows=20, lengths=[1] * 20)], **settings
    )


def test_lengths_that_are_only_counted_are_not_part_of_the_contract() -> None:
    assert pair_of_lengths().spec_hash == pair().spec_hash
    plan = Plan.load_state_dict(pair_of_lengths(), pair().plan().state_dict())
    assert plan.lengths_of(plan.draws(0, 30)) is not None
    assert Plan.load_state_dict(pair(), plan.state_dict()).plan_hash == plan.plan_hash


def test_lengths_that_decide_are_part_of_the_contract() -> None:
    state = pair_of_lengths(max_length=5).plan().state_dict()
    with pytest.raises(StateError, match="source 'a': lengths must be"):
        Plan.load_state_dict(pair_of_lengths(max_length=5, longest=4), state)


def test_a_source_that_joined_is_found_again_with_or_without_lengths() -> None:
    plan = pair(samples_per_epoch=640).plan()
    joined = Source("c", rows=3, lengths=[1, 2, 3])
    plan.update([1, 1, 1], at=64, add=[joined])
    state = plan.state_dict()
    for add in ([], [joined], [Source("c", rows=3)]):
        loaded = Plan.load_state_dict(pair(samples_per_epoch=640), state, add=add)
        assert loaded.schedule_hash() == plan.schedule_hash()


CHANGES: dict[str, Callable[[], Mixture]] = {
    "seed": lambda: pair(seed=1),
    "policy": lambda: pair(exhaustion="stop"),
    "window": lambda: pair(window=32),
    "shuffle": lambda: pair(shuffle_within_sources=False),
    "epoch": lambda: pair(samples_per_epoch=31),
    "interval": lambda: pair(control_interval=4095),
    "stages": lambda: pair(stages=[Stage(1, {"a": 3, "b": 1})]),
    "name": lambda: Mixture([Source("A", rows=10, weight=3), Source("b", rows=20)]),
    "rows": lambda: Mixture([Source("a", rows=11, weight=3), Source("b", rows=20)], samples_per_epoch=30),
    "weight": lambda: Mixture([Source("a", rows=10, weight=3.0000001), Source("b", rows=20)]),
    "cap": lambda: Mixture([Source("a", rows=10, weight=3, max_epochs=1), Source("b", rows=20)]),
    "fingerprint": lambda: Mixture([Source("a", rows=10, weight=3, fingerprint="0"), Source("b", rows=20)]),
    "limit": lambda: pair_of_lengths(max_length=5),
    "lengths": lambda: pair_of_lengths(max_length=5, longest=4),
    "unit": lambda: pair_of_lengths(unit="tokens"),
    "order": lambda: Mixture([Source("b", rows=20), Source("a", rows=10, weight=3)]),
}


def test_spec_hash_covers_everything_that_matters() -> None:
    hashes = {name: make().spec_hash for name, make in CHANGES.items()}
    assert len({pair().spec_hash, *hashes.values()}) == len(hashes) + 1


def test_mixture_survives_pickling() -> None:
    mixture = pair(stages=[Stage(1, {"a": 3, "b": 1})])
    mixture.plan()
    copy = pickle.loads(pickle.dumps(mixture))
    assert copy.spec_hash == mixture.spec_hash
    assert copy.plan().schedule_hash() == mixture.plan().schedule_hash()


def test_a_mixture_of_objects_has_no_manifest(tmp_path: Any) -> None:
    with pytest.raises(MixtureError, match=r"\['a', 'b'\] have no paths"):
        pair().to_manifest(tmp_path / "m.json")


def manifest_files(folder: Any) -> Any:
    for name, rows in (("math", 7), ("code", 3)):
        lines = [
            json.dumps({"prompt": f"{name} {i}", "response": "x " * i, "tokens": list(range(i + 1))})
            for i in range(rows)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    document = {
        "version": 1,
        "seed": 42,
        "exhaustion": "cycle",
        "sources": [
            {"name": "math", "path": "math.jsonl", "weight": 0.7},
            {"name": "code", "path": "code.jsonl", "weight": 0.3},
        ],
    }
    (folder / "mix.json").write_text(json.dumps(document))
    return folder / "mix.json"


def test_manifest_gives_a_mixture_and_back(tmp_path: Any) -> None:
    mixture = Mixture.from_manifest(manifest_files(tmp_path))
    assert mixture.names == ("math", "code")
    assert mixture.sources[0].rows == 7
    assert mixture.sources[0].fingerprint is not None
    mixture.to_manifest(tmp_path / "again.json")
    assert Mixture.from_manifest(tmp_path / "again.json").spec_hash == mixture.spec_hash


def test_spec_hash_follows_content_not_place(tmp_path: Any) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    one = Mixture.from_manifest(manifest_files(first)).spec_hash
    assert Mixture.from_manifest(manifest_files(second)).spec_hash == one
    text = (second / "math.jsonl").read_text()
    (second / "math.jsonl").write_text(text.replace("math 3", "math 4"))
    assert Mixture.from_manifest(second / "mix.json").spec_hash != one


def test_inline_sources_equal_the_manifest(tmp_path: Any) -> None:
    manifest = manifest_files(tmp_path)
    inline = [f"math={tmp_path / 'math.jsonl'}:0.7", f"code={tmp_path / 'code.jsonl'}:0.3"]
    assert Mixture.from_cli(inline).spec_hash == Mixture.from_manifest(manifest).spec_hash


def test_manifest_version_2_counts_tokens_and_resolves_weights(tmp_path: Any) -> None:
    path = manifest_files(tmp_path)
    document = json.loads(path.read_text()) | {"version": 2, "unit": "tokens", "weights": {"policy": "proportional"}}
    for source in document["sources"]:
        del source["weight"]
    path.write_text(json.dumps(document))
    mixture = Mixture.from_manifest(path, length_column="tokens")
    assert mixture.unit == "tokens"
    assert mixture.sources[1].lengths is not None
    assert mixture.sources[1].lengths.tolist() == [1, 2, 3]
    assert mixture.weights.tolist() == pytest.approx([28 / 34, 6 / 34])


def test_a_manifest_may_be_given_as_its_content(tmp_path) -> None:
    path = manifest_files(tmp_path)
    document = json.loads(path.read_text())
    for source in document["sources"]:
        source["path"] = str(tmp_path / source["path"])
    assert Mixture.from_manifest(document).spec_hash == Mixture.from_manifest(path).spec_hash
    with pytest.raises(ManifestError, match="seed"):
        Mixture.from_manifest({"version": 1})
