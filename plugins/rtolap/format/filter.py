"""Predicates on Arrow tables."""
from __future__ import annotations

import pyarrow as pa

from rtolap.model.predicate import Predicate


def mask(table: pa.Table, predicate: Predicate) -> pa.BooleanArray:
    """TRUE where the row is kept; no nulls (NULL keeps nothing). Columns local or plain."""
    raise NotImplementedError
