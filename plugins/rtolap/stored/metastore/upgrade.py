"""Bringing a ledger's schema to the newest revision, when a program opens it.

    1. read the ledger's revision     it is the newest: done, and Alembic was never loaded
    2. take the lock                  programs that start at once wait here; it ends with its connection
    3. run the revisions              MySQL commits each definition by itself: what is cut short here is run
                                      again by the next start, and every operation may be repeated
    4. note the revision              with the definitions on SQLite, after them on MySQL

A schema newer than the program is refused, because the program does not know what it would break.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import sqlalchemy as sa

from rtolap.base.errors import Unavailable
from rtolap.stored.metastore.dialects import Dialect
from rtolap.stored.metastore.schema import VERSION_TABLE

log = logging.getLogger(__name__)

HEAD = "0008"
_LOCK_TIMEOUT_S = 20
# Loaded only for a ledger that is not up to date: Alembic takes longer to load than a ledger to open.
_REVISION_RUN = "rtolap.stored.metastore.revision_run"


@dataclass(frozen=True)
class Revisions:
    """Revisions of a schema.

    Attributes:
        folder: a script directory of Alembic.
        head: its newest revision, known without loading Alembic.
    """

    folder: Path
    head: str


SHIPPED = Revisions(Path(__file__).parent / "migrations", HEAD)


def present_revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    noted = sa.table(VERSION_TABLE, sa.column("version_num", sa.String))
    return connection.scalar(sa.select(noted.c.version_num))


def upgrade_schema(connection: sa.Connection, dialect: Dialect, revisions: Revisions) -> None:
    """Run steps 2 to 4. Raises SchemaTooNew, Unavailable."""
    with connection.begin():
        if not dialect.lock_for_upgrade(connection, _LOCK_TIMEOUT_S):
            raise Unavailable(
                "somebody else has been changing the ledger's schema for too long",
                found=f"its lock not free within {_LOCK_TIMEOUT_S} s",
                action="try again later",
            )
        try:
            present = present_revision(connection)  # perhaps somebody else was first
            if present != revisions.head:
                run = import_module(_REVISION_RUN)
                run.run_revisions(connection, revisions.folder, present, revisions.head)
        finally:
            if not connection.invalidated:  # else the lock is lost too, and the error says why
                dialect.unlock_after_upgrade(connection)
