"""A search over a manifest's sources: their sizes, and proxies that repeat them as a run of so many rows does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cuvee.cli import main
from cuvee.errors import MixtureError, StateError
from cuvee.manifest import load
from cuvee.search.from_manifest import PROXIES, ManifestSearch
from cuvee.search.proxy import Proxy
from cuvee.search.source_domains import domains_of

TEXT = "a line of some words, "
TINY = 16 * 64  # tokens of a step of the proxy


def written(folder: Path, sources: Mapping[str, list[str]]) -> Path:
    """Write sources of texts and a manifest of them; return its path."""
    for name, texts in sources.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    document = {
        "version": 1,
        "seed": 1,
        "exhaustion": "cycle",
        "sources": [{"name": name, "path": f"{name}.jsonl", "weight": 1} for name in sources],
    }
    (folder / "mix.json").write_text(json.dumps(document))
    return folder / "mix.json"


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a manifest of a source of 300 rows of 221 tokens and one of 1,200, and work in its folder."""
    monkeypatch.chdir(tmp_path)
    return written(tmp_path, {"small": [TEXT * 10] * 300, "large": [TEXT * 10] * 1200})


def test_rows_of_too_many_tokens_are_told_as_they_were_given(manifest: Path) -> None:
    with pytest.raises(MixtureError, match=r"--target-rows must be of fewer than 2\*\*63 tokens, but got 4,611,"):
        ManifestSearch(manifest=manifest, budget=4, target_rows=2**62).plan()


def test_sources_too_small_for_a_target_tell_both_cures(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["search", str(manifest), "--budget", "4", "--proxy-steps", "16", "--target-rows", str(10**15)])
    assert code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "--proxy-steps must be at least" in told
    assert told.endswith("but got 16; give more, or lower --target-rows")


def test_one_row_is_told_as_one(manifest: Path) -> None:
    proxy = proxy_of(ManifestSearch(manifest=manifest, budget=4, proxy_steps=1, target_rows=1))
    assert "about 1 row, and repeat" in proxy.remarks[0]


def proxy_of(search: ManifestSearch) -> Proxy:
    score = search.plan().score
    assert isinstance(score, Proxy)
    return score


def test_proxies_repeat_sources_as_a_run_of_so_many_rows(manifest: Path) -> None:
    proxy = proxy_of(ManifestSearch(manifest=manifest, budget=4, proxy_steps=10, target_rows=1000))
    tokens_of_row = proxy.domains[0].whole / 300
    assert tokens_of_row == pytest.approx(len(TEXT) * 10, abs=2)
    assert proxy.settings.target_tokens == round(1000 * tokens_of_row)
    part = 10 * TINY / (1000 * tokens_of_row)
    windows = [domain.training_windows(65) for domain in proxy.domains]
    assert windows == [round(part * rows * tokens_of_row / 64) for rows in (300, 1200)]
    assert "about 1,000 rows" in proxy.remarks[0]


def test_without_rows_of_the_run_all_is_as_it_was(manifest: Path) -> None:
    plan = ManifestSearch(manifest=manifest, budget=4, proxy_steps=10).plan()
    assert plan.settings["proxy settings"] == PROXIES["tiny"]
    proxy = proxy_of(ManifestSearch(manifest=manifest, budget=4, proxy_steps=10))
    assert proxy.repetition is None
    assert all(domain.part == 1 for domain in proxy.domains)


def test_a_study_is_not_gone_on_with_for_another_run(manifest: Path, tmp_path: Path) -> None:
    storage = f"journal:{tmp_path}/study.log"
    plans = [
        ManifestSearch(manifest=manifest, budget=4, proxy_steps=10, target_rows=n).plan() for n in (None, 900, 901)
    ]
    study = plans[1].open(storage, "study")
    study.trials.plan(plans[1].course.due([]))
    assert study.trials.claim(study.slots()[0], study.worker)
    assert study.trials.finish(study.slots()[0], np.ones(len(plans[1].losses)), seconds=0.1)
    plans[1].open(storage, "study")
    for other in (plans[0], plans[2]):
        with pytest.raises(StateError, match="proxy settings"):
            other.open(storage, "study")


def test_where_nothing_is_thinned_rows_of_the_run_serve_the_cap_alone(manifest: Path) -> None:
    (manifest.parent / "score.py").write_text(
        "def score(weights, budget, seed):\n    return {n: 1.0 for n in weights}\n"
    )
    for given in ({"score": "score.py:score"}, {"target_steps": 400}):
        with pytest.raises(MixtureError, match="--target-rows must come with --max-repetition where --score or"):
            ManifestSearch(manifest=manifest, budget=4, target_rows=1000, **given)
        plan = ManifestSearch(manifest=manifest, budget=4, target_rows=1000, max_repetition=2, **given).plan()
        assert plan.space.upper.tolist() == pytest.approx([0.6, 1])
        assert getattr(plan.score, "repetition", None) is None


def test_both_the_cap_and_the_proxies_follow_the_rows_of_the_run(manifest: Path) -> None:
    plan = ManifestSearch(manifest=manifest, budget=4, proxy_steps=10, target_rows=1000, max_repetition=2).plan()
    assert plan.space.upper.tolist() == pytest.approx([0.6, 1])
    assert isinstance(plan.score, Proxy)
    assert plan.score.repetition is not None


def test_shares_of_tokens_are_bounded_and_compared_by_tokens(tmp_path: Path) -> None:
    manifest = written(tmp_path, {"short": [TEXT] * 900, "long": [TEXT * 9] * 300})
    search = ManifestSearch(manifest=manifest, budget=4, proxy_steps=10, target_rows=1200, max_repetition=2)
    plan = search.plan()
    assert plan.rules.proportional == pytest.approx([0.265, 0.735], abs=0.001)  # with two tokens around each row
    assert plan.space.upper.tolist() == pytest.approx([0.529, 1], abs=0.001)
    (tmp_path / "score.py").write_text("def score(weights, budget, seed):\n    return {n: 1.0 for n in weights}\n")
    rows = replace(search, score=f"{tmp_path}/score.py:score").plan()
    assert rows.rules.proportional == pytest.approx([0.75, 0.25])
    assert rows.space.upper.tolist() == pytest.approx([1, 0.5])


def test_passes_of_a_run_count_its_rows_at_the_mixture(tmp_path: Path) -> None:
    manifest = written(tmp_path, {"short": [TEXT] * 900, "long": [TEXT * 9] * 300})
    search = ManifestSearch(manifest=manifest, budget=4, proxy_steps=10, target_rows=1200, max_repetition=1)
    plan = search.plan()
    assert plan.passes is not None
    short, long = (domain.whole / rows for domain, rows in zip(plan.score.domains, (900, 300), strict=True))
    rows = np.array([0.4 / short, 0.6 / long]) * 1200 / (0.4 / short + 0.6 / long)  # of tokens 0.4 : 0.6
    assert plan.passes.of(np.array([0.4, 0.6])) == pytest.approx(rows / [900, 300])
    by_rows = replace(search, score=f"{tmp_path}/score.py:score")
    (tmp_path / "score.py").write_text("def score(weights, budget, seed):\n    return {n: 1.0 for n in weights}\n")
    assert by_rows.plan().passes.of(np.array([0.75, 0.25])) == pytest.approx([1, 1])
    assert replace(search, target_rows=None, max_repetition=None).plan().passes is None


def test_rows_seen_too_often_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = written(tmp_path, {"short": [TEXT] * 9000, "long": [TEXT * 90] * 100})
    given = ["search", str(manifest), "--budget", "5", "--proxy-steps", "4", "--output-dir", str(tmp_path / "run")]
    assert main([*given, "--target-rows", "4000", "--max-repetition", "1", "--lower", "long=0.9"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "The run reads 'long' " in printed
    assert "times, more than 1: with this mixture its rows are longer" in printed
    assert " passes " in printed


def test_the_command_repeats_or_says_why_it_cannot(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["search", "--manifest", str(manifest), "--budget", "4", "--method", "bandit", "--output-dir", "run"]
    assert main([*given, "--proxy-steps", "4", "--target-rows", "1000"]) == 0
    assert "of each source's text" in capsys.readouterr().out
    receipt = json.loads(Path("run", "receipt.json").read_text())
    assert receipt["remarks"][0].startswith("Proxy runs have 1.8% of each source's text, and repeat it as often as")
    assert main([*given[:-1], "other", "--proxy-steps", "4", "--target-rows", "1000000"]) == 2
    said = capsys.readouterr().err
    assert "must be at least 209 to repeat domain 'small'" in said
    assert not Path("other").exists()


# --- sizes of sources
@pytest.mark.parametrize("lengths", [[10] * 600, list(range(1, 601)), list(range(600, 0, -1)), [1] * 300 + [40] * 300])
@pytest.mark.parametrize("most", [500, 5000, 20_000])
def test_a_source_read_in_part_is_sized_by_rows_from_all_of_it(tmp_path: Path, lengths: list[int], most: int) -> None:
    path = written(tmp_path, {"a": ["x" * length for length in lengths], "b": ["y" * 100] * 100})
    exact = domains_of(load(path))
    assert exact[0].whole == len(exact[0])
    domain = domains_of(load(path), most_tokens=most)[0]
    assert len(domain) == min(most, exact[0].whole)
    assert domain.whole == pytest.approx(exact[0].whole, rel=0.2)


def test_what_is_read_of_a_source_is_the_beginning_of_more(tmp_path: Path) -> None:
    path = written(tmp_path, {"a": [f"row {row} " * (1 + row % 7) for row in range(900)], "b": ["y" * 100] * 100})
    less, more = (domains_of(load(path), most_tokens=most)[0] for most in (3000, 9000))
    assert less._tokens.tolist() == more._tokens[:3000].tolist()
