"""ORDER BY a sum or count with a LIMIT over several sources: the first groups, and no others."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from rtolap.column_types import BIGINT, ColumnType, decimal
from rtolap.protocols.receiver.messages import GroupsLeft, TopGroups
from rtolap.query.cubes import fetch
from rtolap.query.cubes.spread_groups import ROUNDS_MAX, SpreadGroups
from rtolap.scan import first_groups
from rtolap.scan.first_groups import Chosen, choose_groups

from tests.support.cubes.flights import AIRLINES, AIRLINES_CSV, flights_schema, random_flights, routes_schema
from tests.support.query.oracles.sql_oracle import asked_of, open_oracle, rows_of
from tests.support.query.query_world import QueryWorld
from tests.support.seeds import so_many

Source = dict[str | None, Any]
WIDE = decimal(38, 2)


@pytest.fixture(autouse=True)
def _even_few_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_groups, "GROUPS_MIN", 0)
    monkeypatch.setattr(fetch, "SPREAD_ROWS_MIN", 0)


def drawn_sources(rng: random.Random, kind: ColumnType) -> list[Source]:
    groups, skew = rng.choice([3, 30, 300]), rng.choice([0.7, 1.0, 3.0])
    least = rng.choice([0, 0, -50])
    sources: list[Source] = []
    for _ in range(rng.randint(1, 5)):
        found: Source = {}
        for number in range(groups):
            if rng.random() < 0.6:
                value = max(least, int(rng.paretovariate(skew) * 10) % 10**9 + least)
                found[rng.choice([None, f"k{number}"]) if number == 0 else f"k{number}"] = (
                    None if rng.random() < 0.1 else value if kind == BIGINT else Decimal(value + 10**20) / 4
                )
        sources.append(found)
    return sources


def table_of(source: Source, kind: ColumnType) -> pa.Table:
    keys = pa.array(list(source), pa.string())
    if len(source) % 2:  # as receivers hold them
        keys = keys.dictionary_encode()
    values = pa.array(list(source.values()), pa.int64() if kind == BIGINT else pa.decimal128(38, 2))
    return pa.table({"k": keys, "v": values})


def plain(chosen: Chosen) -> Chosen:
    """Return what is sent: texts as they are."""
    keys = chosen.rows.column("k")
    return chosen._replace(rows=chosen.rows.set_column(0, "k", keys.cast(pa.string())))


def firsts(sources: list[Source], rows: int) -> list[tuple[Any, Any]]:
    """Return the first rows of the totals, those of equal ones by their keys."""
    totals: dict[Any, Any] = {}
    for source in sources:
        for key, value in source.items():
            known = totals.get(key)
            totals[key] = value if known is None else known if value is None else known + value
    some = sorted(
        ((k, v) for k, v in totals.items() if v is not None), key=lambda row: (-row[1], str(row[0]))
    )
    return some[:rows]


def answered(
    sources: list[Source],
    rows: int,
    kind: ColumnType,
    *,
    between: Callable[[], None] = lambda: None,
    said: Callable[[Chosen], Chosen] = lambda chosen: chosen,
) -> tuple[list[tuple[Any, Any]] | None, int, int]:
    """Return the first rows that the rounds find, how many rounds that took, and how many rows were sent."""
    groups, sent = SpreadGroups("k", kind, TopGroups("v", True, False, rows)), 0
    for number in range(1, ROUNDS_MAX + 1):
        question = groups.question
        above = None if question.above is None else (int if kind == BIGINT else Decimal)(question.above)
        parts = [
            said(plain(choose_groups(table_of(each, kind), "k", "v", question.rows, question.among, above)))
            for each in sources
        ]
        sent += sum(part.rows.num_rows for part in parts)
        found = groups.take(parts)
        if found is not None:
            return (
                firsts([dict(zip(*each.to_pydict().values(), strict=True)) for each in found], rows),
                number,
                sent,
            )
        between()
    return None, ROUNDS_MAX, sent


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(300)))
def test_the_first_groups_of_drawn_sources_are_those_of_all_their_rows(seed: int) -> None:
    rng = random.Random(seed)
    kind, rows = rng.choice([BIGINT, WIDE]), rng.choice([1, 3, 10])
    sources = drawn_sources(rng, kind)
    found, _, _ = answered(sources, rows, kind)
    assert found is None or found == firsts(sources, rows)


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(150)))
def test_events_that_arrive_between_rounds_cost_no_group(seed: int) -> None:
    rng = random.Random(seed)
    sources = drawn_sources(rng, BIGINT)

    def arrive() -> None:
        for _ in range(rng.choice([1, 20])):
            source, key = rng.choice(sources), f"k{rng.randrange(320)}"
            source[key] = (source.get(key) or 0) + rng.choice([1, 50, 10**6])

    found, _, _ = answered(sources, 5, BIGINT, between=arrive)
    assert found is None or found == firsts(sources, 5)


def test_drawn_sources_mostly_need_two_rounds_and_few_rows() -> None:
    taken, given_up = [], 0
    for seed in range(60):
        sources = drawn_sources(random.Random(seed), BIGINT)
        found, rounds, _ = answered(sources, 3, BIGINT)
        given_up += found is None
        taken.append(rounds)
    assert taken.count(2) > 20
    assert given_up < 15  # few groups, negative numbers
    rng = random.Random(1)
    keys = [f"k{number}" for number in range(20_000)]
    many = [{key: int(rng.paretovariate(0.9)) for key in rng.sample(keys, 15_000)} for _ in range(3)]
    found, _, sent = answered(many, 10, BIGINT)
    assert found == firsts(many, 10)
    assert sent < 2_000


def test_a_question_with_too_long_names_is_not_asked() -> None:
    sources: list[Source] = [{"x" * 40_000 + f"{at}-{number}": number for number in range(9)} for at in "abc"]
    groups = SpreadGroups("k", BIGINT, TopGroups("v", True, False, 3))
    parts = [choose_groups(table_of(each, BIGINT), "k", "v", 3) for each in sources]
    assert groups.take([plain(part) for part in parts]) is None
    assert groups.is_too_large


@pytest.mark.parametrize("fault", ["says less than is left", "says that nothing is left"])
def test_a_source_that_says_too_little_is_noticed(fault: str) -> None:
    def said(chosen: Chosen) -> Chosen:
        if chosen.largest_left is None:
            return chosen
        return chosen._replace(largest_left=None if fault.endswith("nothing is left") else 0)

    wrong = 0
    for seed in range(100):
        rng = random.Random(seed)
        keys = [f"k{number}" for number in range(40)]  # alike, so that parts decide
        sources: list[Source] = [{key: rng.randrange(20, 100) for key in keys} for _ in range(4)]
        found, _, _ = answered(sources, 3, BIGINT, said=said)
        wrong += found is not None and found != firsts(sources, 3)
    assert wrong


STATEMENTS = [
    "select {key}, count(*) n from flights group by {key} order by n desc, 1 limit {rows}",
    "select {key}, sum(delay) s, count(*), max(price), count(distinct gate) from flights "
    "where {condition} group by {key} order by s desc, {key} limit {rows}",
    "select {key}, count(delay) c, avg(price) from flights where {condition} group by 1 order by c desc, 1 "
    "limit {rows} offset 2",
    "select sum(delay) s, {key} from flights group by 2 order by 1 desc, 2 limit {rows}",
]


def statements(rng: random.Random) -> Iterator[str]:
    for text in STATEMENTS:
        yield text.format(
            key=rng.choice(["carrier", "origin", "gate"]),
            rows=rng.choice([1, 2, 4]),
            condition=rng.choice(["gate > 2", "1 = 1", "hour_start > '2013-01-01 04:00'", "carrier <> 'AA'"]),
        )


@pytest.fixture(params=[0, 2, 3], ids=["receivers", "half built", "a third built"])
def several(request: pytest.FixtureRequest) -> Iterator[QueryWorld]:
    rng = random.Random(request.param)
    lookups = {"airlines": (AIRLINES, AIRLINES_CSV)}
    with closing(QueryWorld(flights_schema(), random_flights(rng, 900), lookups, routes_schema())) as world:
        for segment in world.segments()[:: request.param] if request.param else ():
            world.build(segment, rng)
        yield world


def test_statements_over_several_sources_equal_the_raw_rows(several: QueryWorld) -> None:
    rounds = []
    with closing(several.service()) as service, open_oracle(several) as oracle:
        for seed in range(so_many(4)):
            for sql in statements(random.Random(seed)):
                before = len(several.asked)
                got = service.execute(sql).table()
                assert rows_of(got) == rows_of(asked_of(oracle, sql)), sql
                key = next(name for name in got.column_names if name in ("carrier", "origin", "gate"))
                assert got[key].to_pylist() == asked_of(oracle, sql)[key].to_pylist(), sql
                asked = {query.top for _, query in several.asked[before:]}
                rounds.append(len(asked) if None not in asked else 0)
                shown = service.execute(f"explain analyze {sql}").table().to_pylist()
                chosen = [row["value"] for row in shown if row["item"] == "groups"]
                assert bool(chosen) == (None not in asked)
                assert not chosen or "rounds over" in chosen[0]
    assert rounds.count(2) > 0


def test_few_groups_are_read_as_a_whole_and_many_by_bounds_from_the_second_statement_on(
    several: QueryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = "select gate, count(*) n from flights group by gate order by n desc, 1 limit 1"
    for least, spread in ((5, [False, True, True]), (10_000, [False] * 3)):
        monkeypatch.setattr(fetch, "SPREAD_ROWS_MIN", least)
        with closing(several.service()) as service:
            found = []
            for _ in range(3):
                before = len(several.asked)
                service.execute(sql).close()
                found.append(any(query.top is not None for _, query in several.asked[before:]))
        assert found == spread


def test_parts_that_a_receiver_keeps_back_are_noticed_by_the_statements(several: QueryWorld) -> None:
    honest = several.spread_groups

    def hiding(table: pa.Table, dimensions: tuple[str, ...], top: TopGroups) -> tuple[pa.Table, GroupsLeft]:
        rows, left = honest(table, dimensions, top)
        return rows.slice(0, rows.num_rows - 1) if top.among else rows, left

    several.spread_groups = hiding
    wrong = 0
    with closing(several.service()) as service, open_oracle(several) as oracle:
        for seed in range(30):
            for sql in () if wrong else statements(random.Random(seed)):
                wrong += rows_of(service.execute(sql).table()) != rows_of(asked_of(oracle, sql))
    assert wrong


def test_a_receiver_that_knows_no_spread_questions_makes_all_groups_be_read(several: QueryWorld) -> None:
    several.spread_groups = lambda table, dimensions, top: (table.slice(0, 1), None)  # type: ignore[assignment,return-value]
    with closing(several.service()) as service, open_oracle(several) as oracle:
        for sql in statements(random.Random(1)):
            assert rows_of(service.execute(sql).table()) == rows_of(asked_of(oracle, sql))
