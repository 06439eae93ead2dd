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


def round_function(v: int, key: int) -> int:
    h = (v ^ key) * 0x9E3779B1 & 0xFFFFFFFF
    h ^= h >> 15
    h = h * 0x85EBCA77 & 0xFFFFFFFF
    h ^= h >> 13
    return h * 0xC2B2AE3D & 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The a x 2^s places that hold [0, n), n > 16, and the keys of the rounds."""

    width: int
    shift: int
    round_keys: tuple[int, ...]


def grid(n: int, key: int) -> Grid:
    bits = (n - 1).bit_length()
    shift = bits // 2
    rounds = 8 if bits <= 16 else 6
    keys = [stream(key, r // 2) >> (32 if r % 2 else 0) & 0xFFFFFFFF for r in range(rounds)]
    return Grid(width=((n - 1) >> shift) + 1, shift=shift, round_keys=tuple(keys))


def all_rounds(i: int, g: Grid) -> int:
    x, y = i >> g.shift, i & ((1 << g.shift) - 1)
    for r, key in enumerate(g.round_keys):
        if r % 2 == 0:
            x = (x + (round_function(y, key) * g.width >> 32)) % g.width
        else:
            y ^= round_function(x, key) >> (32 - g.shift)
    return (x << g.shift) + y


def all_rounds_undone(i: int, g: Grid) -> int:
    x, y = i >> g.shift, i & ((1 << g.shift) - 1)
    for r, key in reversed(list(enumerate(g.round_keys))):
        if r % 2 == 0:
            x = (x - (round_function(y, key) * g.width >> 32)) % g.width
        else:
            y ^= round_function(x, key) >> (32 - g.shift)
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
