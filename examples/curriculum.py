"""A curriculum: weights that jump at one position and move smoothly to another, as part of the contract."""

from cuvee import Mixture, Source, Stage

SOURCES = [Source("web", rows=90_000, weight=0.8), Source("math", rows=20_000, weight=0.2)]
STAGES = [
    Stage(at=20_000, weights={"web": 0.6, "math": 0.4}),  # a jump
    Stage(at=40_000, weights={"web": 0.1, "math": 0.9}, interpolation="cosine"),  # from 0.6 : 0.4, arriving here
]


def main() -> None:
    """Print the share of mathematics over the run, asked for and given."""
    mixture = Mixture(SOURCES, stages=STAGES, samples_per_epoch=50_000, control_interval=512)
    plan = mixture.plan()
    math = mixture.names.index("math")

    print("rows from    to   share of math asked for    given")
    for start in range(0, len(plan), 5_000):
        stop = start + 5_000
        owed = plan.work(stop) - plan.work(start)
        given = plan.counts(stop) - plan.counts(start)
        print(f"{start:9,} {stop:6,} {owed[math] / 5_000:24.2%} {given[math] / 5_000:8.2%}")

    summary = plan.summary()
    off = abs(plan.counts(len(plan)) - plan.work(len(plan))).max()
    assert off <= summary["bound"]
    print(f"at the end each source is within {off:.3f} rows of what it is owed; certified: {summary['bound']:.3f}")
    repeated = {source["name"]: f"{source['cycles']:.2f} passes" for source in summary["sources"]}
    print(f"over the run: {repeated}")


if __name__ == "__main__":
    main()
