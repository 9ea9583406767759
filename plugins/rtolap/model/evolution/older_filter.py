"""A filter over the columns of a newest revision, as one over those of an older one.

Of a column that the older one has not, every value is NULL. What follows from that is decided here, by SQL's
three-valued logic, so that nobody is asked for a column that is not there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from rtolap.model.predicate import And, Compare, In, IsNull, Like, Not, Or, Predicate, terms_of

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1


class Known(NamedTuple):
    """The truth of a filter for every row. None: NULL."""

    value: bool | None


class OlderFilter:
    """Attributes:
    names: column → the older revision's name of it; columns that it has not are left out.
    grown: those of them that were `int`, and are `bigint` now.
    any_column: some dimension of the older revision; None: it has none.
    """

    def __init__(self, names: Mapping[str, str], grown: Collection[str], any_column: str | None) -> None:
        self.names = names
        self.grown = grown
        self.any_column = any_column

    def rows_of(self, predicate: Predicate) -> Predicate | Known:
        """Return a filter that is TRUE for the same rows, which is known to be so of none where one of the
        terms that all have to hold is."""
        terms = terms_of(predicate) if isinstance(predicate, And) else (predicate,)
        never = (
            known for term in terms if isinstance(known := self.of(term), Known) and known.value is not True
        )
        return next(never, None) or self.of(predicate)

    def of(self, predicate: Predicate) -> Predicate | Known:
        """Return the filter, which is TRUE, false and NULL for the same rows."""
        match predicate:
            case And():
                return self._joined(predicate, And, decides=False)
            case Or():
                return self._joined(predicate, Or, decides=True)
            case Not(term=term):
                inner = self.of(term)
                if isinstance(inner, Known):
                    return Known(None if inner.value is None else not inner.value)
                return Not(inner)
            case IsNull(column=column, negated=negated):
                if column not in self.names:
                    return Known(not negated)
                return IsNull(self.names[column], negated)
            case Compare(column=column, op=op, value=value):
                if column not in self.names:
                    return Known(None)
                if column in self.grown and isinstance(value, int) and not INT_MIN <= value <= INT_MAX:
                    holds = op == "ne" or op in (("lt", "le") if value > INT_MAX else ("gt", "ge"))
                    return self._unless_null(self.names[column], holds=holds)
                return Compare(self.names[column], op, value)
            case Like(column=column, pattern=pattern, negated=negated):
                return Known(None) if column not in self.names else Like(self.names[column], pattern, negated)
            case In(column=column, values=values, negated=negated):
                if not values:
                    return Known(negated)
                if column not in self.names:
                    return Known(None)
                if column in self.grown:
                    values = tuple(each for each in values if INT_MIN <= _number(each) <= INT_MAX)
                    if not values:
                        return self._unless_null(self.names[column], holds=negated)
                return In(self.names[column], values, negated)

    def _joined(self, predicate: And | Or, kind: type[And | Or], *, decides: bool) -> Predicate | Known:
        """Return AND or OR of the terms. `decides`: the truth value by which one term decides all."""
        terms: list[Predicate] = []
        has_null = False
        for term in terms_of(predicate):
            one = self.of(term)
            if not isinstance(one, Known):
                terms.append(one)
            elif one.value is decides:
                return one
            else:
                has_null |= one.value is None
        if not terms:
            return Known(None if has_null else not decides)
        if has_null:
            terms.append(self._null())
        return terms[0] if len(terms) == 1 else kind(tuple(terms))

    def _null(self) -> Predicate:
        assert self.any_column is not None, "a filter that is left has a column"
        return Compare(self.any_column, "eq", None)

    def _unless_null(self, column: str, *, holds: bool) -> Predicate:
        """Return `holds` where the column has a value, and NULL elsewhere."""
        false = And((IsNull(column), Compare(column, "eq", None)))
        return Not(false) if holds else false


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
