"""A table to decode bodies for, and a short way to do it."""

from __future__ import annotations

from typing import Any, NamedTuple

from rtolap.model.stored.schema import StoredSchema, initial_schema
from rtolap.model.stored.table import StoredColumn, StoredTable, TableModel
from rtolap.stored.bodies.decode import decode_body
from rtolap.stored.bodies.options import load_options
from rtolap.stored.bodies.settings import BodySettings


def unique_schema() -> StoredSchema:
    """Return a schema in which `k` is the key, `at` decides between equal ones, and `s` has a default."""
    return _schema(
        "unique",
        StoredColumn("k", "int", nullable=False),
        StoredColumn("price", "decimal(9,2)"),
        StoredColumn("s", "string", default="none"),
        StoredColumn("at", "timestamp"),
        sequence_column="at",
    )


def plain_schema() -> StoredSchema:
    return _schema("duplicate", StoredColumn("k", "int", nullable=False), StoredColumn("s", "string"))


def aggregate_schema() -> StoredSchema:
    return _schema(
        "aggregate",
        StoredColumn("k", "string", nullable=False),
        StoredColumn("total", "int", aggregate="SUM"),
    )


def sketch_schema() -> StoredSchema:
    return _schema(
        "aggregate",
        StoredColumn("k", "int", nullable=False),
        StoredColumn("users", "hll", aggregate="HLL_UNION"),
        StoredColumn("ids", "bitmap", aggregate="BITMAP_UNION"),
    )


def _schema(model: TableModel, *columns: StoredColumn, sequence_column: str | None = None) -> StoredSchema:
    return initial_schema(
        StoredTable(
            database="shop",
            name="orders",
            columns=columns,
            model=model,
            keys=() if model == "duplicate" else ("k",),
            sequence_column=sequence_column,
        )
    )


class Decoded(NamedTuple):
    """A decoded body. `refused` are (number of the row, its text, why)."""

    rows: list[dict[str, Any]]
    refused: list[tuple[int, str, str]]
    unselected: int
    total: int


def decoded(
    body: bytes, schema: StoredSchema, settings: BodySettings | None = None, **headers: str
) -> Decoded:
    """Decode a body. `headers` are written with underscores for the dots of their names."""
    written = {name.replace("function_column_", "function_column."): text for name, text in headers.items()}
    found = Decoded([], [], 0, 0)
    batches = decode_body(iter([body]), load_options(written), schema, settings or BodySettings())
    for batch in batches:
        refused = [] if batch.rejected is None else batch.rejected.rows.to_pylist()
        found = Decoded(
            found.rows + batch.rows.to_pylist(),
            found.refused + [(one["row"], one["text"], one["reason"]) for one in refused],
            found.unselected + batch.unselected,
            found.total + batch.total,
        )
    return found
