"""Random bodies against a reading of them row by row. `make soak` has more of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet
import pytest
from rtolap.model.stored.schema import initial_schema
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.stored.bodies.decode import decode_body
from rtolap.stored.bodies.options import CsvOptions, JsonOptions, LoadOptions
from rtolap.stored.bodies.settings import BodySettings

from tests.support.seeds import so_many
from tests.support.stored.body_oracle import Told, csv_told, json_told, table_told, told

SEEDS = so_many(25)

SCHEMA = initial_schema(
    StoredTable(
        database="shop",
        name="orders",
        columns=(
            StoredColumn("k", "int", nullable=False),
            StoredColumn("big", "bigint", default="-7"),
            StoredColumn("price", "decimal(9,2)"),
            StoredColumn("wide", "decimal(38,10)"),
            StoredColumn("share", "double"),
            StoredColumn("day", "date", default="2024-02-29"),
            StoredColumn("at", "timestamp"),
            StoredColumn("ok", "boolean", nullable=False, default="true"),
            StoredColumn("name", "string"),
        ),
    )
)

_NUMBERS = (
    "0",
    "1",
    "-1",
    "+5",
    "007",
    " 12 ",
    "1.0",
    "1.5",
    "-2.345",
    "2.344",
    "2.345",
    ".5",
    "5.",
    "1e3",
    "1E-2",
    "",
    "x",
    "0x10",
    "nan",
    "inf",
    "1e999",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "9999999.99",
    "9999999.994",
    "9999999.995",
    "-9999999.995",
    "1234567890123456789012345678.0123456789",
    "12345678901234567890123456789",
    "0.12345678905",
    "1_0",
    "--1",
    "٣",
)
_TIMES = (
    "2024-02-29",
    "2023-02-29",
    "2024/1/2",
    "20240131",
    "2024-01-31 12:13:14",
    "2024-01-31T12:13:14.5",
    "2024-1-1 1:2",
    "2024-01-31 12:13:14.1234564",
    "2024-01-31 12:13:14.1234565",
    "2024-01-31 24:00:00",
    "2024-01-31 12:60",
    "2024-01-31 23:30:00-01:00",
    "2024-01-31 00:30:00+0100",
    "2024-01-31 12:13:14Z",
    "2024-13-01",
    "0000-01-01",
    "9999-12-31 23:59:59.999999",
    "1969-12-31 23:59:59.5",
    "yesterday",
    "2024-01-31 ",
    "31.01.2024",
    "0001-01-01",
    "9999-12-31T23:59:59-05:00",
    "0001-01-01T00:00:00+05:00",
    "9999-12-31T23:59:59.9999999",
)
_TEXTS = ("", "a", "Grüße", "two words", "null", "\\", "tab\there", "a" * 50, "日本語", "\x00", "N")
_BOOLEANS = ("true", "FALSE", "0", "1", "yes", "", "2")
_OF = {
    "k": _NUMBERS[:10] * 6 + _NUMBERS,
    "big": _NUMBERS,
    "price": _NUMBERS,
    "wide": _NUMBERS,
    "share": _NUMBERS,
    "day": _TIMES,
    "at": _TIMES,
    "ok": _BOOLEANS[:4] * 6 + _BOOLEANS,
    "name": _TEXTS,
}


def text_of(rng: random.Random, column: str, tidy: bool) -> str:
    if tidy and rng.random() < 0.95:
        if column in ("day", "at"):
            return "2024-01-31"
        return "1" if column != "name" else rng.choice(("a", "b", ""))
    return rng.choice(_OF[column])


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(SEEDS))
def test_csv_is_read_as_row_by_row(seed: int) -> None:
    rng = random.Random(seed)
    options = csv_options(rng)
    body = csv_body(rng, options.csv)
    found = told(decode_body(cut(rng, body), options, SCHEMA, settings(rng)))
    check(found, csv_told(body, options, SCHEMA), body)


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(SEEDS))
def test_json_is_read_as_row_by_row(seed: int) -> None:
    rng = random.Random(seed)
    records = [json_record(rng) for _ in range(rng.choice((0, 1, 3, 40)))]
    strict = rng.random() < 0.4
    if rng.random() < 0.5:
        body = rng.choice((b"\n", b"\n\n", b"\r\n")).join(records)
        options = LoadOptions(format="json", strict_mode=strict, json=JsonOptions())
    else:
        records = [record for record in records if balanced(record)]
        body = b" [" + rng.choice((b",", b" ,\n")).join(records) + b"]\n"
        options = LoadOptions(
            format="json", strict_mode=strict, json=JsonOptions(by_line=False, strip_outer_array=True)
        )
    found = told(decode_body(cut(rng, body), options, SCHEMA, settings(rng)))
    check(found, json_told(records, options, SCHEMA), body)


def check(found: Told, expected: Told, body: bytes) -> None:
    assert found.refused == expected.refused, body
    for mine, theirs in zip(found.rows, expected.rows, strict=True):
        assert mine == theirs, body
    assert (found.total, found.unselected) == (expected.total, 0)


def csv_options(rng: random.Random) -> LoadOptions:
    enclose = rng.choice((b"", b"", b'"', b"'"))
    return LoadOptions(
        csv=CsvOptions(
            column_separator=rng.choice((b"\t", b",", b"||", b"\x01", b"abc", b"--")),
            line_delimiter=rng.choice((b"\n", b"\n", b"\r\n", b";;", b"\x02")),
            enclose=enclose,
            escape=rng.choice((b"", b"\\", b"^")) if enclose else b"",
            skip_lines=rng.choice((0, 0, 0, 2)),
            trim_double_quotes=rng.random() < 0.2,
            empty_field_as_null=rng.random() < 0.3,
        ),
        strict_mode=rng.random() < 0.4,
    )


def csv_body(rng: random.Random, options: CsvOptions) -> bytes:
    tidy = rng.random() < 0.7
    lines = []
    for _ in range(rng.choice((0, 1, 5, 60))):
        fields = [csv_field(rng, text_of(rng, name, tidy), options, tidy) for name in SCHEMA.names]
        if rng.random() < 0.05:
            fields = fields[: rng.randrange(len(fields) + 1)] + ([b"more"] if rng.random() < 0.3 else [])
        line = options.column_separator.join(fields)
        if options.line_delimiter == b"\n" and rng.random() < 0.1:
            line += b"\r"
        lines.append(line)
    body = options.line_delimiter.join(lines)
    return body + options.line_delimiter if rng.random() < 0.5 else body


def csv_field(rng: random.Random, text: str, options: CsvOptions, tidy: bool) -> bytes:
    mark, escape = options.enclose, options.escape
    if rng.random() < 0.05:
        return b"\\N"
    raw = text.encode()
    if mark and rng.random() < 0.4:
        if rng.random() < 0.2:
            raw += rng.choice((options.column_separator, options.line_delimiter, mark))
        if escape and rng.random() < 0.7:
            raw = raw.replace(escape, escape * 2).replace(mark, escape + mark)
        else:
            raw = (raw.replace(escape, escape * 2) if escape else raw).replace(mark, mark * 2)
        raw = mark + raw + mark
    elif rng.random() < 0.1:
        raw = b'"' + raw + b'"'
    if not tidy and rng.random() < 0.02:
        raw += rng.choice((b"\xff", mark, options.column_separator[:1], b"\r", escape))
    return raw


def json_record(rng: random.Random) -> bytes:
    members = []
    tidy = rng.random() < 0.8
    for name in SCHEMA.names:
        if rng.random() < 0.1:
            continue
        text = text_of(rng, name, tidy)
        value = json.dumps(text, ensure_ascii=rng.random() < 0.5)
        is_number = name in ("k", "big", "price", "wide", "share", "ok") and is_json_number(text)
        if is_number and rng.random() < 0.7:
            value = text
        elif name == "ok" and rng.random() < 0.3:
            value = rng.choice(("true", "false"))
        elif rng.random() < 0.05:
            value = "null"
        members.append(f'"{name}":{rng.choice(("", " "))}{value}')
    members += ['"other": {"a": [1, "]"]}'] if rng.random() < 0.2 else []
    rng.shuffle(members)
    members += ['"k": 99'] if rng.random() < 0.1 else []
    record = ("{" + ", ".join(members) + "}").encode()
    if rng.random() < 0.06:
        record = rng.choice(
            (
                record[:-1],
                record[1:],
                record + b"}",
                b"5",
                b'"k"',
                b"[" + record + b"]",
                b"{}",
                record.replace(b"}", b",}"),
                record.replace(b":", b"=", 1),
                record[:-1] + b"\xff}",
                record + b"," + record,
                b"nul",
                b'{"k": NaN}',
                b'{"k": 01}',
            )
        )
    return record


def is_json_number(text: str) -> bool:
    try:
        return not isinstance(json.loads(text, parse_constant=str), (str, bool, list, dict, type(None)))
    except ValueError:
        return False


def balanced(record: bytes) -> bool:
    """Whether the record stays one element between commas."""
    depth, inside, at = 0, False, 0
    while at < len(record):
        one = record[at : at + 1]
        if inside:
            at += one == b"\\"
            inside = one != b'"'
        elif one == b'"':
            inside = True
        elif one in b"{[":
            depth += 1
        elif one in b"}]":
            depth -= 1
        elif one == b"," and depth == 0:
            return False
        if depth < 0:
            return False
        at += 1
    return depth == 0 and not inside


def cut(rng: random.Random, body: bytes) -> Iterator[bytes]:
    """In chunks as sockets give them."""
    at = 0
    while at < len(body):
        size = rng.choice((1, 7, 100, 5000))
        yield body[at : at + size]
        at += size


def settings(rng: random.Random) -> BodySettings:
    return BodySettings(
        chunk_bytes=rng.choice((1, 50, 1000, 1 << 20)), spool_memory_bytes_max=rng.choice((1, 2000, 1 << 20))
    )


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(SEEDS))
def test_files_are_read_as_row_by_row(seed: int) -> None:
    """Typed columns mean what their values mean when they are written out."""
    rng = random.Random(seed)
    count = rng.choice((0, 1, 30))
    drawn = {name: rng.choice(_TYPED[name]) for name in SCHEMA.names}
    columns = {
        name: pa.array([rng.choice((*values, None)) for _ in range(count)], kind)
        for name, (kind, values) in drawn.items()
    }
    table = pa.table(columns).select(rng.sample(SCHEMA.names, len(SCHEMA.names)))
    layout = rng.choice(("parquet", "arrow"))
    options = LoadOptions(format=layout, strict_mode=rng.random() < 0.5)
    found = told(decode_body(cut(rng, written(table, layout)), options, SCHEMA, settings(rng)))
    check(found, table_told(table.to_pylist(), options, SCHEMA), str(table).encode())


_INTEGERS = (0, 1, -5, 2**31 - 1, 2**31, -(2**31), 10**18)
_WHOLE = ((pa.int64(), _INTEGERS), (pa.int32(), _INTEGERS[:4]), (pa.string(), ("7", "x", " 8", "9.0")))
_MONEY = tuple(Decimal(text) for text in ("0.125", "-0.125", "9999999.994", "9999999.995", "1234567890.5"))
_FLOATS = (0.1, 1.555, -2.345, 0.125, 9999999.995, 123456789012.7, 1e15, 1e300, 1e-300, float("inf"))
_DAYS = tuple(datetime(2024, 1, day, 23, 59, 59, day) for day in (1, 15, 31))
_TYPED: dict[str, tuple[tuple[pa.DataType, tuple[object, ...]], ...]] = {
    "k": _WHOLE,
    "big": (
        *_WHOLE,
        (pa.uint64(), (1, 2**63 - 1, 2**63)),
        (pa.float64(), (2.0, 2.5, 1e15, -1e18, 1e19, float("nan"))),
        (pa.bool_(), (True, False)),
    ),
    "price": (
        (pa.decimal128(20, 3), _MONEY),
        (pa.decimal256(60, 3), _MONEY),
        (pa.int64(), (5, 10**9)),
        (pa.float64(), (0.1, 2.5)),
        (pa.float64(), _FLOATS),
        (pa.float32(), (0.1, 0.5, -1e30)),
    ),
    "wide": ((pa.decimal128(20, 3), _MONEY), (pa.int64(), _INTEGERS), (pa.float64(), _FLOATS)),
    "share": (
        (pa.float64(), (0.1, 1e300)),
        (pa.float32(), (0.5, 0.25)),
        (pa.float32(), (0.1, float("nan"))),
        (pa.decimal128(20, 3), (*_MONEY, Decimal("1.005"), Decimal("12345678901234567.891"))),
        (pa.int32(), (1, 2)),
    ),
    "day": ((pa.date32(), tuple(day.date() for day in _DAYS)), (pa.timestamp("us"), _DAYS)),
    "at": (
        (pa.timestamp("us"), _DAYS),
        (pa.timestamp("ns"), _DAYS),
        (pa.date32(), tuple(day.date() for day in _DAYS)),
    ),
    "ok": ((pa.bool_(), (True, False)), (pa.int8(), (0, 1, 2))),
    "name": (
        (pa.string(), _TEXTS),
        (pa.large_string(), _TEXTS),
        (pa.dictionary(pa.int8(), pa.string()), _TEXTS),
    ),
}


def written(table: pa.Table, layout: str) -> bytes:
    out = pa.BufferOutputStream()
    if layout == "parquet":
        pa.parquet.write_table(table, out)
    else:
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
    return bytes(out.getvalue())
