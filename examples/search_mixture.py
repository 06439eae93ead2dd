"""Finds the weights of a mixture with proxy runs, is stopped half-way, goes on, and writes a manifest to train with."""

import tempfile
from pathlib import Path

from cuvee import Mixture
from cuvee.manifest import load
from cuvee.search import Proxy, domains_of, search
from cuvee.search.learned import write_learned
from cuvee.search.page import write_search_report

MANIFEST = Path(__file__).parent / "data" / "mix.json"
FOLDER = Path(tempfile.mkdtemp())
BUDGET = 24  # proxy runs in all
manifest = load(MANIFEST)
domains = domains_of(manifest, most_tokens=60_000)


class Stopping(Proxy):
    """A proxy whose machine is taken away after some runs."""

    runs_left = 8

    def evaluate(self, weights, **settings):  # noqa: ANN001, ANN003, ANN201
        """Return losses as `Proxy` does, as long as there is a machine."""
        self.runs_left -= len(weights)
        if self.runs_left < 0:
            raise KeyboardInterrupt
        return super().evaluate(weights, **settings)


def found(proxy: Proxy):  # noqa: ANN201
    """Return the receipt of a search that is kept in a file, and goes on from what is there."""
    return search(
        proxy,
        [domain.name for domain in domains],
        BUDGET,
        rows=tuple(float(domain.rows) for domain in domains),
        storage=f"sqlite:///{FOLDER}/study.db",
    )


if __name__ == "__main__":
    settings = {"block": 32, "d_model": 32, "eval_tokens": 2048}
    try:
        found(Stopping(domains, 40, **settings))
    except KeyboardInterrupt:
        print("stopped, and called again")
    receipt = found(Proxy(domains, 40, **settings))
    for name, share, low, high in zip(receipt.names, receipt.weights, receipt.low, receipt.high, strict=True):
        print(f"{name:10} {share:6.1%}   between {low:.1%} and {high:.1%}")
    print(receipt.verdict)
    (FOLDER / "receipt.json").write_text(receipt.to_json())
    write_search_report(receipt, FOLDER / "report.html")
    weights = dict(zip(receipt.names, receipt.weights, strict=True))
    learned = write_learned(manifest, weights, FOLDER / "mix.learned.json", unit="tokens")
    mixture = Mixture.from_manifest(load(learned), length_column="n_tokens")
    assert [source.name for source in mixture.sources] == list(receipt.names)
    print(f"{receipt.search_runs} runs of the search, {receipt.audit_runs} of the audit; ready for cuvee train")
