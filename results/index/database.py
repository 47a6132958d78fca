"""The store of the index: how it is named without its password, its one table, and what its errors become."""

import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.schema import CreateIndex, CreateTable

from scalevec.results.extras import install_command
from scalevec.results.files import cache_folder

STORE_VARIABLE = "SCALEVEC_STORE"
EXPECTED = "expected sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME"
_DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
_TOLD = ("host", "port", "user", "dbname", "sslmode", "connect_timeout")
_OF_THE_MACHINE = (exc.OperationalError, exc.InterfaceError, exc.ProgrammingError, exc.TimeoutError)


class StoreError(ValueError):
    """The index cannot be used: what is wrong with it, and where it is (without its password)."""


class StoreDamagedError(StoreError):
    """The store is there and holds something that no index of this version can be."""


class StoreUnavailableError(StoreError, OSError):
    """The store is not there, does not answer, does not let us in, or its driver is not installed."""


def named_store() -> str | None:
    """The store that a person named, None where there is no such: the one place that reads the variable."""
    return os.environ.get(STORE_VARIABLE) or None


def store_url(runs_dir: Path) -> str:
    """The store of RUNS_DIR: what SCALEVEC_STORE says, else :func:`default_url`."""
    return named_store() or default_url(runs_dir)


def default_url(runs_dir: Path) -> str:
    """The URL of an SQLite file in the user's cache folder, one for each RUNS_DIR.

    The folder is created.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(str(Path(runs_dir).resolve()).encode()).hexdigest()[:16]
    return sa.URL.create("sqlite", database=str(folder.resolve() / f"index-{key}.sqlite")).render_as_string()


def set_aside(url: str) -> Path:
    """Rename the file of a :func:`default_url`; its new path.

    Should another process have done so since, and collected again, its rows are collected once more.
    """
    path = Path(parse_url(url).database or "")
    aside = path.with_name(f"{path.name}.damaged-{secrets.token_hex(4)}")
    with suppress(FileNotFoundError):
        path.replace(aside)
    # Left by a process that died while it wrote, of the file that is set aside.
    path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
    return aside


def parse_url(text: str) -> sa.URL:
    """The store URL ``text`` with the driver that we use. Raises ``StoreError``."""
    try:
        url = sa.make_url(text)
    except (exc.ArgumentError, ValueError):
        raise StoreError(f"store URL: cannot be read; {EXPECTED}") from None
    if "@" in (url.host or ""):
        raise StoreError("store URL: holds a second '@'; in a user name or a password it is written %40")
    if url.drivername not in _DRIVERS:
        raise StoreError(f"store {shown(url)}: {url.drivername!r} is not supported; {EXPECTED}")
    if url.get_backend_name() == "sqlite" and (
        url.host or url.query or url.database in (None, "", ":memory:")
    ):
        raise StoreError(f"store {shown(url)}: names no file; expected sqlite:///PATH and nothing else")
    return url.set(drivername=_DRIVERS[url.drivername])


def shown(url: sa.URL) -> str:
    """``url`` with its password hidden, and without its parameters, which may hold one too."""
    return url.set(query={}).render_as_string(hide_password=True)


def masked(message: str, url: sa.URL) -> str:
    """``message`` without the password and the parameters of ``url``, on one line."""
    given = url.normalized_query.items()
    secrets = [url.password, *(value for name, values in given if name not in _TOLD for value in values)]
    for secret in filter(None, secrets):
        message = message.replace(str(secret), "***")
    return "; ".join(line.strip() for line in message.splitlines() if line.strip())


def is_damage(error: exc.SQLAlchemyError, url: sa.URL) -> bool:
    """Whether the SQLite file itself is broken or has other tables, and not the machine below it."""
    if not isinstance(error, exc.DBAPIError) or url.get_backend_name() != "sqlite":
        return False
    path = Path(url.database or "")
    if path.is_dir() or (path.is_symlink() and not path.is_file()):
        return True
    # Of operational errors this one alone is no trouble of the file system: other columns, or no such table.
    code = getattr(error.orig, "sqlite_errorcode", None)
    return not isinstance(error, exc.OperationalError) or code == sqlite3.SQLITE_ERROR


@contextmanager
def store_errors(url: sa.URL) -> Iterator[None]:
    """Raise what the database says as one ``StoreError`` without a password in it."""
    try:
        yield
    except StoreError:
        raise
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise StoreDamagedError(f"store {shown(url)}: holds what nobody wrote ({error})") from None
    except ValueError as error:  # what a driver makes of a host or a file that cannot be one
        raise StoreError(f"store {shown(url)}: {masked(str(error), url)}") from None
    except exc.SQLAlchemyError as error:
        message = masked(str(error.orig if isinstance(error, exc.DBAPIError) else error), url)
        if is_damage(error, url):
            raise StoreDamagedError(f"store {shown(url)}: {message}") from None
        kind = StoreUnavailableError if isinstance(error, _OF_THE_MACHINE) else StoreError
        raise kind(f"store {shown(url)}: {message}") from None


VERSION = 12
"""Of the columns. The table is named by it: another version of scalevec has a table of its own."""
BUSY_TIMEOUT_S = 60
CONNECT_TIMEOUT_S = 10
WRITERS_LOCK = 0x5CA1E7EC
"""The advisory lock of PostgreSQL that each writing transaction holds."""
OF_STATUS: dict[str, type[sa.Text | sa.Double[float]]] = {
    "cause": sa.Text,
    "loss": sa.Double,
    "wall_s": sa.Double,
    "evaluation_s": sa.Double,
}
"""What status reads of every trial, with a column of its own beside the whole row, the ``record``."""

trials = sa.Table(
    f"scalevec_trials_{VERSION}",
    sa.MetaData(),
    sa.Column("runs_dir", sa.Text, primary_key=True),
    sa.Column("trial_id", sa.String(64), primary_key=True),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    *(sa.Column(name, kind) for name, kind in OF_STATUS.items()),
    sa.Column("record", sa.JSON, nullable=False),
)
OF_INDEX = ("state", "fingerprint", *OF_STATUS)
# Holds all that ``plan`` and ``status`` ask, so that they need not read the wide rows.
states = sa.Index(
    f"scalevec_states_{VERSION}", trials.c.runs_dir, trials.c.trial_id, *(trials.c[name] for name in OF_INDEX)
)


def open_engine(text: str) -> sa.Engine:
    """An engine for the store URL ``text``, in which the table is made where it is absent.

    Documents go into it as JSON text and come back as values. Raises ``StoreUnavailableError`` for a store
    that cannot be reached, ``StoreError`` for a malformed URL.
    """
    url = parse_url(text)
    with store_errors(url):
        try:
            engine = sa.create_engine(url, hide_parameters=True, json_serializer=str, **_engine_options(url))
        except ImportError as error:
            raise StoreUnavailableError(
                f"store {shown(url)}: its driver is not installed ({error}); {install_command('postgresql')}"
            ) from None
        if not sa.inspect(engine).has_table(trials.name):
            with engine.begin() as connection:
                take_turn(connection)
                connection.execute(CreateTable(trials, if_not_exists=True))
                connection.execute(CreateIndex(states, if_not_exists=True))
        return engine


def _engine_options(url: sa.URL) -> dict[str, Any]:
    """SQLite keeps its rollback journal: a write-ahead log breaks where a home folder is shared by hosts."""
    if url.get_backend_name() == "sqlite":
        return {"connect_args": {"timeout": BUSY_TIMEOUT_S}}
    patience = {} if "connect_timeout" in url.query else {"connect_timeout": CONNECT_TIMEOUT_S}
    return {"pool_pre_ping": True, "connect_args": patience}


def take_turn(connection: sa.Connection) -> None:
    """Wait until no other process writes, so that two that touch the same rows never deadlock.

    SQLite does so by itself: its transactions here begin with their write.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(WRITERS_LOCK)))
