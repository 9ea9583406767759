"""Sets of values in the embedded engine: a list of sets → the number of distinct values, exactly.

See `aggregates.count_distinct` for the bytes.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rtolap.base.errors import OutOfRange
from rtolap.columnar.value_sets import united_sizes
from rtolap.query.engine_functions.sketches import united_lists


def distinct_size(lists: Any) -> Any:
    """Return the size of the union of each list. It is an Arrow UDF over list<binary>.

    An empty list gives 0, and nulls within a list are skipped. Raises Corrupted for bytes that are no sets of
    one form, and OutOfRange for more values than the measure allows.
    """
    return pa.array(list(united_lists(lists, sizes)), pa.int64())


def sizes(sets: Any, ids: Any, groups: int) -> pa.Array:
    """Return the number of distinct values of each group. Raises as `distinct_size` does."""
    found = united_sizes(sets, ids, groups)
    if found.too_large is not None:
        raise too_many_values(found.too_large)
    return found.counts


def too_many_values(mark: bytes) -> OutOfRange:
    """Return the error of a group whose mark this is."""
    lg_max, column = mark[1], mark[2:].decode()
    return OutOfRange(
        f"COUNT(DISTINCT {column or '…'}): a group has more distinct values than its measure keeps",
        expected=f"at most {1 << lg_max:,} (lg_max: {lg_max}), and 64 MiB of texts",
        found="a group with more",
        action="group or filter by more columns, ask APPROX_COUNT_DISTINCT of an approx_distinct measure, or "
        "declare a cube with a larger lg_max",
    )
