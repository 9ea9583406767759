"""Checks of the source of a lookup's rows: there is exactly one, and a stored table behind it fits. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rtolap.base.errors import DefinitionError
from rtolap.column_types import parse_type
from rtolap.model.problems import Problem, unknown_name
from rtolap.model.stored.schema import StoredSchema
from rtolap.model.stored.table import SKETCH_TYPES
from rtolap.model.table import Lookup

_QUALIFIED = re.compile(r"[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*")


def source_problems(lookup: Lookup) -> Iterator[Problem]:
    """Check a lookup by itself: exactly one source, and keys that are among its columns."""
    if (lookup.file is None) == (lookup.stored_table is None):
        yield Problem(
            ("file",) if lookup.file is not None else (),
            "a lookup has one source of rows",
            expected="either file or stored_table",
            found="neither" if lookup.file is None else "both",
        )
        return
    if lookup.file is not None:
        if not lookup.file.endswith((".csv", ".parquet")):
            expected = "*.csv or *.parquet"
            yield Problem(("file",), "unknown kind of file", expected=expected, found=repr(lookup.file))
        if (below := relative_file_expectation(lookup.file)) is not None:
            yield Problem(("file",), "not a file of a lookup", expected=below, found=repr(lookup.file))
        if lookup.keys:
            yield Problem(("keys",), "only a lookup over a stored table has keys", found=str(lookup.keys))
        return
    if not _QUALIFIED.fullmatch(lookup.stored_table or ""):
        found = repr(lookup.stored_table)
        yield Problem(("stored_table",), "not a stored table", expected="database.table", found=found)
    yield from _key_problems(lookup)


def relative_file_expectation(file: str) -> str | None:
    """Return what the name of a lookup's file should be, None where it is so.

    It is relative to a declared folder and stays below it. Dot files, which hold secrets of programs, and
    characters that stand for something else in paths are in no such name.
    """
    parts = file.split("/")
    if file.startswith("/") or "\\" in file or any(ord(character) < 32 for character in file):
        return "a path relative to the include folder"
    if any(part == "" or part.startswith((".", "~")) for part in parts):
        return "a path below the include folder, without '..' and dot files"
    return None


def stored_lookup_problems(lookup: Lookup, schema: StoredSchema) -> tuple[Problem, ...]:
    """Check a sound lookup against the columns that its stored table has now."""
    found: list[Problem] = []
    for position, column in enumerate(lookup.columns):
        if column.name not in schema.names:
            key, message = ("columns", position, "name"), f"no such column in {lookup.stored_table}"
            found.append(unknown_name(key, message, column.name, schema.names))
            continue
        definition = schema.named(column.name).definition
        stored_type = definition.type.strip().lower()
        if stored_type in SKETCH_TYPES or definition.column_type != _type(column.type):
            expected = "no sketch" if stored_type in SKETCH_TYPES else str(definition.column_type)
            what = f"another type than in {lookup.stored_table}"
            found.append(Problem(("columns", position, "type"), what, expected=expected, found=column.type))
    return (*found, *_uniqueness_problems(lookup, schema))


def _key_problems(lookup: Lookup) -> Iterator[Problem]:
    names = [column.name for column in lookup.columns]
    if not lookup.keys:
        expected = "keys: the columns that identify its rows"
        yield Problem((), "a lookup over a stored table has no keys", expected=expected, found="none")
    for position, key in enumerate(lookup.keys):
        if key not in names:
            yield unknown_name(("keys", position), "no such column", key, names)
        elif key in lookup.keys[:position]:
            yield Problem(("keys", position), "key is named twice", found=repr(key))


def _uniqueness_problems(lookup: Lookup, schema: StoredSchema) -> Iterator[Problem]:
    if schema.model == "duplicate":
        yield Problem(
            ("stored_table",),
            f"rows of {lookup.stored_table} are not unique",
            expected="a table of the unique or aggregate model",
            found="duplicate",
        )
    elif not set(schema.key_names) <= set(lookup.keys):
        yield Problem(
            ("keys",),
            f"they do not identify rows of {lookup.stored_table}",
            expected=f"all of {', '.join(schema.key_names)}",
            found=", ".join(lookup.keys),
        )


def _type(written: str) -> object:
    """Return None for what is no type: that is reported where the lookup is checked by itself."""
    try:
        return parse_type(written)
    except DefinitionError:
        return None
