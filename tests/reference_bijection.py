"""Sections 1 and 2 of docs/algorithm.md with exact integers, as plainly as possible: keys and the keyed bijection."""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


# --- 1. keys


def mix(x: int) -> int:
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def key64(purpose: str, *, seed: int, name: str = "", epoch: int | None = None) -> int:
    numbers = seed.to_bytes(8, "little") + (MASK if epoch is None else epoch).to_bytes(8, "little")
    return xxhash.xxh3_64_intdigest(purpose.encode() + b"\0" + numbers + name.encode())


def cycle_key(row_key: int, cycle: int) -> int:
    return mix((row_key + (cycle + 1) * GOLDEN) & MASK)


def window_key_at(window_key: int, first: int, length: int) -> int:
    return mix((mix((window_key + first * GOLDEN) & MASK) + length) & MASK)


# --- 2. keyed bijection of [0, n)


def stream(key: int, t: int) -> int:
    return mix((key + (t + 1) * GOLDEN) & MASK)


def fisher_yates(n: int, key: int) -> list[int]:
    order = list(range(n))
    for t in range(n - 1, 0, -1):
        j = stream(key, n - 1 - t) * (t + 1) >> 64
        order[t], order[j] = order[j], order[t]
    return order


def round_hash(v: int, key: int) -> int:
    h = (v ^ key) * 0x9E3779B1 & 0xFFFFFFFF
    h ^= h >> 15
    return h * 0x85EBCA77 & 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The a x 2^s places that hold [0, n), n > 16."""

    n: int
    key: int
    width: int
    shift: int
    rounds: int

    def change(self, r: int, v: int) -> int:
        """What round r adds to x (r even, v = y) or flips in y (r odd, v = x)."""
        if self.n <= 64:
            byte = stream(self.key, r) >> 8 * v & 0xFF
            return byte * self.width >> 8 if r % 2 == 0 else byte & ((1 << self.shift) - 1)
        h = round_hash(v, stream(self.key, r // 2) >> (32 if r % 2 else 0) & 0xFFFFFFFF)
        return h * self.width >> 32 if r % 2 == 0 else h >> (32 - self.shift)


def grid(n: int, key: int) -> Grid:
    bits = (n - 1).bit_length()
    shift = bits // 2
    rounds = 10 if n < 64 else 8 if bits <= 12 else 6
    return Grid(n=n, key=key, width=((n - 1) >> shift) + 1, shift=shift, rounds=rounds)


def all_rounds(i: int, g: Grid) -> int:
    x, y = divmod(i, 1 << g.shift)
    for r in range(g.rounds):
        if r % 2 == 0:
            x = (x + g.change(r, y)) % g.width
        else:
            y ^= g.change(r, x)
    return (x << g.shift) + y


def all_rounds_undone(i: int, g: Grid) -> int:
    x, y = divmod(i, 1 << g.shift)
    for r in reversed(range(g.rounds)):
        if r % 2 == 0:
            x = (x - g.change(r, y)) % g.width
        else:
            y ^= g.change(r, x)
    return (x << g.shift) + y


def permute(n: int, key: int, i: int) -> int:
    if n == 1:
        return 0
    if n <= 16:
        return fisher_yates(n, key)[i]
    g = grid(n, key)
    i = all_rounds(i, g)
    while i >= n:
        i = all_rounds(i, g)
    return i


def permute_inverse(n: int, key: int, value: int) -> int:
    if n == 1:
        return 0
    if n <= 16:
        return fisher_yates(n, key).index(value)
    g = grid(n, key)
    value = all_rounds_undone(value, g)
    while value >= n:
        value = all_rounds_undone(value, g)
    return value
