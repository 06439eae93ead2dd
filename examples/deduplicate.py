"""Finds what is almost the same: in a list, and between corpora and a test set; then mixes the rows that are left."""

import json
import tempfile
from pathlib import Path

from cuvee import Mixture
from cuvee.dedup import Rule, near_duplicates, overlap_matrix
from cuvee.dedup.receipt import deduplicate
from cuvee.manifest import load

DATA = Path(__file__).parent / "data"
FOLDER = Path(tempfile.mkdtemp())
manifest = load(DATA / "mix.json")


def in_a_list() -> None:
    """Show pairs, clusters and the document of each cluster that stays."""
    documents = [
        "The quick brown fox jumps over the lazy dog and then sleeps all day",
        "the quick  brown fox jumps over the lazy dog and then sleeps all day",
        "The quick brown fox jumps over the lazy dog and then sleeps all night long",
        "Something else",
    ]
    found = near_duplicates(documents, threshold=0.7)
    for (one, other), similarity in zip(found.pairs.tolist(), found.similarity.tolist(), strict=True):
        print(f"documents {one} and {other} are alike: {similarity:.2f}")
    print("kept:", *(text for text, kept in zip(documents, found.kept.tolist(), strict=True) if kept), sep="\n  ")


def test_set() -> Path:
    """Write questions to test a model on, some of which it would see in training, and return the file."""
    lines = (DATA / "facts.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines[::12]]
    rows += [{"prompt": "What is the boiling point of water?", "response": "100 degrees at sea level."}]
    file = FOLDER / "test.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return file


if __name__ == "__main__":
    in_a_list()
    sources = {source.name: source.data for source in Mixture.from_manifest(manifest).sources}
    test = test_set()
    tests = [json.loads(line) for line in test.read_text().splitlines()]
    overlap = overlap_matrix(sources, {"test": tests})
    seen = overlap.counts[overlap.names.index("test"), overlap.names.index("facts")]
    print(f"{seen} of {len(tests)} rows of the test are in facts")

    found = deduplicate(manifest, rule=Rule(threshold=0.8), evaluation={"test": str(test)})
    mixture = Mixture.from_manifest(found.write_kept(FOLDER / "kept"))  # as `cuvee dedup --drop` does
    for source in found.receipt()["sources"][:-1]:
        print(f"{source['name']:10} {source['documents']:5,} rows, {source['kept']:5,} stay")
    assert [source.rows for source in mixture.sources] == [len(rows) for rows in found.kept_rows().values()]
    print(f"{sum(source.rows for source in mixture.sources):,} rows are left; ready for cuvee train")
