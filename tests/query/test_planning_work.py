"""What planning does once, for a statement or for a catalogue, and that its plans do not change by it."""

from __future__ import annotations

import msgspec
import pytest
from rtolap.query.catalogue import QueryCatalogue, spellings
from rtolap.query.engine import EmbeddedEngine
from rtolap.query.plan import Rewritten
from rtolap.query.sql.folding import fold
from rtolap.query.sql.parser import parse
from rtolap.query.sql.rules import Context, context, rewrite
from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from tests.support.query.query_world import QueryWorld

SCOPES_MADE_MAX = 7  # of a statement without inner SELECTs: after each rule that changes the tree
STATEMENTS = (
    "select carrier, count(*) n from flights where gate not in (1, 2) group by 1 order by n desc limit 3",
    "select * from flights where ts >= '2013-01-02' and ts < '2013-01-05' limit 7",
    "select FLOWN_ON, Sum(price) from flights f where ts between '2013-01-01' and '2013-01-04' group by 1",
    "select date_trunc('day', ts) gate, avg(delay) from flights group by gate having avg(delay) > 1",
    "select carrier, sum(if(gate = 1, delay, 0)) s from flights group by carrier with rollup",
    "select carrier from flights where gate in (select max(gate) from flights where carrier = 'AA')",
    "select distinct date(ts) d from flights where gate = 1",
    "select date(ts) d, price, carrier from flights where carrier > 'A' order by d",
    "with a as (select carrier c, count(*) n from flights group by 1) select sum(n) from a where c <> 'UA'",
    "select count(*) from flights a join flights b on a.carrier = b.carrier where a.gate = 1",
    "select table_name from information_schema.tables where table_schema = 'rtolap'",
    "select date_add('2013-01-01', interval 1 day), '2013-01-01' + interval 1 hour, 'a' collate utf8mb4_bin",
)


@pytest.fixture
def catalogue(world: QueryWorld) -> QueryCatalogue:
    return QueryCatalogue(cubes={"flights": world.schema})


def planned(sql: str, catalogue: QueryCatalogue, engine: EmbeddedEngine) -> Rewritten:
    session = engine.session()
    try:
        return rewrite(
            parse(sql).tree,
            Context(catalogue, lambda tree: fold(session.value, tree, {}), frozenset({"tables"})),
        )
    finally:
        session.close()


@pytest.mark.parametrize("sql", STATEMENTS)
def test_a_plan_out_of_shared_scopes_is_the_plan_out_of_new_ones(
    sql: str, catalogue: QueryCatalogue, engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = planned(sql, catalogue, engine)

    def new_ones(self: Context, tree: exp.Expr) -> list[Scope]:
        return traverse_scope(tree)

    monkeypatch.setattr(Context, "scopes", new_ones)
    assert planned(sql, catalogue, engine) == shared


def test_the_rules_make_the_scope_of_a_statement_a_few_times_only(
    catalogue: QueryCatalogue, engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[exp.Expr] = []

    def counted(tree: exp.Expr) -> list[Scope]:
        made.append(tree)
        return traverse_scope(tree)

    monkeypatch.setattr(context, "traverse_scope", counted)
    planned(STATEMENTS[0], catalogue, engine)
    assert 0 < len(made) <= SCOPES_MADE_MAX


def test_what_is_derived_is_made_once_for_each_catalogue(world: QueryWorld) -> None:
    made: list[QueryCatalogue] = []

    def names_of(catalogue: QueryCatalogue) -> tuple[str, ...]:
        made.append(catalogue)
        return catalogue.all_names()

    one, other = QueryCatalogue(cubes={"flights": world.schema}), QueryCatalogue()
    assert [one.derived(names_of), one.derived(names_of), other.derived(names_of)] == [
        ("flights",),
        ("flights",),
        (),
    ]
    assert [each is one for each in made] == [True, False]
    assert one.derived(spellings)["carrier"] == {"carrier"}
    assert not other.derived(spellings)


def test_what_is_derived_is_no_part_of_the_catalogue(world: QueryWorld) -> None:
    looked_at, untouched = (QueryCatalogue(cubes={"flights": world.schema}) for _ in range(2))
    looked_at.derived(spellings)
    assert looked_at.columns("flights")
    assert looked_at == untouched
    assert msgspec.msgpack.encode(looked_at) == msgspec.msgpack.encode(untouched)
