"""Conditions on other relations, as filters of a cube: `d IN (SELECT …)`, EXISTS with an equality, and joins
whose other side is restricted.

Only rows whose `d` is among the values of the other relation can be in the answer. Those values are asked of
the engine before the cube is read, and go to receivers and history as a list. The statement keeps its
condition, so that what a reader leaves out saves work and decides nothing: a set may have too many values,
but never too few. A set is left out where it might have others when it is asked again (LIMIT, the clock, sums
of doubles).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from rtolap.query.plan import CubeRead, ValueSet
from rtolap.query.sql.dialect import MACRO_PREFIX, engine_sql
from rtolap.query.sql.rules.context import Context, is_nullable, named_tables
from rtolap.query.sql.rules.pushdown import conjuncts

SETS_MAX = 8  # of a statement: each is one more question to the engine
_VALUE = "value"
# What may give something else when it is asked again, or in another order of the rows.
_VARYING = (
    *(exp.Limit, exp.Offset, exp.Fetch, exp.Rand, exp.Window, exp.AnyValue, exp.GroupConcat, exp.Qualify),
    *(exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.Avg),
)
_REPEATABLE = re.compile(rf"{MACRO_PREFIX}(?!TIME_NOW|UNIX_NOW)\w+|ROW")
_STRICT = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like, exp.Between, exp.In)


def value_sets(tree: exp.Expr, context: Context) -> exp.Expr:
    """Note the sets, and put the reads in an order in which each finds the relations of its sets."""
    if context.latest is not None or not context.reads:
        return tree
    reads = {read.relation: read for read in context.reads}
    places: dict[str, list[tuple[exp.Select, str]]] = {}
    for scope, alias, table in named_tables(tree, context):
        if table.name in reads and isinstance(scope.expression, exp.Select):
            places.setdefault(table.name, []).append((scope.expression, alias))
    statement = _Statement(tree, reads)
    found: list[ValueSet] = []
    for relation, uses in places.items():
        (select, alias), *others = uses
        if not others and not is_nullable(select, alias):  # else other uses need other rows
            use = _Use(select, alias, reads[relation], statement)
            found += (*use.memberships(), *use.existences(), *use.joins())
    context.reads, context.sets = _in_order(context.reads, list(dict.fromkeys(found))[:SETS_MAX])
    return tree


@dataclass(frozen=True)
class _Statement:
    tree: exp.Expr
    reads: dict[str, CubeRead]

    def value_set(
        self, read: CubeRead, column: str, select: exp.Select, names: Sequence[exp.Expr], *, negated: bool
    ) -> Iterator[ValueSet]:
        """Yield the set of the values that a SELECT gives, unless it cannot be asked by itself.

        Args:
            names: the nodes of the SELECT that name relations.
        """
        tables = [table for node in names for table in node.find_all(exp.Table)]
        common = {cte.alias: cte for cte in self._common()}
        if any(table.name in common for table in tables):
            tables += [table for cte in common.values() for table in cte.find_all(exp.Table)]
            select.set("with_", exp.With(expressions=[cte.copy() for cte in common.values()]))
        known = {cte.alias for node in names for cte in node.find_all(exp.CTE)} | common.keys()
        relations = {table.name for table in tables} - known
        is_plain = all(name.startswith("__") for name in relations) and not _is_correlated(select)
        if not is_plain or read.relation in relations or not self._is_repeatable(select):
            return
        parameters = dict.fromkeys(str(node.name) for node in select.find_all(exp.Parameter))
        needs = tuple(sorted(self.reads[name].cube for name in relations & self.reads.keys()))
        yield ValueSet(read.cube, column, engine_sql(select), tuple(parameters), negated, needs)

    def _is_repeatable(self, select: exp.Select) -> bool:
        """Tell whether the SELECT gives the same values again: the order of sums of doubles matters."""
        calls = [str(call.this) for call in select.find_all(exp.Anonymous)]
        if select.find(*_VARYING) or not all(map(_REPEATABLE.fullmatch, calls)):
            return False
        exact = {
            field.name
            for read in self.reads.values()
            for field in read.columns
            if not pa.types.is_floating(field.type)
        }
        summed = (column for total in select.find_all(exp.Sum) for column in total.find_all(exp.Column))
        return all(column.name in exact for column in summed)

    def _common(self) -> list[exp.CTE]:
        """Return the CTEs of the whole statement, none where one names itself."""
        with_ = self.tree.args.get("with_")
        return [] if with_ is None or with_.args.get("recursive") else list(with_.expressions)


@dataclass(frozen=True)
class _Use:
    """The one SELECT that reads a cube."""

    select: exp.Select
    alias: str
    read: CubeRead
    statement: _Statement

    def memberships(self) -> Iterator[ValueSet]:
        """Yield the sets of IN and NOT IN over a query."""
        for term in self._where():
            node, negated = term, False
            if isinstance(node, exp.Not):
                node, negated = node.this.unnest(), True
            query = node.args.get("query") if isinstance(node, exp.In) else None
            if not isinstance(query, exp.Subquery):
                continue
            row = node.this.unnest()
            members = row.expressions if isinstance(row, exp.Tuple) else [row]
            if negated and len(members) > 1:
                continue
            columns = [exp.to_identifier(f"{_VALUE}{place}", quoted=True) for place in range(len(members))]
            for place, member in enumerate(members):
                name = self._own(member)
                if name is not None:
                    source = exp.Subquery(
                        this=query.this.copy(),
                        alias=exp.TableAlias(
                            this=exp.to_identifier("asked", quoted=True), columns=[c.copy() for c in columns]
                        ),
                    )
                    select = _distinct(exp.column(columns[place].copy()), source, [])
                    yield from self.statement.value_set(self.read, name, select, [source], negated=negated)

    def existences(self) -> Iterator[ValueSet]:
        """Yield the sets of what EXISTS has equal to this cube's columns."""
        for term in self._where():
            select = term.this.unnest() if isinstance(term, exp.Exists) else None
            if not isinstance(select, exp.Select) or _used(select) - {"expressions", "from_", "where"}:
                continue
            if any(shown.find(exp.AggFunc) for shown in select.expressions):
                continue  # there is a row, whatever the condition
            source = select.args["from_"].this if "from_" in _used(select) else None
            where = select.args.get("where")
            if not isinstance(source, exp.Table | exp.Subquery) or where is None:
                continue
            other, terms = source.alias_or_name, conjuncts(where.this)
            own = [each for each in terms if _is_about(each, other)]
            for pair in (self._pair(each, other) for each in terms if other != self.alias):
                if pair is not None:
                    chosen = _distinct(pair[1].copy(), source.copy(), own)
                    yield from self.statement.value_set(self.read, pair[0], chosen, [source], negated=False)

    def joins(self) -> Iterator[ValueSet]:
        """Yield the sets of what this cube's columns equal in relations that are restricted."""
        joins: list[exp.Join] = self.select.args.get("joins") or []
        if any(str(join.side).upper() in ("RIGHT", "FULL") or join.args.get("method") for join in joins):
            return
        where = list(self._where())
        bound = list(where)  # what every row of the join fulfils
        sources = [self.select.args["from_"].this, *(join.this for join in joins)]
        for join in joins:
            if not join.side and join.args.get("on") is not None:
                bound += conjuncts(join.args["on"])
        for source, by in zip(sources, (None, *joins), strict=True):
            other = source.alias_or_name
            if other == self.alias or not isinstance(source, exp.Table | exp.Subquery):
                continue
            own, terms = [term for term in bound if _is_about(term, other)], bound
            if by is not None and by.side:  # LEFT: only if a row without a match is thrown away
                if not any(_is_strict(term, other) for term in where):
                    continue
                on = conjuncts(by.args["on"]) if by.args.get("on") is not None else []
                own, terms = [*own, *(term for term in on if _is_about(term, other))], [*bound, *on]
            read = self.statement.reads.get(source.name) if isinstance(source, exp.Table) else None
            if not own and isinstance(source, exp.Table) and (read is None or read.filter is None):
                continue
            for term in terms:
                pair = self._pair(term, other)
                if pair is not None:
                    name, column = pair
                    select = _distinct(column.copy(), source.copy(), own)
                    yield from self.statement.value_set(self.read, name, select, [source], negated=False)

    def _where(self) -> Iterator[exp.Expr]:
        where = self.select.args.get("where")
        for term in () if where is None else conjuncts(where.this):
            yield term.unnest()

    def _own(self, node: exp.Expr) -> str | None:
        """Return the name of a dimension of the cube."""
        node = node.unnest()
        is_own = isinstance(node, exp.Column) and node.table == self.alias
        return node.name if is_own and node.name in self.read.dimensions else None

    def _pair(self, term: exp.Expr, other: str) -> tuple[str, exp.Expr] | None:
        """Return the dimension and the column of `other` that a term has equal."""
        term = term.unnest()
        if not isinstance(term, exp.EQ):
            return None
        for mine, theirs in ((term.this, term.expression), (term.expression, term.this)):
            name = self._own(mine)
            theirs = theirs.unnest()
            if name is not None and isinstance(theirs, exp.Column) and theirs.table == other:
                return name, theirs
        return None


def _distinct(value: exp.Expr, source: exp.Expr, terms: Sequence[exp.Expr]) -> exp.Select:
    select = exp.Select(
        expressions=[exp.alias_(value, _VALUE, quoted=True)],
        distinct=exp.Distinct(),
        from_=exp.From(this=source),
    )
    if terms:
        select.set("where", exp.Where(this=exp.and_(*(term.copy() for term in terms), copy=False)))
    return select


def _used(select: exp.Select) -> set[str]:
    return {name for name, value in select.args.items() if value}


def _is_about(term: exp.Expr, alias: str) -> bool:
    tables = {column.table for column in term.find_all(exp.Column)}
    return tables == {alias} and term.find(exp.Query, exp.Subquery, *_VARYING) is None


def _is_strict(term: exp.Expr, alias: str) -> bool:
    """Tell whether a term is never TRUE where the columns of `alias` are NULL."""
    term = term.unnest()
    operand = term.this.unnest() if isinstance(term, _STRICT) else None
    return isinstance(operand, exp.Column) and operand.table == alias and _is_about(term, alias)


def _is_correlated(select: exp.Select) -> bool:
    names = {node.alias_or_name for node in select.find_all(exp.Table, exp.Subquery, exp.CTE)}
    return any(column.table and column.table not in names for column in select.find_all(exp.Column))


def _in_order(
    reads: Sequence[CubeRead], sets: Sequence[ValueSet]
) -> tuple[tuple[CubeRead, ...], tuple[ValueSet, ...]]:
    """Return the reads, and the sets whose relations are there by then. Of a circle one set is left out."""
    left, ordered, known = list(reads), list[CubeRead](), list[ValueSet]()
    while left:
        done = {read.cube for read in ordered}

        def missing(read: CubeRead, done: set[str] = done) -> list[ValueSet]:
            return [each for each in sets if each.cube == read.cube and not done.issuperset(each.needs)]

        following = min(left, key=lambda read: len(missing(read)))
        lost = missing(following)
        known += [each for each in sets if each.cube == following.cube and each not in lost]
        left.remove(following)
        ordered.append(following)
    return tuple(ordered), tuple(known)
