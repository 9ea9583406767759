"""Columns that a stream table gets while cubes read it.

Cubes read the columns that they use, so a new one changes nothing for those that there are.
"""

from __future__ import annotations

from rtolap.base.errors import Refused
from rtolap.model.table import Table


def added_columns(before: Table, after: Table) -> tuple[str, ...]:
    """Return the columns that only the second definition has. Raises Refused where anything else differs."""
    known = {column.name: column for column in before.columns}
    added = tuple(column.name for column in after.columns if column.name not in known)
    rest = [column for column in after.columns if column.name in known]
    changed = [name for name in known if name not in {column.name for column in rest}]
    changed += [column.name for column in rest if column != known[column.name]]
    changed += [
        name
        for name in Table.__struct_fields__
        if name != "columns" and getattr(before, name) != getattr(after, name)
    ]
    if not changed and added:
        if before.unknown_columns == "reject":
            changed.append("unknown_columns: reject")
        elif before.record_format.type == "csv" and before.record_fields != after.record_fields:
            changed.append("the fields of a record")
    if changed:
        raise Refused(
            f"a table that cubes read cannot change {', '.join(changed)}",
            expected="columns that are added, of a table that ignores unknown ones, and nothing else",
            action="give a column of another type another name, and read it from the same path; "
            "`rtolap describe` shows the running table",
        )
    return added
