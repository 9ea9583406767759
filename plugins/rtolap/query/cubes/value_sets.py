"""Reads of cubes with the values of other relations in their filters.

The values of a set are few, or the set is not used: what is not pushed is judged by the engine, as is what
was pushed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from rtolap.base.errors import QueryError
from rtolap.column_types import ColumnType
from rtolap.model.predicate import And, In, IsNull, Predicate, Scalar
from rtolap.query.plan import CubeRead, ValueSet
from rtolap.query.spills.tables import SpilledTable
from rtolap.query.sql.filters import in_terms_of
from rtolap.query.sql.pruning import time_range

VALUES_MAX = 10_000  # of a set
CHARACTERS_MAX = 1 << 18  # of the values of a set, as texts

Ask = Callable[[str, Mapping[str, object]], pa.Table]
Register = Callable[[str, "pa.Table | SpilledTable"], None]


@dataclass(eq=False)
class ValueSets:
    """The sets of one statement.

    Attributes:
        values: parameter → value.
        ask: answers SQL.
        check: raises the error that ended the statement.
        registered: relations of cubes that the engine has already.
    """

    sets: Sequence[ValueSet]
    values: Mapping[str, object]
    ask: Ask
    register: Register
    check: Callable[[], None]
    registered: set[str] = field(default_factory=set, init=False)
    _notes: dict[str, list[str]] = field(default_factory=dict, init=False)

    def narrowed(self, read: CubeRead) -> CubeRead:
        """Return the read with the sets of its cube in its filter."""
        terms = [self._term(read, each) for each in self.sets if each.cube == read.cube]
        known = [term for term in terms if term is not None]
        if not known:
            return read
        if read.filter is not None:
            known.insert(0, read.filter)
        combined = known[0] if len(known) == 1 else And(tuple(known))
        return replace(read, filter=combined, time=time_range(combined, read.schema))

    def have(self, read: CubeRead, table: pa.Table | SpilledTable) -> None:
        """Let later sets look into what was read."""
        if any(read.cube in each.needs for each in self.sets):
            self.register(read.relation, table)
            self.registered.add(read.relation)

    def of(self, cube: str) -> tuple[str, ...]:
        """Return what became of the sets of a cube, in words."""
        return tuple(self._notes.get(cube, ()))

    def _term(self, read: CubeRead, asked: ValueSet) -> Predicate | None:
        term, note = self._found(read, asked)
        words = f"{asked.column} {'NOT IN' if asked.negated else 'IN'}"
        self._notes.setdefault(read.cube, []).append(f"{words} {note}")
        return term

    def _found(self, read: CubeRead, asked: ValueSet) -> tuple[Predicate | None, str]:
        used = {name: self.values[name] for name in asked.parameters}
        try:
            rows = self.ask(f"SELECT * FROM ({asked.sql}) AS asked LIMIT {VALUES_MAX + 2}", used)
        except QueryError as error:  # perhaps in a row that the statement itself never looks at
            self.check()
            return None, f"values that cannot be had beforehand ({error.code}): not pushed"
        found = rows.column(0).to_pylist()
        distinct = [value for value in found if value is not None]
        if len(distinct) > VALUES_MAX:
            return None, f"more than {VALUES_MAX} values: not pushed"
        if asked.negated and (not distinct or len(distinct) < len(found)):
            return None, "no values: not pushed" if not found else "values with NULL: not pushed"
        kind = read.schema.dimension_type(asked.column)
        if not _is_comparable(kind, rows.schema.field(0).type):
            return None, f"values of another type than {kind.kind}: not pushed"
        scalars = tuple(in_terms_of(kind, value) for value in distinct)
        terms: tuple[Scalar, ...] = tuple(value for value in scalars if value is not None)
        if sum(len(value) for value in terms if isinstance(value, str)) > CHARACTERS_MAX:
            return None, f"values of more than {CHARACTERS_MAX} characters: not pushed"
        if not terms:
            if asked.negated:
                return None, "no values of this column: not pushed"
            nothing = And((IsNull(asked.column), IsNull(asked.column, negated=True)))
            return nothing, "no values: pushed"
        return In(asked.column, terms, negated=asked.negated), f"{len(terms)} values: pushed"


def _is_comparable(kind: ColumnType, given: pa.DataType) -> bool:
    """Tell whether a value that the column's type cannot hold equals none of the column."""
    match kind.kind:
        case "string":
            return bool(pa.types.is_string(given) or pa.types.is_large_string(given))
        case "boolean":
            return bool(pa.types.is_boolean(given))
        case "int" | "bigint" | "decimal":
            return bool(pa.types.is_integer(given) or pa.types.is_decimal(given))
        case "date":
            return bool(pa.types.is_date(given))
        case "timestamp":
            return bool(pa.types.is_timestamp(given) and given.tz is None)
    return False
