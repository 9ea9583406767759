"""The obvious slow tablet: Python dictionaries, a row at a time, everything in memory."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from decimal import Context, Decimal
from typing import Any

from rtolap.model.predicate import And, Compare, In, IsNull, Not, Or, Predicate
from rtolap.model.stored.schema import SchemaColumn, StoredSchema

Row = Mapping[int, Any]  # by column id; sketches as frozensets
Key = tuple[Any, ...]
_EXACT = Context(prec=76)  # Python's own rounds to 28 digits
_COMPARE = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
DELETE = -1  # the delete sign's place in a row
PARTIAL = -2  # true in rows that name only some columns


class SlowTablet:
    """Versions, one after the other; `rows_at` gives back any of them."""

    def __init__(self, schema: StoredSchema) -> None:
        self.schema = schema
        self._columns = {column.id: column for column in schema.columns}
        self._defaults = {column.id: column.default for column in schema.columns}
        self._versions: list[dict[Key, Row] | list[Row]] = [[] if schema.model == "duplicate" else {}]

    @property
    def version(self) -> int:
        return len(self._versions) - 1

    def change_schema(self, schema: StoredSchema) -> None:
        self.schema = schema
        self._columns.update({column.id: column for column in schema.columns})
        self._defaults.update({column.id: column.default for column in schema.columns})

    def publish(self, rows: Iterable[Row]) -> None:
        now = self._versions[-1]
        if isinstance(now, list):
            self._versions.append([*now, *rows])
            return
        after = dict(now)
        for row in rows:
            key = tuple(row[column_id] for column_id in self.schema.keys)
            known = after.get(key)
            if row.get(PARTIAL, False):
                if known is None or self._may_change(known, row):
                    after[key] = self._completed(known, row)
            elif known is None:
                after[key] = row
            elif self.schema.model == "aggregate":
                after[key] = self._aggregate(known, row)
            elif self._replaces(known, row):
                after[key] = row
        self._versions.append(after)

    def rows_at(self, version: int, schema: StoredSchema) -> list[dict[str, Any]]:
        """Return the rows by name, in no order."""
        stored = self._versions[version]
        rows = stored if isinstance(stored, list) else list(stored.values())
        return [
            {column.name: self._value(row, column.id) for column in schema.columns}
            for row in rows
            if not row.get(DELETE, False)
        ]

    def _value(self, row: Row, column_id: int) -> Any:
        return row.get(column_id, self._defaults[column_id])

    def _replaces(self, known: Row, row: Row) -> bool:
        if self.schema.sequence is None:
            return True
        old, new = known[self.schema.sequence], row[self.schema.sequence]
        return old is None or (new is not None and new >= old)

    def _may_change(self, known: Row, row: Row) -> bool:
        return self.schema.sequence not in row or self._replaces(known, row)

    def _completed(self, known: Row | None, row: Row) -> Row:
        """Complete a partial row: it takes over what it does not name, but for the sequence nothing of a
        deleted row."""
        whole = {column_id: value for column_id, value in row.items() if column_id != PARTIAL}
        sequence = self.schema.sequence
        if sequence is not None and sequence not in whole:
            whole[sequence] = self._defaults[sequence] if known is None else known[sequence]
        if known is None or known.get(DELETE, False) or row.get(DELETE, False):
            return whole
        return {**known, **whole}

    def _aggregate(self, known: Row, row: Row) -> Row:
        merged = dict(known)
        for column_id, column in self._columns.items():
            if column_id in known or column_id in row:
                merged[column_id] = _merge(column, self._value(known, column_id), self._value(row, column_id))
        return merged


def _merge(column: SchemaColumn, old: Any, new: Any) -> Any:
    function = column.definition.aggregate
    if function is None:
        return old
    if function == "REPLACE":
        return new
    if new is None or old is None:
        return old if new is None else new
    match function:
        case "SUM":
            return _EXACT.add(old, new) if isinstance(old, Decimal) else old + new
        case "MIN":
            return min(old, new, key=_order)
        case "MAX":
            return max(old, new, key=_order)
        case "REPLACE_IF_NOT_NULL":
            return new
        case "HLL_UNION" | "BITMAP_UNION":
            return old | new


def keeps(predicate: Predicate, row: Mapping[str, Any]) -> bool | None:
    """Return SQL's three values: None is NULL. Values of the predicate are Python values already."""
    match predicate:
        case And(terms=terms):
            found = [keeps(term, row) for term in terms]
            return False if False in found else None if None in found else True
        case Or(terms=terms):
            found = [keeps(term, row) for term in terms]
            return True if True in found else None if None in found else False
        case Not(term=term):
            inner = keeps(term, row)
            return None if inner is None else not inner
        case IsNull(column=name, negated=negated):
            return (row[name] is None) != negated
        case In(column=name, values=values, negated=negated):
            return None if row[name] is None else (row[name] in values) != negated
        case Compare(column=name, op=op, value=value):
            if row[name] is None or value is None:
                return None
            a, b = _order(row[name]), _order(value)
            return bool(_COMPARE[op](a, b))
        case _:
            raise TypeError(predicate)


def _order(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value
