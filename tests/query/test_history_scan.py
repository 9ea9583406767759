"""Files in memory, filtered and grouped by numbers of values, give what the rows themselves give."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from rtolap.columnar.filter import mask
from rtolap.columnar.schema import physical_schema, select_partials
from rtolap.model.cube import Cube, Measure, Schema, SegmentPolicy
from rtolap.model.predicate import And, Compare, In, IsNull, Like, Not, Or, Predicate, columns_of
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.query.cubes.history_files import HistoryFile, ParquetFooters
from rtolap.query.cubes.history_memory import FileMemory, can_be_coded
from rtolap.query.cubes.merge import group_partials
from rtolap.query.plan import CubeRead, TimeRange
from rtolap.scan import columns as scan_columns
from rtolap.scan import filter as scan_filter
from rtolap.scan import folds, group_scan
from rtolap.scan.columns import CodedFile, DimensionCodes, NotCoded
from rtolap.scan.group_scan import GroupScan

CARRIERS = (None, "AA", "UA", "DL", "Ünal", "")
GATES = (None, -5, 0, 1, 2, 300, 2**31 - 1)
DAYS = (None, *(date(2013, 1, 1) + timedelta(days=n) for n in range(4)))
PRICES = (None, Decimal("-1.25"), Decimal("0.00"), Decimal("17.50"))
DIMENSIONS: dict[str, tuple[str, Sequence[Any]]] = {
    "carrier": ("string", CARRIERS),
    "gate": ("int", GATES),
    "is_late": ("boolean", (None, False, True)),
    "on_day": ("date", DAYS),
    "fare": ("decimal(5,2)", PRICES),
}
SUMS = {"delay": "int", "price": "decimal(10,2)", "weight": "double"}
ROWS = 700


def made_schema() -> Schema:
    kinds = {name: kind for name, (kind, _) in DIMENSIONS.items()} | SUMS | {"seen": "timestamp"}
    return Schema(
        Table(
            name="flights",
            topic="flights",
            columns=(Column("ts", "bigint"), *(Column(name, kind) for name, kind in kinds.items())),
            time=TimeColumn("ts", "epoch_ms"),
        ),
        Cube(
            name="flights",
            table="flights",
            dimensions=tuple(DIMENSIONS),
            time_dimensions=("day",),
            measures=(
                Measure("count"),
                *(Measure("sum", name) for name in SUMS),
                Measure("min", "delay"),
                Measure("max", "price"),
                Measure("max", "seen"),
                Measure("max", "weight"),
                Measure("max", "carrier"),
            ),
            segment=SegmentPolicy(window_ms=86_400_000),
        ),
    )


SCHEMA = made_schema()
CODED = tuple(
    each.name
    for each in SCHEMA.partials
    if (each.accumulator.name, each.type.kind) not in (("max", "double"), ("max", "string"))
)


def made_table(rng: random.Random, rows: int) -> pa.Table:
    """Sorted by the first dimensions, as builds leave it, unless it is not."""
    schema = physical_schema(SCHEMA, DIMENSIONS, CODED, plain=True)

    def value(field: pa.Field) -> Any:
        if field.name in DIMENSIONS:
            return rng.choice(DIMENSIONS[field.name][1])
        if field.name == "__rows":
            return rng.randint(1, 9)
        if rng.random() < 0.1:
            return None
        if pa.types.is_decimal(field.type):
            return Decimal(rng.randint(-(10**9), 10**9)).scaleb(-2)
        if pa.types.is_timestamp(field.type):
            return rng.randint(-(10**15), 10**15)
        return (
            float(rng.randint(-1000, 1000)) if pa.types.is_floating(field.type) else rng.randint(-1000, 1000)
        )

    table = pa.table([pa.array([value(field) for _ in range(rows)], field.type) for field in schema], schema)
    order = rng.choice([(), ("carrier",), ("carrier", "gate", "on_day")])
    return table.sort_by([(name, "ascending") for name in order]) if order else table


def made_predicate(rng: random.Random, depth: int = 0) -> Predicate:
    if depth < 3 and rng.random() < 0.6:
        terms = tuple(made_predicate(rng, depth + 1) for _ in range(rng.randint(1, 3)))
        combined: list[Predicate] = [And(terms), And(terms), Or(terms), Not(terms[0])]
        return rng.choice(combined)
    name = rng.choice(list(DIMENSIONS))
    values = [value for value in DIMENSIONS[name][1] if value is not None]
    if name == "fare":
        values = [str(value) for value in values]
    if name == "on_day":
        values = [value.isoformat() for value in values]
    kind = rng.choice(["compare", "compare", "in", "null", "like"])
    if kind == "null":
        return IsNull(name, negated=rng.random() < 0.5)
    if kind == "like" and name == "carrier":
        return Like(name, rng.choice(["%A", "A_", "%"]), negated=rng.random() < 0.5)
    if kind == "in":
        chosen = tuple(rng.sample(values, rng.randint(1, len(values))))
        return In(name, chosen, negated=rng.random() < 0.3)
    op = rng.choice(["eq", "ne"]) if name == "is_late" else rng.choice(["eq", "ne", "lt", "le", "gt", "ge"])
    return Compare(name, op, rng.choice(values))


class Files:
    """Parquet files in memory, as history has them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.memory = FileMemory(ParquetFooters())
        self.number = 0
        self._written: dict[int, tuple[pa.Table, HistoryFile]] = {}

    def load(self, table: pa.Table, read: CubeRead) -> CodedFile:
        """As if it were a file of its own each time."""
        self.number += 1
        if id(table) not in self._written:
            path = self._folder / f"{self.number}.parquet"
            pq.write_table(table, path)
            file = HistoryFile(fs.LocalFileSystem(), str(path), path.stat().st_size)
            self._written[id(table)] = table, file
        name, file = str(self.number), self._written[id(table)][1]
        dictionaries = self.dictionaries(read)
        loaded = self.memory.load(name, file, SCHEMA, dictionaries, read.partials)
        assert self.memory.find(name, dictionaries, read.partials) is loaded
        return loaded

    def dictionaries(self, read: CubeRead) -> dict[str, DimensionCodes]:
        return self.memory.dictionaries(SCHEMA, sorted({*read.dimensions, *columns_of(read.filter)}))


def made_read(
    dimensions: Sequence[str], partials: Sequence[str] = CODED, condition: Predicate | None = None
) -> CubeRead:
    return CubeRead(SCHEMA, "r", tuple(dimensions), tuple(partials), condition, TimeRange())


def scan_of(read: CubeRead, dictionaries: dict[str, DimensionCodes]) -> GroupScan:
    partials = select_partials(read.schema, read.partials)
    return GroupScan(read.dimensions, partials, read.filter, dictionaries)


def of_rows(read: CubeRead, tables: Sequence[pa.Table]) -> list[dict[str, Any]]:
    """The plain way: all rows, filtered, then grouped by Arrow."""
    table = pa.concat_tables(tables).combine_chunks()
    if read.filter is not None:
        table = table.filter(mask(table, read.filter))
    return in_order(group_partials(read, table.select([*read.dimensions, *read.partials])))


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=repr)


@pytest.fixture(params=["as it is", "in small pieces"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_columns, "_RUN_FILE_ROWS_MIN", 1)
    monkeypatch.setattr(scan_columns, "RUN_ROWS_MIN", 3)
    if request.param == "in small pieces":
        monkeypatch.setattr(group_scan, "BLOCK_ROWS", 50)
        monkeypatch.setattr(folds, "SLOTS_MAX", 4)
        monkeypatch.setattr(folds, "HASHED_ROWS", 100)
        monkeypatch.setattr(scan_filter, "_RANGES_MAX", 2)
        monkeypatch.setattr(scan_filter, "_COMPARES_MAX", 1)


@pytest.mark.parametrize("seed", range(4))
def test_random_reads_equal_a_plain_recount(seed: int, sizes: None, tmp_path: Path) -> None:
    rng, files = random.Random(seed), Files(tmp_path)
    tables = [made_table(rng, rng.choice([0, 1, 30, ROWS])) for _ in range(5)]
    kept_rows = 0
    for _ in range(25):
        condition = made_predicate(rng) if rng.random() < 0.9 else None
        dimensions = rng.sample(list(DIMENSIONS), rng.randint(0, 3))
        partials = rng.sample(CODED, rng.randint(1, len(CODED)))
        read = made_read(dimensions, partials, condition)
        assert can_be_coded(read, {*dimensions, *columns_of(condition)})
        loaded = [files.load(table, read) for table in tables]
        scan = scan_of(read, files.dictionaries(read))
        assert scan.is_current
        looked = sum(scan.add_file(file) for file in loaded)
        expected = of_rows(read, tables)
        result = scan.table()
        assert in_order(result) == expected
        result.validate(full=True)
        assert result.schema.equals(physical_schema(SCHEMA, dimensions, partials, plain=True))
        counted = pa.concat_tables(tables)
        passed = counted.num_rows if condition is None else pc.sum(mask(counted, condition)).as_py() or 0
        assert passed <= looked <= counted.num_rows
        kept_rows += passed
    assert kept_rows > 1000, "the conditions leave something"


def test_values_that_come_later_make_a_scan_old(tmp_path: Path) -> None:
    files, read = Files(tmp_path), made_read(["carrier"], ["__rows"])
    schema = physical_schema(SCHEMA, ["carrier"], ["__rows"], plain=True)
    first = pa.table([["AA", "DL"], [1, 2]], schema)
    files.load(first, read)
    scan = scan_of(read, files.dictionaries(read))
    files.load(first, read)
    assert scan.is_current
    files.load(pa.table([["AA", "ZZ"], [1, 2]], schema), read)
    assert not scan.is_current


def test_sums_that_may_leave_64_bits_are_left_to_another_way(tmp_path: Path) -> None:
    files, read = Files(tmp_path), made_read([], ["delay__sum"])
    schema = physical_schema(SCHEMA, [], ["delay__sum"], plain=True)
    largest = 2**62
    loaded = files.load(pa.table([[largest, -largest, 5]], schema), read)
    scan = scan_of(read, {})
    scan.add_file(loaded)
    with pytest.raises(NotCoded):
        scan.table()


def test_decimals_of_more_than_64_bits_and_too_many_values_have_no_form_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_columns, "VALUES_MAX", 4)
    files, read = Files(tmp_path), made_read(["gate"], ["price__sum"])
    schema = physical_schema(SCHEMA, ["gate"], ["price__sum"], plain=True)
    wide = pa.table([[1, 2], [Decimal(10) ** 30, Decimal(1)]], schema)
    assert files.load(wide, read).uncoded == {"price__sum"}
    many = pa.table([[1, 2, 3, 4], [Decimal(1)] * 4], schema)
    assert files.load(many, read).uncoded == {"gate"}
    assert files.load(many, read).uncoded == {"gate"}


def test_extremes_of_doubles_and_texts_have_no_form_in_memory() -> None:
    for name in ("weight__max", "carrier__max"):
        assert not can_be_coded(made_read(["gate"], [name]), {"gate"})


def test_files_of_which_no_value_passes_are_not_looked_at(tmp_path: Path) -> None:
    files, condition = Files(tmp_path), Compare("carrier", "eq", "DL")
    read = made_read(["gate"], ["__rows"], condition)
    schema = physical_schema(SCHEMA, ["gate", "carrier"], ["__rows"], plain=True)
    table = pa.table([[1, 2], ["AA", "UA"], [1, 1]], schema)  # 'DL' is between them
    scan = scan_of(read, files.dictionaries(read))
    loaded = files.load(table, read)
    scan = scan_of(read, files.dictionaries(read))
    assert scan.add_file(loaded) == 0
    assert scan.table().num_rows == 0
