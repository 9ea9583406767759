"""Plans of statements and definitions of relations, as they cross between the service and its workers.

A plan names cubes and tables, and the service puts its own definitions in the place of the names: what
a worker says can only be about what there is.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import msgspec

from rtolap.base.errors import Corrupted
from rtolap.model.predicate import Predicate, columns_of
from rtolap.query.catalogue import QueryCatalogue, relation_key
from rtolap.query.information_schema import INFORMATION_TABLES
from rtolap.query.plan import (
    CubeRead,
    NodeWork,
    Rewritten,
    TableRead,
    TimeRange,
)
from rtolap.query.sql.rules.pushdown import relation_name


class ReadOfCube(msgspec.Struct, frozen=True):
    """See `plan.CubeRead`."""

    cube: str
    dimensions: tuple[str, ...]
    partials: tuple[str, ...]
    filter: Predicate | None
    time: TimeRange


class ReadOfTable(msgspec.Struct, frozen=True):
    """See `plan.TableRead`.

    Attributes:
        table: the `relation_key` of the table.
    """

    table: str
    relation: str
    columns: tuple[str, ...]
    filter: Predicate | None
    time: TimeRange
    work: NodeWork


class WorkerPlan(msgspec.Struct, frozen=True):
    """A rewritten statement, and the names of what it reads in the place of definitions.

    Attributes:
        rest: the statement without its reads.
    """

    rest: Rewritten
    reads: tuple[ReadOfCube, ...]
    tables: tuple[ReadOfTable, ...]


def plan_of(rewritten: Rewritten) -> WorkerPlan:
    return WorkerPlan(
        replace(rewritten, reads=(), tables=()),
        reads=tuple(
            ReadOfCube(read.cube, read.dimensions, read.partials, read.filter, read.time)
            for read in rewritten.reads
        ),
        tables=tuple(
            ReadOfTable(
                *(relation_key(read.table.db, read.table.name), read.relation, read.columns),
                *(read.filter, read.time, read.work),
            )
            for read in rewritten.tables
        ),
    )


def rewritten_of(plan: WorkerPlan, catalogue: QueryCatalogue, parameters: tuple[str, ...]) -> Rewritten:
    """Return the rewritten statement of a plan. Raises Corrupted for a plan about anything but the catalogue
    and the parameters."""
    rest = plan.rest
    _check(set(rest.lookups) <= catalogue.lookups.keys(), "a lookup")
    _check(set(rest.information) <= INFORMATION_TABLES, "a table of information_schema")
    _check(set(rest.parameters) <= set(parameters), "a parameter")
    _check(rest.merge is None or len(plan.reads) == 1, "a merge of several cubes")
    _check(rest.latest is None or len(plan.reads) == 1, "the latest rows of several cubes")
    for check in rest.cuts:
        _check(set(check.parameters) <= set(rest.parameters), "a parameter")
    read = {each.cube for each in plan.reads}
    for each in rest.sets:
        _check(read.issuperset((each.cube, *each.needs)), "a cube of a set of values")
        _check(each.column in catalogue.cubes[each.cube].cube.all_dimensions, "a dimension")
        _check(set(each.parameters) <= set(parameters), "a parameter")
    return replace(
        rest,
        reads=tuple(_cube_read(read, catalogue) for read in plan.reads),
        tables=tuple(_table_read(read, catalogue) for read in plan.tables),
    )


def _cube_read(read: ReadOfCube, catalogue: QueryCatalogue) -> CubeRead:
    _check(read.cube in catalogue.cubes, "a cube")
    schema = catalogue.cubes[read.cube]
    dimensions = set(schema.cube.all_dimensions)
    _check(dimensions.issuperset((*read.dimensions, *columns_of(read.filter))), "a dimension")
    _check({partial.name for partial in schema.partials}.issuperset(read.partials), "a partial")
    relation = relation_name(read.cube)
    revisions = catalogue.revisions.get(read.cube, ())
    return CubeRead(
        schema, relation, read.dimensions, read.partials, read.filter, read.time, revisions=revisions
    )


def _table_read(read: ReadOfTable, catalogue: QueryCatalogue) -> TableRead:
    _check(read.table in catalogue.stored, "a stored table")
    table = catalogue.stored[read.table]
    partials, top = read.work.partials, read.work.top
    named = {*read.columns, *columns_of(read.filter), *(key.column for key in (top.keys if top else ()))}
    _check(set(table.schema.names).issuperset(named), "a column")
    _check(partials is None or partials.sources.issubset(read.columns), "a column of partial aggregates")
    _check(top is None or {key.column for key in top.keys}.issubset(read.columns), "a column of an order")
    _check(read.relation.startswith(relation_name("")), "a relation")
    return TableRead(table, read.relation, read.columns, read.filter, read.time, read.work)


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise Corrupted(f"a worker's plan is about {what} that is not there")


class CatalogueTexts:
    """The definitions as bytes for workers, made once for one catalogue. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: tuple[QueryCatalogue, int, bytes] | None = None

    def of(self, catalogue: QueryCatalogue) -> tuple[int, bytes]:
        """Return the catalogue's number, by which a worker knows it, and its bytes."""
        with self._lock:
            last = self._last
            if last is None or last[0] is not catalogue:
                number = 1 if last is None else last[1] + 1
                self._last = last = (catalogue, number, msgspec.msgpack.encode(catalogue))
            return last[1], last[2]


_catalogues = msgspec.msgpack.Decoder(QueryCatalogue)


def catalogue_of(data: bytes | memoryview) -> QueryCatalogue:
    return _catalogues.decode(data)
