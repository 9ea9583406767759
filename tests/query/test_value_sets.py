"""Values of other relations go into the filters of a cube, and answers stay those of the raw rows."""

from __future__ import annotations

from contextlib import closing

import duckdb
import pytest
from rtolap.model.predicate import And, In, IsNull, Predicate
from rtolap.protocols.receiver.messages import PartialQuery
from rtolap.query.cubes import value_sets
from rtolap.query.statement_service import QueryService

from tests.support.query.oracles.sql_oracle import asked_of, rows_of
from tests.support.query.query_world import QueryWorld

_LETTERS = "select carrier from airlines where name like 'A%'"
ONE, JFK = In("carrier", ("AA",)), In("carrier", ("AA", "DL", "UA", "é'\"%_", "日本 😀"))
NOTHING = And((IsNull("carrier"), IsNull("carrier", negated=True)))
# statement → what is asked of receivers beside its own conditions; None: nothing
PUSHED: dict[str, Predicate | None] = {
    f"select count(*) from flights where carrier in ({_LETTERS})": ONE,
    f"select count(*) from flights where carrier not in ({_LETTERS})": In("carrier", ("AA",), negated=True),
    f"select count(*) from flights where not carrier in ({_LETTERS})": In("carrier", ("AA",), negated=True),
    "select count(*) from flights where carrier in (select carrier from airlines where name = '-')": NOTHING,
    "select count(*) from flights where carrier not in (select carrier from airlines where name = '-')": None,
    "select count(*) from flights where carrier not in (select carrier from routes)": None,  # with NULL
    "select count(*) from flights where carrier in (select carrier from routes where origin = 'JFK')": JFK,
    "select count(*) from flights f where exists (select 1 from routes r where r.carrier = f.carrier "
    "and r.origin = 'JFK')": JFK,
    "select count(*) from flights f where exists (select 1 from airlines a where a.carrier = f.carrier "
    "and a.name like 'A%' and a.name > f.origin)": ONE,
    "select count(*) from flights f where not exists (select 1 from airlines a where a.carrier = f.carrier "
    "and a.name like 'A%')": None,
    "select count(*) from flights f where exists (select max(name) from airlines a "
    "where a.carrier = f.carrier and a.name like 'A%')": None,  # there is always a row
    "select count(*) from flights f join airlines a on a.carrier = f.carrier where a.name like 'A%'": ONE,
    "select count(*) from flights f join airlines a on f.carrier = a.carrier and a.name like 'A%'": ONE,
    "select count(*) from flights f, airlines a where f.carrier = a.carrier and a.name like 'A%'": ONE,
    "select count(*) from flights f left join airlines a on a.carrier = f.carrier where a.name "
    "like 'A%'": ONE,
    "select count(*) from flights f left join airlines a on a.carrier = f.carrier where a.name is null": None,
    "select count(*) from flights f left join airlines a on a.carrier = f.carrier and a.name like 'A%'": None,
    "select count(*) from airlines a left join flights f on a.carrier = f.carrier and a.name like 'A%'": None,
    "select count(*) from flights f right join airlines a on a.carrier = f.carrier where "
    "a.name like 'A%'": None,
    "select count(*) from flights f join airlines a on a.carrier = f.carrier": None,  # nothing restricts it
    f"select count(*) from flights where carrier in ({_LETTERS}) or gate = 1": None,
    f"select count(*) from flights where carrier in ({_LETTERS} order by carrier limit 1)": None,
    f"select sum(carrier in ({_LETTERS})) from flights": None,
    "select carrier, count(*) from flights f where carrier in "
    "(select a.carrier from airlines a where a.carrier = f.origin) group by 1": None,
    # the cube has another use, which needs other rows
    f"select (select count(*) from flights), (select count(*) from flights where carrier in "
    f"({_LETTERS}))": None,
    "with r as (select carrier c, count(*) n from routes where origin = 'JFK' group by 1 having n > 0) "
    "select count(*) from flights where carrier in (select c from r)": JFK,
    "select f.carrier, count(*), max(r.n) from flights f join (select carrier, count(*) n from routes "
    "where origin = 'JFK' group by 1) r on r.carrier = f.carrier group by 1": JFK,
    "select count(*) from flights where carrier in (select left(name, 2) from "
    "airlines)": In("carrier", ("Am", "No", "Un")),
    "select count(*) from flights where gate in (select day(day_start) from routes where carrier = 'AA')":
        In("gate", (1, 2, 3)),
    "select count(*) from flights where gate in (select gate / 2 from flights)": None,
    "select count(*) from flights where day_start in (select day_start from routes where carrier = 'AA' "
    "and day_start >= '2013-01-03')": In("day_start", ("2013-01-03 00:00:00.000000",)),
    "select count(*) from flights where on_time in (select name like 'A%' from airlines)":
        In("on_time", (False, True)),
    "select count(*) from flights where (carrier, gate) in (select carrier, 1 from airlines "
    "where name like 'A%')":
        And((ONE, In("gate", (1,)))),
}  # fmt: skip


def asked(
    world: QueryWorld, service: QueryService, sql: str, cube: str = "flights"
) -> list[Predicate | None]:
    before = len(world.asked)
    service.execute(sql).close()
    return list(dict.fromkeys(query.filter for _, query in world.asked[before:] if query.cube == cube))


def in_order(predicate: Predicate | None) -> Predicate | None:
    match predicate:
        case In(column=column, values=values, negated=negated):
            return In(column, tuple(sorted(values, key=str)), negated)
        case And(terms=terms):
            return And(tuple(each for term in terms if (each := in_order(term)) is not None))
    return predicate


@pytest.mark.parametrize("sql", PUSHED)
def test_values_of_other_relations_are_pushed_and_answers_stay_those_of_the_rows(
    sql: str, world: QueryWorld, service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    assert rows_of(service.execute(sql).table()) == rows_of(asked_of(oracle, sql))
    (pushed,) = asked(world, service, sql)
    assert in_order(pushed) == in_order(PUSHED[sql])


def test_sets_stand_beside_the_filter_of_the_statement(world: QueryWorld, service: QueryService) -> None:
    (pushed,) = asked(
        world, service, f"select count(*) from flights where gate is null and carrier in ({_LETTERS})"
    )
    assert pushed == And((IsNull("gate"), ONE))


def test_values_of_times_leave_out_segments(service: QueryService) -> None:
    sql = "select count(*) from flights where day_start in (select max(day_start) from routes)"
    shown = service.execute(f"explain analyze {sql}").table().to_pylist()
    items = {row["item"]: row["value"] for row in shown}
    assert items["value set"] == "day_start IN 1 values: pushed"
    of_flights = [row["value"] for row in shown if row["item"] == "pruned segments"]
    assert len(of_flights[-1].split(", ")) >= 4


def test_large_sets_are_not_pushed(
    monkeypatch: pytest.MonkeyPatch, world: QueryWorld, service: QueryService
) -> None:
    sql = "select count(*) from flights where carrier in (select carrier from routes where origin = 'JFK')"
    expected = rows_of(service.execute(sql).table())
    for name, bound in (("VALUES_MAX", len(JFK.values) - 1), ("CHARACTERS_MAX", 8)):
        with monkeypatch.context() as patched:
            patched.setattr(value_sets, name, bound)
            assert asked(world, service, sql) == [None]
            assert rows_of(service.execute(sql).table()) == expected
            analyzed = service.execute(f"explain analyze {sql}").table().to_pylist()
            (note,) = [row["value"] for row in analyzed if row["item"] == "value set"]
            assert note.endswith(": not pushed")


def test_explain_shows_the_question_and_asks_nothing(world: QueryWorld, service: QueryService) -> None:
    before = len(world.asked)
    shown = service.execute(f"explain select count(*) from flights where carrier in ({_LETTERS})").table()
    (words,) = [row["value"] for row in shown.to_pylist() if row["item"] == "value set"]
    assert words.startswith("carrier IN (SELECT DISTINCT")
    assert len(world.asked) == before


def test_cubes_that_restrict_each_other_are_read_one_after_the_other(
    world: QueryWorld, service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    sql = (
        "select count(*) from flights f join routes r on f.carrier = r.carrier "
        "where f.gate = 1 and f.origin = 'LGA' and r.origin = 'JFK'"
    )
    assert rows_of(service.execute(sql).table()) == rows_of(asked_of(oracle, sql))
    filters = [*asked(world, service, sql), *asked(world, service, sql, "routes")]
    assert sum("carrier" in repr(each) for each in filters) == 1


def test_sets_and_joins_of_cubes_are_planned_in_workers(
    world: QueryWorld, oracle: duckdb.DuckDBPyConnection
) -> None:
    bound = "select count(*) from flights where carrier in (select carrier from airlines where name like ?)"
    with closing(world.service(in_workers=True)) as workers:
        for sql in (*PUSHED, "select count(*), sum(f.delay) from flights f join routes r using (carrier)"):
            assert rows_of(workers.execute(sql).table()) == rows_of(asked_of(oracle, sql))
        (pushed,) = dict.fromkeys(query.filter for _, query in _asked_of(world, workers, bound, ("A%",)))
        assert pushed == ONE


def _asked_of(
    world: QueryWorld, service: QueryService, sql: str, values: tuple[object, ...]
) -> list[tuple[str, PartialQuery]]:
    before = len(world.asked)
    service.execute(sql, values).close()
    return world.asked[before:]


def test_an_error_in_values_is_raised_by_the_statement_alone(service: QueryService) -> None:
    sql = (
        "select count(*) from flights where gate in (select cast(gate as decimal(38,0)) * 1e37 * 10 "
        "from flights group by gate) and gate > 100"
    )
    assert service.execute(sql).table().num_rows == 1
