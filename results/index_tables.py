"""The tables of the index, their version, and how a database that holds another version is opened."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.schema import CreateTable, DropTable

SCHEMA_VERSION = 1
BUSY_TIMEOUT_S = 60
INTEGER_COLUMNS = (
    *("n_params", "n_params_embedding", "n_params_scale_vectors", "n_params_total", "n_tokens"),
    *("steps", "micro_batch", "resumes"),
)
# FLOPs are floats: 6 N D outgrows 64 bits at a billion parameters.
FLOAT_COLUMNS = (
    *(
        "epochs",
        "flops",
        "flops_counted",
        "loss",
        "loss_validation",
        "loss_initial",
        "wall_s",
        "tokens_per_s",
    ),
)
TEXT_COLUMNS = ("device", "precision")

metadata = sa.MetaData()
meta = sa.Table(
    "scalevec_meta",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
trials = sa.Table(
    "scalevec_trials",
    metadata,
    sa.Column("trial_id", sa.String(64), primary_key=True),
    sa.Column("runs_dir", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("cause", sa.Text),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("time", sa.Text),
    *(sa.Column(name, sa.BigInteger) for name in INTEGER_COLUMNS),
    *(sa.Column(name, sa.Double) for name in FLOAT_COLUMNS),
    *(sa.Column(name, sa.Text) for name in TEXT_COLUMNS),
    sa.Column("semantic", sa.JSON, nullable=False),
    sa.Column("descriptive", sa.JSON, nullable=False),
    sa.Column("result", sa.JSON(none_as_null=True)),
)
_INSERTS: dict[str, Callable[..., Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class StoreError(ValueError):
    """The index cannot be used: what is wrong with it, and where it is (without its password)."""


@contextmanager
def store_errors(url: sa.URL) -> Iterator[None]:
    """Raise what the database says as one ``StoreError`` without a password in it."""
    try:
        yield
    except SQLAlchemyError as error:
        said = str(error.orig if isinstance(error, DBAPIError) else error).strip()
        for secret in filter(None, (url.password, url.query.get("password"))):
            said = said.replace(str(secret), "***")
        raise StoreError(f"store {shown(url)}: {said}") from None


def shown(url: sa.URL) -> str:
    """``url`` with its password hidden, also where it is given as a parameter."""
    if "password" in url.query:
        url = url.update_query_dict({"password": "hidden"})
    return url.render_as_string(hide_password=True)


def open_engine(text: str) -> sa.Engine:
    """An engine for the store URL ``text`` whose tables have this version.

    The tables of an older version are replaced by empty ones, to be collected again. Raises
    ``StoreError`` for a URL that is malformed or cannot be reached, and for a newer version.
    """
    url = _parse_url(text)
    try:
        engine = sa.create_engine(url, **_engine_options(url))
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise StoreError(f"store {shown(url)}: its driver is not installed ({error})") from None
    with store_errors(url):
        try:
            _prepare(engine)
        except (
            IntegrityError
        ):  # PostgreSQL: two processes created the same table at once, and one of them did
            _prepare(engine)
    return engine


def _parse_url(text: str) -> sa.URL:
    try:
        url = sa.make_url(text)
    except (ArgumentError, ValueError):
        raise StoreError(
            "store URL: cannot be read; expected sqlite:///PATH or postgresql://HOST/NAME"
        ) from None
    name = url.get_backend_name()
    if name not in _INSERTS:
        raise StoreError(f"store {shown(url)}: {name!r} is not supported; allowed are sqlite and postgresql")
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def _engine_options(url: sa.URL) -> dict[str, Any]:
    """SQLite keeps its rollback journal: a write-ahead log breaks where a home folder is shared by hosts."""
    if url.get_backend_name() == "sqlite":
        return {"connect_args": {"timeout": BUSY_TIMEOUT_S}}
    return {"pool_pre_ping": True}


def upsert(engine: sa.Engine) -> sa.Insert:
    """Insert rows of trials; where a trial is there already its row is replaced."""
    insert = _INSERTS[engine.dialect.name](trials)
    replaced = {
        column.name: insert.excluded[column.name] for column in trials.columns if not column.primary_key
    }
    statement: sa.Insert = insert.on_conflict_do_update(index_elements=[trials.c.trial_id], set_=replaced)
    return statement


def _prepare(engine: sa.Engine) -> None:
    version = _stored_version(engine)
    if version is None:
        _create(engine)
        version = _stored_version(engine)
    if version is None or version > SCHEMA_VERSION:
        raise StoreError(
            f"store {shown(engine.url)}: its schema has version {version}, this scalevec knows version "
            f"{SCHEMA_VERSION}; use a newer scalevec or another store"
        )
    if version < SCHEMA_VERSION:
        replace_older(engine, version)


def _stored_version(engine: sa.Engine) -> int | None:
    if not sa.inspect(engine).has_table(meta.name):
        return None
    with engine.connect() as connection:
        value = connection.scalar(sa.select(meta.c.value).where(meta.c.key == "schema_version"))
    return int(value) if value is not None else None


def _create(engine: sa.Engine) -> None:
    version = {"key": "schema_version", "value": str(SCHEMA_VERSION)}
    with engine.begin() as connection:
        for table in (meta, trials):
            connection.execute(CreateTable(table, if_not_exists=True))
        connection.execute(_INSERTS[engine.dialect.name](meta).values(version).on_conflict_do_nothing())


def replace_older(engine: sa.Engine, older: int) -> None:
    """Of several processes that find an old version, the one whose update counts replaces the table."""
    is_older = (meta.c.key == "schema_version") & (meta.c.value == str(older))
    with engine.begin() as connection:
        updated = connection.execute(sa.update(meta).where(is_older).values(value=str(SCHEMA_VERSION)))
        if updated.rowcount == 1:
            connection.execute(DropTable(trials, if_exists=True))
            connection.execute(CreateTable(trials))
