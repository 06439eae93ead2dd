"""Near-duplicates: pairs, clusters, survivors, overlaps, and every kind of documents they may come in."""

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from cuvee import _core
from cuvee.dedup import NearDuplicates, Rule, estimate_near_duplicate_rate, near_duplicates, overlap_matrix
from cuvee.dedup.local import _SETS, _parts
from cuvee.errors import CuveeError, SourceError, StateError
from near_duplicates import edited_corpus, exact_pairs, jaccard, lower, shingles

xxhash = pytest.importorskip("xxhash")
CORPUS = edited_corpus(700)


def hashes_of(text: str, *, size: int = 5, characters: bool = False, lowercase: bool = True) -> list[int]:
    out = np.zeros(4 * len(text) + 1, np.uint64)
    rule = {"size": size, "characters": characters, "lowercase": lowercase}
    sizes = _core.shingle_sets([text], np.array([0, len(out)]), out, **rule)
    return out[: sizes[0]].tolist()


def same(one: NearDuplicates, other: NearDuplicates) -> bool:
    fields = ("pairs", "similarity", "survivor", "match", "match_similarity")
    return all(np.array_equal(getattr(one, field), getattr(other, field)) for field in fields)


@pytest.mark.parametrize(
    "text", ["The cat  sat\non the mat", "a", "naïve ΣΊΣ\u2003Ⅷ x y z", "x\0y \ud800 b c d e f", "日本 語 " * 9]
)
@pytest.mark.parametrize("rule", [{"size": 2}, {"size": 3, "characters": True}, {"lowercase": False}])
def test_a_shingle_is_the_xxh3_of_its_bytes(text: str, rule: dict) -> None:
    expected = {xxhash.xxh3_64_intdigest(s.encode("utf-8", "surrogatepass")) for s in shingles(text, **rule)}
    assert hashes_of(text, **rule) == sorted(expected)


def test_case_and_spaces_are_those_of_python() -> None:
    for start in range(0, 0x11000, 512):
        points = [chr(c) for c in range(start, start + 512) if c != 0x130]
        expected = {xxhash.xxh3_64_intdigest(lower(c).encode("utf-8", "surrogatepass")) for c in points if c.strip()}
        assert set(hashes_of(" ".join(points), size=1)) == expected
        glued = "a".join(points)
        assert len(hashes_of(glued, size=1, lowercase=False)) == len(set(glued.split()))


def test_finds_every_pair_and_no_other() -> None:
    truth = exact_pairs(CORPUS)
    found = near_duplicates(CORPUS)
    assert len(truth) > 100
    assert dict(zip(map(tuple, found.pairs.tolist()), found.similarity.tolist(), strict=True)) == truth
    assert found.complete
    assert found.rate == len({i for pair in truth for i in pair}) / len(CORPUS) == estimate_near_duplicate_rate(CORPUS)


def test_one_of_each_cluster_stays_and_every_other_one_has_its_match() -> None:
    found = near_duplicates(CORPUS)
    sets = [shingles(text) for text in CORPUS]
    assert sum(map(len, found.clusters)) - len(found.clusters) == (~found.kept).sum()
    for cluster in found.clusters:
        assert found.kept[cluster].sum() == 1
        longest = max(len(CORPUS[i].split()) for i in cluster)
        assert len(CORPUS[found.survivor[cluster[0]]].split()) == longest
        for i in cluster[~found.kept[cluster]]:
            best = max(jaccard(sets[i], sets[j]) for j in cluster if j < i or CORPUS[j] != CORPUS[i])
            assert jaccard(sets[i], sets[found.match[i]]) == found.match_similarity[i] == best
    assert (found.match[found.kept] == -1).all()


def test_the_first_stays_where_it_is_asked_for() -> None:
    found = near_duplicates(CORPUS, keep="first")
    assert [found.survivor[cluster[0]] for cluster in found.clusters] == [cluster[0] for cluster in found.clusters]


def test_threads_and_seeds_change_nothing() -> None:
    assert same(near_duplicates(CORPUS, threads=1), near_duplicates(CORPUS, threads=3))
    assert np.array_equal(near_duplicates(CORPUS, seed=1).pairs, near_duplicates(CORPUS, seed=2).pairs)


def test_order_changes_nothing_but_numbers() -> None:
    shuffled = np.random.default_rng(0).permutation(len(CORPUS))
    found, again = near_duplicates(CORPUS), near_duplicates([CORPUS[i] for i in shuffled])
    assert {tuple(sorted(shuffled[pair])) for pair in again.pairs} == set(map(tuple, found.pairs.tolist()))
    assert sorted(CORPUS[i] for i in np.flatnonzero(found.kept)) == sorted(
        CORPUS[shuffled[i]] for i in np.flatnonzero(again.kept)
    )


def test_another_process_finds_the_same(fresh_python: Callable[..., str]) -> None:
    code = (
        "from near_duplicates import edited_corpus; from cuvee.dedup import near_duplicates;"
        "found = near_duplicates(edited_corpus(700)); print(found.pairs.tolist(), found.survivor.tolist())"
    )
    found = near_duplicates(CORPUS)
    expected = f"{found.pairs.tolist()} {found.survivor.tolist()}"
    tests = str(Path(__file__).parents[1])
    assert fresh_python(f"import sys; sys.path.append({tests!r}); {code}", PYTHONHASHSEED="7").strip() == expected


@pytest.mark.parametrize(
    ("documents", "rate"),
    [
        ([], 0.0),
        (["alone"], 0.0),
        (["", ""], 1.0),
        (["", " \n", "a"], 2 / 3),
        (["", "a"], 0.0),
        (["a b", "A  b", "a b c"], 2 / 3),  # shorter than a shingle: one shingle
        (["a b c d e", "a b c d e f"], 0.0),  # one shingle of two
        (["x\0y", "x\0y", "x"], 2 / 3),
        (["\ud800", "\ud800", "\ud801"], 2 / 3),
    ],
)
def test_rate_of_few_documents(documents: list[str], rate: float) -> None:
    assert estimate_near_duplicate_rate(documents) == pytest.approx(rate)


def test_the_threshold_is_met_by_what_equals_it() -> None:
    base = " ".join(f"a{i}" for i in range(13))  # 9 shingles
    one_more = f"{base} a13"  # 10
    assert near_duplicates([base, one_more], threshold=0.9).similarity.tolist() == [0.9]
    assert len(near_duplicates([base, one_more], threshold=0.91).pairs) == 0
    assert near_duplicates(["a b", "a b", "a"], threshold=1).pairs.tolist() == [[0, 1]]
    assert estimate_near_duplicate_rate(["a", "b", ""], threshold=0) == pytest.approx(2 / 3)


def test_sets_may_be_equal_where_texts_are_not() -> None:
    assert near_duplicates(["a b a b a", "b a b a b"], shingle_size=2, threshold=1).pairs.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1.5}, r"threshold must be a number in \[0.01, 1\], but got 1.5"),
        ({"threshold": math.nan}, "but got nan"),
        ({"threshold": True}, "but got True"),
        ({"shingle_size": 0}, r"shingle_size must be an integer in \[1, 2\*\*31\), but got 0"),
        ({"num_hashes": 0}, "num_hashes must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_a_wrong_setting_is_told(options: dict, message: str) -> None:
    with pytest.raises(CuveeError, match=message):
        estimate_near_duplicate_rate(["a"], **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"shingle": "word"},
            r"shingle must be one of \['words', 'characters'\], but got 'word'; did you mean 'words'",
        ),
        ({"keep": "last"}, "keep must be one of"),
        ({"lowercase": 1}, "lowercase must be True or False"),
        ({"threads": 0}, "threads must be"),
        ({"memory_limit": -1}, "memory_limit must be"),
    ],
)
def test_a_wrong_option_is_told(options: dict, message: str) -> None:
    with pytest.raises(CuveeError, match=message):
        near_duplicates(["a"], **options)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (["a", None], "source 'corpus', document 1: must be a string, but got None"),
        (["a", 7], "document 1: must be a string, but got 7"),
        ([b"a"], "must be a string, but got b'a'"),
        (iter(["a", None]), "document 1: must be a string, but got None"),
        ("text", "documents must be in a list, dataset or stream, but got str"),
        (7, "but got int"),
        ([{"id": 1}], "documents must be in a column text"),
        ([{"text": None}], "row 0: must hold a string, but got None"),
        ([{"text": "a"}, {}], "row 1: must have 'text', but got {}"),
    ],
)
def test_documents_that_are_no_strings_are_told(documents: object, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        near_duplicates(documents)


@pytest.mark.parametrize("hashes", [1, 16, 64, 200])
@pytest.mark.parametrize("threshold", [0.01, 0.3, 0.8, 1.0])
def test_bands_miss_at_most_one_in_a_thousand(hashes: int, threshold: float) -> None:
    rule = Rule(threshold=threshold, num_hashes=hashes)
    bands, rows = rule.bands
    assert rule.missed(bands, rows) <= 1e-3
    assert bands * rows <= hashes or rows == 1


def test_many_copies_are_one_cluster_without_all_their_pairs() -> None:
    found = near_duplicates(["the same text again"] * 20_000 + ["another one"])
    assert found.survivor.tolist() == [0] * 20_000 + [20_000]
    assert len(found.pairs) == 19_999
    assert not found.complete
    assert (found.match[1:20_000] == 0).all()


def test_many_that_are_almost_equal_are_one_cluster() -> None:
    words = [f"w{i}" for i in range(100)]
    documents = [" ".join([*words[: i % 100], f"x{i}", *words[i % 100 + 1 :]]) for i in range(1000)]
    found = near_duplicates(documents)
    assert len(found.clusters) == 1
    assert found.rate == 1
    assert not found.complete
    assert len(found.pairs) < 100 * len(documents)
    shuffled = np.random.default_rng(1).permutation(1000)
    again = near_duplicates([documents[i] for i in shuffled])
    assert {tuple(sorted(shuffled[pair])) for pair in again.pairs} == set(map(tuple, found.pairs.tolist()))


def test_characters_find_what_words_do_not() -> None:
    one, other = "internationalisation of the documentation", "internationalization of the documentation"
    assert len(near_duplicates([one, other], threshold=0.6).pairs) == 0
    found = near_duplicates([one, other], threshold=0.6, shingle="characters", shingle_size=3)
    assert found.similarity.tolist() == [jaccard(*(shingles(t, size=3, characters=True) for t in (one, other)))]


def test_every_form_of_documents_gives_the_same(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pa = pytest.importorskip("pyarrow")
    texts = [text if i % 3 else f"{text} É 日本" for i, text in enumerate(CORPUS)]
    rows = [{"id": i, "text": text} for i, text in enumerate(texts)]
    dataset = datasets.Dataset.from_list(rows)
    half = pa.chunked_array([pa.array(texts[:300]), pa.array(texts[300:])])
    prompts = datasets.Dataset.from_list([{"prompt": text, "response": ""} for text in texts])
    messages = [{"messages": [{"role": "user", "content": text}]} for text in texts]

    def stream() -> Iterator[str]:
        yield from texts

    expected = near_duplicates(texts)
    forms = [tuple(texts), rows, dataset, dataset.data.table, half, pa.array(texts), prompts, messages, stream()]
    for form in forms:
        assert same(near_duplicates(form), expected), type(form)
    assert same(near_duplicates(dataset.rename_column("text", "body")), expected)  # the only column of texts
    assert same(near_duplicates(dataset.add_column("b", texts[::-1]), column="text"), expected)
    with pytest.raises(SourceError, match="did you mean 'text'"):
        near_duplicates(dataset, column="texts")
    with pytest.raises(SourceError, match="document 1: must be a string, but got None"):
        near_duplicates(pa.array(["a", None]))
    with pytest.raises(SourceError, match="documents must be strings, but got Arrow values of type int64"):
        near_duplicates(pa.array([1, 1]))


def test_arrays_in_files_give_the_same(tmp_path: Path) -> None:
    assert same(near_duplicates(CORPUS, memory_limit=0), near_duplicates(CORPUS))


@pytest.mark.parametrize("shingles", [1, 3000, 10**9])
def test_pairs_are_verified_in_parts_of_any_size(shingles: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, told = near_duplicates(CORPUS), []
    monkeypatch.setattr("cuvee.dedup.local._SETS", shingles)
    for form in (CORPUS, iter(CORPUS)):
        told.clear()
        found = near_duplicates(form, threads=2, progress=lambda *told_now: told.append(told_now))
        assert same(found, expected)
        parts = [done for stage, done, _ in told if stage == "pairs"]
        assert parts == sorted(set(parts))
        assert parts[-1] == told[-1][2] > 100
        assert len(parts) == 1 if shingles == 10**9 else len(parts) > 5


def test_parts_keep_linked_documents_together() -> None:
    pairs = np.array([[0, 9], [2, 4], [3, 9], [4, 7], [5, 6]])
    assert _parts(pairs[:0], np.ones(10, np.int64)) == []
    parts = _parts(pairs, np.full(10, _SETS // 2))
    assert [(documents.tolist(), which.tolist()) for documents, which in parts] == [
        ([0, 3, 9], [0, 2]),
        ([2, 4, 7], [1, 3]),
        ([5, 6], [4]),
    ]
    parts = _parts(pairs, np.full(10, _SETS // 4))
    assert [documents.tolist() for documents, _ in parts] == [[0, 2, 3, 4, 7, 9], [5, 6]]


def test_work_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = edited_corpus(700) * 30  # several blocks

    class StoppedError(Exception):
        pass

    def stop_at(stage: str, done: int) -> Callable[[str, int, int], None]:
        def tell(now: str, count: int, of: int) -> None:
            if now == stage and count >= done:
                raise StoppedError

        return tell

    seen: list[tuple[str, int]] = []
    monkeypatch.setattr("cuvee.dedup.local._MARKED", 1)
    monkeypatch.setattr("cuvee.dedup.local._SETS", 3000)
    with pytest.raises(StoppedError):
        near_duplicates(documents, work_folder=tmp_path, progress=stop_at("sketches", 16_000))
    with pytest.raises(StoppedError):
        near_duplicates(documents, work_folder=tmp_path, progress=stop_at("pairs", 50))
    found = near_duplicates(
        documents, work_folder=tmp_path, progress=lambda stage, done, of: seen.append((stage, done))
    )
    assert {stage for stage, _ in seen} == {"pairs"}
    assert seen[0][1] > 50
    assert same(found, near_duplicates(documents))
    (tmp_path / "work.json").write_text((tmp_path / "work.json").read_text().replace('"format": 2', '"format": 1'))
    with pytest.raises(StateError, match="work folder must be that of the same documents and settings"):
        near_duplicates(documents, work_folder=tmp_path)
    with pytest.raises(StateError, match="work folder must be that of the same documents and settings"):
        near_duplicates(documents, work_folder=tmp_path, shingle_size=4)
    with pytest.raises(StateError, match="work folder must be"):
        near_duplicates(documents[1:], work_folder=tmp_path)


@pytest.mark.parametrize("name", ["keys", "digests", "shingles", "similarity", "sets"])
@pytest.mark.parametrize("left", [None, 0.5])
def test_work_whose_file_is_gone_is_done_again(tmp_path: Path, name: str, left: float | None) -> None:
    documents = edited_corpus(2500)
    expected = near_duplicates(documents, work_folder=tmp_path)
    file = tmp_path / f"{name}.bin"
    if left is None:
        file.unlink()
    else:
        os.truncate(file, int(file.stat().st_size * left))

    class StoppedError(Exception):
        pass

    def stop(_stage: str, _done: int, _of: int) -> None:
        raise StoppedError

    with suppress(StoppedError):  # before it can note anything
        near_duplicates(documents, work_folder=tmp_path, progress=stop)
    assert same(near_duplicates(documents, work_folder=tmp_path), expected)


@pytest.mark.parametrize("content", ["", "[]", "{}", "null", '{"identity', "\xff", '{"identity": null, "done": {}}'])
def test_a_folder_with_other_notes_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "work.json").write_text(content, encoding="latin-1")
    with pytest.raises(StateError, match="work folder must be that of the same documents and settings"):
        near_duplicates(["a", "b"], work_folder=tmp_path)


@pytest.mark.parametrize("done", [[], {"sketches": "1"}, {"sketches": None}])
def test_a_folder_with_broken_notes_is_told(tmp_path: Path, done: object) -> None:
    near_duplicates(["a", "b"], work_folder=tmp_path)
    notes = tmp_path / "work.json"
    notes.write_text(json.dumps(json.loads(notes.read_text()) | {"done": done}))
    with pytest.raises(StateError, match="work folder must be that of the same documents and settings"):
        near_duplicates(["a", "b"], work_folder=tmp_path)


def test_a_work_folder_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match=r"work folder must be a folder, but got '.*file'"):
        near_duplicates(["a"], work_folder=tmp_path / "file")


def test_a_stream_cannot_go_on(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="must have a content that can be identified"):
        near_duplicates(iter(["a"]), work_folder=tmp_path)
    assert list(tmp_path.iterdir()) == []  # nothing was read for nothing


def test_overlap_counts_documents_of_each_source_in_each_other() -> None:
    long = [" ".join(f"{letter}{i}" for i in range(30)) for letter in "abcd"]
    found = overlap_matrix(
        {"one": [long[0], long[1], f"{long[0]} x"], "two": [long[0], long[0], "short"]}, {"test": [long[1], "short"]}
    )
    assert found.names == ("one", "two", "test")
    assert found.counts.tolist() == [[2, 2, 1], [2, 2, 1], [1, 1, 0]]
    assert found.shares[0].tolist() == pytest.approx([2 / 3, 2 / 3, 1 / 3])
    with pytest.raises(CuveeError, match="evaluation must have other names than sources"):
        overlap_matrix({"one": ["a"]}, {"one": ["a"]})
    with pytest.raises(CuveeError, match="sources must be a mapping of names to documents, but got a list"):
        overlap_matrix([["a"], ["b"]])  # type: ignore[arg-type]
    assert overlap_matrix({"one": [], "two": ["a"]}).shares.tolist() == [[0, 0], [0, 0]]


def test_heavy_packages_stay_out(fresh_python: Callable[..., str]) -> None:
    code = "import sys, cuvee.dedup; print(*(n for n in ('ray', 'pyarrow', 'datasets', 'torch') if n in sys.modules))"
    assert fresh_python(code).split() == []
