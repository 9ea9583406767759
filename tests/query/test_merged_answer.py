"""A plain merge answers as the engine does: the same schema, rows, order and errors, over random partials.

Statements are made at random, and so are partials: rows of one group apart, nulls, sums at the edge of their
types, doubles that are no numbers. What the merge leaves to the engine must stay the exception.
"""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from decimal import Context as Precision
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from rtolap.base.errors import Corrupted, QueryError, RtolapError
from rtolap.columnar.schema import physical_schema, select_partials
from rtolap.model.cube import Cube, Measure, Schema
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.query.cancel import Cancellation
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.cubes import merged_answer as merged_answers
from rtolap.query.cubes.merge import group_partials
from rtolap.query.cubes.merged_answer import merged_answer
from rtolap.query.engine import EmbeddedEngine, EmbeddedSession
from rtolap.query.plan import CubeRead, Rewritten
from rtolap.query.sql.folding import fold
from rtolap.query.sql.parser import parse
from rtolap.query.sql.rules import Context, rewrite
from rtolap.query.statement_service import QueryService

from tests.query.test_explain import explained
from tests.support.cubes.flights import flights_schema
from tests.support.query.query_world import QueryWorld, _sketch
from tests.support.seeds import so_many

_EXACT = Precision(prec=60)
STATEMENTS = so_many(150)
NUMBERS = ("whole", "large", "amount", "wide", "share")
SCHEMA = Schema(
    Table(
        name="shop_events",
        topic="shop",
        columns=(
            Column("ts", "timestamp"),
            Column("kind", "string"),
            Column("place", "int"),
            Column("code", "bigint"),
            Column("level", "decimal(6,2)"),
            Column("sold_on", "date"),
            Column("is_open", "boolean"),
            Column("whole", "int"),
            Column("large", "bigint"),
            Column("amount", "decimal(10,2)"),
            Column("wide", "decimal(38,4)"),
            Column("share", "double"),
            Column("visitor", "string"),
        ),
        time=TimeColumn("ts"),
    ),
    Cube(
        name="shop",
        table="shop_events",
        dimensions=("kind", "place", "code", "level", "sold_on", "is_open"),
        time_dimensions=("hour", "day"),
        measures=(
            *(Measure(what, name) for name in NUMBERS for what in ("avg", "min", "max")),
            Measure("min", "ts"),
            Measure("max", "ts"),
            Measure("approx_distinct", "visitor", 4),
        ),
    ),
)
DIMENSIONS = SCHEMA.cube.all_dimensions
AGGREGATES = (
    "count(*)",
    "min(ts)",
    "max(ts)",
    "approx_count_distinct(visitor)",
    "count(distinct visitor)",
    *(f"{what}({name})" for name in NUMBERS for what in ("count", "sum", "avg", "min", "max")),
)
NOT_PLAIN = (
    "select count(*) from shop having count(*) > 1",
    "select kind, count(*) from shop group by kind having count(*) > 1",
    "select kind, count(*) + 1 from shop group by kind",
    "select upper(kind), count(*) from shop group by 1",
    "select kind, sum(-whole) from shop group by kind",
    "select kind, sum(place) from shop group by kind",
    "select distinct kind from shop",
    "select kind, count(*) from shop group by kind with rollup",
    "select kind, count(*) from shop group by kind union all select 'x', 1",
    "select n from (select kind, count(*) n from shop group by kind) x",
    "select kind, count(*), rank() over (order by count(*)) from shop group by kind",
    "select kind, count(*) from shop where kind = upper(kind) group by kind",
    "select kind, count(*) from shop group by kind order by rand()",
    "select kind, count(*) from shop group by kind order by count(*) + 1",
    "select kind, count(*), count(*) from shop group by kind",
    "select kind, count(distinct place) from shop group by kind",
    "select kind, sum(whole) filter (where place = 1) from shop group by kind",
    "select hour_start, kind, whole from shop limit 3",
    "select date(ts), count(*) from shop group by 1",
    "select 1",
)


def rewritten(sql: str, engine: EmbeddedEngine) -> Rewritten:
    with engine.session() as session:
        context = Context(QueryCatalogue(cubes={"shop": SCHEMA}), lambda tree: fold(session.value, tree, {}))
        return rewrite(parse(sql).tree, context)


def random_statement(rng: random.Random) -> tuple[str, bool]:
    """Its text, and whether it says the order of all rows."""
    keys = rng.sample(DIMENSIONS, rng.choice([0, 1, 1, 1, 2, 3]))
    names = [*(key for key in keys if rng.random() < 0.9), *rng.sample(AGGREGATES, rng.randint(1, 5))]
    rng.shuffle(names)
    shown = [f"{name} as c{n}" if rng.random() < 0.5 else name for n, name in enumerate(names)]
    sql = f"select {', '.join(shown)} from shop" + rng.choice(["", " where place <> 1 and kind is not null"])
    if keys:
        sql += f" group by {', '.join(keys)}"
    if not keys or rng.random() < 0.3:
        return sql, False
    order = [*rng.sample([*keys, *(name for name in names if name not in keys)], rng.randint(1, len(keys)))]
    order += [key for key in keys if key not in order]
    directions = [rng.choice(["", " desc", " nulls last", " desc nulls first"]) for _ in order]
    sql += " order by " + ", ".join(key + way for key, way in zip(order, directions, strict=True))
    limits = ("", " limit 3", " limit 4 offset 2", " limit 0", " limit 100 offset 50")
    return sql + rng.choice(limits), True


def random_partials(rng: random.Random, read: CubeRead, sketches: list[bytes]) -> pa.Table:
    """Some rows, several of one group among them; `edge`: of values that sums and means stumble over."""
    rows, edge = rng.choice([0, 1, 2, 7, 40]), rng.random() < 0.25
    start = datetime(2013, 1, 1)
    columns: dict[str, list[Any]] = {}
    makers: dict[str, Any] = {
        "string": lambda: rng.choice(["a", "B", "é", "日本", "", "a "]),
        "boolean": lambda: rng.random() < 0.5,
        "int": lambda: rng.choice([-(2**31), -1, 0, 1, 2**31 - 1]) if edge else rng.randrange(-3, 3),
        "bigint": lambda: rng.choice([-(2**62), 2**53 + 1, 2**62]) if edge else rng.randrange(4),
        "date": lambda: date(2013, 1, 1) + timedelta(days=rng.randrange(3)),
        "timestamp": lambda: start + timedelta(hours=rng.randrange(3), microseconds=rng.randrange(2)),
        "binary": lambda: rng.choice(sketches),
    }
    doubles = [float("nan"), float("inf"), -float("inf"), 1e300, -0.0] if edge else [-0.0, 0.125, 3.5, -7.0]

    def value(kind: pa.DataType, name: str) -> Any:
        if pa.types.is_decimal(kind):
            digits = rng.choice([15, 17, kind.precision]) if edge else 4
            most = 10 ** min(digits, kind.precision) - 1
            return Decimal(rng.randint(-most, most)).scaleb(-kind.scale, _EXACT)
        if pa.types.is_floating(kind):
            return rng.choice(doubles)
        types = {partial.name: partial.type.kind for partial in SCHEMA.partials}
        return makers[types.get(name) or SCHEMA.dimension_type(name).kind]()

    schema = physical_schema(SCHEMA, read.dimensions, read.partials, plain=True)
    counts = {
        partial.name
        for partial in select_partials(SCHEMA, read.partials)
        if partial.accumulator.name == "count"
    }
    for field in schema:
        is_nullable = field.name != "__rows" and field.name not in counts
        columns[field.name] = [
            None if is_nullable and rng.random() < 0.2 else value(field.type, field.name) for _ in range(rows)
        ]
    table = pa.table(columns, schema)
    return pa.concat_tables([table.slice(0, rows // 2), table.slice(rows // 2)])  # in two chunks


def by_engine(rewritten: Rewritten, table: pa.Table, engine: EmbeddedEngine) -> pa.Table | RtolapError:
    with engine.session() as session:
        session.register(rewritten.reads[0].relation, table)
        try:
            return session.read(rewritten.sql, {})
        except RtolapError as error:
            return error


def rows_of(table: pa.Table, *, in_order: bool) -> list[str]:
    """As text, by which -0.0 and 0.0, or 1 and Decimal('1.00'), differ."""
    rows = [repr(tuple(row)) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]
    return rows if in_order else sorted(rows)


@pytest.fixture(scope="module")
def sketches() -> list[bytes]:
    return [_sketch([f"v{n}" for n in range(size)], 4) for size in (0, 1, 5, 300)]


@pytest.mark.seeded
@pytest.mark.parametrize("block", range(6))
def test_a_plain_merge_answers_as_the_engine_does(
    block: int, engine: EmbeddedEngine, sketches: list[bytes]
) -> None:
    rng = random.Random(7000 + block)
    answered = 0
    for number in range(STATEMENTS // 6):
        sql, in_order = random_statement(rng)
        name = f"seed {7000 + block}, statement {number}: {sql}"
        statement = rewritten(sql, engine)
        assert statement.merge is not None, name
        read = statement.reads[0]
        table = random_partials(rng, read, sketches)
        answer = merged_answer(read, statement.merge, table, {})
        if answer is None:
            continue
        answered += 1
        expected = by_engine(statement, table, engine)
        assert isinstance(expected, pa.Table), f"{name}: {expected}"
        assert answer.schema == expected.schema, name
        assert rows_of(answer, in_order=in_order) == rows_of(expected, in_order=in_order), name
    assert answered > STATEMENTS // 6 * 0.6


@pytest.mark.parametrize("sql", NOT_PLAIN)
def test_what_is_more_than_a_merge_goes_to_the_engine(sql: str, engine: EmbeddedEngine) -> None:
    assert rewritten(sql, engine).merge is None


def test_a_limit_may_be_a_parameter_and_only_a_whole_number_is_taken(engine: EmbeddedEngine) -> None:
    sql = "select place, count(*) from shop group by place order by place limit :most offset :skipped"
    statement = rewritten(sql, engine)
    assert statement.merge is not None
    read = statement.reads[0]
    table = random_partials(random.Random(3), read, [])
    table = pa.table({"place": pa.array([3, 1, 2, None], pa.int32()), "__rows": pa.array([1, 2, 3, 4])})
    answer = merged_answer(read, statement.merge, table, {"most": 2, "skipped": 1})
    assert answer is not None
    assert answer.to_pydict() == {"place": [1, 2], "count(*)": [2, 3]}
    for most in (None, -1, True, 1.5, "2", Decimal(2)):
        assert merged_answer(read, statement.merge, table, {"most": most, "skipped": 0}) is None


@pytest.mark.parametrize(
    ("measure", "values"),
    [
        ("sum(whole)", [2**62, 2**62]),
        ("count(*)", [2**62, 2**62]),
        ("sum(wide)", [Decimal(10**38 - 1).scaleb(-4, _EXACT)] * 2),
    ],
)
def test_a_sum_that_leaves_its_type_is_the_engines_error(
    measure: str, values: list[Any], engine: EmbeddedEngine
) -> None:
    """Arrow's kernels would answer a wrong number instead."""
    statement = rewritten(f"select {measure} from shop", engine)
    read = statement.reads[0]
    schema = physical_schema(SCHEMA, read.dimensions, read.partials, plain=True)
    (summed,) = schema.names[-1:]
    table = pa.table({name: values if name == summed else [1, 1] for name in schema.names}, schema)
    assert group_partials(read, table).num_rows == 2, "they stay apart"
    assert statement.merge is not None
    assert merged_answer(read, statement.merge, table, {}) is None
    assert isinstance(by_engine(statement, table, engine), QueryError)


def test_bytes_that_are_no_sketch_are_said_to_be_corrupted(engine: EmbeddedEngine) -> None:
    statement = rewritten("select approx_count_distinct(visitor) n from shop", engine)
    assert statement.merge is not None
    table = pa.table({"__rows": pa.array([1]), "visitor__hll": pa.array([b"nonsense"])})
    with pytest.raises(Corrupted):
        merged_answer(statement.reads[0], statement.merge, table, {})


def test_many_sketches_are_left_to_the_engine(engine: EmbeddedEngine, sketches: list[bytes]) -> None:
    statement = rewritten("select code, approx_count_distinct(visitor) n from shop group by code", engine)
    assert statement.merge is not None
    for rows, is_left in ((merged_answers.SKETCHES_MAX, False), (merged_answers.SKETCHES_MAX + 1, True)):
        columns = {"code": list(range(rows)), "__rows": [1] * rows, "visitor__hll": [sketches[2]] * rows}
        table = pa.table(columns, physical_schema(SCHEMA, ("code",), ("__rows", "visitor__hll"), plain=True))
        answer = merged_answer(statement.reads[0], statement.merge, table, {})
        assert (answer is None) == is_left


def test_the_service_needs_no_session_of_the_engine_for_it(
    world: QueryWorld, service: QueryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = "select carrier, count(*) n, avg(price) p from flights group by carrier order by n desc, carrier"
    for known in (sql, f"explain {sql}", f"explain analyze {sql}"):  # a session reads and plans their texts
        service.execute(known).close()
    opened: list[object] = []
    session = EmbeddedEngine.session

    def counted(engine: EmbeddedEngine, ending: Cancellation) -> EmbeddedSession:
        opened.append(ending)
        return session(engine, ending)

    monkeypatch.setattr(EmbeddedEngine, "session", counted)
    plain = service.execute(sql).table()
    assert not opened
    assert explained(service, f"explain {sql}")["answered by"] == "a merge of partials"
    assert explained(service, f"explain analyze {sql}")["answered by"] == "a merge of partials"
    monkeypatch.setattr(merged_answers, "BYTES_MAX", 10)
    opened.clear()
    assert explained(service, f"explain analyze {sql}")["answered by"] == "the engine"
    assert service.execute(sql).table().equals(plain)
    assert len(opened) == 2
    assert world.schema == flights_schema()
