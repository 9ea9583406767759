"""Long lists of written values are one node of the tree, and answer as lists whose values are nodes each."""

from __future__ import annotations

import random

import pytest
import sqlglot
from rtolap.base.errors import QueryError, SqlSyntaxError
from rtolap.query.approval.bounds import PARTS_MAX, check_text
from rtolap.query.approval.value_lists import MEMBERS_MAX, MEMBERS_MIN, ShortText, put_in, shortened
from rtolap.query.sql.dialect import RtolapSql
from rtolap.query.sql.parser import parse
from rtolap.query.statement_service import QueryService

from tests.support.query.oracles.sql_oracle import rows_of
from tests.support.query.query_world import QueryWorld

_FILL = [f"none {number}" for number in range(MEMBERS_MIN)]
_NUMBERS = [str(number) for number in range(100, 100 + MEMBERS_MIN)]
_DAYS = [f"2012-{1 + number // 28:02d}-{1 + number % 28:02d}" for number in range(MEMBERS_MIN)]


def quoted(values: list[str], mark: str = "'") -> list[str]:
    return [mark + value.replace(mark, mark * 2) + mark for value in values]


LISTS = {
    "texts": ("carrier", quoted(["AA", "é'\"%_", "日本 😀", *_FILL])),
    "texts in double quotes": ("carrier", quoted(["AA", "é'\"%_", *_FILL], '"')),
    "whole numbers": ("gate", ["-2", "1", *_NUMBERS]),
    "numbers": ("gate", ["-2", "1.0", "0.5", *_NUMBERS]),
    "numbers beside decimals": ("fare_class", ["-0.25", "1.00", "2.5", "1", "0.125", *_NUMBERS]),
    "numbers beside doubles": ("gate * 0 + 8e0", ["8", "8.5", *_NUMBERS]),
    "texts beside numbers": ("gate", quoted(["-2", " 1", "1.0x", "", "2e0", *_NUMBERS])),
    "plain texts beside numbers": ("gate", quoted(["-2", " 1", "0.50", "2 apples", *_NUMBERS])),
    "texts beside decimals": ("fare_class", quoted(["-0.25", "1.00", *_NUMBERS])),
    "days beside dates": ("flown_on", quoted(["2013-01-01", "2013-01-03", *_DAYS])),
    "no days beside dates": ("flown_on", quoted(["2013-01-01", "2013-02-30", "2013/1/2", *_DAYS])),
    "moments beside dates": ("flown_on", quoted(["2013-01-01 00:00:00", "2013-01-02 05:00:00", *_DAYS])),
    "days beside moments": ("day_start", quoted(["2013-01-01", "2013-01-03 00:00:00", *_DAYS])),
    "other texts beside moments": ("day_start", quoted(["2013-1-1", "20130103", *_DAYS])),
    "numbers beside moments": ("day_start", ["20130101", *_NUMBERS]),
    "numbers beside texts": ("carrier", ["0", *_NUMBERS]),
    "texts beside booleans": ("on_time", quoted(["1", "x", *_NUMBERS])),
    "numbers beside booleans": ("on_time", ["1", *_NUMBERS]),
    "years": ("year(flown_on)", ["2013", *_NUMBERS]),
    "days of moments": ("date(day_start)", quoted(["2013-01-02", *_DAYS])),
    "an expression": ("concat(origin, carrier)", quoted(["JFKAA", *_FILL])),
    "NULL": ("null", _NUMBERS),
}  # fmt: skip
STATEMENTS = [
    "select carrier, count(*) from flights where {} group by 1 order by 1",
    "select carrier, count(*) from flights where not ({}) group by 1 order by 1",
    "select carrier, count(*) from flights where gate > 0 or {} group by 1 order by 1",
    "select sum(case when {} then delay end), sum(if({}, 1, 0)) from flights",
    "select origin, {} as chosen, count(*) from flights group by 1, 2 order by 1, 2",
]


@pytest.mark.parametrize("template", STATEMENTS)
@pytest.mark.parametrize("kind", LISTS)
def test_a_list_answers_as_its_values_do(kind: str, template: str, service: QueryService) -> None:
    operand, values = LISTS[kind]
    taken = template.replace("{}", f"{operand} in ({', '.join(values)})")
    written = template.replace("{}", f"{operand} in (/* each by itself */ {', '.join(values)})")
    assert shortened(taken).lists
    assert not shortened(written).lists
    ours, expected = service.execute(taken), service.execute(written)
    assert rows_of(ours.table()) == rows_of(expected.table())
    assert ours.schema.types == expected.schema.types  # a column is called as it is written
    assert set(ours.warnings) == set(expected.warnings)


@pytest.mark.parametrize("seed", range(20))
def test_a_list_is_taken_from_so_many_values_on_and_not_before(seed: int) -> None:
    dice = random.Random(seed)
    count = dice.choice((1, 2, MEMBERS_MIN - 1, MEMBERS_MIN, MEMBERS_MIN + 1, dice.randrange(3, 200)))
    comma = dice.choice((",", ", ", " ,\n"))
    values = comma.join(dice.choice(("'a'", "'b,c'", "''''")) for _ in range(count))
    beside = "x, " * dice.randrange(60)  # other commas count for no list
    short = shortened(f"select {beside}1 from t where a in ({values})")
    assert [len(each.values) for each in short.lists.values()] == ([count] if count >= MEMBERS_MIN else [])


def test_a_column_without_a_name_is_called_as_it_is_written(service: QueryService) -> None:
    values = ", ".join(_NUMBERS)
    (name,) = service.execute(f"select max(gate in ({values})) from flights").table().column_names
    assert name == f"max(gate in ({values}))"[:256]


def test_a_long_list_is_one_node_and_pushed_down(world: QueryWorld, service: QueryService) -> None:
    values = ", ".join(quoted([f"v{number}" for number in range(10_000)]))
    sql = f"select count(*) from flights where origin not in ({values})"
    assert sum(1 for _ in parse(sql).tree.walk()) < 100
    before = len(world.asked)
    service.execute(sql).close()
    (query, *_) = [query for _, query in world.asked[before:]]
    assert query.filter is not None
    assert len(query.filter.values) == 10_000  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "around",
    [
        "select '{}' a",
        "select 'it''s {}' a",
        "select 'it\\'s {}' a",
        'select "{}" a',
        "select 1 `{}`",
        "select 1 a -- {}",
        "select 1 a # {}\n",
        "select 1 /* {} */ a",
        "select 1 /* /* {} */ a",
    ],
)
def test_what_looks_like_a_list_in_quotes_and_comments_is_none(around: str) -> None:
    values = f"x in ({', '.join(_NUMBERS)})"
    assert not shortened(around.replace("{}", values)).lists


@pytest.mark.parametrize(
    "values",
    [
        [*_NUMBERS, "1e3"], [*_NUMBERS, "'a'"], [*_NUMBERS, "null"], [*_NUMBERS, "1.2.3"], [*_NUMBERS, "- 1"],
        [*quoted(_FILL), r"'a\'b'"], [*quoted(_FILL), "'a' 'b'"], [*quoted(_FILL), "x'41'"],
        [*quoted(_FILL), "concat('a')"], quoted(_FILL)[1:],
    ],
)  # fmt: skip
def test_what_is_not_plain_stays_in_the_text(values: list[str]) -> None:
    assert not shortened(f"select 1 from t where a in ({', '.join(values)})").lists


def test_a_list_where_the_parser_reads_none_is_read_as_text() -> None:
    short = shortened(f"select a in ({', '.join(_NUMBERS)}) from t")
    (mark,) = short.lists
    assert not put_in(sqlglot.parse_one("select 1", dialect=RtolapSql), short.lists)
    assert not put_in(sqlglot.parse_one(f"select :{mark}", dialect=RtolapSql), short.lists)
    assert not put_in(sqlglot.parse_one(f"select a in (1, :{mark})", dialect=RtolapSql), short.lists)
    assert put_in(sqlglot.parse_one(short.text, dialect=RtolapSql), short.lists)


def test_an_error_names_its_place_in_the_text_as_it_was_written() -> None:
    with pytest.raises(SqlSyntaxError, match=r"Col: 1\d\d\."):
        parse(f"select a in ({', '.join(_NUMBERS)}) oops 1")


def test_the_values_of_a_statement_are_bounded() -> None:
    each = ",".join(["1"] * (MEMBERS_MAX // 2))
    assert len(check_text(f"select 1 from t where a in ({each}) or b in ({each})").lists) == 2
    with pytest.raises(QueryError, match=f"at most {MEMBERS_MAX} values"):
        check_text(f"select 1 from t where a in ({each}) or b in ({each},1)")
    with pytest.raises(QueryError, match=f"at most {PARTS_MAX} words"):
        check_text("select 1 from t where a in (" + ",".join(["x"] * PARTS_MAX) + ")")


@pytest.mark.parametrize("opened", ["'", '"', "`", "/*", "'a\\'"])
def test_what_is_not_closed_has_no_lists(opened: str) -> None:
    sql = f"select a in ({', '.join(_NUMBERS)}), {opened} from t"
    assert shortened(sql) == ShortText(sql, {})
