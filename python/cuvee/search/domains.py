"""What proxy runs train on and are measured by: domains made up by rule, of texts, or of the sources of a manifest."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..checks import as_int, as_name
from ..errors import MixtureError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

MOST_SEEDS = 2**63
MOST_VOCAB = 2**31
MOST_TOKENS = 2**40
BYTES = 256
TEXT_END = 256  # the token after each text of a `TextDomain`
HELD_OUT_TOKENS = 2048  # that are held out in one piece: 32 windows of 64


@runtime_checkable
class StreamDomain(Protocol):
    """A domain that can make any number of tokens."""

    @property
    def name(self) -> str:
        """Names the domain."""
        ...

    @property
    def vocab(self) -> int:
        """Tokens that there are."""
        ...

    def sample(self, n_tokens: int, *, seed: int = 0) -> NDArray[np.int64]:
        """Return tokens, int64 of shape (n_tokens,), that depend on `seed` alone."""
        ...


@runtime_checkable
class TextsDomain(Protocol):
    """A domain of given texts, some of them held out."""

    @property
    def name(self) -> str:
        """Names the domain."""
        ...

    @property
    def vocab(self) -> int:
        """Tokens that there are."""
        ...

    def windows(self, count: int, length: int, *, seed: int, held_out: bool) -> NDArray[np.int64]:
        """Return pieces of text, int64 of shape (count, length), in an order that depends on `seed`.

        The first n of them are the same for every `count`. Held-out text is never in the others.
        """
        ...


Domain: TypeAlias = StreamDomain | TextsDomain


@dataclass(frozen=True, slots=True)
class SyntheticDomain:
    """A pattern of tokens, repeated for ever, each token replaced by a uniform one with probability `noise_p`.

    Args:
        name: names the domain, and sets its noise apart from that of others.
        vocab: tokens that there are, at least 2.
        period: length of the pattern; None is pure noise, whose expected loss is never below log(vocab).
        noise_p: probability that a token is replaced, 0..1. (The uniform token may be the same one again.)
        pattern_seed: what the pattern is drawn from, with `period` and `vocab`.

    Raises:
        MixtureError: naming the argument that is out of its range.
    """

    name: str
    vocab: int
    period: int | None = 8
    noise_p: float = 0.0
    pattern_seed: int = 0

    def __post_init__(self) -> None:
        as_name(self.name, MixtureError, of="domain")
        as_int(self.vocab, "vocab", 2, MOST_VOCAB, MixtureError)
        if self.period is not None:
            as_int(self.period, "period", 1, MOST_VOCAB, MixtureError)
        as_probability(self.noise_p, "noise_p")
        as_int(self.pattern_seed, "pattern_seed", 0, MOST_SEEDS, MixtureError)

    @property
    def pattern(self) -> NDArray[np.int64] | None:
        """What repeats, int64 of shape (period,); None of pure noise."""
        if self.period is None:
            return None
        place = f"{self.vocab}/{self.period}"
        return generator("synthetic pattern", self.pattern_seed, place).integers(self.vocab, size=self.period)

    def sample(self, n_tokens: int, *, seed: int = 0) -> NDArray[np.int64]:
        """Return the first tokens, int64 of shape (n_tokens,); the pattern begins at its first token.

        Args:
            n_tokens: how many.
            seed: what the noise is drawn from.

        Raises:
            MixtureError: an argument is out of its range.
        """
        count = as_int(n_tokens, "n_tokens", 0, MOST_TOKENS, MixtureError)
        as_int(seed, "seed", 0, MOST_SEEDS, MixtureError)
        noise = generator("synthetic noise", seed, self.name).integers(self.vocab, size=count)
        pattern = self.pattern
        if pattern is None:
            return noise
        replaced = generator("synthetic replaced", seed, self.name).random(count) < self.noise_p
        return np.where(replaced, noise, np.resize(pattern, count))


class TokenDomain:
    """Tokens of real texts, end to end. Every so many of them, in one piece, are held out and never trained on.

    A proxy run reads windows of the rest in a shuffled order, each once before any comes again.

    Args:
        name: names the domain.
        tokens: integers of shape (n,), in [0, vocab).
        vocab: tokens that there are.
        held_out: share of the tokens to hold out, above 0 and at most 1/2; at least one piece is.
        rows: of the source it stands for; None if unknown.
        whole: tokens of that source, of which those given may be a part; None: they are all.

    Raises:
        MixtureError: naming the argument that is out of its range.
    """

    def __init__(
        self,
        name: str,
        tokens: ArrayLike,
        vocab: int,
        *,
        held_out: float = 0.1,
        rows: int | None = None,
        whole: int | None = None,
    ) -> None:
        self.name = as_name(name, MixtureError, of="domain")
        self.vocab = as_int(vocab, "vocab", 2, MOST_VOCAB, MixtureError)
        self.rows = None if rows is None else as_int(rows, "rows", 1, MOST_SEEDS, MixtureError)
        if not 0 < as_probability(held_out, "held_out") <= 0.5:
            raise MixtureError(f"held_out must be above 0 and at most 0.5, but got {held_out!r}")
        self._tokens = _checked_tokens(tokens, self.vocab, f"domain {name!r}: tokens")
        size = len(self._tokens)
        self.whole = size if whole is None else as_int(whole, "whole", size, MOST_SEEDS, MixtureError)
        self.part = 1.0
        self._piece = max(1, min(HELD_OUT_TOKENS, int(held_out * len(self._tokens))))
        pieces = -(-len(self._tokens) // self._piece)
        order = _core.permute(pieces, key=_core.key64("held-out pieces", seed=0, name=name))
        self._held_out = np.zeros(pieces, dtype=np.bool_)
        self._held_out[order[: max(1, round(held_out * pieces))]] = True

    def __len__(self) -> int:
        """Tokens, the held-out ones included."""
        return len(self._tokens)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {len(self)} tokens)"

    def thinned(self, part: float) -> Self:
        """Return the same domain with fewer windows to train on: as many as fill a part of the whole source.

        Which ones depends on the domain's name alone, not on a seed; those of a smaller part are among those of a
        larger one. At least one is kept. Held-out text is left as it is.

        Args:
            part: of the whole source's tokens, in (0, 1]; 1 keeps all windows.

        Raises:
            MixtureError: the part is out of its range.
        """
        if as_probability(part, "part") == 0:
            raise MixtureError(f"part must be above 0, but got {part!r}")
        found = copy.copy(self)
        found.part = float(part)
        return found

    def training_windows(self, length: int) -> int:
        """Return how many different windows there are to train on, of which `length` - 1 tokens are inputs."""
        return len(self._starts(length, held_out=False))

    def windows(self, count: int, length: int, *, seed: int, held_out: bool) -> NDArray[np.int64]:
        """Return pieces of text, int64 of shape (count, length); after the last one the first come again, reshuffled.

        Neighbours in the text overlap by one token: of `length` tokens the last is only ever a target.

        Raises:
            MixtureError: the domain has no such piece.
        """
        starts = self._starts(length, held_out=held_out)
        purpose = _purpose(held_out)
        if not len(starts):
            raise MixtureError(
                f"domain {self.name!r}: must have {purpose} of {length} tokens in one piece, but got {len(self)} in "
                "all; give it more text, or take a smaller block"
            )
        cycles = range(-(-count // len(starts)))
        keys = [_core.key64(purpose, seed=seed, name=self.name, epoch=cycle) for cycle in cycles]
        order = [_core.permute(len(starts), key=key) for key in keys]
        index = np.concatenate([np.empty(0, dtype=np.int64), *order])[:count]
        found: NDArray[np.int64] = self._tokens[starts[index][:, None] + np.arange(length)].astype(np.int64)
        return found

    def _starts(self, length: int, *, held_out: bool) -> NDArray[np.int64]:
        """Return where windows begin: each lies in one stretch of pieces of a kind."""
        edges = np.flatnonzero(np.diff(self._held_out, prepend=~self._held_out[:1], append=~self._held_out[-1:]))
        stretches = itertools.pairwise(edges.tolist())
        starts = np.concatenate(
            [
                np.arange(first * self._piece, min(end * self._piece, len(self)) - length + 1, length - 1)
                for first, end in stretches
                if self._held_out[first] == held_out
            ]
        )
        kept = max(1, round(self.part * self.whole / (length - 1)))
        if held_out or self.part == 1 or kept >= len(starts):
            return starts
        order = _core.permute(len(starts), key=_core.key64("thinned text", seed=0, name=self.name))
        return starts[np.sort(order[:kept])]


class TextDomain(TokenDomain):
    """Texts as bytes of UTF-8, each followed by an end token: 257 tokens.

    Args:
        name: names the domain.
        texts: the texts, or one.
        held_out: share of the tokens to hold out.
        rows: of the source it stands for, of which the texts may be a part; None: they are all.

    Raises:
        MixtureError: naming the argument that is out of its range.
    """

    def __init__(
        self, name: str, texts: str | Iterable[str], *, held_out: float = 0.1, rows: int | None = None
    ) -> None:
        if not isinstance(texts, Iterable):
            raise MixtureError(f"domain {name!r}: texts must be strings, but got {texts!r:.60}")
        given = [texts] if isinstance(texts, str) else list(texts)
        parts = [
            np.frombuffer(_utf8(text, name, place), dtype=np.uint8).astype(np.int16) for place, text in enumerate(given)
        ]
        ended = [np.append(part, np.int16(TEXT_END)) for part in parts]
        tokens = np.concatenate([np.empty(0, dtype=np.int16), *ended])
        rows = len(given) if rows is None else as_int(rows, "rows", 1, MOST_SEEDS, MixtureError)
        whole = max(len(tokens), round(len(tokens) / max(1, len(given)) * rows))
        super().__init__(name, tokens, BYTES + 1, held_out=held_out, rows=rows, whole=whole)


def checked_domains(domains: Iterable[Domain]) -> tuple[Domain, ...]:
    """Return the domains.

    Raises:
        MixtureError: they are fewer than two, share a name, differ in vocabulary, or cannot be sampled.
    """
    try:
        checked = tuple(domains)
    except TypeError:
        raise MixtureError(f"domains must be a sequence of domains, but got {domains!r:.100}") from None
    for number, domain in enumerate(checked):
        if not isinstance(domain, StreamDomain | TextsDomain):
            raise MixtureError(
                f"domains[{number}] must have name, vocab and sample or windows, but got {domain!r:.100}"
            )
        as_int(domain.vocab, f"vocab of domain {domain.name!r}", 2, MOST_VOCAB, MixtureError)
    names = [as_name(domain.name, MixtureError, of="domain") for domain in checked]
    vocabularies = [domain.vocab for domain in checked]
    if len(checked) < 2:
        raise MixtureError(f"domains must be at least two, or there is nothing to mix, but got {len(checked)}")
    if len(set(names)) < len(names):
        raise MixtureError(f"domain names must be unique, but got {names}")
    if len(set(vocabularies)) > 1:
        raise MixtureError(f"domains must have one vocabulary, but got {dict(zip(names, vocabularies, strict=True))}")
    return checked


def windows_of(domain: Domain, count: int, length: int, *, seed: int, held_out: bool) -> NDArray[np.int64]:
    """Return windows of a domain, int64 of shape (count, length), for training or held out.

    Windows of a stream follow one another, with some tokens skipped between (see `gaps_of`).

    Raises:
        MixtureError: what the domain gives are not such tokens.
    """
    if isinstance(domain, TextsDomain):
        return _checked_windows(domain, count, length, seed=seed, held_out=held_out)
    starts = length * np.arange(count) + gaps_of(domain, count, length, seed=seed, held_out=held_out)
    stream = tokens_of(domain, int(starts[-1]) + length, seed=seed, held_out=held_out)
    found: NDArray[np.int64] = stream[starts[:, None] + np.arange(length)]
    return found


def _checked_windows(domain: TextsDomain, count: int, length: int, *, seed: int, held_out: bool) -> NDArray[np.int64]:
    where = f"domain {domain.name!r}: windows({count}, {length})"
    windows = _as_array(domain.windows(count, length, seed=seed, held_out=held_out))
    if windows.shape != (count, length):
        raise MixtureError(f"{where} must have shape ({count}, {length}), but got {windows.shape}")
    return _checked_tokens(windows.reshape(-1), domain.vocab, where).reshape(count, length).astype(np.int64)


def tokens_of(domain: Domain, count: int, *, seed: int, held_out: bool) -> NDArray[np.int64]:
    """Return tokens of a stream, int64 of shape (count,), for training or held out.

    The seed that the domain is given is made of `seed`, its name and the purpose: what is held out is other text under
    the same seed, too.

    Raises:
        MixtureError: the domain is of texts, or what it gives are not such tokens.
    """
    if isinstance(domain, TextsDomain):
        raise MixtureError(f"unit must be 'windows' for texts, as of domain {domain.name!r}, but got 'tokens'")
    where = f"domain {domain.name!r}: sample({count})"
    own_seed = _core.key64(_purpose(held_out), seed=seed, name=domain.name) >> 1  # below 2**63
    stream = _checked_tokens(domain.sample(count, seed=own_seed), domain.vocab, where)
    if len(stream) != count:
        raise MixtureError(f"{where} must have shape ({count},), but got {stream.shape}")
    return stream.astype(np.int64)


def gaps_of(domain: Domain, count: int, length: int, *, seed: int, held_out: bool) -> NDArray[np.int64]:
    """Return how many tokens of a domain were skipped by each of some windows, int64 of shape (count,), rising.

    Before each window 0 to length - 1 tokens are, so that it begins anywhere in a pattern, whatever the period.
    """
    random = generator(f"gaps of {_purpose(held_out)}", seed, domain.name)
    return np.cumsum(random.integers(length, size=count))


def _purpose(held_out: bool) -> str:  # noqa: FBT001
    return "held-out text" if held_out else "proxy text"


def generator(purpose: str, seed: int, name: str = "") -> np.random.Generator:
    """Return a generator whose stream has nothing to do with that of any other (purpose, seed, name)."""
    return np.random.Generator(np.random.PCG64(_core.key64(purpose, seed=seed, name=name)))


def as_probability(value: object, name: str) -> float:
    """Return `value` as a float in [0, 1]."""
    if isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise MixtureError(f"{name} must be a number in [0, 1], but got {value!r}")


def _utf8(text: object, name: str, place: int) -> bytes:
    try:
        if isinstance(text, str):
            return text.encode()
    except UnicodeEncodeError:  # half of a pair of surrogates
        pass
    raise MixtureError(f"domain {name!r}: texts[{place}] must be a string of whole characters, but got {text!r:.60}")


def _as_array(values: object) -> NDArray[Any]:
    """Return anything as an array; what is of no one shape has shape ()."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError):
        return np.array(None)


def _checked_tokens(tokens: ArrayLike, vocab: int, name: str) -> NDArray[np.integer[Any]]:
    array = _as_array(tokens)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not array.size:
        raise MixtureError(
            f"{name} must be integers of shape (n,), n >= 1, but got {array.dtype} of shape {array.shape}"
        )
    if int(array.min()) < 0 or int(array.max()) >= vocab:
        raise MixtureError(f"{name} must be in [0, {vocab}), but got values from {array.min()} to {array.max()}")
    return array
