"""The columns of an older revision that the columns of the newest go on with.

A dimension is the same where it has the same name, or where it was renamed, and its type at most grew. A
partial is the same where its accumulator is: a sum goes on with the sum of the column that was renamed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from rtolap.aggregates.accumulator import Partial
from rtolap.aggregates.registry import AGGREGATES
from rtolap.column_types import BIGINT, INT, ColumnType, decimal
from rtolap.model.cube import Schema

_WIDER = {(INT, BIGINT), (BIGINT, decimal(38, 0))}  # the second of sums


def older_columns(revisions: Sequence[Schema], place: int) -> dict[str, str]:
    """Return physical column of the newest revision → the column of the one at `place` that it goes on with.

    Columns that it has not, or that one between does not have, are left out.
    """
    newest = revisions[-1]
    names = {name: name for name in newest.cube.all_dimensions}
    names |= {partial.name: partial.name for partial in newest.partials}
    for number in range(len(revisions) - 1, place, -1):
        later, earlier = revisions[number], revisions[number - 1]
        names = {
            asked: before
            for asked, name in names.items()
            if (before := _before(later, earlier, name)) is not None
        }
    return names


def other_form(revisions: Sequence[Schema], place: int, missing: Collection[str]) -> str | None:
    """Return a partial among the `missing` that the revision at `place` has in another form, if any.

    Its values say something of these events, and cannot be brought into the newest form: a set of other
    numbers, a sketch of another size.
    """
    known = {partial.name for partial in revisions[place].partials}
    for partial in revisions[-1].partials:
        if partial.name in missing and partial.source is not None:
            source = partial.source
            for number in range(len(revisions) - 1, place, -1):
                source = _renamed(revisions[number]).get(source, source)
            if partial.accumulator.column_name(source) in known:
                return partial.name
    return None


def half_known(schema: Schema, partials: Collection[str], known: Collection[str]) -> str | None:
    """Return a source whose values a function may combine out of `partials` of which only some are known.

    So AVG divides a sum by a count: where a revision has only one of the two, it would be wrong.
    """
    by_source: dict[str | None, set[str]] = defaultdict(set)
    for partial in schema.partials:
        if partial.name in partials:
            by_source[partial.source].add(partial.accumulator.name)
    for source, asked in by_source.items():
        for function in AGGREGATES.values():
            together = asked.intersection(each.name for each in function.accumulators())
            have = {name for name in together if f"{source or ''}__{name}" in known}
            if have and have != together:
                return source
    for measure in schema.cube.measures:
        needed = {partial.name for partial in schema.partials_of(measure)}.intersection(partials)
        if needed - set(known) and needed.intersection(known) and measure.where is not None:
            return measure.source
    return None


def _before(later: Schema, earlier: Schema, name: str) -> str | None:
    renamed = _renamed(later)
    if name in later.cube.all_dimensions:
        before = renamed.get(name, name)
        if before not in earlier.cube.all_dimensions:
            return None
        return before if _goes_on(earlier.dimension_type(before), later.dimension_type(name)) else None
    partial = next(each for each in later.partials if each.name == name)
    source = None if partial.source is None else renamed.get(partial.source, partial.source)
    wanted = partial.accumulator.column_name(source)
    other = next((each for each in earlier.partials if each.name == wanted), None)
    return wanted if other is not None and _same(earlier, other, later, partial) else None


def _same(earlier: Schema, before: Partial, later: Schema, after: Partial) -> bool:
    if before.accumulator != after.accumulator or not _goes_on(before.type, after.type):
        return False
    if before.source is None or after.source is None:
        return before.source is after.source
    same_values = earlier.column(before.source).column_type == later.column(after.source).column_type
    return same_values or after.type.kind != "binary"  # a sketch or set depends on the values' type


def _goes_on(before: ColumnType, after: ColumnType) -> bool:
    return before == after or (before, after) in _WIDER


def _renamed(schema: Schema) -> Mapping[str, str]:
    return {} if schema.cube.revision is None else schema.cube.revision.renamed
