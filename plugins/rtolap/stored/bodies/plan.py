"""The source of each column of the table, by the headers of a load and the table's definition. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rtolap.base.errors import DefinitionError
from rtolap.model.stored.schema import SchemaColumn, StoredSchema
from rtolap.stored.bodies.clauses import ColumnsClause, Expression, parse_columns, parse_expression
from rtolap.stored.bodies.options import LoadOptions
from rtolap.stored.engine.rows.columns import check_partial, needed_for_new

HIDDEN_DELETE = "__DORIS_DELETE_SIGN__"
HIDDEN_SEQUENCE = "__DORIS_SEQUENCE_COL__"


class Direct(msgspec.Struct, frozen=True):
    """A column of the body, as it is."""

    column: SchemaColumn
    source: str


class ComputedColumn(msgspec.Struct, frozen=True):
    """An expression over columns of the body."""

    column: SchemaColumn
    expression: Expression


class MissingColumn(msgspec.Struct, frozen=True):
    """The column's default, or null."""

    column: SchemaColumn


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The way in which a load turns a body into rows.

    Attributes:
        sources: columns of the body, in order.
        targets: columns of the table, in its order.
        deletes: the rows that are deletes: none, every row, or the rows that an expression or a hidden column
            of the body names.
        undeletable: the hidden column of the body that would name deletes of a table that has none.
        needed: columns that partial rows lack; a row without them can only delete.
    """

    sources: tuple[str, ...]
    targets: tuple[Direct | ComputedColumn | MissingColumn, ...]
    where: Expression | None
    deletes: bool | Expression | str
    undeletable: str | None = None
    needed: tuple[str, ...] = ()

    @property
    def used(self) -> tuple[str, ...]:
        """Return those of `sources` that anything is made of."""
        wanted = {name for name in (self.deletes, self.undeletable) if isinstance(name, str)}
        for condition in (self.where, self.deletes):
            wanted |= condition.names if isinstance(condition, Expression) else set()
        for target in self.targets:
            if isinstance(target, Direct):
                wanted.add(target.source)
            elif isinstance(target, ComputedColumn):
                wanted |= target.expression.names
        return tuple(name for name in self.sources if name in wanted)


def load_plan(
    options: LoadOptions, schema: StoredSchema, body_names: Iterable[str] | None = None
) -> LoadPlan:
    """Return the plan of a load. `body_names`: what the body calls its columns, where it does and headers do
    not.

    Raises DefinitionError when headers and table do not go together.
    """
    written = ColumnsClause((), {}) if options.columns is None else parse_columns(options.columns)
    sources = written.sources
    if not sources:
        sources = tuple(body_names) if body_names is not None else schema.names
        if not options.columns:
            sources += tuple(name for name in options.hidden_columns if name not in sources)
    hidden = _hidden(options, sources)
    unknown = sorted(set(written.computed) - set(schema.names))
    if unknown:
        raise DefinitionError(
            "header columns computes what the table has not",
            expected=f"columns of the table: {', '.join(schema.names)}",
            found=", ".join(unknown),
        )
    folded = {name.lower(): name for name in sources}
    folded |= {name: name for name in sources}
    sequence = _sequence_source(options, schema, sources, hidden)
    targets: list[Direct | ComputedColumn | MissingColumn] = []
    for column in schema.columns:
        if (expression := written.computed.get(column.name)) is not None:
            targets.append(ComputedColumn(column, expression))
        elif column.id == schema.sequence and sequence is not None:
            targets.append(Direct(column, sequence))
        elif (source := folded.get(column.name) or folded.get(column.name.lower())) is not None:
            targets.append(Direct(column, source))
        elif not options.partial_columns:
            targets.append(_missing(column))
    deletes = _deletes(options, schema, hidden)
    needed = _check_partial(options, schema, targets, deletes)
    _check_sketches(targets)
    _check_negative(options, schema)
    return LoadPlan(
        sources=sources,
        targets=tuple(targets),
        where=None if options.where is None else parse_expression("where", options.where),
        deletes=deletes,
        undeletable=HIDDEN_DELETE if HIDDEN_DELETE in hidden and not schema.allows_deletes else None,
        needed=needed,
    )


def _missing(column: SchemaColumn) -> MissingColumn:
    if column.default is None and not column.definition.nullable:
        raise DefinitionError(
            f"column {column.name} has no default value and may not be null",
            expected="it in the body, or in the header columns",
        )
    return MissingColumn(column)


def _sequence_source(
    options: LoadOptions, schema: StoredSchema, sources: tuple[str, ...], hidden: frozenset[str]
) -> str | None:
    requested = options.sequence_column
    if requested is None and HIDDEN_SEQUENCE in hidden and schema.sequence is not None:
        requested = HIDDEN_SEQUENCE
    if requested is None:
        return None
    if schema.sequence is None:
        raise DefinitionError(
            "header function_column.sequence_col", expected="a table with a sequence column"
        )
    if requested in sources:
        return requested
    if requested == schema.by_id(schema.sequence).name:
        return None  # computed, or a default
    raise DefinitionError(
        "header function_column.sequence_col", expected=f"one of {', '.join(sources)}", found=requested
    )


def _hidden(options: LoadOptions, sources: tuple[str, ...]) -> frozenset[str]:
    """Return the hidden columns that the body has.

    As in Doris, the header is for bodies whose columns no header names: beside `columns` only those count
    that stand there too. Flink's connector sends it always.
    """
    known = (HIDDEN_DELETE, HIDDEN_SEQUENCE)
    for name in options.hidden_columns:
        if name not in known:
            raise DefinitionError("header hidden_columns", expected=f"of {', '.join(known)}", found=name)
    return frozenset(options.hidden_columns) & frozenset(sources)


def _check_partial(
    options: LoadOptions,
    schema: StoredSchema,
    targets: list[Direct | ComputedColumn | MissingColumn],
    deletes: bool | Expression | str,
) -> tuple[str, ...]:
    """Return the columns that only deleting rows can do without, if any is missing."""
    if not options.partial_columns:
        return ()
    if schema.model != "unique":
        raise DefinitionError("header partial_columns", expected="a unique table", found=schema.model)
    given = [target.column.name for target in targets]
    check_partial(schema, given, only_deletes=deletes is not False)
    return () if deletes is True else needed_for_new(schema, given)


_MAKERS: dict[str, tuple[str, ...]] = {
    "hll": ("hll_hash", "hll_empty"),
    "bitmap": ("to_bitmap", "bitmap_hash", "bitmap_empty"),
}


def _check_sketches(targets: list[Direct | ComputedColumn | MissingColumn]) -> None:
    for target in targets:
        if isinstance(target, ComputedColumn):
            makers = _MAKERS.get(target.column.definition.type.strip().lower(), ())
            sketch = target.expression.sketch
            if sketch not in (makers or (None,)):
                raise DefinitionError(
                    f"header columns: {target.column.name} is {target.column.definition.type}",
                    expected=" or ".join(makers) or "no sketch",
                    found=repr(target.expression.written),
                )


def _check_negative(options: LoadOptions, schema: StoredSchema) -> None:
    if not options.negative:
        return
    others = [
        column.name
        for column in schema.columns
        if column.id not in schema.keys and column.definition.aggregate != "SUM"
    ]
    if schema.model != "aggregate" or others:
        raise DefinitionError(
            "header negative",
            expected="an aggregate table of SUM columns",
            found=", ".join(others) or schema.model,
        )


def _deletes(options: LoadOptions, schema: StoredSchema, hidden: frozenset[str]) -> bool | Expression | str:
    signed = HIDDEN_DELETE in hidden
    if options.merge_type == "APPEND":
        return HIDDEN_DELETE if signed and schema.allows_deletes else False
    if not schema.allows_deletes:
        raise DefinitionError(
            "header merge_type",
            expected="a unique table that allows deletes",
            found=f"model {schema.model}",
        )
    if signed:
        raise DefinitionError(
            "header hidden_columns", expected="no merge_type beside it", found=options.merge_type
        )
    return True if options.delete is None else parse_expression("delete", options.delete)
