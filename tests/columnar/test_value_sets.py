"""Sets of values as bytes: made, united, counted and marked as one that Python writes value by value."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rtolap.aggregates.accumulator import SetForm
from rtolap.aggregates.count_distinct import set_form
from rtolap.base.errors import Corrupted
from rtolap.column_types import parse_type
from rtolap.columnar import value_sets
from rtolap.columnar.schema import arrow_type
from rtolap.columnar.value_sets import sets_of_values, united_sets, united_sizes

from tests.support.aggregates.sets import set_bytes
from tests.support.seeds import so_many

SEED = 6400
TEXTS = ("", "\x00", "a", "a\x00", "a\x00b", "ab", "b", "é", "ÿ", "þÿ", "日本", "😀", "\U0010ffff", "x" * 300)
Draw = Callable[[random.Random], Any]


def one_of(rng: random.Random, *values: int) -> Decimal:
    return Decimal(rng.choice((*values, rng.randrange(-9, 9))))


KINDS: dict[str, Draw] = {
    "string": lambda rng: rng.choice((*TEXTS, f"user-{rng.randrange(40)}")),
    "boolean": lambda rng: rng.random() < 0.5,
    "int": lambda rng: rng.choice((-(2**31), 2**31 - 1, rng.randrange(-20, 20))),
    "bigint": lambda rng: rng.choice((-(2**63), 2**63 - 1, 0, rng.randrange(-(2**40), 2**40))),
    "decimal(12,2)": lambda rng: one_of(rng, 10**12 - 1, 1 - 10**12).scaleb(-2),
    "decimal(38,4)": lambda rng: one_of(rng, 2**64, -(2**64), 2**100).scaleb(-4),
    "date": lambda rng: date(2013, 1, 1) + timedelta(days=rng.randrange(-900_00, 900_00)),
    "timestamp": lambda rng: datetime(1970, 1, 1) + timedelta(microseconds=rng.randrange(-(10**6), 10**15)),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def drawn(rng: random.Random, kind: str, rows: int) -> pa.Array:
    values = [None if rng.random() < 0.2 else KINDS[kind](rng) for _ in range(rows)]
    return pa.array(values, arrow_type(parse_type(kind)))


def expected(column: pa.Array, ids: list[int], groups: int, form: SetForm) -> list[bytes | None]:
    scale = column.type.scale if pa.types.is_decimal(column.type) else 0
    by_group: list[list[Any]] = [[] for _ in range(groups)]
    for value, group in zip(column.to_pylist(), ids, strict=True):
        by_group[group].append(value)
    return [set_bytes(values, form, scale) for values in by_group]


@pytest.mark.seeded
@every_kind
@pytest.mark.parametrize("number", range(so_many(20)))
def test_sets_are_those_of_a_recount_however_their_values_are_divided(kind: str, number: int) -> None:
    rng = random.Random(f"{SEED} {kind} {number}")
    groups, rows = rng.choice((1, 3, 40)), rng.randrange(200)
    form = set_form(parse_type(kind), rng.choice((4, 5, 20)), "x")
    column = drawn(rng, kind, rows)
    ids = [rng.randrange(groups) for _ in range(rows)]
    wanted = expected(column, ids, groups, form)
    whole = sets_of_values(column, np.array(ids, np.int64), groups, form)
    assert whole.to_pylist() == wanted
    if kind == "string":
        coded = column.dictionary_encode()
        assert sets_of_values(coded, np.array(ids, np.int64), groups, form).equals(whole)
    pieces: list[bytes | None] = []
    owners: list[int] = []
    for start in range(0, rows, 1 + rng.randrange(30)):
        part, of_part = column.slice(start, 30), ids[start : start + 30]  # parts overlap
        pieces += sets_of_values(part, np.array(of_part, np.int64), groups, form).to_pylist()
        owners += range(groups)
    order = list(range(len(pieces)))
    rng.shuffle(order)
    cut = rng.randrange(len(order) + 1)
    chunks = [[pieces[place] for place in some] for some in (order[:cut], order[cut:])]
    sets = pa.chunked_array([pa.array([b"?", *some], pa.binary()).slice(1) for some in chunks], pa.binary())
    owned = np.array([owners[place] for place in order], np.int64)
    assert united_sets(sets, owned, groups, form).to_pylist() == wanted
    sizes = united_sizes(sets, owned, groups)
    marks = [each for each in wanted if each is not None and each[0] == 0xFE]
    assert (sizes.too_large is not None) == bool(marks)
    if not marks:
        distinct = [len({*of_group}) for of_group in _by_group(column, ids, groups)]
        assert sizes.counts.to_pylist() == distinct
    else:
        assert sizes.too_large is not None
        assert sizes.too_large[:2] == marks[0][:2]


def _by_group(column: pa.Array, ids: list[int], groups: int) -> list[list[Any]]:
    found: list[list[Any]] = [[] for _ in range(groups)]
    for value, group in zip(column.to_pylist(), ids, strict=True):
        if value is not None:
            found[group].append(value)
    return found


@every_kind
def test_one_value_more_than_the_bound_is_a_mark_that_stays(kind: str) -> None:
    rng = random.Random(f"{SEED} {kind}")
    form = set_form(parse_type(kind), 4, "seats")
    if kind == "boolean":
        return  # there are two
    values = list({KINDS[kind](rng) for _ in range(500)})[:17]
    column, ids = pa.array(values, arrow_type(parse_type(kind))), np.zeros(17, np.int64)
    whole = sets_of_values(column.slice(0, 16), ids[:16], 1, form)
    assert united_sizes(whole, ids[:1], 1).counts.to_pylist() == [16]
    last = sets_of_values(column.slice(16), ids[:1], 1, form)
    too_many = united_sets(pa.chunked_array([whole, last]), ids[:2], 1, form)
    assert too_many.to_pylist() == [b"\xfe\x04seats"] == sets_of_values(column, ids, 1, form).to_pylist()
    again = united_sets(pa.chunked_array([last, too_many, pa.nulls(1, pa.binary())]), ids[:3], 1, form)
    assert again.equals(too_many)
    assert united_sizes(too_many, ids[:1], 1).too_large == b"\xfe\x04seats"
    assert united_sizes(pa.chunked_array([whole, last]), ids[:2], 1).too_large == b"\xfe\x04"


def test_texts_have_a_bound_of_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    form = SetForm(0, 20, "name")
    monkeypatch.setattr(SetForm, "bytes_max", 1000)
    texts = pa.array(["a" * 499, "b" * 499, "c"])
    ids = np.zeros(3, np.int64)
    assert united_sizes(sets_of_values(texts.slice(0, 2), ids[:2], 1, form), ids[:1], 1).too_large is None
    assert sets_of_values(texts, ids, 1, form).to_pylist() == [form.mark]


@pytest.mark.parametrize("width", [0, 4, 8, 16])
def test_other_bytes_are_corrupted_and_never_a_number(width: int) -> None:
    form = SetForm(width, 20, "x")
    code = b"a\xff" if not width else bytes(width)
    good = bytes((form.header,)) + code
    ids = np.zeros(2, np.int64)
    united_sets(pa.array([good, good]), ids, 1, form)
    bad = [
        b"",
        good[:1],
        good[:-1],
        b"\xfd" + code,
        bytes((form.header + 4,)) + code,
        good + code[:1] * (width > 0),
    ]
    for image in (each for each in bad if each != good):
        for sets in ([good, image], [image, good]):
            with pytest.raises(Corrupted):
                united_sets(pa.array(sets, pa.binary()), ids, 1, form)
            with pytest.raises(Corrupted):
                united_sizes(pa.array(sets, pa.binary()), ids, 1)


def test_sets_beyond_what_a_column_holds_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_sets, "_OFFSET_MAX", 30)
    form = SetForm(8, 20, "seats")
    with pytest.raises(value_sets.Refused, match=r"'seats'.* 41 bytes"):
        sets_of_values(pa.array(range(5)), np.zeros(5, np.int64), 1, form)
