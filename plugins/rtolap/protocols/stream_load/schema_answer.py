"""The answer of `_schema`, as this product, Doris and StarRocks give it.

| | envelope | states |
|---|---|---|
| this product | `code`, `data` | all of `TableSchema` |
| Doris | `code`, `data`, with a `status` in `data` | types, aggregations, `keysType`; no nulls, no defaults |
| StarRocks | none: `status` and `properties` | types |

A version that states more is read. What a server leaves out stays empty: nobody may conclude from it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import NotFound, Refused, Unavailable
from rtolap.protocols.stream_load.front_ends import check_code, denied, refusal
from rtolap.protocols.stream_load.messages import SchemaColumn, TableSchema


class _Column(msgspec.Struct, frozen=True):
    name: str
    type: str
    comment: str | None = ""
    aggregation_type: str | None = ""
    is_nullable: str | bool | None = ""
    precision: str | int | None = ""
    scale: str | int | None = ""
    default: str | None = None
    default_value: str | None = None

    def read(self, unstated_nullable: str) -> SchemaColumn:
        nullable = self.is_nullable
        if isinstance(nullable, bool):
            nullable = "Yes" if nullable else "No"
        return SchemaColumn(
            self.name,
            self.type,
            self.comment or "",
            self.aggregation_type or "",
            nullable or unstated_nullable,
            str(self.precision or ""),
            "" if self.scale is None else str(self.scale),
            self.default if self.default is not None else self.default_value,
        )


class _Schema(msgspec.Struct, frozen=True):
    status: int = 200
    exception: str = ""
    keys_type: str | None = msgspec.field(name="keysType", default="")
    properties: tuple[_Column, ...] = ()
    version: int | None = None
    sequence_column: str | None = None


class _Answer(msgspec.Struct, frozen=True):
    msg: Any = ""
    code: int = 0
    data: _Schema | str | None = None
    status: int | None = None  # StarRocks has no envelope


def read_schema(status: int, body: bytes, db: str, table: str) -> TableSchema:
    """Raises NotFound for an unknown table, Unauthorized, Forbidden, Refused, and Unavailable."""
    purpose = f"the columns of {db}.{table}"
    check_code(body, purpose)
    try:
        answer = decode_json(body, _Answer)
        bare = decode_json(body, _Schema) if answer.status is not None and answer.data is None else None
    except msgspec.MsgspecError as error:
        if status != 200:
            raise refusal(status, body, purpose) from error
        raise Unavailable(
            f"{purpose}: the answer cannot be read",
            found=f"HTTP {status}: {error}: {body[:200]!r}",
            action="check `sink.urls`, `sink.target` and the version of the server",
        ) from error
    schema = bare or answer.data
    if answer.code != 0 or not isinstance(schema, _Schema):
        raise _not_there(db, table, f"{answer.msg}: {answer.data}")
    if schema.status in (401, 403):
        raise denied(schema.status, schema.exception, f"{purpose} (it needs SELECT)")
    if schema.status == 404:
        raise _not_there(db, table, schema.exception)
    if schema.status != 200:
        raise Refused(f"{purpose}: refused", found=f"status {schema.status}: {schema.exception}")
    nullable = "Yes" if schema.version is not None else ""  # this product leaves out what is usual
    return TableSchema(
        keys_type=schema.keys_type or "",
        properties=tuple(column.read(nullable) for column in schema.properties),
        version=schema.version,
        sequence_column=schema.sequence_column,
    )


def _not_there(db: str, table: str, found: str) -> NotFound:
    return NotFound(
        f"table {db}.{table} is not there", found=found, action="create it, or check `database` and `table`"
    )
