"""Compiled core: arrays in, arrays out. Import cuvee, not this module."""

from typing import Any, Protocol, TypeVar, final, type_check_only

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

_T = TypeVar("_T", bound=tuple[int, int, int, str])

@type_check_only
class SupportsDLPack(Protocol):
    def __dlpack__(self, *, stream: Any = ...) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

ENDLESS: int  # 2**63 - 1: a cap, a plan's end or a slot that is never reached
ORDER_FORMAT: int  # goes up when, and only when, the same contract gives another order
ISAS: tuple[str, ...]  # instruction sets this build and machine can run, best last: "scalar", "avx2", "avx512"

def xxh3_128(data: Buffer) -> str:
    """Return the 128-bit XXH3 of `data` (any C-contiguous buffer) as 32 hex digits."""

def key64(purpose: str, *, seed: int, name: str = "", epoch: int | None = None) -> int:
    """Return the 64-bit key of (purpose, seed, name, epoch); docs/algorithm.md section 1."""

@final
class Digest:
    """Streaming 128-bit XXH3."""

    def __init__(self) -> None: ...
    def update(self, data: Buffer) -> None: ...
    def hexdigest(self) -> str: ...

def permute(
    n: int, *, key: int, start: int = 0, stop: int | None = None, threads: int = 1, isa: str = "auto"
) -> NDArray[np.int64]:
    """Return pi(start), ..., pi(stop-1), pi the keyed bijection of [0, n)."""

def permute_at(n: int, index: NDArray[np.int64], *, key: int) -> NDArray[np.int64]:
    """Return pi(index), any order and shape (m,)."""

def permute_inverse(n: int, value: NDArray[np.int64], *, key: int) -> NDArray[np.int64]:
    """Return i with pi(i) = value, shape (m,)."""

def pack(source: NDArray[np.int32], row: NDArray[np.int64], cycle: NDArray[np.int32]) -> list[int]:
    """Return one Python int per draw, for samplers.

    It is in [2**54, 2**63) where it fits (9 bits cycle + 1, 16 source, 38 row), else of 128 bits.
    """

def unpack(keys: list[int]) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
    """Return (source, row, cycle) of packed draws; ValueError for an int that `pack` does not make."""

def exp(x: float) -> float: ...  # same bits on every machine, unlike libm; likewise the next three
def log(x: float) -> float: ...
def power(x: float, y: float) -> float: ...  # x > 0
def cos_pi(x: float) -> float: ...  # cos(pi * x)
def tally(
    source: NDArray[np.int32], values: NDArray[np.int64], *, k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (rows, sums of values), each int64[k], per source id."""

def tally_values(
    source: NDArray[np.int32], values: NDArray[np.float32], mask: NDArray[np.bool_] | None = None, *, k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return (counts, sums of values), each of shape (k,), per source id; the same bits in any order.

    Each of the n ids is that of m values, those of shape (n * m,) lying end to end; masked ones (False) do not count.
    Exact for values from 2**-23 to 2**23; smaller ones are cut off at 2**-46, larger ones and NaN make the sum NaN.
    """

def gather_lengths(
    source: NDArray[np.int32], row: NDArray[np.int64], *, lengths: NDArray[np.int32], offsets: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Return lengths[offsets[source] + row], shape (n,).

    `lengths` is those of all sources end to end, `offsets` of shape (k+1,).
    """

def token_signals(
    logits: SupportsDLPack,
    targets: NDArray[np.int64] | None = None,
    mask: NDArray[np.bool_] | None = None,
    *,
    threads: int = 1,
    isa: str = "auto",
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32] | None]:
    """Return (entropy, varentropy, log-probability of targets or None) per row of logits, each of shape (n,), in nats.

    `logits` is a CPU tensor of shape (n, V) or (a, b, V), n = a * b, of float32, float16 or bfloat16. A target is in
    0..V-1 or -100, none. Rows whose mask is False give 0. The same bits for any `threads` and `isa`.
    """

MAX_BANDIT_SOURCES: int

def limit(p: NDArray[np.float64], *, floor: NDArray[np.float64] | None, cap: NDArray[np.float64] | None) -> None:
    """Scale p, of shape (K,), by one factor and cut it to [floor, cap], in place, so that its sum is 1."""

@final
class WeightRule:
    """How scores move the weights of K sources; `cuvee.bandits` says what each rule is.

    The arrays are the caller's, and moved in place: `state` and `p` of shape (K,), and `summary` of shape (4,): running
    low and high quantile, updates they have seen, sum of squared p before the entropy floor.
    """

    def __init__(
        self,
        rule: str,  # "exp3", "bounded", "odm", "doremi"
        *,
        state: NDArray[np.float64],
        p: NDArray[np.float64],
        summary: NDArray[np.float64],
        eta: float,
        gamma: float,
        decay: float = 0.0,
        quantiles: tuple[float, float] = ...,
        rate: float = 0.0,
        max_collision: float = 1.0,  # largest sum of squared probabilities
        floor: NDArray[np.float64] | None = None,  # (K,)
        cap: NDArray[np.float64] | None = None,  # (K,)
    ) -> None: ...
    @property
    def eta(self) -> float: ...
    @eta.setter
    def eta(self, arg1: float, /) -> None: ...
    @property
    def gamma(self) -> float: ...
    @gamma.setter
    def gamma(self, arg1: float, /) -> None: ...
    def update(self, scores: NDArray[np.float64], rows: NDArray[np.int64] | None = None) -> float:
        """Update the arrays by scores and rows, of shape (K,) each; return `summary[3]`."""

@final
class Plan:
    """Segments and keys: everything needed to compute any draw. Positions and slots are those of the stream."""

    def __init__(
        self,
        *,
        rows: NDArray[np.int64],  # (K,), 0 <= rows <= 2**62; a source of 0 rows is never active
        caps: NDArray[np.int64],  # (K,), draws a source may give; ENDLESS = no cap
        weights: NDArray[np.float64],  # (K,), >= 0, finite; at least one wanted
        row_keys: NDArray[np.uint64],  # (K,), key64("rows", seed=..., name=..., epoch=...)
        window: int,  # 1..65536
        window_key: int,
        epoch_rows: int = 0,  # epoch length in rows under `cycle`; 0 = the grid has no epochs of fixed length
        stop: bool = False,  # the plan ends with the draw that first empties a source
        shuffle: bool = True,
        isa: str = "auto",
    ) -> None: ...

    # --- growing: each takes effect at a slot >= the last change; segments computed for later slots are dropped
    def add_sources(self, *, rows: NDArray[np.int64], caps: NDArray[np.int64], row_keys: NDArray[np.uint64]) -> None:
        """Append sources (weight 0 until the next set_weights)."""
    def set_weights(self, at: int, weights: NDArray[np.float64], *, restart: bool = False) -> None:
        """Start a segment at slot `at`, a window start; or at any slot with restart=True: windows start anew there."""
    def restart(self, at: int) -> None:
        """Start the window grid anew at slot `at` >= the last change, same weights (an `all_seen` epoch)."""
    def resize_source(self, source: int, *, rows: int, cap: int, at_draw: int, cycle: int) -> None:
        """Source has `rows` rows from draw number `at_draw` on, which begins cycle `cycle`."""
    def rewind(self, slot: int) -> None:
        """Drop every set_weights and restart whose slot is >= `slot`. Added sources stay."""

    # --- reading (pure)
    @property
    def sources(self) -> int: ...
    @property
    def end(self) -> int:
        """Slot at which the plan ends; ENDLESS if never."""
    @property
    def ended_by(self) -> int:
        """Source whose emptying ended the plan (the last one under renormalize); -1 if endless."""
    @property
    def last_change(self) -> int:
        """Slot of the last set_weights or restart."""
    @property
    def bound(self) -> float:
        """Certificate: max over segments built so far and leaves."""
    @property
    def segment_count(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def fill(
        self,
        start: int,
        *,
        source: NDArray[np.int32],
        row: NDArray[np.int64],
        cycle: NDArray[np.int32],
        threads: int = 1,
    ) -> None:
        """Fill the arrays, all of shape (n,), with the draws at positions start, ..., start+n-1."""
    def at(self, position: int) -> tuple[int, int, int]:
        """(source, row, cycle) at one position."""
    def draw(self, position: int, names: tuple[str, ...], kind: type[_T]) -> _T:
        """The draw at `position` as kind(source, row, cycle, names[source]), `kind` being a named tuple."""
    def draw_list(self, start: int, stop: int, names: tuple[str, ...], kind: type[_T]) -> list[_T]:
        """The draws at positions start, ..., stop-1, as `draw` makes them."""
    def at_each(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
        """(source, row, cycle) at each of the positions, in any order."""
    def source_at(self, position: int) -> int: ...
    def sources_at(self, positions: NDArray[np.int64]) -> NDArray[np.int32]: ...
    def counts(self, position: int) -> NDArray[np.int64]:
        """Draws per source before `position`."""
    def work(self, slot: int) -> NDArray[np.float64]:
        """Work per source at a slot boundary."""
    def rebased(self, slot: int) -> NDArray[np.float64]:
        """work minus the integral of the weight, per source."""
    def weights(self, slot: int) -> NDArray[np.float64]:
        """Shares in force at `slot`: sum 1 over the active sources, 0 elsewhere."""
    def digest(self, start: int, stop: int, *, threads: int = 1) -> str:
        """xxh3-128 of the draws, 16 bytes each, little-endian: source u32, cycle u32, row u64."""
    def slots_of(self, draws: NDArray[np.int64]) -> NDArray[np.int64]:
        """Per source the slot of its draws[source]-th draw in what is built; ENDLESS where there is none."""
    def positions_of(self, draws: NDArray[np.int64]) -> NDArray[np.int64]:
        """Per source the position of its draws[source]-th draw in what is built; ENDLESS where there is none."""
    def seen_all(self, start: int) -> int:
        """First slot at which every source then active has given `rows` draws since slot `start`; ENDLESS if never.

        One that left since then counts as seen, one that joined must give its rows too.
        """
    def window(self, position: int) -> tuple[int, int]:
        """(first, end) of the window that holds `position`."""
    def exhaustions(self, until: int = ...) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """(slot after the last draw, source) of every exhaustion at a slot <= until, in order."""

    # --- state of a lazily built plan
    def snapshot(self, slot: int = ...) -> bytes:
        """Counts, residuals and tree at the last change at or before `slot`, as bytes: enough to go on from there."""
    def restore(self, snapshot: bytes) -> None:
        """Drop all segments and go on from a snapshot of an equal plan; earlier slots are then an IndexError."""

def shingle_sets(
    texts: list[str] | tuple[NDArray[np.uint8], NDArray[np.int64]],
    starts: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    *,
    size: int,
    characters: bool,
    lowercase: bool,
    threads: int = 1,
) -> NDArray[np.int64]:
    """Write the sorted distinct shingle hashes of text i to hashes[starts[i], ...); return how many, shape (n,).

    Texts are strings, or the UTF-8 bytes of all and the n + 1 offsets between which each lies, as Arrow has them. A
    hash is the XXH3-64 of a shingle's UTF-8 bytes; `starts` of shape (n + 1,) leaves room for all shingles of a text,
    with repeats.
    """

def minhash(hashes: NDArray[np.uint64], sizes: NDArray[np.int64], *, length: int, seed: int) -> NDArray[np.uint32]:
    """Return the MinHash signatures, shape (n, length), of sets that lie end to end in `hashes`."""

def sketches(
    texts: list[str] | tuple[NDArray[np.uint8], NDArray[np.int64]],
    *,
    size: int,
    characters: bool,
    lowercase: bool,
    bands: int,
    rows: int,
    seed: int,
    threads: int = 1,
) -> tuple[NDArray[np.uint32], NDArray[np.uint64], NDArray[np.int64]]:
    """Return each text's band keys, shape (bands, n), digest, shape (n, 2), and number of shingles with repeats."""

def first_copies(digests: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return for each digest, shape (n, 2), the first one that is equal to it."""

def candidate_pairs(
    keys: NDArray[np.uint32],
    order: NDArray[np.uint64],
    members: NDArray[np.uint32],
    *,
    limit: int,
    threads: int = 1,
) -> tuple[NDArray[np.int64], bool]:
    """Return the pairs of `members` that agree in a band, shape (p, 2) and sorted, and whether these are all.

    They are not where more than `limit` agree: of those, the pairs that agree in a second band as well, and neighbours
    in the order of a number made of `order`, one of each text's content.
    """

def band_pairs(
    keys: NDArray[np.uint32], order: NDArray[np.uint64], *, band: int, limit: int
) -> tuple[NDArray[np.int64], bool]:
    """Return the pairs that `candidate_pairs` finds in one band, all texts taking part."""

def shared_hashes(
    hashes: NDArray[np.uint64],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    pairs: NDArray[np.int64],
    *,
    threads: int = 1,
) -> NDArray[np.int64]:
    """Return the number of hashes that both sets of each pair have, shape (p,); sets are sorted."""

def connected(pairs: NDArray[np.int64], *, n: int) -> NDArray[np.int64]:
    """Return for each of n texts the smallest that a chain of pairs links it to, shape (n,)."""

@final
class Containment:
    """Evaluation documents whose shingles lie within documents that stream by, source by source.

    `share` in (0, 1] is the least share of an evaluation document's distinct shingles that a document must have to
    contain it. Evaluation documents are numbered as they are added.
    """

    def __init__(self, *, size: int, characters: bool, lowercase: bool, share: float, threads: int = 1) -> None: ...
    def add(self, texts: list[str] | tuple[NDArray[np.uint8], NDArray[np.int64]], *, of_set: int) -> None:
        """Add evaluation documents of a set; sets come in rising order, and all before the first source."""
    def begin_source(self) -> None:
        """Must be called before the documents of each source."""
    def scan(
        self, texts: list[str] | tuple[NDArray[np.uint8], NDArray[np.int64]], *, first: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Look through documents numbered from `first` on.

        Returns (documents that contain any of a set, the first evaluation document of it that each contains, the share
        of its shingles), each of shape (m,), by document and set.
        """
    def best(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Return of each evaluation document, shape (n,): what one document shares at most, its own distinct shingles,
        the first such document or -1, and whether a document of the source that was begun last contains it.
        """
    def is_short(self) -> NDArray[np.bool_]:
        """Return which evaluation documents are shorter than a shingle, shape (n,)."""
