"""The texts of suites P and H: byte windows of domains that Python and Debian packages carry.

Debian packages: manpages manpages-dev manpages-de manpages-fr dict-foldoc fortunes (apt-get install).
"""

import gzip
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

WINDOW = 65  # bytes of a row: 64 that are read and the next one of each
BLOCK = 32  # windows that are held out together, so that what is held out does not continue what is trained on
HELD_OUT = 512  # windows of a domain that losses are measured on: 32,768 bytes
VALIDATION = 64  # windows more, for rewards that are defined on evaluation data
MOST = 4_000_000  # bytes of a domain
TINY = 600  # windows of the domain that repeats: 39 kB

PACKAGES = "manpages manpages-dev manpages-de manpages-fr dict-foldoc fortunes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Rows of one domain, uint8 of shape (n, WINDOW)."""

    name: str
    train: np.ndarray
    validation: np.ndarray
    held_out: np.ndarray
    scored: bool = True


SUITES = {
    "P": ("python", "man_en", "man_de", "man_fr", "dict", "quotes"),
    "H": ("python", "man_en", "man_de", "dict", "tiny_fr", "boiler", "noise"),
}


@cache
def suite(name: str) -> tuple[Domain, ...]:
    """Return the domains of suite "P" (plain) or "H" (heterogeneous)."""
    return tuple(_domain(each) for each in SUITES[name])


def _domain(name: str) -> Domain:
    text = TEXTS[name]()
    windows = np.frombuffer(text[: len(text) // (WINDOW * BLOCK) * (WINDOW * BLOCK)], np.uint8)
    blocks = windows.reshape(-1, BLOCK, WINDOW)
    rng = np.random.default_rng([len(name), *name.encode()])
    order = rng.permutation(len(blocks))
    parts = np.split(order, [HELD_OUT // BLOCK, (HELD_OUT + VALIDATION) // BLOCK])
    held_out, validation, train = (blocks[np.sort(part)].reshape(-1, WINDOW) for part in parts)
    if name == "tiny_fr":
        train = train[:TINY]
    return Domain(name=name, train=train, validation=validation, held_out=held_out, scored=name != "noise")


def _joined(parts: Iterator[bytes]) -> bytes:
    whole = bytearray()
    for part in parts:
        whole += part
        if len(whole) >= MOST:
            break
    if len(whole) < 2 * HELD_OUT * WINDOW:
        raise SystemExit(f"texts must be installed, but got {len(whole)} bytes; apt-get install {PACKAGES}")
    return bytes(whole[:MOST])


def _python() -> bytes:
    library = Path(sysconfig.get_paths()["stdlib"])
    left_out = {"test", "tests", "idlelib", "site-packages", "__pycache__"}
    files = sorted(path for path in library.rglob("*.py") if not left_out & set(path.relative_to(library).parts))
    return _joined(path.read_bytes() for path in files)


def _manual(language: str) -> Callable[[], bytes]:
    """Return a reader of the manual's pages, their sections mixed."""

    def read() -> bytes:
        pages = [path for path in Path("/usr/share/man", language).glob("man[1-8]/*.gz") if not path.is_symlink()]
        pages.sort(key=lambda path: path.name)
        return _joined(gzip.decompress(path.read_bytes()) for path in pages)

    return read


def _dictionary() -> bytes:
    return _joined(gzip.decompress(path.read_bytes()) for path in Path("/usr/share/dictd").glob("foldoc.dict.dz"))


def _quotes() -> bytes:
    files = sorted(path for path in Path("/usr/share/games/fortunes").glob("*") if not path.suffix)
    return _joined(path.read_bytes() for path in files)


def _boiler() -> bytes:
    return b"".join(b"[%08d] INFO scheduler: heartbeat ok, 0 jobs waiting, 0 failed\n" % n for n in range(16_000))


def _noise() -> bytes:
    return np.random.default_rng(0).integers(0, 256, 1_000_000, dtype=np.uint8).tobytes()


TEXTS: dict[str, Callable[[], bytes]] = {
    "python": _python,
    "man_en": _manual(""),
    "man_de": _manual("de"),
    "man_fr": _manual("fr"),
    "tiny_fr": _manual("fr"),
    "dict": _dictionary,
    "quotes": _quotes,
    "boiler": _boiler,
    "noise": _noise,
}
