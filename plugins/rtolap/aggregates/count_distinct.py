"""COUNT(DISTINCT): the exact number of different values, out of sets of them.

A set is bytes, the same in receivers, fragments, staged parts and history:

| byte | |
|---|---|
| 0 | 4 · `lg_max`, plus 0 for texts and 1, 2 or 3 for codes of 4, 8 or 16 bytes |
| 1 … | the codes of the values, each once, ascending as bytes |

The code of a number is big-endian two's complement with the sign's bit inverted, so codes ascend with the
numbers: int, date and boolean in 4 bytes, bigint, timestamp and decimals of up to 18 digits (unscaled) in 8,
wider decimals in 16. The code of a text is its UTF-8, where 0xFF never occurs, and 0xFF behind it.

Spark unites such sets by its own operators, which it could not do with bitmaps: see `spark_merge`. A group
with more values than the declaration allows keeps a mark instead, the byte 0xFE, `lg_max` and the column's
name. The mark stays when it is merged, so whether a group has it depends on its values alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator, C, GroupedColumn, Partial, SetForm
from rtolap.aggregates.function import LG_K_DEFAULT, LG_MAX_DEFAULT, Aggregate, Finish
from rtolap.column_types import BINARY, ColumnType, Kind

DISTINCT_SIZE = "distinct_size"  # the engine's function, see `query.engine_functions.value_sets`

_WIDTHS: dict[Kind, int] = {
    "string": 0,
    "boolean": 4,
    "int": 4,
    "date": 4,
    "bigint": 8,
    "timestamp": 8,
}  # of codes; decimals by their digits
_LONG_DIGITS = 18


@dataclass(frozen=True)
class ValueSet(Accumulator):
    """The set of a column's values that are not null; null without any."""

    name: ClassVar[str] = "value_set"
    takes_dimensions: ClassVar[bool] = False
    is_idempotent: ClassVar[bool] = True
    form: SetForm

    @property
    def sketch_bytes(self) -> int:
        return 1 + self.form.bytes_max

    def result_type(self, source: ColumnType) -> ColumnType:
        return BINARY

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.collect_set(self.form)

    def merge(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        return partials.unite_sets(self.form)

    def spark_merge(self, column: str, kind: ColumnType) -> str:
        """Return Spark SQL that cuts the sets into codes, as texts, and joins those of the group.

        `transform(array(x), y -> …)[0]` stands for a name y of the value x, which SQL has none for.
        """
        form = self.form
        mark = f"X'{form.mark.hex()}'"
        length = f"length(joined){' div 2' if form.width else ''}"
        too_large = f"size(codes) > {form.values_max} OR {length} > {form.bytes_max}"
        if form.width:
            count = f"(length({column}) - 1) div {form.width}"
            code = f"hex(substring({column}, {2 - form.width} + {form.width} * place, {form.width}))"
            codes = f"transform(sequence(1, {count}), place -> {code})"  # of null, as all of it, null
            joined = "unhex(joined)"
        else:
            texts = f"split(substring(decode({column}, 'ISO-8859-1'), 2), chr(255))"
            codes = f"transform(slice({texts}, 1, size({texts}) - 1), text -> concat(text, chr(255)))"
            joined = "encode(joined, 'ISO-8859-1')"
        united = f"sort_array(array_distinct(flatten(collect_list({codes}))))"
        made = f"CASE WHEN {too_large} THEN {mark} ELSE concat(X'{form.header:02x}', {joined}) END"
        set_of = f"transform(array(array_join(codes, '')), joined -> {made})[0]"
        return (
            f"CASE WHEN count({column}) = 0 THEN NULL WHEN max({column} = {mark}) THEN {mark} "
            f"ELSE transform(array({united}), codes -> {set_of})[0] END"
        )


def set_form(kind: ColumnType, lg_max: int, column: str) -> SetForm:
    """Return the form of the sets of a column's values."""
    width = _WIDTHS.get(kind.kind, 8 if kind.precision <= _LONG_DIGITS else 16)
    return SetForm(width, lg_max, column)


class CountDistinct(Aggregate):
    name: ClassVar[str] = "count_distinct"
    title: ClassVar[str] = "COUNT(DISTINCT)"
    sql_key: ClassVar[str] = "distinct"
    in_count: ClassVar[bool] = True
    engine_functions: ClassVar[tuple[str, ...]] = (DISTINCT_SIZE, "count", "list")
    shown: ClassVar[int] = 39
    empty: ClassVar[int | None] = 0
    takes_lg_max: ClassVar[bool] = True

    def mismatch(self, column: ColumnType) -> str:
        is_exact = column.kind in _WIDTHS or column.kind == "decimal"
        return "" if is_exact else "a column whose values compare exactly"

    def accumulators(self, lg_k: int = LG_K_DEFAULT) -> tuple[Accumulator, ...]:
        return (ValueSet(SetForm(0, LG_MAX_DEFAULT, "")),)

    def partials(
        self, column: str, kind: ColumnType, lg_k: int, lg_max: int = LG_MAX_DEFAULT
    ) -> tuple[Partial, ...]:
        values = ValueSet(set_form(kind, lg_max, column))
        return (Partial(values.column_name(column), values, values.result_type(kind), column),)

    def call(self, argument: str) -> str:
        return f"COUNT(DISTINCT {argument})"

    def read(self, kind: ColumnType | None) -> str:
        return f"CAST({DISTINCT_SIZE}(LIST(:value_set)) AS BIGINT)"

    def finish(self, kind: ColumnType) -> Finish | None:
        return "set_size"
