"""A PostgreSQL server of the system's package, for tests: PyPI has none."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from rtolap.stack.ports import free_port

from tests.support.waiting import patience_s, result_of

_FOLDERS = sorted(str(path) for path in Path("/usr/lib/postgresql").glob("*/bin"))
USER, PASSWORD, DATABASE = "lake", "pässword of a 'lake'", "lake"


def find_postgres() -> str | None:
    """Return the folder of its programs; None where it is not installed."""
    found = shutil.which("postgres")
    if found is not None:
        return str(Path(found).parent)
    return _FOLDERS[-1] if _FOLDERS else None


class PostgresServer:
    """A server in a folder of its own. It refuses to run as root: then it runs as the system's `postgres`."""

    def __init__(self, folder: Path, programs: str) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}/{DATABASE}"
        self._folder = folder
        self._programs = programs
        self._user = "postgres" if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._user is not None:
            account = pwd.getpwnam(self._user)
            os.chown(self._folder, account.pw_uid, account.pw_gid)
        # Its owner comes in by the socket alone, in a folder that is the owner's.
        command = [f"{self._programs}/initdb", "-D", str(self._folder / "data"), "-U", "owner", "-E", "UTF8"]
        command += ["--no-locale", "--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync"]
        subprocess.run(
            command, user=self._user, check=True, capture_output=True, timeout=patience_s(120), cwd="/"
        )
        self.start()
        with psycopg.connect(self._owner, autocommit=True) as connection:
            user, database = sql.Identifier(USER), sql.Identifier(DATABASE)
            password = sql.Literal(PASSWORD)
            connection.execute(sql.SQL("CREATE USER {} PASSWORD {}").format(user, password))
            connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, user))

    @property
    def _owner(self) -> str:
        return f"host={self._folder} port={self.port} user=owner dbname=postgres connect_timeout=5"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [
                *(f"{self._programs}/postgres", "-D", str(self._folder / "data"), "-p", str(self.port)),
                *("-k", str(self._folder), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"),
            ],
            user=self._user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        result_of(lambda: psycopg.connect(self._owner).close(), psycopg.OperationalError)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def postgres_server(folder: Path, programs: str) -> Iterator[PostgresServer]:
    server = PostgresServer(folder, programs)
    try:
        server.make()
        yield server
    finally:
        server.kill()
