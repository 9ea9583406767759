"""Source columns → the table's columns, and which rows are refused, unselected or deletes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtolap.base.errors import DefinitionError
from rtolap.column_types import BIGINT, BOOLEAN, STRING
from rtolap.columnar.hll import coupons, string_parts
from rtolap.columnar.hll_image import image_of_distinct
from rtolap.columnar.murmur3 import hash_strings_32
from rtolap.columnar.schema import arrow_type
from rtolap.columnar.sketches import bitmaps_of
from rtolap.model.stored.schema import SchemaColumn
from rtolap.stored.bodies.batches import DecodedBatch, Longs, Mask, SourceRows, unshared
from rtolap.stored.bodies.casting import convert, convertible, shown
from rtolap.stored.bodies.clauses import Expression
from rtolap.stored.bodies.expressions import Computed, Engine
from rtolap.stored.bodies.options import LoadOptions
from rtolap.stored.bodies.plan import ComputedColumn, Direct, LoadPlan
from rtolap.stored.engine.rows.columns import DELETE_SIGN, constant, stored_type
from rtolap.stored.engine.rows.texts import SENT_TEXTS, plain_texts

_SHOWN_CHARS_MAX = 80
_WHERE, _DELETE = "where", "delete"
LG_K = 12  # of sketches that `hll_hash` makes


class BodyTarget:
    """The target rows of one load. `types`: those of the body's columns. Raises DefinitionError when they
    cannot be the table's.
    """

    def __init__(
        self,
        plan: LoadPlan,
        options: LoadOptions,
        engine: Callable[[], Engine],
        types: Mapping[str, pa.DataType],
    ) -> None:
        self._plan, self._options = plan, options
        self._types = {target.column.name: _loaded_type(target.column, options) for target in plan.targets}
        known = dict(types)
        for target in plan.targets:
            if isinstance(target, Direct):
                _check_type(target.column, types[target.source], "of the body")
                if target.source == target.column.name:
                    known[target.source] = arrow_type(target.column.definition.load_type)
        expressions = {
            target.column.name: target.expression
            for target in plan.targets
            if isinstance(target, ComputedColumn)
        }
        conditions: dict[str, Expression] = {}
        if plan.where is not None:
            conditions[_WHERE] = plan.where
        if isinstance(plan.deletes, Expression):
            conditions[_DELETE] = plan.deletes
        self._made = Computed(engine(), expressions, known) if expressions else None
        for target in plan.targets:
            if (
                self._made is not None
                and isinstance(target, ComputedColumn)
                and target.expression.sketch is None
            ):
                _check_type(target.column, self._made.types[target.column.name], "as computed")
        self._conditions = Computed(engine(), conditions, known | self._types) if conditions else None

    def batch(self, source: SourceRows) -> DecodedBatch:
        if self._made is not None or self._conditions is not None:
            plain = {name: plain_texts(values) for name, values in source.columns.items()}
            source = replace(source, columns=plain)
        rows = _Rows(source, self._options)
        targets = self._plan.targets
        columns: dict[str, pa.Array] = {}
        for target in targets:
            if isinstance(target, Direct):
                columns[target.column.name] = rows.direct(target.column, target.source)
        if isinstance(self._plan.deletes, str):
            columns[DELETE_SIGN] = rows.signs(self._plan.deletes)
        if self._plan.undeletable is not None:
            rows.refuse_deletes(self._plan.undeletable)
        given = source.columns | {
            target.source: columns[target.column.name]
            for target in targets
            if isinstance(target, Direct) and target.source == target.column.name
        }
        results = {} if self._made is None else self._made.run(given, rows.count)
        for target in targets:
            if isinstance(target, ComputedColumn):
                columns[target.column.name] = rows.made(target, results[target.column.name])
            elif not isinstance(target, Direct):
                columns[target.column.name] = constant(target.column, rows.count)
        columns |= {name: self._loaded(columns[name], name) for name in self._types}
        wanted = rows.accepted.copy()
        unselected = 0
        if self._conditions is not None:
            conditions_met = self._conditions.run(given | columns, rows.count)
            if _WHERE in conditions_met:
                wanted &= _true(conditions_met[_WHERE])
                unselected = int(np.count_nonzero(rows.accepted & ~wanted))
            if _DELETE in conditions_met:
                columns[DELETE_SIGN] = pa.array(_true(conditions_met[_DELETE]))
        if self._plan.deletes is True:
            columns[DELETE_SIGN] = pa.repeat(pa.scalar(True), rows.count)
        if self._plan.needed:
            wanted &= rows.deleting(wanted, columns[DELETE_SIGN], self._plan.needed)
        names = [*self._types, *([DELETE_SIGN] if DELETE_SIGN in columns else [])]
        batch = pa.RecordBatch.from_arrays([columns[name] for name in names], names)
        if not wanted.all():
            batch = batch.filter(pa.array(wanted))
        return DecodedBatch(unshared(batch), source.refused.rejected(), unselected, source.total)

    def _loaded(self, values: pa.Array, name: str) -> pa.Array:
        if values.type == SENT_TEXTS:
            return values
        if values.type != self._types[name]:
            values = values.cast(self._types[name])
        column = next(target.column for target in self._plan.targets if target.column.name == name)
        negated = self._options.negative and column.definition.aggregate == "SUM"
        return pc.negate(values) if negated else values


class _Rows:
    """The rows of one batch on their way: which are still accepted."""

    def __init__(self, source: SourceRows, options: LoadOptions) -> None:
        self._source, self._options = source, options
        self.count = len(source.numbers)
        self.accepted = np.ones(self.count, bool)

    def direct(self, column: SchemaColumn, name: str) -> pa.Array:
        raw, strict = self._source.columns[name], self._options.strict_mode
        kind = column.definition.load_type
        lost: Mask | None = None
        if kind.kind == "string" and raw.type == SENT_TEXTS:
            converted = raw
        else:
            converted, lost = convert(raw, kind, zone=self._options.timezone, rounds=not strict)
        if lost is not None and (strict or not column.definition.nullable):
            self._refuse(
                lost,
                lambda row: (
                    f"column({column.name}) value is incorrect while strict mode is {str(strict).lower()}, "
                    f"src value is {_shown(raw, row)}; expected {column.definition.type}"
                ),
            )
        absent = self._source.absent.get(name)
        if absent is not None and column.default is not None:
            default = pa.scalar(column.default, stored_type(column)).cast(converted.type)
            converted = pc.if_else(pa.array(absent), default, converted)
        self._check_nulls(column, converted)
        return converted

    def signs(self, name: str) -> pa.BooleanArray:
        """Return a hidden column's delete signs; null is no."""
        raw = self._source.columns[name]
        converted, lost = convert(raw, BOOLEAN, zone=self._options.timezone, rounds=False)
        if lost is not None:
            self._refuse(
                lost, lambda row: f"column({name}) is neither 0 nor 1, src value is {_shown(raw, row)}"
            )
        return converted.fill_null(False)

    def refuse_deletes(self, name: str) -> None:
        """Refuse the rows with a delete sign, for a table without deletes, rather than add them."""
        requested = np.asarray(self.signs(name).to_numpy(zero_copy_only=False))
        self._refuse(requested, lambda _: f"column({name}) asks for a delete, which the table does not allow")

    def made(self, target: ComputedColumn, values: pa.Array) -> pa.Array:
        """Convert the values of an expression, which is never strict."""
        column = target.column
        if target.expression.sketch is not None:
            return sketches(target.expression.sketch, values)
        converted = convert(
            values, column.definition.load_type, zone=self._options.timezone, rounds=True
        ).values
        self._check_nulls(column, converted)
        return converted

    def deleting(self, wanted: Mask, signs: pa.BooleanArray, needed: Sequence[str]) -> Mask:
        """Return the rows that delete. Other partial rows are refused: without the `needed` columns they
        could not become new rows."""
        deletes = np.asarray(signs.to_numpy(zero_copy_only=False))
        reason = f"column({', '.join(needed)}) has no default and may not be null, and a partial row lacks it"
        self._refuse(wanted & ~deletes, lambda _: reason)
        return deletes

    def _check_nulls(self, column: SchemaColumn, values: pa.Array) -> None:
        if values.null_count and not column.definition.nullable:
            nothing = np.asarray(values.is_null().to_numpy(zero_copy_only=False))
            self._refuse(nothing, lambda _: f"column({column.name}) is null, but the column is not nullable")

    def _refuse(self, rows: Mask, reason: Callable[[int], str]) -> None:
        """Refuse rows. A row that is refused already keeps its first reason."""
        at: Longs = np.flatnonzero(rows & self.accepted)
        if len(at):
            refused = self._source.refused
            reasons = [reason(row) for row in at[: refused.room].tolist()]
            refused.add_rejected(self._source.numbers, self._source.texts, at, reasons)
            self.accepted[at] = False


def _check_type(column: SchemaColumn, found_type: pa.DataType, place: str) -> None:
    if not convertible(found_type, column.definition.load_type):
        raise DefinitionError(
            f"column {column.name} {place} has another type",
            expected=f"what {column.definition.type} is made of",
            found=str(found_type),
        )


def _loaded_type(column: SchemaColumn, options: LoadOptions) -> pa.DataType:
    """Return the type in which a column is loaded. A negated sum needs the width of sums: the smallest number
    has no negative of its own type."""
    definition = column.definition
    wide = options.negative and definition.aggregate == "SUM"
    return arrow_type(definition.column_type if wide else definition.load_type)


def _true(values: pa.Array) -> Mask:
    """Return where a condition is true. As in SQL, null is not true."""
    converted = convert(values, BOOLEAN, zone="UTC", rounds=True).values
    return np.asarray(converted.fill_null(False).to_numpy(zero_copy_only=False))


def _shown(values: pa.Array, row: int) -> str:
    text = str(shown(values[row : row + 1])[0])
    return text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "…"


def sketches(function: str, values: pa.Array) -> pa.BinaryArray:
    """Return columns of `hll_hash(x)`, `to_bitmap(x)`, `bitmap_hash(x)` and the empty ones of the header
    `columns`.

    A null is a sketch of nothing, as are values that HLL does not count and numbers that no bitmap has.
    `bitmap_hash` hashes what Doris' does, the text of the value, so that bitmaps of both have the same
    members.
    """
    if function == "hll_hash":
        return _hlls(values)
    if function == "to_bitmap":
        numbers = convert(values, BIGINT, zone="UTC", rounds=True).values
        members = pc.if_else(pc.greater_equal(numbers, 0), numbers, pa.scalar(None, pa.int64()))
        return bitmaps_of(members)
    if function == "bitmap_hash":
        texts = convert(values, STRING, zone="UTC", rounds=True).values
        starts, lengths, data = string_parts(texts)
        value_hashes = hash_strings_32(data, starts, lengths).astype(np.int64)
        return bitmaps_of(pa.array(value_hashes, mask=np.asarray(texts.is_null())))
    return pa.nulls(len(values), pa.binary())


def _hlls(values: pa.Array) -> pa.BinaryArray:
    """Return images of one coupon, which differ in the coupon's four bytes, the last ones."""
    value_coupons = coupons(values)
    pattern = np.frombuffer(image_of_distinct(np.zeros(1, np.uint32), LG_K), np.uint8)
    images = np.tile(pattern, (len(value_coupons), 1))
    own = value_coupons.fill_null(0).to_numpy(zero_copy_only=False)
    images[:, -4:] = own.astype("<u4").view(np.uint8).reshape(-1, 4)
    offsets = np.arange(len(value_coupons) + 1, dtype=np.int32) * len(pattern)
    whole = pa.BinaryArray.from_buffers(
        pa.binary(), len(value_coupons), [None, pa.py_buffer(offsets), pa.py_buffer(images.tobytes())]
    )
    return pc.if_else(value_coupons.is_valid(), whole, pa.scalar(None, pa.binary()))
