"""Statements that define stored tables, carried out through a frontend."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress

from rtolap.base.errors import NotFound, UnsupportedSql
from rtolap.protocols.stored_tables.messages import PartitionInfo, TableName, TransactionInfo
from rtolap.query.catalogue import DATABASE, INFORMATION_SCHEMA
from rtolap.query.stored.ddl import (
    AddTablePartitionStatement,
    AlterTableStatement,
    CreateDatabaseStatement,
    CreateTableStatement,
    DefinitionStatement,
    DropDatabaseStatement,
    DropTablePartitionStatement,
    DropTableStatement,
    TruncateTableStatement,
)
from rtolap.query.stored.source import StoredSource


class StoredDefinitions:
    """Definitions of stored tables. They are thread-safe. The caller checks the rights."""

    def __init__(self, source: StoredSource, refresh_catalogue: Callable[[], object]) -> None:
        """Create an executor of definitions.

        Args:
            refresh_catalogue: called after each statement, so that the next one sees what it has changed.
        """
        self._source = source
        self._refresh_catalogue = refresh_catalogue

    def apply(self, statement: DefinitionStatement) -> tuple[str, ...]:
        """Apply the statement; return notes on what it requested and did not get. Raises what the frontend
        raises, QueryError."""
        notes: tuple[str, ...] = ()
        try:
            match statement:
                case CreateTableStatement(definition=definition):
                    _check_database(definition.database)
                    self._source.create(definition, if_not_exists=statement.if_not_exists)
                    notes = statement.notes
                case DropTableStatement(name=name):
                    _check_database(name.db)
                    with suppress(NotFound) if statement.if_exists else nullcontext():
                        self._source.drop(name)
                case AlterTableStatement(name=name, changes=changes):
                    _check_database(name.db)
                    self._source.change_columns(name, changes)
                case AddTablePartitionStatement(name=name, partition=partition):
                    _check_database(name.db)
                    self._source.add_partition(name, partition)
                    notes = statement.notes
                case DropTablePartitionStatement(name=name, partition=partition):
                    _check_database(name.db)
                    self._source.drop_partition(name, partition, if_exists=statement.if_exists)
                case TruncateTableStatement(name=name):
                    _check_database(name.db)
                    self._source.truncate(name)
                case CreateDatabaseStatement(name=database, if_not_exists=if_not_exists):
                    _check_database(database)
                    self._source.create_database(database, if_not_exists=if_not_exists)
                case DropDatabaseStatement(name=database, if_exists=if_exists):
                    _check_database(database)
                    with suppress(NotFound) if if_exists else nullcontext():
                        self._source.drop_database(database)
        finally:
            self._refresh_catalogue()
        return notes

    def partitions(self, name: TableName) -> tuple[PartitionInfo, ...]:
        """Return the partitions of a table. Raises NotFound."""
        return self._source.partitions(name)

    def transaction(self, db: str, label: str) -> TransactionInfo:
        """Return the transaction of a label. Raises NotFound."""
        return self._source.transaction(db, label)

    def transactions(self, db: str, like: str) -> tuple[TransactionInfo, ...]:
        """Return the transactions with labels LIKE the pattern, the latest first."""
        return self._source.transactions(db, like)


def _check_database(name: str) -> None:
    if name in (DATABASE, INFORMATION_SCHEMA):
        raise UnsupportedSql(
            f"unsupported statement: nothing can be defined in database {name}",
            expected="a stored table in another database",
            action="cubes and lookups are defined by `rtolap create`",
        )
