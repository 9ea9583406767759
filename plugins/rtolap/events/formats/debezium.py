"""Changes of a database's rows, as Debezium writes them: what a row is after a change, or which one is gone.

    {"before": …, "after": …, "op": "u", …}                    payload only, and Avro
    {"schema": …, "payload": {"before": …, "after": …, …}}     JSON with its schema

`op` is `c`, `r` and `u` for a row that is there: its columns are those of `after`. Of `d` they are those of
`before`, which holds the keys at least. Any other operation is none of one row, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtolap.column_types import STRING
from rtolap.events.classify import Leaf, Problem
from rtolap.events.formats.columns import nested
from rtolap.events.formats.reader import Places, Problems, RecordReader
from rtolap.events.plan import JsonPlan, source_path
from rtolap.events.rows import at_path
from rtolap.model.formats.record_format import OPERATION, RecordFormat

DELETE = "d"
_WRITES = ("c", "r", "u")
_PAYLOAD = ("payload",)


class DebeziumReader:
    """Reads changes into rows of the plan, each with its operation at the path of the source `operation`.

    Args:
        make_reader: returns the reader of the records' own format.
    """

    def __init__(
        self, plan: JsonPlan, form: RecordFormat, make_reader: Callable[[JsonPlan], RecordReader]
    ) -> None:
        self._leaves = plan.leaves
        self._outer: tuple[tuple[str, ...], ...] = ((), _PAYLOAD) if form.type == "json" else ((),)
        inner = [Leaf("op", (*outer, "op"), STRING, False) for outer in self._outer]
        for outer in self._outer:
            for image in ("before", "after"):
                inner += [leaf._replace(path=(*outer, image, *leaf.path)) for leaf in plan.leaves]
        self._reader = make_reader(JsonPlan(tuple(inner), None))

    def read(self, records: list[bytes], places: Places, problems: Problems) -> tuple[pa.StructArray, Places]:
        """See `RecordReader`."""
        rows, places = self._reader.read(records, places, problems)
        operation = self._found(rows, ("op",))
        known = pc.fill_null(pc.is_in(operation, pa.array((*_WRITES, DELETE))), False)
        for row in np.flatnonzero(~known.to_numpy(zero_copy_only=False)).tolist():
            found = operation[row].as_py()
            detail = f"op: expected one of {', '.join(_WRITES)}, {DELETE}, found {found!r}"
            problems[int(places[row])] = Problem("unknown_operation", detail)
        rows, operation = rows.filter(known), operation.filter(known)
        places = places[known.to_numpy(zero_copy_only=False)]
        gone = pc.equal(operation, DELETE)
        columns = {
            leaf.path: pc.if_else(
                gone, self._found(rows, ("before", *leaf.path)), self._found(rows, ("after", *leaf.path))
            )
            for leaf in self._leaves
        }
        columns[source_path(OPERATION)] = operation
        return nested(columns, len(rows)), places

    def _found(self, rows: pa.StructArray, path: tuple[str, ...]) -> pa.Array:
        found = [at_path(rows, (*outer, *path)) for outer in self._outer]
        return found[0] if len(found) == 1 else pc.coalesce(*found)
