"""Where studies are kept: Optuna's storages, opened so that many processes can use one and lose no write.

sqlite:///search.db  or  search.db        one machine, or a few workers on a disk that they share (not NFS)
journal:search.log   or  search.log       a file to which lines are added; on NFS too
postgresql://user@host/database           many machines
"""

from __future__ import annotations

import json
import logging
import random
import re
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import CuveeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optuna.storages import BaseStorage

Answer = TypeVar("Answer")
SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
JOURNAL_SUFFIXES = (".log", ".journal", ".jsonl")
BUSY_SECONDS = 60  # that a writer waits for the others on SQLite
PATIENCE = 120.0  # seconds in which a storage that fails may come back
WAYS = "sqlite:///FILE.db, FILE.db, journal:FILE, FILE.log, or postgresql://USER@HOST/DATABASE"
INSTALL = "install the extra search: pip install '.[search]' in a checkout of Cuvée"


def open_storage(url: str) -> BaseStorage:
    """Return the storage that `url` names; files and tables that are missing are made.

    Raises:
        CuveeError: it is no address of a storage, or what it names cannot be opened.
    """
    try:
        from optuna.storages import JournalStorage, RDBStorage

        from .journal import WholeLines
    except ModuleNotFoundError:
        raise CuveeError(f"package 'optuna' must be installed to search, but got none; {INSTALL}") from None
    kind, place = _parts(url)
    if kind == "sqlite" and place in ("", ":memory:"):
        raise CuveeError(f"--storage must be a file that all workers can open, but got {url!r}; name one")
    with quiet():
        try:
            if kind == "sqlite":
                return _sqlite(place)
            if kind == "journal":
                return JournalStorage(WholeLines(place))
            options = {"pool_pre_ping": True, "pool_size": 2, "max_overflow": 2}
            return _patiently(lambda: RDBStorage(place, engine_kwargs=options))
        except CuveeError:
            raise
        except Exception as error:  # whatever the driver of some database raises
            raise CuveeError(
                f"--storage must be a storage that can be opened, but got {without_password(url)!r}: {_said_by(error)}"
            ) from None


def default_storage(folder: Path) -> str:
    """Return the address of the storage that a search has if none is given: a SQLite file in its folder."""
    return f"sqlite:///{folder / 'study.db'}"


def again(call: Callable[[], Answer]) -> Answer:
    """Return what a call to a storage returns; it is made again while the storage is busy or away.

    What is called must be safe to repeat: each call is one transaction that either happened or did not.

    Raises:
        CuveeError: the storage refuses it, or did not come back in `PATIENCE` seconds.
    """
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import DBAPIError

    try:
        return _patiently(call)
    except (StorageInternalError, DBAPIError, OSError) as error:
        raise CuveeError(f"storage must take what is stored, but got: {_said_by(error)}") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:  # of a journal that was written over
        raise CuveeError(f"storage must be as searches wrote it, but got: {_said_by(error)}") from error


def _patiently(call: Callable[[], Answer]) -> Answer:
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import DBAPIError

    give_up, pause = time.monotonic() + PATIENCE, 0.05
    while True:
        try:
            return call()
        except (StorageInternalError, DBAPIError) as error:
            if not _may_pass(error):
                raise
            if time.monotonic() > give_up:
                raise CuveeError(f"storage must answer within {PATIENCE:g} s, but got: {_said_by(error)}") from None
        time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  (so that workers do not meet again)
        pause = min(2 * pause, 5.0)


def _said_by(error: Exception) -> str:
    """Return the first line of what a driver said."""
    text = str(error.__cause__ or error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def without_password(url: str) -> str:
    """Return an address as it may be shown."""
    return re.sub(r"(://[^/@:]*):[^/@]*@", r"\1:***@", url)


def _may_pass(error: Exception) -> bool:
    """Tell whether a failure may be gone in a moment: a busy database, one that restarts, tables others make."""
    from sqlalchemy.exc import OperationalError

    cause = error.__cause__ or error
    text = str(cause).lower()
    lasting = (
        "no such",
        "readonly",
        "read-only",
        "authentication",
        "does not exist",
        "unable to open",
        "not a database",
    )
    at_once = ("already exists", "duplicate key", "unique constraint")
    passing = isinstance(cause, OperationalError) or any(word in text for word in at_once)
    return passing and not any(word in text for word in lasting)


def _parts(url: str) -> tuple[str, str]:
    """Return the kind of a storage, and what its opener takes."""
    if not isinstance(url, str):
        raise CuveeError(f"--storage must be {WAYS}, but got {url!r:.100}")
    if url.startswith("sqlite:///"):
        return "sqlite", url.removeprefix("sqlite:///")
    if url.startswith("journal:"):
        return "journal", url.removeprefix("journal:").removeprefix("//")
    if url.startswith(("postgresql://", "postgresql+", "mysql://", "mysql+")):
        # psycopg 3 is what the extra brings; a driver that is named stays.
        return "database", url.replace("postgresql://", "postgresql+psycopg://", 1)
    if "://" not in url and url.endswith(SQLITE_SUFFIXES):
        return "sqlite", url
    if "://" not in url and url.endswith(JOURNAL_SUFFIXES):
        return "journal", url
    raise CuveeError(f"--storage must be {WAYS}, but got {url!r}")


def _sqlite(place: str) -> BaseStorage:
    """Return the storage in a SQLite file where every transaction has the file to itself from its beginning.

    Optuna reads a trial's state and then writes it. SQLite would let two processes read before either writes, so that
    both would claim the trial; taking the lock at once makes claims exclusive, and leaves no lock to be upgraded, which
    SQLite refuses without waiting. Write-ahead logging keeps the file whole when a process is killed.
    """
    import optuna
    from sqlalchemy import URL, event

    Path(place).absolute().parent.mkdir(parents=True, exist_ok=True)
    options = {"connect_args": {"timeout": BUSY_SECONDS, "check_same_thread": False}}
    named = URL.create("sqlite", database=place).render_as_string()  # as a % in it is a % for every release
    url = f"sqlite:///{place}" if "?" in place else named
    storage = _patiently(lambda: optuna.storages.RDBStorage(url, engine_kwargs=options))

    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # transactions begin below, not where the driver thinks
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    event.listen(storage.engine, "connect", connected)
    event.listen(storage.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    storage.engine.dispose()  # connections made before know nothing of this
    return storage


@contextmanager
def quiet(level: int = logging.WARNING) -> Iterator[None]:
    """Keep Optuna's notes below a level, such as those on tables that it makes, out of what the user reads."""
    from optuna import logging as notes

    before = notes.get_verbosity()
    notes.set_verbosity(level)
    try:
        yield
    finally:
        notes.set_verbosity(before)
