"""Names as they are defined, and nothing that the engine must not run."""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify as resolve
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.schema import Schema, ensure_schema

from rtolap.base.errors import QueryError, SqlSyntaxError, UnknownColumn, UnknownDatabase, UnsupportedSql
from rtolap.query.catalogue import (
    DATABASE,
    INFORMATION_SCHEMA,
    QueryCatalogue,
    spellings,
    unknown_column,
    unknown_table,
)
from rtolap.query.information_schema import INFORMATION_PREFIX, information_columns
from rtolap.query.sql.dialect import RtolapSql, label_of, user_sql
from rtolap.query.sql.parser import kinds_in
from rtolap.query.sql.rules.context import Context, cube_scopes

_UNKNOWN_COLUMN = re.compile(r"Unknown column: (\S+)")
_DATE_ONLY = re.compile(r"\s*\d{4}-\d{1,2}-\d{1,2}\s*")
_MOMENTS = (exp.CurrentTimestamp, exp.UtcTimestamp, exp.Localtimestamp, exp.Localtime)
_MOMENT_NAMES = frozenset(("now", "sysdate"))
_MOVED = (exp.DateAdd, exp.DateSub, exp.TimestampAdd)
_TODAYS = (exp.CurrentDate, exp.UtcDate)
_ZONED = frozenset(("TIMESTAMPTZ", "TIMESTAMPLTZ"))


def names(tree: exp.Expr, context: Context) -> exp.Expr:
    """Check tables, spell names as defined, drop zones, name the nameless."""
    _check_tables(tree, context)
    _spell_columns(tree, context)
    kinds = kinds_in(tree)
    if not kinds.isdisjoint((exp.Into, exp.Placeholder)):
        raise UnsupportedSql("unsupported SQL", found="INTO" if exp.Into in kinds else "a bare placeholder")
    for kind in tree.find_all(exp.DataType) if exp.DataType in kinds else ():
        if kind.this.name in _ZONED:
            kind.set("this", exp.DataType.Type.TIMESTAMP)
    if exp.Collate in kinds:
        _drop_exact_collations(tree)
    for query in tree.find_all(exp.Select, exp.SetOperation):
        _drop_constant_order(query)
    for select in tree.find_all(exp.Select):
        select.set("locks", None)  # FOR UPDATE has no meaning here: nothing can be written
        _drop_modifiers(select)
        _roll_up(select)
        _label(select)
    _fix_moment(tree)
    for sum_ in (
        tree.find_all(exp.Add, exp.Sub) if exp.Interval in kinds else ()
    ):  # '2013-01-01' + INTERVAL 1 DAY is a date in MySQL
        if isinstance(sum_.expression, exp.Interval) and sum_.this.is_string:
            sum_.set("this", exp.cast(sum_.this, _kind_of_moment(sum_.this)))
    for moved in tree.find_all(*_MOVED) if not kinds.isdisjoint(_MOVED) else ():
        if moved.this.is_string:
            moved.set("this", exp.cast(moved.this, _kind_of_moment(moved.this)))
    return tree


def qualify(tree: exp.Expr, context: Context) -> exp.Expr:
    """Qualify every column with its table. Raises QueryError for unknown or ambiguous columns."""
    schema = context.catalogue.derived(_resolving_schema)
    if context.information:
        named = _definitions(context.catalogue)
        for name in context.information:
            named[f"{INFORMATION_PREFIX}{name}"] = dict.fromkeys(information_columns(name), "string")
        schema = ensure_schema(named, dialect=RtolapSql)
    try:
        tree = resolve(
            tree,
            dialect=RtolapSql,
            schema=schema,
            validate_qualify_columns=False,
            quote_identifiers=True,
            identify=True,
        )
    except SqlglotError as error:
        text = str(error).splitlines()[0]
        unknown = _UNKNOWN_COLUMN.match(text)
        if unknown:
            raise UnknownColumn(f"unknown column {unknown[1]!r}") from error
        raise SqlSyntaxError(f"bad SQL: {text}") from error
    context.tree_changed()
    for cube in cube_scopes(tree, context):
        known = context.catalogue.columns(cube.schema.cube.name)
        for column in cube.columns():
            if column.name not in known:
                raise unknown_column(column.name, f"cube {cube.schema.cube.name}", known)
        for column in cube.scope.unqualified_columns:
            aliases = {name.lower() for name in cube.select.named_selects}
            late = column.find_ancestor(exp.Order, exp.Having, exp.Qualify, exp.Group, exp.Select)
            if isinstance(late, exp.Select) or column.name.lower() not in aliases:
                raise unknown_column(column.name, f"cube {cube.schema.cube.name}", known)
    return tree


def _definitions(catalogue: QueryCatalogue) -> dict[str, Any]:
    """Return relation → column → type, as sqlglot takes them."""
    return {
        name: {column: str(kind.kind) for column, kind in catalogue.columns(name).items()}
        for name in catalogue.all_names()
    }


def _resolving_schema(catalogue: QueryCatalogue) -> Schema:
    return ensure_schema(_definitions(catalogue) or None, dialect=RtolapSql)


def _check_tables(tree: exp.Expr, context: Context) -> None:
    for scope in traverse_scope(tree):
        for node in scope.tables:
            if isinstance(node.this, exp.Func):
                raise QueryError(f"table functions are not available: {user_sql(node)}")
            if not node.db and node.name in scope.cte_sources:
                continue
            if node.db.lower() == INFORMATION_SCHEMA:
                if node.name.lower() not in context.information_tables:
                    raise unknown_table(f"{INFORMATION_SCHEMA}.{node.name}", context.catalogue)
                name = node.name.lower()
                context.information.add(name)
                _rename(node, f"{INFORMATION_PREFIX}{name}")
                continue
            if node.db and node.db.lower() != DATABASE:
                _rename(node, _stored(node, context))
                continue
            spelled = context.catalogue.spelled(node.name)
            if spelled is None:
                raise unknown_table(node.name, context.catalogue)
            if spelled in context.catalogue.lookups and context.catalogue.stored_table(spelled) is None:
                context.lookups.add(spelled)
            _rename(node, spelled)


def _stored(node: exp.Table, context: Context) -> str:
    """Return the key of the stored table that is meant; case does not matter, unless two differ only by
    it.
    """
    databases = context.catalogue.databases()
    if node.db not in databases and node.db.lower() not in databases:
        raise UnknownDatabase(f"unknown database {node.db!r}", expected=f"one of {', '.join(databases)}")
    key = context.catalogue.spelled_stored(node.db, node.name)
    if key is None:
        raise unknown_table(f"{node.db}.{node.name}", context.catalogue)
    return key


def _fix_moment(tree: exp.Expr) -> None:
    """Fix NOW() and its like, in UTC and without a zone, as the event time of most tables is."""
    for node in list(tree.find_all(exp.Func)):
        name = str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
        if isinstance(node, _MOMENTS) or name in _MOMENT_NAMES:
            node.replace(_moment())
        elif isinstance(node, _TODAYS):
            node.replace(exp.cast(_moment(), exp.DataType.Type.DATE))


def _kind_of_moment(literal: exp.Expr) -> exp.DType:
    is_date = _DATE_ONLY.fullmatch(str(literal.this)) is not None
    return exp.DataType.Type.DATE if is_date else exp.DataType.Type.TIMESTAMP


def _moment() -> exp.Expr:
    return exp.cast(exp.CurrentTimestamp(), exp.DataType.Type.TIMESTAMP)


def _rename(node: exp.Table, name: str) -> None:
    if not node.alias:
        node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name, quoted=True)))
    node.set("db", None)
    node.set("catalog", None)
    node.set("this", exp.to_identifier(name, quoted=True))


def _spell_columns(tree: exp.Expr, context: Context) -> None:
    spelled = context.catalogue.derived(spellings)
    aliases = {node.alias for node in tree.find_all(exp.Alias, exp.TableAlias)}
    looking_around = _spell_information(tree, context)
    for column in tree.find_all(exp.Column):
        if id(column) in looking_around:
            continue
        known = spelled.get(column.name.lower(), set())
        if column.name not in known and len(known) == 1 and column.name not in aliases:
            column.this.set("this", next(iter(known)))
        if column.args.get("db") is not None:
            column.set("db", None)


def _drop_exact_collations(tree: exp.Expr) -> None:
    """Drop collations that compare exactly, as texts do anyway. Any other collation would change answers."""
    for node in list(tree.find_all(exp.Collate)):
        name = str(node.expression.name).lower()
        if name != "binary" and not name.endswith("_bin"):
            raise UnsupportedSql(
                f"unsupported SQL: COLLATE {name}", expected="utf8mb4_bin, by which all texts are compared"
            )
        node.replace(node.this)


def _drop_constant_order(query: exp.Expr) -> None:
    """Drop ORDER BY NULL, or by a text, which orders nothing."""
    order = query.args.get("order")
    if order is None:
        return
    remaining = [
        each
        for each in order.expressions
        if not isinstance(each.this, exp.Null)
        and not (isinstance(each.this, exp.Literal) and each.this.is_string)
    ]
    if remaining:
        order.set("expressions", remaining)
    else:
        query.set("order", None)


def _drop_modifiers(select: exp.Select) -> None:
    """Drop SQL_NO_CACHE and its like, which tell MySQL's server how to work and change no answer."""
    for modifier in select.args.get("operation_modifiers") or ():
        if str(modifier.name).upper() == "SQL_CALC_FOUND_ROWS":
            raise UnsupportedSql(
                "unsupported SQL: SQL_CALC_FOUND_ROWS", action="ask for COUNT(*) in a statement of its own"
            )
    select.set("operation_modifiers", None)


def _spell_information(tree: exp.Expr, context: Context) -> set[int]:
    """Spell the columns of SELECTs over information_schema alone; their identities."""
    done: set[int] = set()
    if not context.information:
        return done
    for scope in traverse_scope(tree):
        tables = [
            source.name for _, source in scope.selected_sources.values() if isinstance(source, exp.Table)
        ]
        if len(tables) < len(scope.selected_sources) or not tables:
            continue
        if not all(name.startswith(INFORMATION_PREFIX) for name in tables):
            continue
        known = {
            name for table in tables for name in information_columns(table.removeprefix(INFORMATION_PREFIX))
        }
        for join in scope.expression.args.get("joins") or ():
            for name in join.args.get("using") or ():
                name.set("this", str(name.name).upper())
        for column in scope.find_all(exp.Column):
            if (
                column.name.upper() in known
                and column.find_ancestor(exp.Order, exp.Having, exp.Select) is scope.expression
            ):
                column.this.set("this", column.name.upper())
            done.add(id(column))
            column.set("db", None)
    return done


def _roll_up(select: exp.Select) -> None:
    """Turn GROUP BY a, b WITH ROLLUP into GROUP BY ROLLUP (a, b), as the engine writes it.

    Of no rows MySQL gives none, where the engine gives a total.
    """
    group = select.args.get("group")
    if group is None:
        return
    for rollup in group.args.get("rollup") or ():
        if isinstance(rollup, exp.Rollup) and not rollup.expressions:
            rollup.set("expressions", group.expressions)
            group.set("expressions", [])
            rows = exp.Count(this=exp.Star(), big_int=True)
            select.having(exp.GT(this=rows, expression=exp.Literal.number(0)), copy=False)


def _label(select: exp.Select) -> None:
    """Name a projection without a name by its text, as MySQL's clients expect."""
    labelled = []
    for projection in select.expressions:
        nameless = not isinstance(projection, exp.Alias | exp.Column | exp.Star)
        labelled.append(exp.alias_(projection, label_of(projection), quoted=True) if nameless else projection)
    select.set("expressions", labelled)
