"""Arguments of Airflow's connections to its own database where that is SQLite: see docs/decisions/0014.

Airflow reads in a savepoint and then writes. SQLite begins a transaction at the savepoint for reading only,
and when another process has written meanwhile, the write is refused at once ("database is locked"), whatever
the time-out: what was read is outdated. A transaction that begins for writing waits for its turn instead, and
reads what is there then. Readers without a savepoint begin none, and wait for nobody.
"""

from __future__ import annotations

import sqlite3
from typing import Any

WAIT_S = 120.0  # for other components' writes, which take milliseconds each


class _Cursor(sqlite3.Cursor):
    def execute(self, sql: str, parameters: Any = (), /) -> _Cursor:
        if sql.startswith("SAVEPOINT") and not self.connection.in_transaction:
            super().execute("BEGIN IMMEDIATE")
        super().execute(sql, parameters)
        return self


class _Connection(sqlite3.Connection):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # With a write-ahead log, which Airflow sets, a file stays whole without a sync for each commit; a
        # loss of power may cost the last ones.
        super().cursor().execute("PRAGMA synchronous=NORMAL")

    def cursor(self, factory: Any = _Cursor) -> Any:
        return super().cursor(factory)


SQLITE_ARGUMENTS: dict[str, Any] = {
    "timeout": WAIT_S,
    "isolation_level": "IMMEDIATE",
    "factory": _Connection,
}
