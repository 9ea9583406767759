"""Long lists of bound values answer as the same values written into the text do, and as parameters do."""

from __future__ import annotations

import random
import re
from datetime import date
from decimal import Decimal

import pytest
from rtolap.base.errors import QueryError, SqlSyntaxError
from rtolap.query.approval.bound_lists import shortest, written_out
from rtolap.query.approval.bounds import STATEMENT_BYTES_MAX
from rtolap.query.approval.value_lists import MEMBERS_MIN, shortened
from rtolap.query.statement_service import QueryService

from tests.support.query.oracles.sql_oracle import rows_of
from tests.support.query.query_world import QueryWorld

_FILL = [f"none {number}" for number in range(MEMBERS_MIN)]
_NUMBERS = list(range(100, 100 + MEMBERS_MIN))
_DAYS = [f"2012-{1 + number // 28:02d}-{1 + number % 28:02d}" for number in range(MEMBERS_MIN)]
PLAIN: dict[str, tuple[str, list[object]]] = {
    "texts": ("carrier", ["AA", "é'\"%_", "日本 😀", "", "?", "-- '", *_FILL]),
    "whole numbers": ("gate", [-2, 1, 2**63, *_NUMBERS]),
    "numbers": ("fare_class", [Decimal("-0.25"), Decimal("1.00"), 2, Decimal("1E-5"), *_NUMBERS]),
    "texts beside numbers": ("gate", ["-2", " 1", "1.0x", "", "2e0", *map(str, _NUMBERS)]),
    "texts beside dates": ("flown_on", ["2013-01-01", "2013-02-30", *_DAYS]),
    "texts beside moments": ("day_start", ["2013-01-01", "2013-01-03 00:00:00", *_DAYS]),
    "numbers beside texts": ("carrier", [0, *_NUMBERS]),
    "an expression": ("concat(origin, carrier)", ["JFKAA", *_FILL]),
}  # fmt: skip
OTHERS: dict[str, tuple[str, list[object]]] = {
    "NULL": ("gate", [1, None, *_NUMBERS]),
    "doubles": ("gate", [1.0, -2.0, *_NUMBERS]),
    "a backslash": ("carrier", ["AA", "\\", *_FILL]),
    "days": ("flown_on", [date(2013, 1, 1), *map(date.fromisoformat, _DAYS)]),
    "texts and numbers": ("gate", [1, "-2", *_NUMBERS]),
}
STATEMENTS = [
    "select carrier, count(*) as n from flights where {} and origin <> ? group by 1 order by 1",
    "select carrier, count(*) as n from flights where origin = ? or not ({}) group by 1 order by 1",
    "select '?' as a, sum(case when {} then delay end) as b from flights where origin <> ? /* ? */ -- ?",
    "select `carrier` as `?`, ? as x, sum({}) as b from flights group by 1 order by 1",
]


def marks(count: int) -> str:
    return ", ".join("?" * count)


@pytest.mark.parametrize("template", STATEMENTS)
@pytest.mark.parametrize("kind", PLAIN | OTHERS)
def test_bound_values_answer_as_parameters_do(kind: str, template: str, service: QueryService) -> None:
    operand, values = (PLAIN | OTHERS)[kind]
    text = template.replace("{}", f"{operand} in ({marks(len(values))})")
    # parentheses about the first keep the list as parameters
    each = template.replace("{}", f"{operand} in ((?), {marks(len(values) - 1)})")
    is_before = (re.search(r"\?[^/]*in \(", text) is not None and "`?`, ?" in text) or "= ?" in text
    bound = ["EWR", *values] if is_before else [*values, "EWR"]
    assert (written_out(text, bound, STATEMENT_BYTES_MAX) is not None) == (kind in PLAIN)
    assert written_out(each, bound, STATEMENT_BYTES_MAX) is None
    ours, expected = service.execute(text, bound), service.execute(each, bound)
    assert rows_of(ours.table()) == rows_of(expected.table())
    assert ours.schema.equals(expected.schema)
    assert set(ours.warnings) == set(expected.warnings)


@pytest.mark.parametrize("kind", PLAIN)
def test_a_prepared_statement_is_described_by_a_short_list_and_answers_by_the_long_one(
    kind: str, world: QueryWorld, service: QueryService
) -> None:
    operand, values = PLAIN[kind]
    more = [*values, *(values * 60)]
    select = f"select carrier, count(*) as n from flights where {operand} in"
    text = f"{select} ({marks(len(more))}) group by 1"
    columns, statement = service.describe(text)
    assert (columns.names, len(statement.parameters)) == (["carrier", "n"], len(more))
    before = len(world.asked)
    answer = service.execute(statement, more)
    assert answer.schema.equals(columns)
    found = rows_of(answer.table())
    assert [query for _, query in world.asked[before:]]
    as_parameters = f"{select} ((?), {marks(len(values) - 1)}) group by 1"
    assert found == rows_of(service.execute(as_parameters, values).table())


def test_drawn_texts_are_written_out_as_the_values_they_are() -> None:
    dice = random.Random(5)
    for _ in range(300):
        values = [
            "".join(dice.choices("a'\"?,()-#`/*% é\n", k=dice.randrange(6))) for _ in range(MEMBERS_MIN)
        ]
        bound = written_out(f"select 1 from t where a in({marks(len(values))})", values, STATEMENT_BYTES_MAX)
        assert bound is not None
        assert bound.values == ()
        (members,) = shortened(bound.text).lists.values()
        assert (members.kind, list(members.values)) == ("text", values)


def test_what_is_too_large_or_bound_wrongly_stays_as_it_is(service: QueryService) -> None:
    text = f"select 1 from t where a in ({marks(MEMBERS_MIN)})"
    assert written_out(text, ["x" * 100] * MEMBERS_MIN, 100 * MEMBERS_MIN) is None
    assert written_out(text, [1] * (MEMBERS_MIN + 1), STATEMENT_BYTES_MAX) is None
    with pytest.raises(QueryError, match="wrong number of parameters"):
        service.execute(f"select 1 from flights where gate in ({marks(MEMBERS_MIN)})", [1] * 40)


@pytest.mark.parametrize("unclosed", ["'", '"', "`", "/*"])
def test_a_quote_without_an_end_is_the_parsers_to_refuse(unclosed: str, service: QueryService) -> None:
    text = f"select 1 from flights where gate in ({marks(MEMBERS_MIN)}) and carrier = {unclosed}x"
    assert shortest(text) is None
    assert written_out(text, [1] * MEMBERS_MIN, STATEMENT_BYTES_MAX) is None
    with pytest.raises(SqlSyntaxError):
        service.execute(text, [1] * MEMBERS_MIN)


def test_short_lists_are_left_alone() -> None:
    assert shortest(f"select 1 from t where a in ({marks(MEMBERS_MIN - 1)})") is None
    short = shortest(
        f"select ?, '?' from t where a in ({marks(MEMBERS_MIN)}) or b in ({marks(40)}) and c = ?"
    )
    assert short is not None
    assert short.text == "select ?, '?' from t where a in (?) or b in (?) and c = ?"
    assert short.count == MEMBERS_MIN + 42
