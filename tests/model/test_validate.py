"""What a sound table and cube are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.model.cube import (
    AggregationGroup,
    Cube,
    LatePolicy,
    Measure,
    MergePolicy,
    RetentionPolicy,
    Schema,
    SegmentPolicy,
)
from rtolap.model.table import Column, Lookup, Table, TimeColumn
from rtolap.model.validation.definition import validate_lookup, validate_schema, validate_table

TABLE = Table(
    name="sales",
    topic="sales.v1",
    time=TimeColumn("at"),
    columns=(
        Column("at", "bigint"),
        Column("text", "string"),
        Column("stamp", "timestamp"),
        Column("flag", "boolean"),
        Column("price", "decimal(10,2)"),
        Column("weight", "double"),
    ),
)
CUBE = Cube(name="sales_cube", table="sales", dimensions=("text", "flag"), measures=(Measure("count"),))
DAY_MS = 86_400_000


def table(**changes: Any) -> Table:
    return msgspec.structs.replace(TABLE, **changes)


def cube(**changes: Any) -> Schema:
    return Schema(TABLE, msgspec.structs.replace(CUBE, **changes))


def test_sound_definitions_pass() -> None:
    validate_schema(Schema(TABLE, CUBE))
    filtered = [Measure(what, "price", where="flag", name="paid") for what in ("sum", "avg", "max")]
    validate_schema(cube(measures=(*filtered, Measure("count", where="flag"), Measure("sum", "price"))))
    validate_lookup(Lookup(name="shops", file="shops.parquet", columns=(Column("a", "int"),)))


@pytest.mark.parametrize("name", ["", "1a", "Sales", "a-b", "a b", "a;drop", "a__b", "x" * 65, "ä"])
def test_names_are_plain_identifiers(name: str) -> None:
    with pytest.raises(DefinitionError, match="name"):
        validate_table(table(name=name))
    with pytest.raises(DefinitionError, match="name"):
        validate_schema(cube(name=name))
    with pytest.raises(DefinitionError, match="name"):
        validate_table(table(columns=(*TABLE.columns, Column(name, "int"))))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((Column("at", "bigint"), Column("at", "int")), "declared twice"),
        ((Column("at", "bigint"), Column("hour_start", "int")), "reserved name"),
        ((Column("at", "bigint"), Column("x", "varchar")), "unknown column type"),
        ((Column("at", "bigint"), Column("x", "decimal(39,0)")), "unknown column type"),
        ((Column("at", "bigint"), Column("a", "int", "x"), Column("b", "int", "x.y")), "an object at once"),
        ((Column("at", "bigint"), Column("a", "int", "x..y")), "empty step"),
        ((), "wrong number of columns"),
    ],
)
def test_wrong_columns_are_refused(columns: tuple[Column, ...], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        validate_table(table(columns=columns))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"watermark_field": "Water mark"}, "watermark_field: not a name"),
        ({"watermark_field": "flag"}, "watermark_field: column flag reads this field; expected a field that"),
    ],
)
def test_a_watermark_stands_in_a_field_of_its_own(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        validate_table(table(watermark_records="field", **changes))
    validate_table(table(watermark_records="field"))
    validate_table(table(watermark_records="header", watermark_field="flag"))


@pytest.mark.parametrize("topic", ["", ".", "a/b", "a b", "x" * 250])
def test_topics_are_names_that_kafka_takes(topic: str) -> None:
    with pytest.raises(DefinitionError, match="topic"):
        validate_table(table(topic=topic))


@pytest.mark.parametrize(
    "time",
    [
        TimeColumn("text", "iso8601", "America/New_York"),
        TimeColumn("stamp", "iso8601"),
        TimeColumn("at", "epoch_s"),
        TimeColumn("at", "epoch_us"),
        TimeColumn("text", "%Y-%m-%d %H:%M:%S.%f"),
        TimeColumn("text", "%d/%m/%y %I:%M %p"),
        TimeColumn("text", "%Y%m%dT%H%M%S%z"),
    ],
)
def test_event_times_that_can_be_read(time: TimeColumn) -> None:
    validate_table(table(time=time))


@pytest.mark.parametrize(
    ("time", "message"),
    [
        (TimeColumn("atx"), "did you mean 'at'"),
        (TimeColumn("text", "epoch_ms"), "another type cannot hold epoch_ms"),
        (TimeColumn("at", "iso8601"), "another type"),
        (TimeColumn("text", "iso8061"), "did you mean 'iso8601'"),
        (TimeColumn("text", "%Y-%Q"), "unknown directive"),
        (TimeColumn("text", "%H:%M"), "no whole date"),
        (TimeColumn("text", "%Y-%m-%d%"), "single %"),
        (TimeColumn("at", "epoch_ms", "Europe/Berln"), "unknown zone"),
        (TimeColumn("at", "epoch_ms", "../etc/passwd"), "unknown zone"),
        (TimeColumn("at", "epoch_ms", "Europe"), "unknown zone"),
    ],
)
def test_event_times_that_cannot_be_read(time: TimeColumn, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        validate_table(table(time=time))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("prize > 1", "where: no column prize.*'price'"),
        ("price >", "where: not an expression"),
        ("price", "where: not a condition"),
        ("text > 1", "where: > does not fit"),
        ("", "where: not an expression"),
    ],
)
def test_a_condition_of_a_table_that_is_none(where: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        validate_table(table(where=where))
    validate_table(table(where="flag AND price > 1"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"table": "other"}, "another table"),
        ({"dimensions": (), "time_dimensions": ()}, "without dimensions"),
        ({"dimensions": ("text", "text")}, "declared twice"),
        ({"dimensions": ("hour_start",)}, "put hour into time_dimensions"),
        ({"measures": (Measure("sum"),)}, "sum needs a column"),
        ({"measures": (Measure("sum", "text"),)}, "a numeric column"),
        ({"measures": (Measure("last", "at"),)}, "another column than the event time"),
        ({"measures": (Measure("avg", "stamp"),)}, "a numeric column"),
        ({"measures": (Measure("min", "flag"),)}, "a column with an order"),
        ({"measures": (Measure("approx_distinct", "weight"),)}, "compare exactly"),
        ({"measures": (Measure("approx_distinct", "text", 3),)}, "4 to 21"),
        ({"measures": (Measure("approx_distinct", "text", 22),)}, "4 to 21"),
        ({"measures": (Measure("count_distinct", "weight"),)}, "compare exactly"),
        ({"measures": (Measure("count_distinct", "text", lg_max=3),)}, "4 to 22"),
        ({"measures": (Measure("count_distinct", "text", lg_max=23),)}, "4 to 22"),
        ({"measures": (Measure("count"), Measure("count"))}, "declared twice"),
        ({"measures": (Measure("max", "prize"),)}, "did you mean 'price'"),
        ({"measures": (Measure("sum", "price", where="prize > 1"),)}, "where.*no column prize.*'price'"),
        ({"measures": (Measure("sum", "price", where="price > "),)}, "where.*not an expression"),
        ({"measures": (Measure("sum", "price", where="price"),)}, "where.*not a condition"),
        ({"measures": (Measure("sum", "price", where="price > 'x'"),)}, "where.*does not fit"),
        ({"measures": (Measure("sum", "price", where="(" * 15 + "flag" + ")" * 15),)}, "nested too deep"),
        ({"measures": (Measure("sum", "text", where="flag"),)}, "a numeric column"),
        ({"measures": (Measure("sum", "prize", where="flag"),)}, "did you mean 'price'"),
        ({"measures": (Measure("sum", where="flag"),)}, "sum needs a column"),
        ({"measures": (Measure("max", "at", where="flag"),)}, "event time is not filtered"),
        ({"measures": (Measure("sum", "price", name="paid"),)}, "name without a condition"),
        ({"measures": (Measure("sum", "price", where="flag", name="a__b"),)}, "reserved name"),
        ({"measures": (Measure("sum", "price", where="flag", name="text"),)}, "a column's name"),
        ({"measures": (Measure("sum", "price", where="flag"),) * 2}, "declared twice"),
        (
            {
                "measures": (
                    Measure("sum", "price", where="flag", name="paid"),
                    Measure("sum", "price", where="NOT flag", name="paid"),
                )
            },
            "another filtered column",
        ),
        (
            {
                "measures": (
                    Measure("sum", "price", where="flag"),
                    Measure("max", "price", where="NOT flag", name="where_d1f4eb9a"),
                )
            },
            "another filtered column",
        ),
        ({"segment": SegmentPolicy(window_ms=500)}, "out of bounds"),
        ({"segment": SegmentPolicy(window_ms=7 * 3_600_000)}, "line up with days"),
        ({"segment": SegmentPolicy(window_ms=DAY_MS + 1000)}, "line up with days"),
        ({"segment": SegmentPolicy(allowed_lateness_ms=-1)}, "0 or more"),
        ({"segment": SegmentPolicy(sliding_window_ms=10, sliding_window_max_ms=5)}, "shorter than"),
        ({"retention": RetentionPolicy("PURGE")}, "PURGE needs a time"),
        (
            {"retention": RetentionPolicy("PURGE", 1), "merge": MergePolicy(("day",))},
            "nothing to merge: the cube keeps no history",
        ),
        (
            {"segment": SegmentPolicy(86_400_000), "merge": MergePolicy(("day", "month"))},
            "a day has less than two segments",
        ),
        (
            {"segment": SegmentPolicy(20 * 86_400_000), "merge": MergePolicy(("month",))},
            "a month has less than two segments",
        ),
        ({"merge": MergePolicy(("day",), -1)}, "0 or more"),
        ({"retention": RetentionPolicy("FULL_BUILD", -1)}, "0 or more"),
        ({"late": LatePolicy("merge", -1)}, "0 or more"),
        ({"consumer_tasks_max": 0}, "1 to 1024"),
    ],
)
def test_wrong_cubes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        validate_schema(cube(**changes))


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (AggregationGroup(include=("text", "txt")), "did you mean 'text'"),
        (AggregationGroup(include=("text", "text")), "included twice"),
        (AggregationGroup(include=("text",), mandatory=("flag",)), "not in the group"),
        (AggregationGroup(include=("text", "flag"), joints=(("text",),)), "two or more"),
        (
            AggregationGroup(include=("text", "flag"), mandatory=("text",), joints=(("text", "flag"),)),
            "bound twice",
        ),
    ],
)
def test_inconsistent_aggregation_groups_are_refused(group: AggregationGroup, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        validate_schema(cube(aggregation_groups=(group,)))


@pytest.mark.parametrize(("dimensions", "message"), [(10, "too many cuboids"), (40, "too many combinations")])
def test_the_number_of_cuboids_is_bounded_before_they_are_listed(dimensions: int, message: str) -> None:
    names = tuple(f"d{number}" for number in range(dimensions))
    wide = table(columns=(*TABLE.columns, *(Column(name, "string") for name in names)))
    group = AggregationGroup(include=names)
    with pytest.raises(DefinitionError, match=message):
        validate_schema(
            Schema(wide, msgspec.structs.replace(CUBE, dimensions=names, aggregation_groups=(group,)))
        )


def test_all_problems_come_in_one_error() -> None:
    with pytest.raises(DefinitionError) as caught:
        validate_schema(cube(dimensions=("a", "b"), measures=(Measure("sum", "text"),)))
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("lookup", "message"),
    [
        (Lookup(name="l", file="x.json", columns=(Column("a", "int"),)), "unknown kind of file"),
        *(
            (Lookup(name="l", file=file, columns=(Column("a", "int"),)), "not a file of a lookup")
            for file in (
                *(
                    "/etc/passwd.csv",
                    "../x.csv",
                    "a/../../x.csv",
                    "a/./x.csv",
                    "a//x.csv",
                    ".x.csv",
                    "~/x.csv",
                ),
                *(".ssh/x.csv", "a\\..\\x.csv", "a\0/x.csv", "./x.csv", "a\n.csv"),
            )
        ),
        (Lookup(name="l", file="x.csv", columns=(Column("a", "int", "b.c"),)), "no nested values"),
        (Lookup(name="l", columns=(Column("a", "int"),)), "either file or stored_table; found neither"),
        (
            Lookup(name="l", file="x.csv", stored_table="d.t", keys=("a",), columns=(Column("a", "int"),)),
            "file: .* found both",
        ),
        (Lookup(name="l", file="x.csv", keys=("a",), columns=(Column("a", "int"),)), "only a lookup over"),
        (Lookup(name="l", stored_table="t", keys=("a",), columns=(Column("a", "int"),)), "not a stored"),
        (Lookup(name="l", stored_table="d.t", columns=(Column("a", "int"),)), "has no keys"),
        (
            Lookup(name="l", stored_table="d.t", keys=("abc",), columns=(Column("abd", "int"),)),
            r"keys\[0\]: no such column; expected one of abd",
        ),
        (
            Lookup(name="l", stored_table="d.t", keys=("a", "a"), columns=(Column("a", "int"),)),
            r"keys\[1\]: key is named twice",
        ),
    ],
)
def test_wrong_lookups_are_refused(lookup: Lookup, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        validate_lookup(lookup)
