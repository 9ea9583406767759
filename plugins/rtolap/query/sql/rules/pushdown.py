"""The split of a statement into what each cube has to give and the WHERE that is left.

A cube has to give dimensions, partials, a filter and a range of time. A condition over one cube's dimensions
alone goes to receivers and history. It leaves the engine's SQL unless the cube is named more than once in the
statement: then the one fetch serves all and each keeps its own WHERE.
"""

from __future__ import annotations

from sqlglot import exp

from rtolap.model.cube import ROWS, Schema
from rtolap.model.predicate import And, Predicate
from rtolap.query.catalogue import not_a_dimension
from rtolap.query.plan import CubeRead
from rtolap.query.sql.filters import FilterBuilder, FilterColumns
from rtolap.query.sql.pruning import time_range
from rtolap.query.sql.rules.context import Context, CubeScope, SourceNeed, cube_scopes, named_tables


def pushdown(tree: exp.Expr, context: Context) -> exp.Expr:
    scopes = list(cube_scopes(tree, context))
    counts: dict[str, int] = {}
    for cube in scopes:
        counts[cube.schema.cube.name] = counts.get(cube.schema.cube.name, 0) + 1
    needs: dict[str, SourceNeed[Schema]] = {}
    for cube in scopes:
        name = cube.schema.cube.name
        need = needs.setdefault(name, SourceNeed(cube.schema))
        need.filters.append(_take_filter(cube, context, keep=counts[name] > 1))
    context.tree_changed()
    for cube in cube_scopes(tree, context):  # looked up again: conditions have gone
        needs[cube.schema.cube.name].columns.update(column.name for column in cube.columns())
    for cube in scopes:
        cube.table.set("this", exp.to_identifier(relation_name(cube.schema.cube.name), quoted=True))
    context.tree_changed()
    for _, _, table in list(named_tables(tree, context)) if context.lookups else ():
        if table.name in context.lookups:
            table.set("this", exp.to_identifier(relation_name(table.name), quoted=True))
    revisions = context.catalogue.revisions
    context.reads = tuple(_read(need, revisions.get(name, ())) for name, need in sorted(needs.items()))
    return tree


def relation_name(name: str) -> str:
    """Return the name of a cube or lookup in the engine."""
    return f"__relation_{name}"


def _take_filter(cube: CubeScope, context: Context, *, keep: bool) -> Predicate | None:
    builder = FilterBuilder(FilterColumns.of_cube(cube.schema), cube.alias, context.fold)
    joined = (builder.build(condition) for condition in _join_conditions(cube))
    pushed: list[Predicate] = [predicate for predicate in joined if predicate is not None]
    where = cube.select.args.get("where")
    left: list[exp.Expr] = []
    for conjunct in () if where is None or cube.nullable else conjuncts(where.this):
        predicate = builder.build(conjunct)
        if predicate is not None:
            pushed.append(predicate)
        if predicate is None or keep:
            left.append(conjunct)
    if left:
        cube.select.set("where", exp.Where(this=exp.and_(*left, copy=False)))
    elif not cube.nullable:
        cube.select.set("where", None)
    if not pushed:
        return None
    return pushed[0] if len(pushed) == 1 else And(tuple(pushed))


def conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    return list(condition.flatten()) if isinstance(condition, exp.And) else [condition]


def _join_conditions(cube: CubeScope) -> list[exp.Expr]:
    """Return the terms of ON without which no row of the cube is in the join. They stay where they are."""
    joins: list[exp.Join] = cube.select.args.get("joins") or []
    sides = [str(join.side).upper() for join in joins]
    if any(side in ("RIGHT", "FULL") for side in sides):
        return []
    found: list[exp.Expr] = []
    for join, side in zip(joins, sides, strict=True):
        on = join.args.get("on")
        binds = join.alias_or_name == cube.alias if side == "LEFT" else not cube.nullable and not side
        if on is not None and binds and not join.args.get("method"):
            found += conjuncts(on)
    return found


def _read(need: SourceNeed[Schema], revisions: tuple[Schema, ...]) -> CubeRead:
    schema = need.source
    partials = {partial.name for partial in schema.partials}
    dimensions = tuple(name for name in schema.cube.all_dimensions if name in need.columns)
    for name in need.columns - partials - set(dimensions):
        raise not_a_dimension(name, schema)
    combined = need.filter()
    return CubeRead(
        schema=schema,
        relation=relation_name(schema.cube.name),
        dimensions=dimensions,
        partials=tuple(p.name for p in schema.partials if p.name in need.columns or p.name == ROWS),
        filter=combined,
        time=time_range(combined, schema),
        revisions=revisions,
    )
