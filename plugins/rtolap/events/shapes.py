"""The type of a record for a strict reader: its names, or the kinds of its values. No value is kept.

A shape only sorts out: whether a record is accepted is decided by the columnar reader and the classifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from rtolap.base.undecodable import UNDECODABLE

_NUMBER = Annotated[str, msgspec.Meta(pattern=r"^\s*[-+]?[0-9.]+([eE][-+]?[0-9]+)?\s*$")]
_INT = {32: Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)], 64: int}


def known_names(known: frozenset[str] | None) -> type[msgspec.Struct]:
    """Strict JSON objects only, with names of `known` (None: any)."""
    fields = [
        (f"f{place}", msgspec.Raw, msgspec.field(name=name, default=msgspec.Raw()))
        for place, name in enumerate(sorted(known or ()))
    ]
    return msgspec.defstruct("Known", fields, forbid_unknown_fields=known is not None)


def typed(schema: pa.Schema, known: frozenset[str] | None = None) -> type[msgspec.Struct]:
    """As `known_names`, with such values as the columnar reader takes for these columns, nulls included."""
    kinds: dict[str, Any] = {column.name: _kind(column.type) | None for column in schema}
    kinds |= dict.fromkeys((known or frozenset()).difference(kinds), msgspec.Raw)
    fields = [
        (f"f{place}", kind, msgspec.field(name=name, default=None))
        for place, (name, kind) in enumerate(sorted(kinds.items(), key=lambda one: one[0]))
    ]
    return msgspec.defstruct("Typed", fields, forbid_unknown_fields=known is not None)


def _kind(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return typed(pa.schema(list(kind)))
    if pa.types.is_string(kind):
        return str
    if pa.types.is_boolean(kind):
        return bool
    if pa.types.is_integer(kind):
        return _INT[kind.bit_width] | float | _NUMBER
    return int | float | _NUMBER


def fits(decoder: msgspec.json.Decoder[Any], text: bytes) -> bool:
    try:
        decoder.decode(text)
    except UNDECODABLE:
        return False
    return True


def misfits(decoder: msgspec.json.Decoder[Any], records: Sequence[bytes]) -> list[int]:
    """Positions of records that do not fit, each tried alone. A loop: only for chunks with a bad record."""
    places = []
    decode = decoder.decode
    for position, record in enumerate(records):
        try:
            decode(record)
        except UNDECODABLE:
            places.append(position)
    return places
