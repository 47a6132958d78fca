"""The table of the index, and how a database that holds it is opened."""

from importlib import import_module
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex, CreateTable

from scalevec.results.columns import ENVIRONMENT_COLUMNS
from scalevec.results.extras import install_command
from scalevec.results.index.url import StoreUnavailableError, parse_url, shown, store_errors

VERSION = 10
"""Of the columns. The table is named by it: another version of scalevec has a table of its own."""
BUSY_TIMEOUT_S = 60
CONNECT_TIMEOUT_S = 10
WRITERS_LOCK = 0x5CA1E7EC
"""The advisory lock of PostgreSQL that each writing transaction holds."""
INTEGER_COLUMNS = (
    *("n_params", "n_params_embedding", "n_params_scale_vectors", "n_params_total", "n_tokens"),
    *("steps", "micro_batch", "world_size", "resumes", "peak_memory_bytes", "allocated_bytes"),
)
# FLOPs are floats: 6 N D outgrows 64 bits at a billion parameters.
FLOAT_COLUMNS = (
    *("epochs", "flops", "flops_counted", "loss", "loss_validation", "loss_initial"),
    *("wall_s", "tokens_per_s", "step_s_median", "mfu", "data_s", "checkpoints_s", "evaluation_s"),
)
TEXT_COLUMNS = ("device", "arithmetic", "precision")
BLOCK_COLUMNS = ("loss_blocks", "block_tokens")
"""Lists of numbers, one for each block of the test split, as JSON text."""

trials = sa.Table(
    f"scalevec_trials_{VERSION}",
    sa.MetaData(),
    sa.Column("runs_dir", sa.Text, primary_key=True),
    sa.Column("trial_id", sa.String(64), primary_key=True),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("cause", sa.Text),
    sa.Column("attempt", sa.BigInteger, nullable=False),
    sa.Column("time", sa.Text),
    *(sa.Column(name, sa.BigInteger) for name in INTEGER_COLUMNS),
    *(sa.Column(name, sa.Double) for name in FLOAT_COLUMNS),
    *(sa.Column(name, sa.Text) for name in (*TEXT_COLUMNS, *BLOCK_COLUMNS, *ENVIRONMENT_COLUMNS)),
    sa.Column("semantic", sa.JSON, nullable=False),
    sa.Column("descriptive", sa.JSON, nullable=False),
    sa.Column("result", sa.JSON(none_as_null=True)),
)
# Holds all that ``status`` asks, so that it need not read the wide rows.
states = sa.Index(f"scalevec_states_{VERSION}", trials.c.runs_dir, trials.c.trial_id, trials.c.state)


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


def upsert(engine: sa.Engine) -> sa.Insert:
    """Insert rows of trials; where a trial is there already its row is replaced."""
    # The dialects have one each, which knows what to do where a row is there already.
    insert = import_module(f"sqlalchemy.dialects.{engine.dialect.name}").insert(trials)
    keys = list(trials.primary_key)
    replaced = {column.name: insert.excluded[column.name] for column in trials.columns if column not in keys}
    statement: sa.Insert = insert.on_conflict_do_update(index_elements=keys, set_=replaced)
    return statement


def take_turn(connection: sa.Connection) -> None:
    """Wait until no other process writes, so that two that touch the same rows never deadlock.

    SQLite does so by itself: its transactions here begin with their write.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(WRITERS_LOCK)))
