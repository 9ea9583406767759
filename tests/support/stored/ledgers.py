"""Ledgers of tests as copies of one whose schema was made once: Alembic takes longer than most tests."""

from __future__ import annotations

import functools
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from rtolap.stored.metastore.database import Ledger


def open_ledger(path: Path, *, synced: bool = False, **options: Any) -> Ledger:
    """Open a ledger. `options` are those of `Ledger.open`. A ledger that is at the path is opened as it is.
    Unless it is `synced`, what is committed outlives the process and not the machine."""
    if not path.exists():
        path.write_bytes(_ledger_without_rows())
    ledger = Ledger.open(f"sqlite:///{path}", **options)
    if not synced:
        sa.event.listen(ledger._engine, "connect", _leave_to_the_system)
        ledger._engine.dispose()  # what is connected already
    return ledger


def _leave_to_the_system(connection: sqlite3.Connection, record: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")


@functools.cache
def _ledger_without_rows() -> bytes:
    with tempfile.TemporaryDirectory(prefix="rtolap-ledger-") as folder:
        path = Path(folder) / "ledger.db"
        Ledger.open(f"sqlite:///{path}").close()
        return path.read_bytes()
