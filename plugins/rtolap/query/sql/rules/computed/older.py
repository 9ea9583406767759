"""Computed columns that an older revision of a cube has not, although it has what they are computed of.

`WHERE carrier = 'AA'` may read `is_aa` where the cube has that. Of an older revision without the column it
would be NULL, and its rows would be left out, while a plain condition on `carrier` is answered of all rows.
So such a condition stays as it is written, and a condition that names the column is written out.
"""

from __future__ import annotations

from sqlglot import exp

from rtolap.aggregates.function import Aggregate
from rtolap.model.cube import Schema
from rtolap.model.evolution.older_columns import older_columns
from rtolap.query.sql.rules.computed.plain import parsed


class OlderRevisions:
    """What the older revisions of one cube have of its computed columns.

    Attributes:
        written_out: the computed dimensions that some older revision has not and can compute.
    """

    def __init__(self, revisions: tuple[Schema, ...]) -> None:
        self._newest = revisions[-1] if revisions else None
        self._names = [older_columns(revisions, place) for place in range(len(revisions) - 1)]
        self.written_out = frozenset(
            name
            for name in (self._newest.cube.dimensions if self._newest is not None else ())
            if self._is_written_out(name)
        )

    def _is_written_out(self, name: str) -> bool:
        assert self._newest is not None, "there are older revisions"
        expression = self._newest.column(name).expression
        if expression is None:
            return False
        return self._can_do_without({name}, {each.name for each in parsed(expression).find_all(exp.Column)})

    def answer_without(self, name: str, function: Aggregate) -> bool:
        """Return True if a filtered column is not needed for an aggregate, and an older revision lacks it.

        The condition is over dimensions then, and the cube keeps the aggregate of all events, too.
        """
        if self._newest is None:
            return False
        expression = self._newest.filtered_columns[name].expression
        case = None if expression is None else parsed(expression)
        if not isinstance(case, exp.Case) or len(case.args["ifs"]) != 1:
            return False
        (branch,) = case.args["ifs"]
        value = branch.args["true"]
        columns = {each.name for each in branch.this.find_all(exp.Column)}
        kept: set[str] = set()
        if isinstance(value, exp.Column) and value.name in self._newest.cube.all_dimensions:
            columns.add(value.name)
        elif isinstance(value, exp.Column):
            kept = {each.column_name(value.name) for each in function.accumulators()}
        elif not isinstance(value, exp.Literal):
            return False
        if not kept <= {partial.name for partial in self._newest.partials}:
            return False
        lacked = {each.column_name(name) for each in function.accumulators()}
        return self._can_do_without(lacked, columns, kept)

    def _can_do_without(
        self,
        lacked: set[str],
        dimensions: set[str],
        partials: set[str] = frozenset(),  # type: ignore[assignment]
    ) -> bool:
        """Return True if some older revision has all of the second and third, and not all of the first."""
        assert self._newest is not None, "there are older revisions"
        if not dimensions <= set(self._newest.cube.all_dimensions):
            return False
        return any(
            not lacked <= names.keys() and dimensions | partials <= names.keys() for names in self._names
        )
