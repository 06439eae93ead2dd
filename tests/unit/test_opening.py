"""From a manifest to sources: what identifies a source, and under what its token counts are kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from cuvee import Mixture

ROWS = [{"text": " ".join(["word"] * (row % 7 + 1)), "more": row} for row in range(20)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def opened(corpus: Path, *sources: dict[str, Any], **options: Any) -> Mixture:
    """Return the mixture of several sources, all of the same file."""
    specs = [{"name": f"s{k}", "path": str(corpus), "weight": 1} | source for k, source in enumerate(sources)]
    document = {"version": 2, "seed": 1, "exhaustion": "stop", "sources": specs}
    manifest = corpus.with_name("mix.json")
    manifest.write_text(json.dumps(document))
    return Mixture.from_manifest(manifest, **options)


def words(text: str) -> list[str]:
    return text.split()


def test_a_whole_file_has_the_identity_of_its_bytes(corpus: Path) -> None:
    mixture = opened(corpus, {}, {})
    assert mixture.sources[0].fingerprint == mixture.sources[1].fingerprint is not None


def test_splits_of_one_size_have_identities_and_lengths_of_their_own(corpus: Path) -> None:
    parts = [{"split": "train[:10]"}, {"split": "train[10:]"}, {"columns": ["text"]}, {}]
    mixture = opened(corpus, *parts, tokenizer=words)
    assert len({source.fingerprint for source in mixture.sources}) == len(parts)
    lengths = [source.lengths.tolist() for source in mixture.sources if source.lengths is not None]
    expected = [len(row["text"].split()) for row in ROWS]
    assert lengths == [expected[:10], expected[10:], expected, expected]


def test_a_loader_makes_other_content(corpus: Path) -> None:
    def doubled(rows: Any, name: str) -> list[dict[str, Any]]:
        return [{"text": f"{row['text']} {row['text']}"} for row in rows]

    plain, loaded = opened(corpus, {}, {}), opened(corpus, {}, {}, loader=doubled)
    assert plain.sources[0].fingerprint != loaded.sources[0].fingerprint is not None
