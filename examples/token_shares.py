"""Shares of tokens instead of rows: the plan follows the lengths of the rows that it really draws."""

from pathlib import Path

import numpy as np

from cuvee import Mixture

DATA = Path(__file__).parent / "data"


def token_shares(mixture: Mixture, start: int, stop: int) -> list[str]:
    """Return each source's share of the tokens between two positions, in percent."""
    plan = mixture.plan()
    draws = plan.draws(start, stop)
    tokens = np.bincount(draws.source, weights=plan.lengths_of(draws), minlength=len(plan.names))
    return [f"{name} {share:.2%}" for name, share in zip(plan.names, tokens / tokens.sum(), strict=True)]


def main() -> None:
    """Compare a mix by tokens with the same weights by rows."""
    by_tokens = Mixture.from_manifest(DATA / "mix-tokens.json", length_column="n_tokens")
    by_rows = Mixture(by_tokens.sources, samples_per_epoch=by_tokens.samples_per_epoch)
    print("asked for:        functions 60.00%, reference 35.00%, facts 5.00% of the tokens")
    print("weights of rows: ", ", ".join(token_shares(by_rows, 0, 4000)))
    print("weights of tokens:", ", ".join(token_shares(by_tokens, 0, 4000)))
    for start in range(0, 4000, 1000):
        print(f"  rows {start:4} on:    ", ", ".join(token_shares(by_tokens, start, start + 1000)))

    summary = by_tokens.plan().summary()
    for source in summary["sources"]:
        print(f"{source['name']}: {source['rows_selected']} rows, {source['tokens']} tokens")
        assert abs(source["token_proportion"] - source["weight_requested"]) < 0.01
    print("by rows, the plan warns:", *by_rows.plan().summary()["warnings"], sep="\n  ")


if __name__ == "__main__":
    main()
