"""CREATE, ALTER, DROP and TRUNCATE TABLE in Doris' words."""

from __future__ import annotations

import pytest
from rtolap.base.errors import QueryError
from rtolap.model.durations import parse_duration_ms
from rtolap.model.stored.create_table_text import create_table_text
from rtolap.model.stored.schema import initial_schema
from rtolap.model.stored.table import Buckets, RangePartitions, StoredColumn, StoredTable
from rtolap.model.validation.stored_table import validate_stored_table
from rtolap.protocols.stored_tables.messages import (
    AddColumn,
    AddPartition,
    DropColumn,
    RenameColumn,
    TableName,
)
from rtolap.query.stored.ddl import (
    AddTablePartitionStatement,
    AlterTableStatement,
    CreateTableStatement,
    DropTablePartitionStatement,
    DropTableStatement,
    TruncateTableStatement,
    parse_ddl,
)

FULL = """
CREATE TABLE IF NOT EXISTS `shop`.orders (
  order_id BIGINT NOT NULL COMMENT 'its number',
  sold DATETIME(3) NOT NULL,
  -- what was paid
  amount DECIMAL(10, 2) SUM NULL DEFAULT '0',
  best INT MAX DEFAULT -1,
  note VARCHAR(200) REPLACE_IF_NOT_NULL DEFAULT NULL,
  visitors HLL HLL_UNION, buyers BITMAP BITMAP_UNION
) ENGINE=OLAP AGGREGATE KEY(order_id, sold) COMMENT 'orders; all of them'
AUTO PARTITION BY RANGE (date_trunc(sold, 'month')) ()
DISTRIBUTED BY HASH(order_id) BUCKETS 4
PROPERTIES ("replication_num" = "3", "rtolap.retention" = "365d");
"""

DAY_MS = 86_400_000

TABLES = [
    StoredTable(
        database="shop",
        name="orders",
        model="aggregate",
        keys=("order_id", "sold"),
        columns=(
            StoredColumn("order_id", "bigint", nullable=False),
            StoredColumn("sold", "timestamp", nullable=False),
            StoredColumn("amount", "decimal(10,2)", aggregate="SUM", default="0"),
            StoredColumn("best", "int", aggregate="MAX", default="-1"),
            StoredColumn("note", "string", aggregate="REPLACE_IF_NOT_NULL"),
            StoredColumn("visitors", "hll", aggregate="HLL_UNION"),
            StoredColumn("buyers", "bitmap", aggregate="BITMAP_UNION"),
        ),
        partitions=RangePartitions("sold", "month", ahead=0, retention_ms=parse_duration_ms("365d")),
        buckets=Buckets(4, ("order_id",)),
    ),
    StoredTable(
        database="d",
        name="events",
        columns=(
            StoredColumn("at", "date", nullable=False),
            StoredColumn("text", "string", default="it's \\ it"),
        ),
        partitions=RangePartitions("at", "day", ahead=7),
    ),
    StoredTable(
        database="d",
        name="ahead_only",
        columns=(StoredColumn("at", "timestamp", nullable=False),),
        partitions=RangePartitions("at", "hour", ahead=0, on_demand=False),
    ),
    StoredTable(
        database="d",
        name="latest",
        model="unique",
        keys=("id",),
        columns=(StoredColumn("id", "int"), StoredColumn("seq", "bigint"), StoredColumn("ok", "boolean")),
        sequence_column="seq",
        delete_sign=False,
        buckets=Buckets(8),
    ),
]


def created(sql: str, database: str | None = None) -> StoredTable:
    statement = parse_ddl(sql, database)
    assert isinstance(statement, CreateTableStatement)
    return statement.definition


def test_a_whole_statement() -> None:
    statement = parse_ddl(FULL, None)
    assert isinstance(statement, CreateTableStatement)
    assert statement.definition == TABLES[0]
    assert statement.if_not_exists
    assert [note.split(" ")[0] for note in statement.notes] == ["the", "replication_num"]
    validate_stored_table(statement.definition)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_what_show_create_table_says_makes_the_same_table(table: StoredTable) -> None:
    validate_stored_table(table)
    found = created(create_table_text(table, initial_schema(table)))
    if table.buckets == Buckets(8):  # said by name
        assert found.buckets == Buckets(8, ("id",))
    else:
        assert found.buckets == table.buckets
    assert found.columns == table.columns
    assert (found.model, found.keys, found.partitions) == (table.model, table.keys, table.partitions)
    assert (found.sequence_column, found.delete_sign) == (table.sequence_column, table.delete_sign)


def test_dynamic_partitions() -> None:
    table = created(
        "create table t (a int, d date not null) duplicate key(a) partition by range(d) () "
        "distributed by hash(a) buckets 2 properties ('dynamic_partition.enable'='true', "
        "'dynamic_partition.time_unit'='WEEK', 'dynamic_partition.start'='-4', 'dynamic_partition.end'='2', "
        "'dynamic_partition.prefix'='p')",
        "shop",
    )
    weeks = RangePartitions("d", "week", ahead=2, retention_ms=4 * 7 * 86_400_000, on_demand=False)
    assert table.partitions == weeks
    assert table.qualified_name == "shop.t"


@pytest.mark.parametrize(
    ("words", "on_demand"),
    [
        ("auto partition by range(date_trunc(d, 'day')) ()", True),
        ("partition by range(d) () properties ('dynamic_partition.time_unit'='DAY')", False),
        (
            "partition by range(d) () properties ('dynamic_partition.time_unit'='DAY', "
            "'dynamic_partition.create_history_partition'='true')",
            True,
        ),
    ],
)
def test_only_auto_partitions_are_made_by_loads(words: str, on_demand: bool) -> None:
    table = created(f"create table s.t (d date not null) {words}")
    assert table.partitions is not None
    assert table.partitions.on_demand is on_demand


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "ALTER TABLE s.t ADD PARTITION IF NOT EXISTS `p20231114` "
            'VALUES [("2023-11-14 00:00:00"), ("2023-11-15 00:00:00")) ("replication_num" = "1")',
            AddTablePartitionStatement(
                TableName("s", "t"),
                AddPartition("p20231114", 19_675 * DAY_MS, 19_676 * DAY_MS, if_not_exists=True),
                ("replication_num has no effect: the endpoint decides how many replicas there are",),
            ),
        ),
        (
            "alter table t add partition P2023 values less than ('2023-11-15');",
            AddTablePartitionStatement(TableName("db", "t"), AddPartition("p2023", None, 19_676 * DAY_MS)),
        ),
        (
            "alter table t drop partition if exists p20231114 force",
            DropTablePartitionStatement(TableName("db", "t"), "p20231114", if_exists=True),
        ),
        (
            "alter table t drop partition p1",
            DropTablePartitionStatement(TableName("db", "t"), "p1", if_exists=False),
        ),
        ("DROP TABLE IF EXISTS shop.t FORCE", DropTableStatement(TableName("shop", "t"), if_exists=True)),
        ("drop table t;", DropTableStatement(TableName("db", "t"), if_exists=False)),
        ("truncate table `T`", TruncateTableStatement(TableName("db", "T"))),
        (
            "alter table t add column a int default '1', drop column b, rename column c d,"
            " rename column e to f",
            AlterTableStatement(
                TableName("db", "t"),
                (
                    AddColumn(StoredColumn("a", "int", default="1")),
                    DropColumn("b"),
                    RenameColumn("c", "d"),
                    RenameColumn("e", "f"),
                ),
            ),
        ),
        (
            "ALTER TABLE s.t ADD COLUMN (a BIGINT SUM DEFAULT '0', b HLL HLL_UNION)",
            AlterTableStatement(
                TableName("s", "t"),
                (
                    AddColumn(StoredColumn("a", "bigint", aggregate="SUM", default="0")),
                    AddColumn(StoredColumn("b", "hll", aggregate="HLL_UNION")),
                ),
            ),
        ),
    ],
)
def test_other_statements(sql: str, expected: object) -> None:
    assert parse_ddl(sql, "db") == expected


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("create table t (a int)", "named without its database"),
        ("create table s.t (a json)", "unsupported type JSON of column a"),
        ("create table s.t (a int, index i (a))", "unsupported SQL: 'index i"),
        ("create table s.t (a int default current_timestamp)", "constant default of a is missing"),
        ("create table s.t (a decimal)", r"\( is missing"),
        (
            "create table s.t (d date) partition by range(d) (partition p values less than ('2024-01-01'))",
            "ranges",
        ),
        ("create table s.t (d date) partition by range(d) ()", "no unit of time"),
        ("create table s.t (d date) partition by list(d) ()", "unsupported SQL: 'list"),
        ("create table s.t (a int) distributed by random buckets 8", "at RANDOM"),
        ("create table s.t (a int) properties ('colocate_with'='x')", "unsupported property 'colocate_with'"),
        ("create table s.t (a int) engine=mysql", "ENGINE=OLAP|unsupported"),
        ("create table s.t (a int) as select 1", "unsupported SQL: 'as select 1'"),
        ("create database shop charset utf8", "unsupported SQL: 'charset utf8'"),
        ("create view v as select 1", "unsupported SQL"),
        ("alter table s.t add column a int after b", "unsupported SQL: 'after b'"),
        ("alter table s.t modify column a bigint", "unsupported SQL: 'modify"),
        ("drop table s.t; drop table s.u", "unsupported SQL: 'drop table s.u'"),
        ("truncate table s.t partition (p1)", "unsupported SQL"),
        ("alter table s.t add partition p values in ('a')", 'unsupported SQL: "in '),
        ("alter table s.t add partition p values less than maxvalue", "unsupported SQL: 'maxvalue"),
        ("alter table s.t add partition p values less than ('tomorrow')", "bound of a partition"),
        ("alter table s.t add partition p values less than ('2023-02-30')", "bound of a partition"),
        ("alter table s.t add partition p values less than (20231114)", "a bound is missing"),
        ("alter table s.t add partition p values [('2023-11-14'), ('2023-11-15')]", r"\) is missing"),
        (
            "alter table s.t add partition p values [('2023-11-14'), ('2023-11-15')) "
            "distributed by hash(a) buckets 3",
            "unsupported SQL: 'distributed",
        ),
        (
            "alter table s.t add partition p values less than ('2023-11-14') ('medium'='ssd')",
            "unsupported property 'medium' of partition p",
        ),
        ("alter table s.t drop partition p, drop column a", "unsupported SQL"),
    ],
)
def test_what_has_no_meaning_here_is_named(sql: str, words: str) -> None:
    with pytest.raises(QueryError, match=words):
        parse_ddl(sql, None)


def test_other_statements_are_left_alone() -> None:
    assert parse_ddl("select 1", None) is None
    assert parse_ddl("show create table t", None) is None
