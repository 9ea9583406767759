"""Values as HBase's `Bytes` writes them become typed columns; what does not is refused, never lost."""

from __future__ import annotations

import random
import re
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.sep.events.tags import tag_values, ttl_ms
from rtolap.sep.events.values import decode_values

from tests.support.sep.wal_calls import Cell

ARROW_TYPES = {
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "json": pa.string(),
    "bytes": pa.binary(),
}


def arrow_type(value_type: str) -> pa.DataType:
    found = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", value_type)
    return ARROW_TYPES[value_type] if found is None else pa.decimal128(int(found[1]), int(found[2]))


def decoded(values: list[bytes | None], value_type: str) -> tuple[list[Any], list[int]]:
    """The column, and which values were refused; from a slice too, with the same result."""
    whole = decode_values(pa.array(values, pa.binary()), value_type)
    padded = pa.array([b"before", *values, None], pa.binary()).slice(1, len(values))
    sliced = decode_values(padded, value_type)
    assert sliced.column.to_pylist() == whole.column.to_pylist()
    assert sliced.refused.tolist() == whole.refused.tolist()
    assert whole.column.type == arrow_type(value_type)
    whole.column.validate(full=True)
    return whole.column.to_pylist(), [place for place, refused in enumerate(whole.refused) if refused]


def big_decimal(number: str) -> bytes:
    """As java.math.BigDecimal goes through Bytes.toBytes."""
    sign, digits, exponent = Decimal(number).as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    size = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return struct.pack(">i", -exponent) + unscaled.to_bytes(size, "big", signed=True)


@pytest.mark.parametrize(
    ("value_type", "code", "numbers"),
    [
        ("short", ">h", [0, -1, 32767, -32768]),
        ("int", ">i", [0, -1, 2**31 - 1, -(2**31)]),
        ("long", ">q", [0, -1, 2**63 - 1, -(2**63)]),
        ("float", ">f", [0.0, -1.5, 2.0**100]),
        ("double", ">d", [0.0, -1.5, 1e300]),
    ],
)
def test_numbers_of_fixed_width(value_type: str, code: str, numbers: list[float]) -> None:
    values: list[bytes | None] = [struct.pack(code, number) for number in numbers]
    assert decoded(values, value_type) == (numbers, [])
    assert decoded([None, *values, b"", b"123"], value_type) == (
        [None, *numbers, None, None],
        [len(numbers) + 1, len(numbers) + 2],
    )
    assert decoded([], value_type) == ([], [])
    assert decoded([None], value_type) == ([None], [])


def test_booleans_strings_bytes_and_json() -> None:
    assert decoded([b"\x00", b"\xff", b"\x01", b"12", None], "boolean") == (
        [False, True, True, None, None],
        [3],
    )
    assert decoded(["für".encode(), b"", None], "string") == (["für", "", None], [])
    assert decoded([b"a", b"\xff", None, b"b"], "string") == (["a", None, None, "b"], [1])
    assert decoded([b"\xff", None], "bytes") == ([b"\xff", None], [])
    assert decoded([b'{"a": [1]}', b"{", b"", b"\xff", b"1", None, b"[" * 5000], "json") == (
        ['{"a": [1]}', None, None, None, "1", None, None],
        [1, 2, 3, 6],
    )


def test_decimals_are_exact_or_refused() -> None:
    numbers = ["0", "1.5", "-1.50", "12345678.90", "-0.01", "1E+3", "99999999999999999999.99", "-1e-2"]
    assert decoded([big_decimal(number) for number in numbers], "decimal(22,2)") == (
        [Decimal(number).quantize(Decimal("0.01")) for number in numbers],
        [],
    )
    too_much = ["0.001", "1000000", "1e30", "-1e-30", "123456789012345678901234567890"]
    refused: list[bytes | None] = [big_decimal(number) for number in too_much]
    refused += [b"", b"\x00\x00\x00\x01", b"\x00" * 4 + b"\x01" * 200]
    assert decoded([*refused, None, big_decimal("1")], "decimal(8,2)") == (
        [None] * 9 + [Decimal("1.00")],
        list(range(8)),
    )
    assert decoded([struct.pack(">iq", 0, -(2**63)), struct.pack(">iq", -1, -(2**63))], "decimal(19,0)") == (
        [Decimal(-(2**63)), None],
        [1],
    )


def test_random_decimals_are_what_their_encoder_meant() -> None:
    rng = random.Random(1)
    numbers = [Decimal(rng.randrange(-(10 ** rng.randrange(1, 30)), 10**20)).scaleb(-3) for _ in range(3000)]
    values = [big_decimal(str(number)) for number in numbers]
    column, refused = decoded(list(values), "decimal(38,3)")
    assert not refused
    assert column == numbers


def test_a_type_that_there_is_not_is_named() -> None:
    for wrong in ("integer", "decimal", "decimal(50,2)"):
        with pytest.raises(DefinitionError, match="unknown"):
            decode_values(pa.array([b"1"], pa.binary()), wrong)


def test_the_time_to_live_is_read_from_tags() -> None:
    ttl = (8, struct.pack(">q", 60_000))
    tags = [
        Cell(b"r", tags=own).raw_tags
        for own in ((), (ttl,), ((1, b"acl"), ttl), ((2, b""),), ((8, b"short"),), (ttl, (8, b"x" * 8)))
    ]
    column = pa.array([b"skipped", *tags, b"\x00", b"\x00\x09\x08torn"], pa.binary()).slice(1)
    assert ttl_ms(column).to_pylist() == [None, 60_000, 60_000, None, None, 60_000, None, None]
    assert tag_values(column, 1).to_pylist() == [None, None, b"acl", None, None, None, None, None]
    assert tag_values(column, 2).to_pylist()[3] == b""
    assert ttl_ms(pa.array([], pa.binary())).to_pylist() == []
