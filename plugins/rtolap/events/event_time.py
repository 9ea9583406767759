"""Event times, vectorised: a column as read from JSON becomes microseconds since the epoch.

| format | written as |
|---|---|
| `epoch_s`, `epoch_ms`, `epoch_us`, `epoch_days` | a whole number, or one in a string |
| `iso8601` | `2013-01-02` or `2013-01-02T10:00[:00[.123456]]`, perhaps with `Z`, `+05`, `+05:00` or `+0500` |
| a pattern | as strptime; `%f` fraction, `%z` offset |

ISO 8601 allows a space for the T; digits beyond microseconds are cut. Without an offset, a time is local in
the table's zone.

A local time that a zone has twice means the earlier instant; one that the clocks skipped means the last
microsecond before the gap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError
from rtolap.columnar.chunks import single_chunk

MICROS_PER_UNIT = {"epoch_days": 86_400_000_000, "epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1}
FIRST_US = -30_610_224_000_000_000  # year 1000: segment names have four digits for the year
LAST_US = 253_402_300_799_999_999  # year 9999
_US = pa.timestamp("us")
_US_UTC = pa.timestamp("us", "UTC")
_HAS_OFFSET = r"[T ]\d\d.*(?:Z|[+-]\d\d(?::?\d\d)?)$"
_LONG_FRACTION = r"(\.\d{6})\d+"


class Instants(NamedTuple):
    """Points in time of a column.

    Attributes:
        micros: microseconds since 1970, at most the year 9999; valid where `missing` and `invalid` are False.
    """

    micros: NDArray[np.int64]
    missing: NDArray[np.bool_]
    invalid: NDArray[np.bool_]


class EventTimeParser:
    """Raises DefinitionError for a zone or a pattern that does not exist. Not thread-safe."""

    def __init__(self, time_format: str, zone: str) -> None:
        self._format, self._zone = time_format, zone
        self._connection: duckdb.DuckDBPyConnection | None = None
        try:
            self._to_instants(pa.array([0]).cast(_US))
            if not self.is_epoch and time_format != "iso8601":
                self._connection = duckdb.connect(config={"threads": 1})
                self._by_pattern(pa.array([""]))
        except (pa.ArrowException, duckdb.Error) as error:
            raise DefinitionError(
                "the event time cannot be parsed",
                expected="epoch_s, epoch_ms, epoch_us, iso8601 or a strptime pattern, and an IANA zone",
                found=f"format {time_format!r}, zone {zone!r}: {error}",
            ) from error

    @property
    def unit_us(self) -> int | None:
        """Return the microseconds of a unit, of times that are numbers; None for written ones."""
        return MICROS_PER_UNIT.get(self._format)

    @property
    def is_iso(self) -> bool:
        return self._format == "iso8601"

    @property
    def is_epoch(self) -> bool:
        """Return True if times are numbers."""
        return self._format in MICROS_PER_UNIT

    def parse(self, raw: pa.Array) -> Instants:
        """Return the instants of `raw`, which is int64 or strings; or timestamps in microseconds, which are
        instants already."""
        missing = raw.is_null().to_numpy(zero_copy_only=False)
        if pa.types.is_timestamp(raw.type):
            micros = raw.cast(pa.int64()).fill_null(0).to_numpy()
            return Instants(np.minimum(micros, LAST_US), missing, ~missing & (micros < FIRST_US))
        if self.is_epoch:
            return self._epoch(raw, missing)
        instants = self._iso(raw) if self._format == "iso8601" else self._by_pattern(raw)
        invalid = instants.is_null().to_numpy(zero_copy_only=False) & ~missing
        micros = instants.cast(pa.int64()).fill_null(0).to_numpy()
        return Instants(np.minimum(micros, LAST_US), missing, invalid | (micros < FIRST_US))

    def read(self, raw: pa.Array, wanted: pa.DataType) -> pa.Array:
        """Return `raw` as dates or timestamps, null where it is none."""
        if pa.types.is_date(wanted) and self.is_iso and pa.types.is_string(raw.type):
            encoded = raw.dictionary_encode()
            days = lenient(lambda part: part.cast(wanted), encoded.dictionary)
            return days.take(encoded.indices)
        found = self.parse(raw)
        instants = pa.array(found.micros, mask=found.missing | found.invalid).cast(_US)
        return pc.floor_temporal(instants, unit="day").cast(wanted) if pa.types.is_date(wanted) else instants

    def _epoch(self, raw: pa.Array, missing: NDArray[np.bool_]) -> Instants:
        unit_us = MICROS_PER_UNIT[self._format]
        invalid = np.zeros(len(raw), bool)
        if not pa.types.is_int64(raw.type):
            raw = lenient(lambda part: part.cast(pa.int64()), raw)
            invalid = raw.is_null().to_numpy(zero_copy_only=False) & ~missing
        numbers = raw.fill_null(0).to_numpy() if raw.null_count else raw.to_numpy()
        micros = np.clip(numbers, FIRST_US // unit_us, LAST_US // unit_us) * unit_us
        return Instants(micros, missing, invalid | (numbers < FIRST_US // unit_us))

    def _iso(self, raw: pa.Array) -> pa.Array:
        for attempt in (self._iso_local, _iso_zoned):  # a batch is mostly of one kind
            try:
                return attempt(raw)
            except pa.ArrowInvalid:
                continue
        raw = pc.replace_substring_regex(raw, _LONG_FRACTION, r"\1")
        zoned = pc.match_substring_regex(raw, _HAS_OFFSET)
        nothing = pa.scalar(None, pa.string())
        with_offset = lenient(_iso_zoned, pc.if_else(zoned, raw, nothing))
        without = lenient(self._iso_local, pc.if_else(zoned, nothing, raw))
        return pc.coalesce(with_offset, without)

    def _iso_local(self, raw: pa.Array) -> pa.Array:
        return self._to_instants(raw.cast(_US))

    def _by_pattern(self, raw: pa.Array) -> pa.Array:
        assert self._connection is not None, "patterns are parsed by the embedded engine"
        relation = self._connection.from_arrow(pa.table({"v": raw}))
        pattern = duckdb.ConstantExpression(self._format)
        parsed = relation.select(
            duckdb.FunctionExpression("try_strptime", duckdb.ColumnExpression("v"), pattern)
        )
        table: pa.Table = parsed.to_arrow_table()
        column = single_chunk(table.column(0))
        return column.cast(_US_UTC).cast(_US) if column.type.tz else self._to_instants(column.cast(_US))

    def _to_instants(self, local: pa.Array) -> pa.Array:
        if self._zone == "UTC":
            return local
        zoned = pc.assume_timezone(local, self._zone, ambiguous="earliest", nonexistent="earliest")
        return zoned.cast(_US_UTC).cast(_US)


def _iso_zoned(raw: pa.Array) -> pa.Array:
    return raw.cast(_US_UTC).cast(_US)


def lenient(cast: Callable[[pa.Array], pa.Array], values: pa.Array) -> pa.Array:
    """Apply `cast`, with null where a value fails by itself. Batches that fail are halved until the value is
    found."""
    try:
        return cast(values)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return cast(pa.nulls(1, values.type))
    middle = len(values) // 2
    return pa.concat_arrays([lenient(cast, values[:middle]), lenient(cast, values[middle:])])
