"""Databases on a real MariaDB: each test has one of its own, which it may open as often as it likes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pymysql
import pytest
from rtolap.stack.process import ManagedProcess
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.upgrade import SHIPPED, Revisions

from tests.support.stored.ledger_contract import Databases
from tests.support.waiting import until

PASSWORD = "kept-in-a-file"


class MariaDatabases(Databases):
    def __init__(self, address: str, password_file: Path) -> None:
        self.address = address
        self.password_file = password_file

    def open(self, revisions: Revisions = SHIPPED, *, retry_budget_s: float = 30.0) -> Ledger:
        return Ledger.open(
            self.address, password_file=self.password_file, revisions=revisions, retry_budget_s=retry_budget_s
        )

    def pass_ms(self, ledger: Ledger, duration_ms: int) -> None:
        until_ms = ledger.read("clock", ledger.now_ms) + duration_ms
        until(lambda: ledger.read("clock", ledger.now_ms) >= until_ms, "the ledger's clock goes on")


@pytest.fixture
def root(mariadb_server: ManagedProcess) -> Callable[..., None]:
    """root(statement, …): as the server's administrator."""

    def execute(*statements: str) -> None:
        socket = str(mariadb_server.spec.folder / "s.sock")
        with pymysql.connect(unix_socket=socket, user="root", autocommit=True) as connection:
            for statement in statements:
                connection.cursor().execute(statement)

    return execute


@pytest.fixture
def maria(
    mariadb_server: ManagedProcess, root: Callable[..., None], unique_name: str, tmp_path: Path
) -> Iterator[MariaDatabases]:
    user = unique_name[-30:]
    # as a server is that nobody has prepared for this: its defaults ignore case
    root(
        f"CREATE DATABASE `{unique_name}` CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        f"CREATE USER '{user}'@'%' IDENTIFIED BY '{PASSWORD}'",
        f"GRANT ALL ON `{unique_name}`.* TO '{user}'@'%'",
    )
    password_file = tmp_path / "password"
    password_file.write_text(PASSWORD + "\n")
    yield MariaDatabases(f"mysql://{user}@{mariadb_server.address}/{unique_name}", password_file)
    if mariadb_server.missing() is not None:  # whoever kills it starts it again: it has ended by itself
        print(mariadb_server.log_tail(200))
        shutil.rmtree(mariadb_server.spec.folder / "data")  # it might end again by what it has kept
        mariadb_server.start()
        return
    root(f"DROP DATABASE `{unique_name}`", f"DROP USER '{user}'@'%'")
