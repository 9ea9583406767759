"""Point look-ups: the keys that a predicate allows, when it names a value for every key column."""

from __future__ import annotations

from itertools import product

import pyarrow as pa

from rtolap.columnar.literals import place
from rtolap.model.predicate import And, Compare, In, Predicate, Scalar
from rtolap.model.stored.schema import StoredSchema
from rtolap.stored.engine.rows.columns import stored_type
from rtolap.stored.engine.rows.keys import Hashes, hashes

KEYS_MAX = 4096  # beyond, asking the bloom filters costs more than it spares


def point_hashes(predicate: Predicate | None, schema: StoredSchema) -> Hashes | None:
    """Hashes of all keys that can be kept; None when they are not few."""
    if predicate is None or not schema.keys:
        return None
    terms = predicate.terms if isinstance(predicate, And) else (predicate,)
    columns, combinations = [], 1
    for column in schema.key_columns:
        values = _values(terms, column.name)
        if values is None:
            return None
        kind = stored_type(column)
        places = [place(value, kind) for value in values if value is not None]
        columns.append([pa.scalar(at.value, kind) for at in places if at.exact])
        combinations *= len(columns[-1])
        if combinations > KEYS_MAX:
            return None
    keys = list(product(*columns))
    kinds = [stored_type(column) for column in schema.key_columns]
    return hashes([pa.array([key[at] for key in keys], kind) for at, kind in enumerate(kinds)])


def _values(terms: tuple[Predicate, ...], name: str) -> tuple[Scalar, ...] | None:
    for term in terms:
        match term:
            case Compare(column=column, op="eq", value=value) if column == name:
                return (value,)
            case In(column=column, values=values, negated=False) if column == name:
                return values
    return None
