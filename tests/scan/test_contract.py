"""Drawn tables by every way through the room equal a plain recount in Python, to the last digit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from rtolap.aggregates.accumulator import Partial
from rtolap.aggregates.approx_distinct import Sketch
from rtolap.aggregates.bit_or import UnitedBits
from rtolap.aggregates.max import Greatest
from rtolap.aggregates.min import Least
from rtolap.aggregates.sum import Total
from rtolap.base.errors import Refused
from rtolap.column_types import BIGINT, BINARY, decimal
from rtolap.columnar.hll_image import image_of_coupons, merge_sketches
from rtolap.columnar.schema import LOCAL_STRING, partial_type
from rtolap.model.predicate import And, Compare, In, IsNull, Not, Or, Predicate, columns_of
from rtolap.scan import columns as scan_columns
from rtolap.scan import filter as scan_filter
from rtolap.scan import folds, group_scan, numbers
from rtolap.scan.columns import CodedFile, DimensionCodes, NotCoded, coded_column, measure_column
from rtolap.scan.group_scan import GroupScan
from rtolap.scan.merge import has_distinct_keys, key_columns, merge_by_codes, merge_plain

from tests.support.seeds import so_many

DIMENSIONS = tuple(f"d{number}" for number in range(7))
LG_K = 4
FOLDED = (
    Partial("n__sum", Total(), BIGINT, "n"),
    Partial("price__sum", Total(), decimal(38, 2), "price"),
    Partial("n__min", Least(), BIGINT, "n"),
    Partial("n__max", Greatest(), BIGINT, "n"),
    Partial("n__bit_or", UnitedBits(), BIGINT, "n"),
)
SKETCH = Partial("user__hll", Sketch(LG_K), BINARY, "user")
MOST = (1 << 63) - 1

Row = dict[str, Any]


def drawn_rows(dice: random.Random, values: int, largest: int) -> list[Row]:
    """Rows with nulls; some tables have their first dimensions in runs, or no row at all."""
    count = dice.choice((0, 1, 2, 40, 300))

    def number() -> int | None:
        return None if dice.random() < 0.1 else dice.choice((largest, -largest, dice.randint(-99, 99)))

    def row() -> Row:
        keys: Row = {name: None if dice.random() < 0.1 else dice.randrange(values) for name in DIMENSIONS[1:]}
        text = dice.choice((None, "", "a", "ä", "b"))
        price = number()
        coupons = [dice.randrange(1, 1 << 26) for _ in range(dice.choice((1, 3, 40)))]
        return {
            "d0": text,
            **keys,
            **{partial.name: number() for partial in FOLDED},
            "price__sum": None if price is None else Decimal(price).scaleb(-2),
            "user__hll": None if dice.random() < 0.1 else sorted(set(coupons)),
        }

    rows = [row() for _ in range(count)]
    return sorted(rows, key=lambda each: repr(each["d0"])) if dice.random() < 0.5 else rows


def table_of(
    rows: Sequence[Row], names: Sequence[str], partials: Sequence[Partial], *, local: bool
) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    for name in names:
        plain = pa.array([row[name] for row in rows], pa.string() if name == "d0" else pa.int64())
        columns[name] = plain.dictionary_encode().cast(LOCAL_STRING) if name == "d0" and local else plain
    for partial in partials:
        values = [row[partial.name] for row in rows]
        if partial is SKETCH and not local:
            values = [None if each is None else image_of(each) for each in values]
        columns[partial.name] = pa.array(values, partial_type(partial, plain=not local))
    return pa.table(columns)


def image_of(coupons: Sequence[int]) -> bytes:
    return image_of_coupons(pa.array(coupons, pa.uint32()).to_numpy(), LG_K)


def recounted(rows: Sequence[Row], names: Sequence[str], partials: Sequence[Partial]) -> dict[Any, Row]:
    """Group, then merge in whole numbers of any size."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return {key: {each.name: merged(each, of_key) for each in partials} for key, of_key in groups.items()}


def merged(partial: Partial, rows: Sequence[Row]) -> Any:
    values = [row[partial.name] for row in rows if row[partial.name] is not None]
    if not values:
        return None
    match partial.accumulator.name:
        case "sum" if partial.type.kind == "decimal":
            return Decimal(sum(int(each.scaleb(2)) for each in values)).scaleb(-2)
        case "sum":
            return sum(values)
        case "min":
            return min(values)
        case "max":
            return max(values)
        case "bit_or":
            bits = 0
            for each in values:
                bits |= each
            return bits
    return merge_sketches([image_of(each) for each in values])


def found(
    table: pa.Table, names: Sequence[str], partials: Sequence[Partial], *, local: bool
) -> dict[Any, Row]:
    answers: dict[Any, Row] = {}
    for row in table.to_pylist():
        key = tuple(row[name] for name in names)
        assert key not in answers, "a group comes once"
        answers[key] = {each.name: row[each.name] for each in partials}
        if local and SKETCH in partials:
            coupons = row[SKETCH.name]
            answers[key][SKETCH.name] = image_of(coupons) if coupons else None
    return answers


def passes(predicate: Predicate | None, row: Row) -> bool | None:
    """Judge one row with SQL's three values."""
    match predicate:
        case None:
            return True
        case And(terms=terms):
            verdicts = [passes(term, row) for term in terms]
            return False if False in verdicts else None if None in verdicts else True
        case Or(terms=terms):
            verdicts = [passes(term, row) for term in terms]
            return True if True in verdicts else None if None in verdicts else False
        case Not(term=term):
            verdict = passes(term, row)
            return None if verdict is None else not verdict
        case IsNull(column=name, negated=negated):
            return (row[name] is None) != negated
        case In(column=name, values=values):
            return None if row[name] is None else row[name] in values
        case Compare(column=name, op=op, value=value):
            at = row[name]
            if at is None:
                return None
            assert value is not None
            return bool({"eq": at == value, "ne": at != value, "lt": at < value, "ge": at >= value}[op])
    raise AssertionError(predicate)


def drawn_predicate(dice: random.Random, depth: int = 0) -> Predicate:
    if depth < 3 and dice.random() < 0.6:
        terms = tuple(drawn_predicate(dice, depth + 1) for _ in range(dice.randint(1, 3)))
        combined: list[Predicate] = [And(terms), Or(terms), Not(terms[0])]
        return dice.choice(combined)
    name = dice.choice(DIMENSIONS)
    if dice.random() < 0.2:
        return IsNull(name, negated=dice.random() < 0.5)
    values: list[Any] = ["", "a", "b"] if name == "d0" else [0, 1, 2]
    if dice.random() < 0.3:
        return In(name, tuple(dice.sample(values, 2)))
    return Compare(name, dice.choice(["eq", "ne", "lt", "ge"]), dice.choice(values))


def drawn_names(dice: random.Random) -> list[str]:
    return dice.sample(DIMENSIONS, dice.choice((0, 1, 2, 3, len(DIMENSIONS))))


@pytest.fixture(params=["as it is", "in small pieces"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in small pieces":
        monkeypatch.setattr(scan_columns, "_RUN_FILE_ROWS_MIN", 1)
        monkeypatch.setattr(scan_columns, "RUN_ROWS_MIN", 3)
        monkeypatch.setattr(scan_filter, "_RANGES_MAX", 2)
        monkeypatch.setattr(scan_filter, "_COMPARES_MAX", 1)
        monkeypatch.setattr(group_scan, "BLOCK_ROWS", 50)
        monkeypatch.setattr(folds, "SLOTS_MAX", 4)
        monkeypatch.setattr(folds, "HASHED_ROWS", 100)


@pytest.mark.parametrize("seed", range(so_many(12)))
def test_files_scanned_by_codes_equal_a_recount(seed: int, sizes: None) -> None:
    dice = random.Random(seed)
    names, dictionaries = drawn_names(dice), dict[str, DimensionCodes]()
    files = [drawn_rows(dice, dice.choice((3, 40)), dice.choice((5, 1 << 40))) for _ in range(4)]
    for name in DIMENSIONS:
        dictionaries[name] = DimensionCodes(pa.string() if name == "d0" else pa.int64())
    coded: list[CodedFile] = []
    for rows in files:
        table = table_of(rows, DIMENSIONS, FOLDED, local=False)
        dimensions = {
            name: coded_column(dictionaries[name], table.column(name).chunk(0)) for name in DIMENSIONS
        }
        measures = {each.name: measure_column(table.column(each.name)) for each in FOLDED}
        known = {name: column for name, column in dimensions.items() if column is not None}
        fitting = {name: column for name, column in measures.items() if column is not None}
        assert len(known) == len(dimensions)
        assert len(fitting) == len(measures)
        coded.append(CodedFile(len(rows), known, fitting, frozenset()))
    for _ in range(5):
        predicate = drawn_predicate(dice) if dice.random() < 0.8 else None
        needed = {name: dictionaries[name] for name in {*names, *columns_of(predicate)}}
        scan = GroupScan(names, FOLDED, predicate, needed)
        for file in coded:
            scan.add_file(file)
        matching = [row for rows in files for row in rows if passes(predicate, row)]
        assert found(scan.table(), names, FOLDED, local=False) == recounted(matching, names, FOLDED)


@pytest.mark.parametrize("seed", range(so_many(16)))
@pytest.mark.parametrize("local", [True, False])
def test_merged_tables_equal_a_recount_or_are_refused(
    seed: int, local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values at the edge of 64 bits among them; seven columns pass the radix, which is lowered for some."""
    dice = random.Random(seed)
    if dice.random() < 0.5:
        monkeypatch.setattr(numbers, "RADIX_MAX", 5_000)
    names, partials = drawn_names(dice), [*FOLDED, SKETCH]
    rows = drawn_rows(dice, dice.choice((2, 3000)), dice.choice((5, MOST)))
    table = table_of(rows, names, partials, local=local)
    expected = recounted(rows, names, partials)
    assert has_distinct_keys(table, names) == (len(expected) == len(rows))
    try:
        merged_table = merge_by_codes(table, key_columns(table, names), partials, local=local)
    except Refused:
        assert any(abs(each["n__sum"] or 0) > MOST for each in expected.values())
        return
    assert all(abs(each["n__sum"] or 0) <= MOST for each in expected.values())
    assert found(merged_table, names, partials, local=local) == expected


@pytest.mark.parametrize("seed", range(so_many(16)))
@pytest.mark.parametrize("partials", [FOLDED[:4], (*FOLDED, SKETCH)], ids=["by kernels", "by codes"])
def test_plain_partials_equal_a_recount_or_stay_apart(seed: int, partials: Sequence[Partial]) -> None:
    dice = random.Random(seed)
    names, largest = drawn_names(dice), dice.choice((5, MOST))
    rows = drawn_rows(dice, 3, largest)
    table = table_of(rows, names, partials, local=False)
    result = merge_plain(table, names, partials)
    if result.num_rows == table.num_rows and largest == MOST:
        assert result.equals(table)
        return
    expected = recounted(rows, names, partials) if names or rows else {}
    assert found(result, names, partials, local=False) == expected


def test_more_groups_than_62_bits_and_sums_beyond_64_are_left_to_another_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dictionary = DimensionCodes(pa.int64())
    column = pa.array([MOST, MOST])
    dimension, measure = coded_column(dictionary, column), measure_column(pa.chunked_array([column]))
    assert dimension is not None
    assert measure is not None
    file = CodedFile(2, {"d1": dimension}, {"n__sum": measure}, frozenset())
    scan = GroupScan(["d1"], FOLDED[:1], None, {"d1": dictionary})
    scan.add_file(file)
    with pytest.raises(NotCoded):
        scan.table()
    monkeypatch.setattr(numbers, "RADIX_MAX", 1)
    with pytest.raises(NotCoded):
        GroupScan(["d1"], FOLDED[:1], None, {"d1": dictionary})


@pytest.mark.parametrize("seed", range(so_many(20)))
def test_codes_come_back_out_of_their_number(seed: int) -> None:
    dice = random.Random(seed)
    radixes = [dice.choice((1, 2, 255, 65_536)) for _ in range(dice.randint(0, 3))]
    rows = dice.choice((0, 1, 50))
    codes = [pa.array([dice.randrange(each) for _ in range(rows)], pa.int64()).to_numpy() for each in radixes]
    combined = numbers.combine(zip(codes, radixes, strict=True), rows)
    assert numbers.fits(radixes)
    assert all(0 <= each < combined.radix for each in combined.numbers.tolist())
    back = numbers.take_apart(combined.numbers, radixes)
    assert [each.tolist() for each in back] == [each.tolist() for each in codes]
