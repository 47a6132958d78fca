"""A private PostgreSQL on this machine: loopback only, password authentication, stopped at the end."""

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.needs import missing, require_package
from scalevec.results.extras import install_command
from scalevec.results.index.database import trials

INSTALL = "apt-get install -y --no-install-recommends postgresql"
USER = "postgres"
DATABASE = "scalevec"
SWITCH_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]


@dataclass(frozen=True)
class PostgresServer:
    """A server whose data lie in ``folder``; it listens on ``port`` of 127.0.0.1."""

    programs: Path
    folder: Path
    port: int
    password: str

    @property
    def url(self) -> str:
        """The store URL, password included."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """The store URL of one database."""
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        """Make an empty database; its store URL."""
        _execute(self.url_of("postgres"), f"CREATE DATABASE {database}")
        return self.url_of(database)

    def start(self) -> None:
        """Start and wait until it answers."""
        settings = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {self.folder} -c fsync=off"
        self._control("start", "-l", str(self.folder / "log"), "-o", settings)

    def stop(self) -> None:
        """Stop at once, as a crash of its machine would; a start recovers."""
        self._control("stop", "-m", "immediate")

    def _control(self, action: str, *options: str) -> None:
        data = str(self.folder / "data")
        self.as_owner(str(self.programs / "pg_ctl"), action, "-w", "-t", "600", "-D", data, *options)

    def as_owner(self, *command: str) -> None:
        """Run ``command`` as a user that PostgreSQL accepts: it refuses to run as root."""
        switch = SWITCH_USER if _is_root() else []
        # The server inherits the output of pg_ctl, so a pipe would stay open as long as it runs.
        with (self.folder / "commands.log").open("ab") as log:
            done = subprocess.run(
                [*switch, *command], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        assert done.returncode == 0, (self.folder / "commands.log").read_text()


def _is_root() -> bool:
    return os.geteuid() == 0


def _programs() -> Path | None:
    actual = shutil.which("initdb")
    places = (
        [Path(actual).parent] if actual else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    )
    return next((position for position in places if (position / "initdb").exists()), None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _new_server(programs: Path, folder: Path) -> PostgresServer:
    """A new cluster of databases in ``folder``, its server not started yet."""
    server = PostgresServer(programs, folder, _free_port(), f"secret-{secrets.token_hex(8)}")
    if _is_root():
        owner = pwd.getpwnam(USER)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    (folder / "password").write_text(server.password)
    (folder / "password").chmod(0o644)
    authentication = ["-U", USER, "-A", "scram-sha-256", f"--pwfile={folder / 'password'}"]
    where = ["-D", str(folder / "data"), "--locale=C.UTF-8", "--no-sync"]
    server.as_owner(str(programs / "initdb"), *where, *authentication)
    return server


def _require_a_user() -> None:
    if _is_root() and subprocess.run([*SWITCH_USER, "true"], capture_output=True).returncode:
        missing(f"the right to become {USER}", "run the tests as root itself")


def _execute(url: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def running() -> Iterator[PostgresServer]:
    """A running server with an empty database; what is missing skips the test, or fails it in CI."""
    programs = _programs()
    if programs is None:
        missing("PostgreSQL", INSTALL)
    require_package("psycopg", install_command("postgresql"))
    _require_a_user()
    # Not below pytest's folder, which only its owner may enter: the server runs as another user.
    with tempfile.TemporaryDirectory(prefix="scalevec-postgres-") as name:
        server = _new_server(programs, Path(name))
        server.start()
        try:
            server.create(DATABASE)
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A running server with an empty database; a test that stops it starts it again."""
    yield from running()


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """The URL of the database, empty for each test."""
    _execute(postgres.url, f"DROP TABLE IF EXISTS {trials.name}")
    return postgres.url
