"""A stored table is compared with the rows that it mirrors, both ways, by value."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from rtolap.base.errors import DefinitionError, Unavailable
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.sep.hbase.regions import Region, ScannedRows
from rtolap.sep.hbase.rows_pb2 import Column
from rtolap.sep.listeners.event_columns import ColumnSource, EventColumns
from rtolap.sep.listeners.verify import Mirrored, RowDifference, TableVerifier, _same
from rtolap.sep.rows.reader import TRIES

from tests.sep.rows.test_reader import ROWS, Clock, Regions, Values, reader_of
from tests.support.sep.cell_blocks import cell_block

COLUMNS = EventColumns(
    {"a": ColumnSource(b"cf", b"a", "long"), "b": ColumnSource(b"df", b"b", "string")}, ("id", "string")
)
Stored = dict[str, tuple[int | None, str | None]]


class ScannedRegions(Regions):
    def scan(
        self, region: Region, start: bytes, stop: bytes, columns: Sequence[Column], rows: int
    ) -> ScannedRows:
        self.check_served()
        here = [
            row
            for row in sorted(self.rows)
            if max(start, region.start) <= row and not (stop and row >= stop)
            if not (region.end and row >= region.end)
        ][: min(rows, 7)]
        cells = [(row, *column, value) for row in here for column, value in sorted(self.rows[row].items())]
        return ScannedRows([len(self.rows[row]) for row in here], cell_block(cells), not here)


class Sql:
    """Answers the two statements that a verifier sends."""

    def __init__(self, rows: Stored) -> None:
        self.rows = rows

    def __call__(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        if " IN (" in sql:
            return [(key, *self.rows[key]) for key in parameters if key in self.rows]
        assert sql.startswith("SELECT `id` FROM `shop`.`orders`")
        after = parameters[0] if parameters else ""
        return [(key,) for key in sorted(self.rows) if key > after][:5]


def verifier_of(rows: dict[bytes, Values], stored: Stored, **options: Any) -> TableVerifier:
    return verifier_over(regions_of(rows), Clock(), stored, **options)


def regions_of(rows: dict[bytes, Values]) -> ScannedRegions:
    return ScannedRegions(rows, [b"", ROWS[100], ROWS[200]])


def verifier_over(regions: ScannedRegions, clock: Clock, stored: Stored, **options: Any) -> TableVerifier:
    types = {"a": "long", "b": "string"}
    mirrored = Mirrored(
        ["t"], TableName("shop", "orders"), COLUMNS, "string", types, lambda table: (), **options
    )
    return TableVerifier(mirrored, reader_of(regions, clock), Sql(stored))


def drawn(random: Random) -> tuple[dict[bytes, Values], Stored]:
    rows: dict[bytes, Values] = {}
    stored: Stored = {}
    for at, row in enumerate(random.sample(ROWS, 60)):
        values: Values = {(b"zz", b"u"): b"u"}
        a, b = random.choice((at, None)), random.choice((f"text {at}", None))
        if a is not None:
            values[b"cf", b"a"] = struct.pack(">q", a)
        if b is not None:
            values[b"df", b"b"] = b.encode()
        rows[row], stored[row.decode()] = values, (a, b)
    return rows, stored


@pytest.mark.parametrize("seed", range(6))
def test_each_difference_is_found_and_no_other(seed: int) -> None:
    random = Random(seed)
    rows, stored = drawn(random)
    assert list(verifier_of(rows, stored).differences()) == []
    expected = []
    for row in random.sample(sorted(rows), 12):
        key = row.decode()
        match random.choice(("missing", "extra", "different", "unreadable")):
            case "missing":
                del stored[key]
                expected.append(RowDifference("t", row, "missing"))
            case "extra":
                del rows[row]
                expected.append(RowDifference("t", row, "extra"))
            case "different":
                stored[key] = (-1, "other")
                expected.append(RowDifference("t", row, "different"))
            case _:
                rows[row][b"cf", b"a"] = b"no number"
                expected.append(RowDifference("t", row, "unreadable"))
    verifier = verifier_of(rows, stored)
    compared: list[int] = []
    assert sorted(verifier.differences(on_rows=compared.append)) == sorted(expected)
    assert sum(compared) == len(rows) + len(stored)
    within = [each for each in expected if ROWS[50] <= each.row < ROWS[220]]
    assert sorted(verifier.differences(ROWS[50], ROWS[220])) == sorted(within)
    assert sorted(verifier.check([(each.table, each.row) for each in expected])) == sorted(expected)


@pytest.mark.parametrize("seed", range(6))
def test_regions_that_are_on_their_way_are_waited_for(seed: int) -> None:
    """At whatever call, of the scan or of the rows; the pauses grow, so that it lasts."""
    random = Random(seed)
    rows, stored = drawn(random)
    regions, clock = regions_of(rows), Clock()
    regions.moves_at = {at: random.randint(1, TRIES) for at in random.sample(range(40), 6)}
    moves = sum(regions.moves_at.values())
    assert list(verifier_over(regions, clock, stored).differences()) == []
    assert regions.moves_at == {}
    assert (clock.slept, regions.forgotten) == (moves, moves)
    assert clock.now_s >= moves * 0.05
    regions.moves = TRIES + 1
    with pytest.raises(Unavailable, match="has moved"):
        list(verifier_over(regions, clock, stored).differences())


def test_rows_beside_the_prefixes_and_rows_that_stay_are_no_difference() -> None:
    rows: dict[bytes, Values] = {b"other": {(b"cf", b"a"): struct.pack(">q", 1)}}
    verifier = verifier_of(rows, {"row-1": (1, None), "also": (2, None)}, prefixes=(b"row",))
    assert list(verifier.differences()) == [RowDifference("t", b"row-1", "extra")]
    keeping = verifier_of({}, {"row-1": (1, None)}, keeps_extra=True)
    assert list(keeping.differences()) == []
    assert keeping.check([("t", b"row-1")]) == []


@pytest.mark.parametrize(
    ("kind", "here", "there", "expected"),
    [
        ("long", 5, 5, True),
        ("long", 5, 6, False),
        ("long", None, 5, False),
        ("long", 5, None, False),
        ("string", None, None, True),
        ("boolean", True, 1, True),
        ("boolean", False, 1, False),
        ("float", 0.10000000149011612, 0.1, True),
        ("double", 0.1, 0.1, True),
        ("double", float("nan"), None, True),
        ("double", 1.5, 1.25, False),
        ("decimal(9,2)", Decimal("1.50"), "1.5", True),
        ("decimal(9,2)", Decimal("1.50"), "1.51", False),
        ("json", '{"a": 1}', '{"a":1}', True),
        ("json", '{"a": 1}', '{"a":2}', False),
        ("bytes", "00ff", "00ff", True),
    ],
)
def test_values_are_equal_by_their_type(kind: str, here: Any, there: Any, expected: bool) -> None:
    assert _same(here, there, kind) is expected


@pytest.mark.parametrize(
    ("kind", "key", "row"),
    [
        ("string", "é", "é".encode()),
        ("bytes", "00ff", b"\x00\xff"),
        ("long", -2, struct.pack(">q", -2)),
        ("int", 7, struct.pack(">i", 7)),
        ("short", 7, struct.pack(">h", 7)),
        ("boolean", True, b"\xff"),
        ("double", 0.5, struct.pack(">d", 0.5)),
    ],
)
def test_a_key_tells_its_row(kind: str, key: Any, row: bytes) -> None:
    mirrored = Mirrored(["t"], TableName("shop", "orders"), COLUMNS, kind, {}, lambda table: ())
    regions = Regions({})
    assert TableVerifier(mirrored, reader_of(regions, Clock()), Sql({}))._row_of(key) == row


def test_a_key_that_does_not_tell_its_row_is_refused() -> None:
    mirrored = Mirrored(["t"], TableName("shop", "orders"), COLUMNS, "decimal(9,2)", {}, lambda table: ())
    regions = Regions({})
    with pytest.raises(DefinitionError, match="many encodings"):
        TableVerifier(mirrored, reader_of(regions, Clock()), Sql({}))._row_of(Decimal(1))
