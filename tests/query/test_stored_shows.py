"""SHOW of stored tables and what CREATE DATABASE does to it, without a server."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from rtolap.base.errors import NotFound, QueryError, Refused
from rtolap.protocols.stored_tables.messages import TransactionInfo
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.statements.show_answers import Shows
from rtolap.query.statements.shows import show_of
from rtolap.query.statements.sql_session import SqlSession
from rtolap.query.stored.ddl import CreateDatabaseStatement, DropDatabaseStatement, parse_ddl
from rtolap.query.stored.definitions import StoredDefinitions

from tests.support.stored.stored_world import StoredWorld


class Transactions:
    """Definitions that know three transactions."""

    LABELS = ("night-1", "day-2", "day-1")

    def transaction(self, db: str, label: str) -> TransactionInfo:
        if label not in self.LABELS:
            raise NotFound(label)
        return self._info(db, label)

    def transactions(self, db: str, like: str) -> tuple[TransactionInfo, ...]:
        assert like.endswith("%")
        return tuple(self._info(db, label) for label in self.LABELS if label.startswith(like[:-1]))

    def _info(self, db: str, label: str) -> TransactionInfo:
        return TransactionInfo(
            txn_id=self.LABELS.index(label),
            db=db,
            label=label,
            state="VISIBLE",
            tables=("hits",),
            began_at_ms=0,
            committed_at_ms=None,
            finished_at_ms=None,
            deadline_ms=0,
            reason="",
        )


@pytest.mark.parametrize(
    ("condition", "labels"),
    [
        ("label like 'day-%'", ["day-2", "day-1"]),
        ('LABEL LIKE "night%"', ["night-1"]),
        ("label like 'no%'", []),
        ("label = 'day-1'", ["day-1"]),
        ("label='no'", []),
    ],
)
def test_transactions_are_shown_by_a_pattern_of_their_labels(condition: str, labels: list[str]) -> None:
    shows = Shows(SimpleNamespace(definitions=Transactions()), tuple)  # type: ignore[arg-type]
    session = SimpleNamespace(database=None)
    asked = show_of(f"SHOW TRANSACTION FROM web WHERE {condition};")
    assert asked is not None
    shown = shows.answer(asked, session)  # type: ignore[arg-type]
    assert shown.column("Label").to_pylist() == labels


def test_databases_are_created_and_dropped_by_sql() -> None:
    assert parse_ddl("create database if not exists `Shop`;", None) == CreateDatabaseStatement("Shop", True)
    assert parse_ddl("CREATE SCHEMA shop", None) == CreateDatabaseStatement("shop", False)
    assert parse_ddl("drop database if exists shop", "web") == DropDatabaseStatement("shop", True)

    refreshes = []
    with StoredWorld() as world:
        definitions = StoredDefinitions(world.source, lambda: refreshes.append(world.source.databases()))

        def run(sql: str) -> tuple[str, ...]:
            statement = parse_ddl(sql, None)
            assert statement is not None
            definitions.apply(statement)
            return world.source.databases()

        assert run("create database shop") == ("shop",)
        assert run("create database if not exists shop") == ("shop",)
        with pytest.raises(Refused, match="database shop is there already"):
            run("create database shop")
        run("create table shop.t (a int)")
        with pytest.raises(Refused, match="has tables"):
            run("drop database shop")
        run("drop table shop.t")
        assert run("drop database shop") == ()
        assert run("drop database if exists shop") == ()
        with pytest.raises(NotFound, match="unknown database shop"):
            run("drop database shop")
        with pytest.raises(QueryError, match="nothing can be defined in database rtolap"):
            run("create database rtolap")
        assert len(refreshes) == 10, "after each statement, also after one that was refused"


def test_a_database_without_tables_can_be_used() -> None:
    catalogue = QueryCatalogue(created=("shop",))
    session = SqlSession(1, "dora", "here", databases=lambda wanted: catalogue.databases())
    session.use("shop")
    assert session.database == "shop"
    with pytest.raises(QueryError, match="unknown database 'shops'; expected one of rtolap, shop"):
        session.use("shops")
