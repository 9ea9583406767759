"""A plain writer of Avro values, one at a time, and the framing of schema registries."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

_EPOCH = datetime(1970, 1, 1)


def varint(number: int) -> bytes:
    """Return an unsigned number, seven bits a byte, the lowest first."""
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*octets, number))


def zigzag(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else ((-number) << 1) - 1)


def encode(schema: Any, value: Any, *, block_items: int | None = None) -> bytes:
    """Return the value as the schema says. Of a union it is the first branch that fits.

    `block_items`: arrays and maps stand in blocks of so many items, of which every other one says its size;
    None: in one block.
    """

    def inner(schema: Any, value: Any) -> bytes:
        return encode(schema, value, block_items=block_items)

    if isinstance(schema, list):
        number = next(at for at, branch in enumerate(schema) if _fits(branch, value))
        return zigzag(number) + inner(schema[number], value)
    kind = schema["type"] if isinstance(schema, dict) else schema
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if isinstance(kind, dict | list):
        return inner(kind, value)
    match kind:
        case "null":
            return b""
        case "boolean":
            return bytes([value])
        case "int" | "long":
            return zigzag(_number(logical, value))
        case "float":
            return struct.pack("<f", value)
        case "double":
            return struct.pack("<d", value)
        case "bytes" | "string":
            raw = _unscaled(schema, value) if logical == "decimal" else value
            octets = raw.encode() if isinstance(raw, str) else raw
            return zigzag(len(octets)) + octets
        case "fixed":
            return bytes(value)
        case "enum":
            return zigzag(schema["symbols"].index(value))
        case "array":
            return _blocks([inner(schema["items"], each) for each in value], block_items)
        case "map":
            pairs = [inner("string", key) + inner(schema["values"], each) for key, each in value.items()]
            return _blocks(pairs, block_items)
        case _:
            return b"".join(inner(field["type"], value[field["name"]]) for field in schema["fields"])


def _blocks(items: Sequence[bytes], block_items: int | None) -> bytes:
    size, blocks = block_items or max(1, len(items)), []
    for number, first in enumerate(range(0, len(items), size)):
        block = items[first : first + size]
        octets = b"".join(block)
        has_size = block_items is not None and number % 2 == 0
        blocks.append(zigzag(-len(block)) + zigzag(len(octets)) if has_size else zigzag(len(block)))
        blocks.append(octets)
    return b"".join(blocks) + b"\0"


def framed(schema_id: int, value: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + value


def _fits(branch: Any, value: Any) -> bool:
    return bool(branch == "null") == (value is None)


def _number(logical: str | None, value: Any) -> int:
    if isinstance(value, datetime):
        micros = (value - _EPOCH).total_seconds() * 1_000_000
        return round(micros / 1000 if logical == "timestamp-millis" else micros)
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    number: int = value
    return number


def _unscaled(schema: dict[str, Any], value: Decimal) -> bytes:
    number = int(value.scaleb(schema["scale"]))
    return number.to_bytes(max(1, (number.bit_length() + 8) // 8), "big", signed=True)
