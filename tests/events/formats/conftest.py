"""Decoders of one table in each format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from rtolap.events.decode import Decoded, EventDecoder
from rtolap.model.cube import Cube, Measure, Schema
from rtolap.model.table import Table, TimeColumn
from rtolap.model.validation.definition import validate_schema

from tests.events.conftest import COLUMNS, NOW_MS
from tests.support.formats.declared import NAMES, Declared, formats

Decode = Callable[[Sequence[bytes | None]], Decoded]


def decoder_of(declared: Declared, **changes: Any) -> EventDecoder:
    columns = [column for column in COLUMNS if column.name in NAMES]
    if not declared.nested:
        columns = [msgspec.structs.replace(column, path=None) for column in columns]
    values: dict[str, Any] = {
        "name": "t",
        "topic": "t",
        "columns": tuple(columns),
        "time": TimeColumn("ts", "epoch_ms"),
        "format": declared.form,
    }
    table = Table(**(values | changes))
    measures = tuple(Measure("count", name) for name in ("b", "f", "d", "at", "deep"))
    schema = Schema(table, Cube(name="c", table="t", dimensions=("s", "i", "ok", "day"), measures=measures))
    validate_schema(schema)
    if declared.schemas is None:
        return EventDecoder(schema)
    return EventDecoder(schema, {"default": declared.schemas}.__getitem__)


def decoded(decoder: EventDecoder, values: Sequence[bytes | None]) -> Decoded:
    """Decode records; offsets are positions in `values`."""
    offsets = np.arange(len(values), dtype=np.int64)
    return decoder.decode(values, np.zeros(len(values), np.int32), offsets, now_ms=NOW_MS)


@pytest.fixture(params=[each.name for each in formats()])
def declared(request: pytest.FixtureRequest) -> Declared:
    return replace(next(each for each in formats() if each.name == request.param))


@pytest.fixture
def decode(declared: Declared) -> Decode:
    decoder = decoder_of(declared)
    return lambda values: decoded(decoder, values)
