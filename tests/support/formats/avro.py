"""A plain writer of Avro values, one at a time, and the framing of schema registries."""

from __future__ import annotations

import struct
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


def encode(schema: Any, value: Any) -> bytes:
    """Return the value as the schema says. Of a union it is the first branch that fits."""
    if isinstance(schema, list):
        number = next(at for at, branch in enumerate(schema) if _fits(branch, value))
        return zigzag(number) + encode(schema[number], value)
    kind = schema["type"] if isinstance(schema, dict) else schema
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if isinstance(kind, dict | list):
        return encode(kind, value)
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
            items = b"".join(encode(schema["items"], each) for each in value)
            return (zigzag(len(value)) + items if value else b"") + b"\0"
        case "map":
            pairs = [encode("string", key) + encode(schema["values"], each) for key, each in value.items()]
            return (zigzag(len(pairs)) + b"".join(pairs) if pairs else b"") + b"\0"
        case _:
            return b"".join(encode(field["type"], value[field["name"]]) for field in schema["fields"])


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
