"""Clients that reach another query service with each statement find what was defined by the one before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from rtolap.base.users import Users
from rtolap.query.statement_service import QueryService
from rtolap.query.statements.classify import classify
from rtolap.query.statements.executor import Executor, NoOpenConnections
from rtolap.query.statements.sql_session import SqlSession

from tests.support.query.query_world import QueryWorld
from tests.support.seeds import so_many
from tests.support.stored.stored_world import StoredWorld

COLUMNS = ("a", "b", "c", "d")
DATABASES = ("shop", "web")
TABLES = ("hits", "orders")


@dataclass
class Service:
    """A query service, asked as a client with the cluster's token asks it."""

    service: QueryService
    executor: Executor = field(init=False)

    def __post_init__(self) -> None:
        self.executor = Executor(self.service, Users({}), NoOpenConnections())

    def ask(self, sql: str, database: str | None = None) -> pa.Table:
        session = SqlSession(1, "", "127.0.0.1", has_token=True, databases=self.service.databases)
        if database is not None:
            session.use(database)
        outcome = self.executor.execute(classify(sql, session.database), session)
        return pa.Table.from_batches(list(outcome.batches), outcome.schema)

    def column(self, sql: str, database: str | None = None) -> list[object]:
        return self.ask(sql, database).column(0).to_pylist()


@pytest.fixture
def services(world: QueryWorld) -> Iterator[tuple[Service, ...]]:
    with StoredWorld(replication=1) as stored:
        made = tuple(Service(world.service(stored=stored.source)) for _ in range(2))
        yield made
        for one in made:
            one.service.close()


@dataclass
class Defined:
    """What was defined: database → table → columns."""

    tables: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def change(self, draw: random.Random) -> str:
        """Draw a statement that holds, note what it defines, and return it."""
        database, table = draw.choice(DATABASES), draw.choice(TABLES)
        if database not in self.tables:
            self.tables[database] = {}
            return f"create database {database}"
        tables = self.tables[database]
        if table not in tables:
            if not tables and draw.random() < 0.3:
                del self.tables[database]
                return f"drop database {database}"
            tables[table] = ["k"]
            return (
                f"create table {database}.{table} (k int) duplicate key (k) distributed by hash(k) buckets 1"
            )
        columns = tables[table]
        spare = [name for name in COLUMNS if name not in columns]
        match draw.randrange(3):
            case 0 if spare:
                columns.append(spare[0])
                return f"alter table {database}.{table} add column {spare[0]} int"
            case 1 if len(columns) > 1:
                name = columns.pop()
                return f"alter table {database}.{table} drop column {name}"
        del tables[table]
        return f"drop table {database}.{table}"


def look(service: Service, defined: Defined, draw: random.Random) -> None:
    """Ask one thing that definitions decide, as a client does that knows what is there."""
    database = draw.choice(sorted(defined.tables))
    tables = defined.tables[database]
    match draw.randrange(7):
        case 0:
            shown = set(service.column("show databases"))
            assert shown & set(DATABASES) == set(defined.tables)
        case 1:
            assert sorted(map(str, service.column(f"show tables from {database}"))) == sorted(tables)
        case 2:
            shown = service.ask("select table_schema, table_name from information_schema.tables")
            found = set(zip(*map(pa.ChunkedArray.to_pylist, shown.columns), strict=True))
            expected = {(db, name) for db, names in defined.tables.items() for name in names}
            assert {pair for pair in found if pair[0] in DATABASES} == expected
        case 3:
            assert sorted(map(str, service.column("show tables", database))) == sorted(tables)
        case number if tables:
            table = draw.choice(sorted(tables))
            name = f"{database}.{table}"
            if number == 4:
                assert service.column(f"describe {name}") == tables[table]
            elif number == 5:
                assert service.ask(f"select * from {name}").column_names == tables[table]
            else:
                sql = (
                    "select column_name from information_schema.columns"
                    f" where table_schema = '{database}' and table_name = '{table}' order by ordinal_position"
                )
                assert service.column(sql) == tables[table]


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(4)))
def test_what_one_service_defines_is_there_on_the_next(services: tuple[Service, ...], seed: int) -> None:
    draw, defined = random.Random(seed), Defined()
    for _ in range(30):
        draw.choice(services).ask(defined.change(draw))
        for _ in range(3):
            if defined.tables:
                look(draw.choice(services), defined, draw)
