"""Only chunks that are proven to hold one object a record are read as lines; all others are left alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from rtolap.events.json_reader import JsonLines
from rtolap.events.rows import known_names

SCHEMA = pa.schema([("i", pa.int64()), ("s", pa.string())])
GOOD = b'{"i":1,"s":"x"}'


def _lines(known: frozenset[str] | None = None) -> JsonLines:
    return JsonLines(SCHEMA, known_names(known))


def test_rows_are_the_records_in_order_and_stand_where_it_says() -> None:
    records = [b'{"i":%d,"s":"v%d","more":[1,{"x":"}"}]}' % (n, n) for n in range(50)]
    read = _lines().read(records)
    assert read is not None
    assert read.rows.field(0).to_pylist() == list(range(50))
    assert read.rows.field(1).to_pylist() == [f"v{n}" for n in range(50)]
    ends = [start + len(record) for start, record in zip(read.starts.tolist(), records, strict=True)]
    assert [read.text[a:b] for a, b in zip(read.starts.tolist(), ends, strict=True)] == records


@pytest.mark.parametrize(
    "records",
    [
        [],
        [b""],
        [b"", GOOD],
        [b"{"],
        [b" " + GOOD],
        [GOOD + b" "],
        [GOOD + b"\n" + GOOD],
        [GOOD + b"\n" + GOOD, b'{"s":"x', b'y"}'],
        [b'{"s":"x}', b'{y"}'],
        [b'{"other":"x}', b'{y"}', GOOD + b"\n" + GOOD],
        [b'{"s":{"x":1}', b',"i":2}', GOOD + GOOD],
        [b'{"s":"x\n"}'],
        [b'{"i":1,"other":"x\ty"}'],
        [b'{"i":1},"v":{}'],
        [b'{"i":1},{"i":2}'],
        [b'{"i":1,}'],
        [b'{"i":01}'],
        [b'{"i":"\\u0000"}'],
        [b'{"i":1}\x00}'],
        [b'{"other":"\xff"}'],
        [b"null"],
        [b"[{}]"],
        [b'{"i":"x"}'],
    ],
)
def test_whatever_is_in_doubt_is_left_to_the_caller(records: list[bytes]) -> None:
    assert _lines().read(records) is None
    if records:
        assert _lines().read([GOOD, *records, GOOD]) is None


def test_names_that_the_table_does_not_know_are_left_to_the_caller() -> None:
    assert _lines(frozenset({"i", "s"})).read([GOOD]) is not None
    assert _lines(frozenset({"i"})).read([GOOD]) is None
