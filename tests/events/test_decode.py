"""Tests of what is accepted, as what; what is refused, and why; and that no record ever moves or vanishes."""

import json
import random
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.events import rows
from rtolap.events.decode import Decoded, EventDecoder
from rtolap.model.table import Column, TimeColumn

from tests.support.seeds import so_many

Decode = Callable[..., Decoded]

PLAIN = tuple(Column(name, "bigint") for name in ("ts", "s", "i", "b", "f", "d", "ok", "day", "at"))
GOOD = b'{"ts":1000,"s":"x"}'


def _record(**values: Any) -> bytes:
    return json.dumps({"ts": 1000} | values).encode()


def test_every_type_arrives_as_itself(decode: Decode) -> None:
    value = (
        b'{"ts":1000,"s":"\\u00e9 \\n \\"q\\"","i":-2147483648,"b":9223372036854775807,"f":1.5,'
        b'"d":1234.56,"ok":true,'
        b'"day":"2013-01-31","at":"2013-01-31T10:00:00.5Z","outer":{"inner":{"n":7,"more":[1]}},"unused":"whatever"}'
    )
    (row,) = decode(value).table.to_pylist()
    assert row == {
        "ts": 1000,
        "s": 'é \n "q"',
        "i": -(2**31),
        "b": 2**63 - 1,
        "f": 1.5,
        "d": Decimal("1234.56"),
        "ok": True,
        "day": date(2013, 1, 31),
        "at": datetime(2013, 1, 31, 10, 0, 0, 500_000),
        "deep": 7,
        "__event_ms": 1000,
        "__partition": 0,
        "__offset": 0,
    }


def test_absent_and_null_values_are_null(decode: Decode) -> None:
    rows = decode(b'{"ts":1}', b'{"ts":1,"s":null,"i":null,"outer":null}', b'{"ts":1,"outer":{"inner":{}}}')
    assert rows.table.column("deep").null_count == 3
    assert rows.table.column("s").null_count == 3
    assert len(rows.rejects) == 0


@pytest.mark.parametrize(
    ("fields", "column", "value"),
    [
        ('"i":5.0', "i", 5),
        ('"i":"12"', "i", 12),
        ('"i":1e2', "i", 100),
        ('"b": -9223372036854775808', "b", -(2**63)),
        ('"d":1.5', "d", Decimal("1.50")),
        ('"d":"1.50"', "d", Decimal("1.50")),
        ('"d":1.50', "d", Decimal("1.50")),
        ('"d":12', "d", Decimal("12.00")),
        ('"d":-9999.99', "d", Decimal("-9999.99")),
        ('"f":"2.5"', "f", 2.5),
        ('"f":3', "f", 3.0),
        ('"s":"1.5"', "s", "1.5"),
        ('"s":"10.0.0.1"', "s", "10.0.0.1"),
        ('"s":"\\"i\\":1.5"', "s", '"i":1.5'),
        ('"s":"}\\n{"', "s", "}\n{"),
        ('"at":"2013-01-31 10:00:00"', "at", datetime(2013, 1, 31, 10)),
        ('"at":"2013-01-31T10:00:00+05:00"', "at", datetime(2013, 1, 31, 5)),
    ],
)
def test_exact_values_are_accepted_however_they_are_written(
    decode: Decode, fields: str, column: str, value: Any
) -> None:
    decoded = decode(GOOD, b'{"ts":1000,' + fields.encode() + b"}", GOOD)
    assert decoded.rejects.detail == []
    assert decoded.table.column(column)[1].as_py() == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "tombstone"),
        (b"", "empty"),
        (b" \n\t", "empty"),
        (b"\xff\xfe", "invalid_utf8"),
        (b'{"ts":1000,"s":"\xff"}', "invalid_utf8"),
        (b'{"ts":1000,"other":"\xc3"}', "invalid_utf8"),
        (b"{", "malformed_json"),
        (b"}", "malformed_json"),
        (b'{"ts":1000', "malformed_json"),
        (b'{"ts":1000}}', "malformed_json"),
        (b'{"ts":1000}{"ts":1000}', "malformed_json"),
        (b'{"ts":1000}\n{"ts":1000}', "malformed_json"),
        (b'{"ts":1000} x', "malformed_json"),
        (b'{"ts":1000,"s":"x', "malformed_json"),
        (b'\xef\xbb\xbf{"ts":1000}', "malformed_json"),
        (b'{"ts":1000,"f":NaN}', "malformed_json"),
        (b'{"ts":1000,"s":"\\ud800"}', "malformed_json"),
        (b"[" * 100_000, "malformed_json"),
        (b"null", "not_an_object"),
        (b"[]", "not_an_object"),
        (b"7", "not_an_object"),
        (b'"text"', "not_an_object"),
        (b'[{"ts":1000}]', "not_an_object"),
        (_record(s=5), "wrong_type"),
        (_record(s=True), "wrong_type"),
        (_record(i="x"), "wrong_type"),
        (_record(i=2**31), "wrong_type"),
        (_record(i=1.5), "wrong_type"),
        (_record(i="1.5"), "wrong_type"),
        (_record(i=True), "wrong_type"),
        (_record(b=2**63), "wrong_type"),
        (_record(b=0.5), "wrong_type"),
        (b'{"ts":1000,"b":1e-19}', "wrong_type"),
        (b'{"ts":1000,"b":"1E-2"}', "wrong_type"),
        (b'{"ts":1000, "b" : 1.0000000000000000000000001}', "wrong_type"),
        (b'{"ts":1000,"b":9007199254740993.0}', "wrong_type"),
        (b'{"ts":1000,"\\u0062":1.5}', "wrong_type"),
        (b'{"ts":1000,"d":1.555}', "wrong_type"),
        (b'{"ts":1000,"d":"1.555"}', "wrong_type"),
        (b'{"ts":1000,"d":1555e-3}', "wrong_type"),
        (b'{"ts":1000,"d":10000}', "wrong_type"),
        (b'{"ts":1000,"f":1e400}', "wrong_type"),
        (_record(f="nan"), "wrong_type"),
        (_record(f="x"), "wrong_type"),
        (_record(ok="true"), "wrong_type"),
        (_record(ok=1), "wrong_type"),
        (_record(day=20_000), "wrong_type"),
        (_record(day="2013-02-30"), "wrong_type"),
        (_record(day="2013-01-31T10:00:00"), "wrong_type"),
        (_record(at=5), "wrong_type"),
        (_record(at="yesterday"), "wrong_type"),
        (_record(outer=5), "wrong_type"),
        (_record(outer={"inner": {"n": 1.5}}), "wrong_type"),
        (_record(s={"a": 1}), "nested_value"),
        (_record(i=[1]), "nested_value"),
        (_record(outer={"inner": {"n": {}}}), "nested_value"),
        (b'{"s":"x"}', "missing_time"),
        (b'{"ts":null}', "missing_time"),
        (b"{}", "missing_time"),
        (b'{"ts":"soon"}', "invalid_time"),
        (b'{"ts":1.5}', "invalid_time"),
        (b'{"ts":true}', "invalid_time"),
        (b'{"ts":{"a":1}}', "nested_value"),
        (b'{"ts":-9223372036854775808}', "invalid_time"),
        (b'{"ts":1},"w":{}', "malformed_json"),
        (b'{"ts":1}"w":{}', "malformed_json"),
        (b'{"ts":1},"v":{"ts":2}', "malformed_json"),
        (b'{"ts":1} , "v" : {"ts":2}', "malformed_json"),
        (b'{"ts":1},"v":null', "malformed_json"),
        (b'null,"v":{"ts":1}', "malformed_json"),
        (b'5,"v":{"ts":1}', "malformed_json"),
        (b'{"ts":1}}{"v":{"ts":2}', "malformed_json"),
        (b'{"ts":1},{"ts":2}', "malformed_json"),
        (b'{"ts":1}]', "malformed_json"),
        (b'{"ts":1},', "malformed_json"),
        (b'{"ts":1,}', "malformed_json"),
        (b'{,"ts":1}', "malformed_json"),
        (b'{"ts":1 "s":"x"}', "malformed_json"),
        (b'{"ts":01}', "malformed_json"),
        (b'{"ts":1}/* */', "malformed_json"),
        (b'{"ts":1} // x', "malformed_json"),
        (b'{"ts":1}\x00', "malformed_json"),
        (b'{"ts":1,"s":"\x00"}', "malformed_json"),
        (b"\x00", "malformed_json"),
        (b'{"ts":"\\u0000"}', "invalid_time"),
        (b'{"ts":1,"i":"\\u0000"}', "wrong_type"),
        (b'{"ts":1400086400001}', "time_in_future"),
        (b'{"ts":9223372036854775807}', "time_in_future"),
    ],
)
def test_a_bad_record_is_named_and_costs_nobody_else(
    decode: Decode, value: bytes | None, reason: str
) -> None:
    decoded = decode(GOOD, value, GOOD, GOOD)
    assert decoded.rejects.reason == [reason], decoded.rejects.detail
    assert decoded.rejects.index.tolist() == [1]
    assert decoded.rejects.detail[0]
    assert decoded.table.column("__offset").to_pylist() == [0, 2, 3]


def test_the_future_begins_at_the_records_own_timestamp(decoder: Callable[..., EventDecoder]) -> None:
    created = np.array([1_000, 999, -1, 1 << 62, 1_000], np.int64)
    values = [b'{"ts":6000}'] * 4 + [b'{"ts":6001}']
    partitions, offsets = np.zeros(5, np.int32), np.arange(5)
    early, late = (
        decoder(future_max_ms=5_000).decode(values, partitions, offsets, now_ms=now_ms, create_ms=created)
        for now_ms in (999, 10**12)
    )
    assert early.rejects.reason == ["time_in_future"] * 3
    assert early.rejects.index.tolist() == [1, 2, 4]
    assert late.rejects.index.tolist() == [1, 4], "the clock counts only where there is no timestamp"
    assert "beyond 5999 ms" in late.rejects.detail[0]


def test_timestamps_stay_with_their_records_when_others_are_refused(
    decoder: Callable[..., EventDecoder],
) -> None:
    values = [None, b'{"ts":6000}', b"{", b'{"ts":6000}', b'{"ts":6000,"i":1.5}', b'{"ts":6000}']
    created = np.array([9_000, 9_000, 0, 0, 0, 9_000], np.int64)
    decoded = decoder(future_max_ms=0).decode(
        values, np.zeros(6, np.int32), np.arange(6), now_ms=0, create_ms=created
    )
    assert decoded.rejects.reason == ["tombstone", "malformed_json", "time_in_future", "wrong_type"]
    assert decoded.table.column("__offset").to_pylist() == [1, 5]


def test_a_string_may_hold_an_escaped_nul(decode: Decode) -> None:
    decoded = decode(GOOD, b'{"ts":1000,"s":"a\\u0000b"}', b'{"ts":1000,"i":"x"}')
    assert decoded.table.column("s").to_pylist() == ["x", "a\0b"]
    assert decoded.rejects.reason == ["wrong_type"]


def test_the_detail_names_column_expected_and_found(decode: Decode) -> None:
    assert decode(_record(i="x")).rejects.detail == ['column i: expected int, found "x"']


def test_a_record_over_the_limit_is_too_large_and_one_at_it_is_not(decode: Decode) -> None:
    limit = 1 << 20
    fits = b'{"ts":1000,"s":"' + b"x" * (limit - 18) + b'"}'
    assert len(fits) == limit
    decoded = decode(GOOD, fits, fits + b" ", GOOD)
    assert decoded.rejects.reason == ["too_large"]
    assert decoded.table.num_rows == 3


def test_unknown_columns_are_refused_only_where_the_table_says_so(decode: Decode) -> None:
    values = [GOOD, _record(extra=1), _record(unused=1, outer={"anything": 1}), GOOD]
    assert len(decode(*values).rejects) == 0
    decoded = decode(*values, unknown_columns="reject")
    assert decoded.rejects.reason == ["unknown_column"]
    assert "'extra'" in decoded.rejects.detail[0]
    assert decoded.table.column("__offset").to_pylist() == [0, 2, 3]


def test_records_that_would_join_into_one_object_stay_two_rejects(decode: Decode) -> None:
    decoded = decode(GOOD, b'{"ts":1000,"s":"x}', b'{y"}', b'{"ts":1000', b"}", GOOD)
    assert decoded.rejects.index.tolist() == [1, 2, 3, 4]
    assert decoded.table.column("__offset").to_pylist() == [0, 5]


def test_nothing_and_only_bad_records_give_an_empty_table(decode: Decode) -> None:
    wanted = decode(GOOD).table.schema
    assert decode().table.schema == wanted
    assert decode(None, b"", b"x").table.schema == wanted
    assert decode(None, b"", b"x").table.num_rows == 0


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(6, 8)))
def test_a_verdict_depends_on_the_record_alone(decoder: Callable[..., EventDecoder], seed: int) -> None:
    """Any batching of a messy stream gives the same rows and the same rejects as one record at a time."""
    rng = random.Random(seed)
    pieces = [
        b'"',
        b"{",
        b"}",
        b",",
        b":",
        b"\\",
        b"\n",
        b"1.5",
        b"e3",
        b'"i":',
        b'"s":"',
        b"\xff",
        b" ",
        b'"ts":1',
    ]
    values: list[bytes | None] = []
    for number in range(400):
        kind = rng.random()
        if kind < 0.6:
            values.append(
                json.dumps({"ts": number, "s": f"v{number}", "i": number, "f": number / 4}).encode()
            )
        elif kind < 0.7:
            values.append(rng.choice([None, b"", b"null", b"[]", b"{}"]))
        else:
            good = bytearray(json.dumps({"ts": number, "i": rng.choice([1, 1.0, 1.5]), "d": "1.25"}).encode())
            for _ in range(rng.randrange(3)):
                at = rng.randrange(len(good) + 1)
                good[at : at + rng.randrange(2)] = rng.choice(pieces)
            values.append(bytes(good))
    under_test = decoder()

    def run(start: int, end: int) -> tuple[list[Any], list[Any]]:
        part = values[start:end]
        offsets = np.arange(start, end, dtype=np.int64)
        found = under_test.decode(part, np.zeros(len(part), np.int32), offsets, now_ms=10**12)
        rejects = zip((found.rejects.index + start).tolist(), found.rejects.reason, strict=True)
        return found.table.to_pylist(), list(rejects)

    singles = [run(at, at + 1) for at in range(len(values))]
    rows = [row for found, _ in singles for row in found]
    rejects = [reject for _, found in singles for reject in found]
    assert len(rows) + len(rejects) == len(values)
    assert run(0, len(values)) == (rows, rejects)
    cut = rng.randrange(1, len(values))
    halves = run(0, cut), run(cut, len(values))
    assert (halves[0][0] + halves[1][0], halves[0][1] + halves[1][1]) == (rows, rejects)


@pytest.mark.parametrize(
    "changes",
    [
        {"time": TimeColumn("ts", "iso8601")},
        {"time": TimeColumn("ts", "epoch_ms", "Mars/Olympus")},
        {"time": TimeColumn("s", "%Q nonsense")},
        {"columns": (*PLAIN, Column("deep", "int", path="s.n"))},
        {"columns": (*PLAIN, Column("deep", "string", path="i"))},
    ],
)
def test_definitions_that_cannot_be_read_are_refused_at_once(
    decoder: Callable[..., EventDecoder], changes: dict[str, Any]
) -> None:
    with pytest.raises(DefinitionError):
        decoder(**changes)


@pytest.mark.parametrize("seed", range(3))
def test_a_verdict_does_not_depend_on_the_chunk(
    decoder: Callable[..., EventDecoder], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Bad records of every kind among a thousand: the same rows and rejects for any size of chunk."""
    rng = random.Random(seed)
    bad: list[bytes | None] = [
        None,
        b"",
        b"{",
        b'{"ts":1}{"ts":2}',
        b'{"ts":1},{"ts":2}',
        b'{"ts":1},"v":{}',
        b'{"ts":1,"i":"x"}',
        b'{"ts":1,"i":"1_000"}',
        b'{"ts":1,"i":1.5}',
        b'{"ts":1,"i":3000000000}',
        b'{"ts":1,"d":"1.255"}',
        b'{"ts":1,"ok":"yes"}',
        b'{"ts":1,"s":"\xff"}',
        b'{"ts":1,"s":"a\0"}',
        b'{"ts":1,"i":"\\u0000"}',
        b'{"ts":1,"outer":{"inner":5}}',
        b'{"ts":1,"s":{}}',
        b'{"ts":"never"}',
        b'{"ts":1,"day":"2013-02-30"}',
        b'{"ts":1,"i":" 7 "}',
        b'{"ts":1,"colour":"red"}',
    ]
    values = [
        rng.choice(bad)
        if rng.random() < 0.06
        else json.dumps({"ts": number, "s": f"v{number}", "i": number, "d": "1.25"}).encode()
        for number in range(1200)
    ]
    for kind in bad:
        values[rng.randrange(len(values))] = kind
    assert set(bad) <= set(values)
    partitions, offsets = np.zeros(len(values), np.int32), np.arange(len(values), dtype=np.int64)
    found = []
    for chunk in (1, 7, 1024, 5000):
        monkeypatch.setattr(rows, "CHUNK_RECORDS", chunk)
        one = decoder(unknown_columns="reject").decode(values, partitions, offsets, now_ms=1_400_000_000_000)
        found.append(one)
    first = found[0]
    assert len(first.rejects) > 50
    for other in found[1:]:
        assert other.table.combine_chunks().equals(first.table.combine_chunks())
        assert other.rejects.index.tolist() == first.rejects.index.tolist()
        assert other.rejects.reason == first.rejects.reason
        assert other.rejects.detail == first.rejects.detail
