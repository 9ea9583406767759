"""The relations that SQL can name: cubes, lookups and stored tables, with their columns as users see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

from rtolap.base.errors import Corrupted, QueryError, RtolapError, UnknownColumn, UnknownTable
from rtolap.column_types import TIMESTAMP, ColumnType
from rtolap.model.cube import Schema
from rtolap.model.table import Lookup
from rtolap.model.validation.lookup import stored_lookup_problems
from rtolap.protocols.stored_tables.messages import TableInfo

DATABASE = "rtolap"
INFORMATION_SCHEMA = "information_schema"

T = TypeVar("T")


def relation_key(db: str, name: str) -> str:
    """Return the table's name in the rules: no other name has two underscores in a row."""
    return f"{db}__{name}"


def columns_of(table: TableInfo) -> dict[str, ColumnType]:
    """Return the types of the columns, in order. Sketches are bytes."""
    return {column.name: column.definition.column_type for column in table.schema.columns}


def sketches_of(table: TableInfo) -> dict[str, str]:
    """Return column → `hll` or `bitmap`."""
    kinds = {column.name: column.definition.type.strip().lower() for column in table.schema.columns}
    return {name: kind for name, kind in kinds.items() if kind in ("hll", "bitmap")}


@dataclass(frozen=True)
class QueryCatalogue:
    """The definitions as of a look at them.

    Names are unique over cubes and lookups, which are in DATABASE. Stored tables are in databases of their
    own.

    Attributes:
        cubes: by the names that statements know. Of a cube with revisions, the newest by the first's name.
        revisions: name of a cube with revisions → these, oldest first, each under its own name.
        stored: the stored tables by `relation_key`.
        created: the databases that exist without tables.
        unreadable: why a cube or lookup that is there can be in no statement, by its name.
    """

    cubes: Mapping[str, Schema] = field(default_factory=dict)
    lookups: Mapping[str, Lookup] = field(default_factory=dict)
    stored: Mapping[str, TableInfo] = field(default_factory=dict)
    created: tuple[str, ...] = ()
    revisions: Mapping[str, tuple[Schema, ...]] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @cached_property  # each statement asks for it
    def own_cubes(self) -> frozenset[str]:
        """The names of the cubes that have segments and receivers of their own."""
        own = {schema.cube.name for series in self.revisions.values() for schema in series}
        return frozenset(self.cubes.keys() - self.revisions.keys() | own)

    @cached_property
    def _derived(self) -> dict[object, Any]:
        """Things made of the definitions, by their maker, for all statements."""
        return {}

    def derived(self, make: Callable[[QueryCatalogue], T]) -> T:
        """Return what a function makes of these definitions. It is made once, and nobody changes it."""
        return self._made(make, lambda: make(self))

    def _made(self, key: object, make: Callable[[], T]) -> T:
        if key not in self._derived:  # two threads may both make it: either is right
            self._derived[key] = make()
        return cast(T, self._derived[key])

    def databases(self) -> tuple[str, ...]:
        """Return the databases that contain tables, and the databases that were created and have none."""
        return tuple(sorted({DATABASE, *self.created, *(table.db for table in self.stored.values())}))

    def all_names(self) -> tuple[str, ...]:
        """Return the relations as the rules call them, stored tables by their keys."""
        return self.derived(_all_names)

    def in_database(self, database: str) -> dict[str, str]:
        """Return name → relation of one database."""
        if database == DATABASE:
            return {name: name for name in self.relation_names()}
        names = {table.name: key for key, table in self.stored.items() if table.db == database}
        return dict(sorted(names.items()))

    def spelled_stored(self, database: str, name: str) -> str | None:
        """Return the key of a stored table whose name is spelled as in `spelled`; None if there is none."""
        keys = [relation_key(database, name), relation_key(database.lower(), name.lower())]
        return next((key for key in keys if key in self.stored), None)

    def relation_names(self) -> tuple[str, ...]:
        return self.derived(_relation_names)

    def spelled(self, name: str) -> str | None:
        """Return the relation meant by `name`, whose case does not matter unless two differ only by it."""
        names = self.relation_names()
        if name in names:
            return name
        alike = [known for known in names if known.lower() == name.lower()]
        return alike[0] if len(alike) == 1 else None

    def columns(self, relation: str) -> Mapping[str, ColumnType]:
        """Return columns of a cube (dimensions, event time, measure sources) or of a lookup, in order."""
        return self._made(relation, lambda: self._columns_of(relation))

    def _columns_of(self, relation: str) -> dict[str, ColumnType]:
        if relation in self.cubes:
            return cube_columns(self.cubes[relation])
        if relation in self.stored:
            return columns_of(self.stored[relation])
        return {column.name: column.column_type for column in self.lookups[relation].columns}

    def stored_table(self, relation: str) -> TableInfo | None:
        """Return the stored table that the relation's rows are read from, if any: itself, or the one that a
        lookup names. Raises QueryError where that is not there, or does not fit the lookup any more."""
        lookup = self.lookups.get(relation)
        if lookup is None or lookup.stored_table is None:
            return self.stored.get(relation)
        database, _, name = lookup.stored_table.partition(".")
        table = self.stored.get(relation_key(database, name))
        if table is None:
            raise QueryError(
                f"lookup {relation} has no rows to read",
                expected=f"the stored table {lookup.stored_table}",
                found="no such table, or no front end that knows it",
            )
        problems = stored_lookup_problems(lookup, table.schema)
        if problems:
            raise QueryError(
                f"lookup {relation} does not fit its stored table: "
                + "; ".join(problem.text() for problem in problems),
                action="define the lookup again",
            )
        return table

    def listed_columns(self, relation: str) -> dict[str, ColumnType]:
        """Return the columns that clients see, and may SELECT in one statement.

        They are `columns` without an event time that serves conditions and functions only, and without counts
        of conditions that no measure declares. `*` leaves them out too, as MySQL does with invisible columns.
        """
        hidden = {self.event_time(relation)}
        if relation in self.cubes:
            schema = self.cubes[relation]
            hidden |= schema.filtered_columns.keys() - {each.source for each in schema.cube.measures}
        return {name: kind for name, kind in self.columns(relation).items() if name not in hidden}

    def event_time(self, relation: str) -> str | None:
        """Return the event time of a cube that does not keep it as a dimension; None of any other
        relation.
        """
        if relation not in self.cubes:
            return None
        schema = self.cubes[relation]
        name = schema.table.time.column
        return None if name in schema.cube.all_dimensions else name

    def comment(self, relation: str) -> str:
        """Return the kind of the relation, and the event time that its list of columns leaves out."""
        if relation in self.stored:
            return f"stored table, {self.stored[relation].definition.model} model"
        if relation not in self.cubes:
            stored_table = self.lookups[relation].stored_table
            return "lookup" if stored_table is None else f"lookup over the stored table {stored_table}"
        hidden = self.event_time(relation)
        return "cube" if hidden is None else f"cube; event time {hidden}: in conditions and date functions"


def _relation_names(catalogue: QueryCatalogue) -> tuple[str, ...]:
    return tuple(sorted({*catalogue.cubes, *catalogue.lookups}))


def _all_names(catalogue: QueryCatalogue) -> tuple[str, ...]:
    return (*catalogue.relation_names(), *sorted(catalogue.stored))


def spellings(catalogue: QueryCatalogue) -> dict[str, set[str]]:
    """Return how columns of any relation are spelled, by their names in lower case."""
    found: dict[str, set[str]] = {}
    for relation in catalogue.all_names():
        for name in catalogue.columns(relation):
            found.setdefault(name.lower(), set()).add(name)
    return found


def cube_columns(schema: Schema) -> dict[str, ColumnType]:
    columns = {name: schema.dimension_type(name) for name in schema.cube.all_dimensions}
    columns.setdefault(schema.table.time.column, TIMESTAMP)
    for name in schema.source_columns:
        columns.setdefault(name, schema.column(name).column_type)
    return columns


def unknown_table(name: str, catalogue: QueryCatalogue) -> RtolapError:
    """Return what is wrong with a name that no relation has. Corrupted: one that is there has it, whose
    definition cannot be read."""
    unreadable = {each.lower(): why for each, why in catalogue.unreadable.items()}
    if name.lower() in unreadable:
        return Corrupted(f"{name} cannot be read: {unreadable[name.lower()]}")
    known = (
        *catalogue.relation_names(),
        *sorted(table.qualified_name for table in catalogue.stored.values()),
    )
    return UnknownTable(
        f"unknown table {name!r}",
        expected=f"one of {', '.join(known)}" if known else "a table to be created first: there is none yet",
    )


def unknown_column(name: str, owner: str, columns: Mapping[str, object]) -> QueryError:
    return UnknownColumn(f"unknown column {name!r} in {owner}", expected=f"one of {', '.join(columns)}")


def not_a_dimension(name: str, schema: Schema) -> QueryError:
    """Return a column that the stream table has but that the cube keeps only inside measures."""
    declared = sorted(map(str, schema.cube.measures))
    return QueryError(
        f"cube {schema.cube.name} does not keep column {name!r} as a dimension",
        expected=f"one of its dimensions ({', '.join(schema.cube.all_dimensions)}) or an aggregate that it "
        f"declares ({', '.join(declared) or 'COUNT(*)'})",
        action=f"aggregate {name!r}, or add it to the cube's dimensions",
    )


def missing_measure(function: str, column: str, schema: Schema) -> QueryError:
    declared = sorted(map(str, schema.cube.measures))
    return QueryError(
        f"cube {schema.cube.name} cannot answer {function}({column}): the measure is not declared",
        expected=f"one of {', '.join(declared) or 'COUNT(*)'}",
        action=f"add {{function: {function.lower()}, column: {column}}} to the cube's measures",
    )
