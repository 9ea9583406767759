"""Columns with a group number for each row: the reductions that aggregate functions are made of."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from rtolap.aggregates.accumulator import Fold, Partial, SetForm, SquarePart
from rtolap.column_types import ColumnType
from rtolap.columnar import reduce
from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.group_ids import Ids
from rtolap.columnar.hll import coupons
from rtolap.columnar.hll_groups import merge_groups
from rtolap.columnar.hll_image import sketches_from_coupons
from rtolap.columnar.joined_texts import texts_of_values, united_texts
from rtolap.columnar.kll import sketch_groups, unite_groups
from rtolap.columnar.picked import EventOrder, pick
from rtolap.columnar.schema import arrow_type
from rtolap.columnar.squares import square_parts
from rtolap.columnar.top_k import sketch_frequencies, unite_frequencies
from rtolap.columnar.value_sets import sets_of_values, united_sets


class GroupedArray(NamedTuple):
    """See `aggregates.accumulator.GroupedColumn`.

    Attributes:
        column: the rows; sketches of many chunks may be more bytes than one array holds.
        ids: the group of each row, from 0 to `groups` - 1.
        groups: how many groups there are.
        order: of events: what orders them; None for rows of partials.
    """

    column: pa.Array | pa.ChunkedArray
    ids: Ids
    groups: int
    order: EventOrder | None = None

    @property
    def _rows(self) -> pa.Array:
        return single_chunk(self.column)

    def count_rows(self) -> pa.Array:
        return reduce.count_rows(self.ids, self.groups)

    def count_values(self) -> pa.Array:
        return reduce.count_valid(self._rows, self.ids, self.groups)

    def sum(self, result: ColumnType) -> pa.Array:
        return reduce.sum_values(self._rows, self.ids, self.groups, arrow_type(result))

    def sum_squares(self, part: SquarePart, result: ColumnType) -> pa.Array:
        parts = square_parts(self._rows, part)
        return reduce.sum_values(parts, self.ids, self.groups, arrow_type(result))

    def least(self) -> pa.Array:
        return reduce.extreme(self._rows, self.ids, self.groups, "min")

    def greatest(self) -> pa.Array:
        return reduce.extreme(self._rows, self.ids, self.groups, "max")

    def fold(self, fold: Fold) -> pa.Array:
        return reduce.fold_longs(self._rows, self.ids, self.groups, fold.ufunc, fold.neutral)

    def hash_values(self, lg_k: int) -> pa.Array:
        return reduce.distinct_coupons(coupons(self.column), self.ids, self.groups, lg_k)

    def unite_coupons(self, lg_k: int) -> pa.Array:
        return reduce.merge_coupons(self._rows, self.ids, self.groups, lg_k)

    def collect_set(self, form: SetForm) -> pa.Array:
        return sets_of_values(self._rows, self.ids, self.groups, form)

    def unite_sets(self, form: SetForm) -> pa.Array:
        return united_sets(self.column, self.ids, self.groups, form)

    def unite_sketches(self) -> pa.Array:
        return merge_groups(self.column, self.ids, self.groups)

    def sketch_quantiles(self, k: int) -> pa.Array:
        return sketch_groups(self._rows, self.ids, self.groups, k)

    def unite_quantiles(self, k: int) -> pa.Array:
        return unite_groups(self.column, self.ids, self.groups, k)

    def sketch_frequencies(self, lg_size: int) -> pa.Array:
        return sketch_frequencies(self._rows, self.ids, self.groups, lg_size)

    def unite_frequencies(self, lg_size: int) -> pa.Array:
        return unite_frequencies(self.column, self.ids, self.groups, lg_size)

    def collect_texts(self, bytes_max: int) -> pa.Array:
        return texts_of_values(self._rows, self.ids, self.groups, bytes_max)

    def unite_texts(self, bytes_max: int) -> pa.Array:
        return united_texts(self.column, self.ids, self.groups, bytes_max)

    def pick_earliest(self) -> pa.Array:
        return self._pick(latest=False)

    def pick_latest(self) -> pa.Array:
        return self._pick(latest=True)

    def _pick(self, *, latest: bool) -> pa.Array:
        assert self.order is not None, "events are picked from, not partials"
        return pick(self._rows, self.ids, self.groups, self.order, latest=latest)


def plain_partial(column: pa.Array, partial: Partial) -> pa.Array:
    """Return a partial's column in plain form, out of a receiver's."""
    coupon_form = partial.accumulator.local_form
    if coupon_form is not None:
        return sketches_from_coupons(column, coupon_form.lg_k)
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column
