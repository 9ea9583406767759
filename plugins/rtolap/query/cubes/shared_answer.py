"""Answers that need no engine, made once for the statements that share a read."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from rtolap.query.coalescing import Once
from rtolap.query.cubes.merged_answer import merged_answer
from rtolap.query.plan import CubeRead, PlainMerge
from rtolap.query.statement_outcome import CELLS_MAX

SHARED_BYTES_MAX = 1 << 20  # of an answer: larger ones are sent piece by piece to each of those who share it


def shared_answer(
    read: CubeRead,
    merge: PlainMerge,
    table: pa.Table,
    shared: Once | None,
    values: Mapping[str, object],
) -> tuple[pa.Table | None, Once | None]:
    """Return the answer of a plain merge, None where the engine has to; and what those who share it make of
    it.
    """

    def make() -> tuple[pa.Table | None, Once | None]:
        answer = merged_answer(read, merge, table, values)
        is_shareable = (
            answer is not None
            and answer.nbytes <= SHARED_BYTES_MAX
            and answer.num_rows * answer.num_columns <= CELLS_MAX
        )
        return answer, Once() if is_shareable else None

    if shared is None:
        return make()[0], None
    bounds = [values[name] if isinstance(name, str) else name for name in (merge.limit, merge.offset)]
    if not all(bound is None or type(bound) is int for bound in bounds):
        return make()
    return shared.get((merge, *bounds), make)
