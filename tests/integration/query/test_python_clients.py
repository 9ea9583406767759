"""SQLAlchemy, pandas and PyMySQL over the MySQL server, as their users use them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal

import pandas as pd
import pymysql
import pytest
import sqlalchemy as sa
from rtolap.query.approval.bounds import STATEMENT_BYTES_MAX

from tests.support.query.query_endpoints import SLOW, Endpoints

pytestmark = pytest.mark.integration
ANSI = "SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')"
TYPES = (
    "select 7 as whole, 1.50 as exact, 0.25e0 as near, 'Köln – 日本 😀' as town, null as nothing, "
    "date '2013-01-02' as day, timestamp '2013-01-02 03:04:05.000006' as moment, "
    "cast('-30:00:01' as time) as span, true as yes"
)


@pytest.fixture(scope="module")
def engine(endpoints: Endpoints) -> Iterator[sa.Engine]:
    engine = sa.create_engine(
        endpoints.sqlalchemy_url, pool_pre_ping=True, connect_args={"read_timeout": 60, "write_timeout": 60}
    )
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def flights_table(engine: sa.Engine) -> sa.Table:
    return sa.Table("flights", sa.MetaData(), autoload_with=engine)


def test_sqlalchemy_reflects_tables_columns_and_keys(engine: sa.Engine) -> None:
    inspector = sa.inspect(engine)
    assert inspector.default_schema_name == "rtolap"
    assert {"rtolap", "information_schema"} <= set(inspector.get_schema_names())
    assert inspector.get_table_names() == ["airlines", "flights", "routes"]
    assert inspector.get_view_names() == []
    assert inspector.has_table("flights")
    assert not inspector.has_table("nowhere")
    columns = {column["name"]: column for column in inspector.get_columns("flights")}
    assert isinstance(columns["carrier"]["type"], sa.String)
    assert isinstance(columns["hour_start"]["type"], sa.DateTime)
    assert isinstance(columns["flown_on"]["type"], sa.Date)
    fare = columns["fare_class"]["type"]
    assert isinstance(fare, sa.Numeric)
    assert (fare.precision, fare.scale) == (6, 2)
    assert all(column["nullable"] for column in columns.values())
    assert inspector.get_indexes("flights") == []
    assert inspector.get_pk_constraint("flights")["constrained_columns"] == []
    assert inspector.get_foreign_keys("flights") == []
    assert inspector.get_unique_constraints("flights") == []


def test_sqlalchemy_core_groups_binds_and_pages(engine: sa.Engine, flights_table: sa.Table) -> None:
    flights = flights_table.c
    events = sa.func.count().label("events")
    grouped = (
        sa.select(flights.carrier, events, sa.func.max(flights.price).label("price"))
        .where(
            flights.gate.in_([0, 1]), flights.flown_on >= date(2013, 1, 2), flights.fare_class < Decimal(1)
        )
        .group_by(flights.carrier)
        .having(events > 1)
        .order_by(events.desc(), flights.carrier)
    )
    with engine.connect() as connection:
        rows = connection.execute(grouped).all()
        assert len(rows) > 2
        assert all(isinstance(row.price, Decimal) and row.events > 1 for row in rows)
        assert connection.execute(grouped.limit(1).offset(1)).all() == rows[1:2]
        inner = grouped.subquery()
        assert connection.scalar(sa.select(sa.func.count()).select_from(inner)) == len(rows)
        nobody = sa.select(events).where(flights.carrier == sa.bindparam("who"))
        assert connection.scalar(nobody, {"who": "o'\"%\\"}) == 0
        assert connection.scalar(nobody, {"who": "é'\"%_"}) > 0


def test_sqlalchemy_streams_and_outlives_an_error_and_an_ended_connection(
    engine: sa.Engine, endpoints: Endpoints
) -> None:
    with engine.connect() as connection:
        streamed = connection.execution_options(stream_results=True, yield_per=2)
        assert len(list(streamed.execute(sa.text("select name from airlines")))) == 3
        assert list(streamed.execute(sa.text("select name from airlines where carrier = 'nobody'"))) == []
        with pytest.raises(sa.exc.ProgrammingError, match="1146"):
            connection.execute(sa.text("select * from nowhere"))
        connection.rollback()
        identity = connection.scalar(sa.text("select connection_id()"))
    with endpoints.connect() as other, other.cursor() as cursor:
        cursor.execute(f"KILL CONNECTION {identity}")
    with engine.connect() as connection:  # which pre-ping finds gone
        assert connection.scalar(sa.text("select connection_id()")) != identity


def test_sqlalchemy_quotes_as_the_session_has_it(endpoints: Endpoints) -> None:
    """It asks for @@sql_mode when it first connects, and quotes names by it."""
    options = {"init_command": ANSI, "read_timeout": 60}
    engine = sa.create_engine(endpoints.sqlalchemy_url, connect_args=options)
    with engine.connect() as connection:
        table = sa.Table("flights", sa.MetaData(), autoload_with=engine, quote=True)
        statement = sa.select(table.c.carrier.label("select")).group_by(table.c.carrier).order_by("select")
        assert '"select"' in str(statement.compile(engine))
        assert len(connection.execute(statement).all()) > 3
    engine.dispose()


def test_pandas_reads_with_bound_values_types_and_in_chunks(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        frame = pd.read_sql(sa.text(TYPES), connection)
        assert frame.loc[0].tolist() == [
            *(7, 1.5, 0.25, "Köln – 日本 😀", None, date(2013, 1, 2)),
            *(pd.Timestamp("2013-01-02 03:04:05.000006"), -timedelta(hours=30, seconds=1), 1),
        ]
        assert frame.dtypes.astype(str)[["whole", "exact", "near"]].tolist() == [
            "int64",
            "float64",
            "float64",
        ]
        exact = pd.read_sql(sa.text(TYPES), connection, coerce_float=False)
        assert exact["exact"].tolist() == [Decimal("1.50")]
        assert exact["moment"].dtype.kind == "M"
        totals = sa.text(
            "select day_start, count(*) as n, sum(delay) as delay, max(price) as price from flights "
            "where carrier = :carrier and day_start >= :since group by day_start order by day_start"
        )
        values = {"carrier": "AA", "since": datetime(2013, 1, 2)}
        read = pd.read_sql(totals, connection, params=values, index_col="day_start")
        assert read.index.dtype.kind == "M"
        assert read["n"].dtype == "int64"
        assert read["price"].dtype == "float64"
        chunks = list(pd.read_sql(totals, connection, params=values, chunksize=1))
        assert [len(chunk) for chunk in chunks] == [1] * len(read)
        assert pd.concat(chunks)["n"].tolist() == read["n"].tolist()
        whole = pd.read_sql_table("airlines", connection, columns=["carrier", "name"])
        assert sorted(whole["name"]) == ["American", "Nobody", "United"]
        nothing = pd.read_sql("select carrier, gate from flights where carrier = 'nobody'", connection)
        assert nothing.empty
        assert list(nothing.columns) == ["carrier", "gate"]


def test_double_quotes_are_names_as_long_as_the_session_says_so(endpoints: Endpoints) -> None:
    text = 'select "carrier" as "Träger" from "airlines" order by 1'
    with endpoints.connect(read_timeout=60) as ansi, endpoints.connect(read_timeout=60) as plain:
        for cursor_of in (ansi, plain, ansi):
            with cursor_of.cursor() as cursor:
                if cursor_of is ansi:
                    cursor.execute(ANSI)
                    cursor.execute('select @@sql_mode, "name", \'it\\\'s "x"\' from "airlines" limit 1')
                    mode, name, quoted = cursor.fetchall()[0]
                    assert "ANSI_QUOTES" in mode.split(",")
                    assert (name, quoted) != ("name", "")
                    assert quoted == 'it\'s "x"'
                    cursor.execute('show columns from "rtolap"."airlines"')
                    assert [row[0] for row in cursor.fetchall()] == ["carrier", "name"]
                cursor.execute(text if cursor_of is ansi else text.replace('"airlines"', "airlines"))
                found = [row[0] for row in cursor.fetchall()]
                assert found == (["AA", "UA", "ZZ"] if cursor_of is ansi else ["carrier"] * 3)
                assert cursor.description[0][0] == "Träger"
        with ansi.cursor() as cursor:
            with pytest.raises(pymysql.err.ProgrammingError) as caught:
                cursor.execute('select "carrier')
            assert caught.value.args[0] == 1064
            cursor.execute("SET sql_mode = DEFAULT")
            cursor.execute('select "carrier"')
            assert cursor.fetchall() == (("carrier",),)


def test_a_packet_up_to_max_allowed_packet_is_taken_and_none_above(endpoints: Endpoints) -> None:
    with endpoints.connect(read_timeout=120, write_timeout=120) as connection, connection.cursor() as cursor:
        cursor.execute("select @@max_allowed_packet")
        ((told,),) = cursor.fetchall()
        assert told == STATEMENT_BYTES_MAX
        head, tail = "select char_length('", "')"
        letters = told - len(head) - len(tail)
        cursor.execute(head + "x" * letters + tail)
        assert cursor.fetchall() == ((letters,),)
        umlauts = "ö" * (letters // 2) + "x" * (letters % 2)
        cursor.execute(head + umlauts + tail)
        assert cursor.fetchall() == ((len(umlauts),),)
        for text in ("x" * (letters + 1), umlauts + "x", "x" * (40 << 20)):
            with pytest.raises(pymysql.err.MySQLError, match="too large") as caught:
                cursor.execute(head + text + tail)
            assert caught.value.args[0] == 1153
            cursor.execute("select 1")
            assert cursor.fetchall() == ((1,),)


def test_a_deadline_of_the_session_ends_a_statement_and_not_the_connection(endpoints: Endpoints) -> None:
    with endpoints.connect(read_timeout=120) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION max_execution_time = 300")
        with pytest.raises(pymysql.err.MySQLError) as caught:
            cursor.execute(SLOW)
        assert caught.value.args[0] == 3024
        cursor.execute("select 1")
        assert cursor.fetchall() == ((1,),)
