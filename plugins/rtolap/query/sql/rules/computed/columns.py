"""The rule that puts computed columns of cubes in the place of their expressions.

`SUM(price * quantity)` is asked of a cube that keeps `revenue`, declared as `price * quantity`, and neither
price nor quantity. A filtered measure is one of a computed column too; `filtered` knows its other spellings.
The rule goes before columns are looked up, because what a column is computed of need not be in the cube.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from rtolap.aggregates.function import Aggregate
from rtolap.aggregates.registry import APPROX_DISTINCT, COUNT_DISTINCT
from rtolap.model.cube import Schema
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.sql.rules.computed.filtered import function_of, put_filtered
from rtolap.query.sql.rules.computed.older import OlderRevisions
from rtolap.query.sql.rules.computed.plain import is_branch, parsed, plain
from rtolap.query.sql.rules.context import Context

_DISTINCT = (COUNT_DISTINCT, APPROX_DISTINCT)  # either answers a call of the other


def computed(tree: exp.Expr, context: Context) -> exp.Expr:
    """Put computed columns of cubes in the place of their expressions."""
    computing = context.catalogue.derived(_cubes_with_computed_columns)
    if not computing:
        return tree
    older = context.catalogue.derived(_older_revisions)
    for scope in traverse_scope(tree):
        if not isinstance(scope.expression, exp.Select):
            continue
        for alias, (_, source) in scope.selected_sources.items():
            if isinstance(source, exp.Table) and source.name in computing:
                schema = context.catalogue.cubes[source.name]
                is_alone = len(scope.selected_sources) == 1
                columns = _Columns(scope, alias, schema, older[source.name], is_alone=is_alone)
                if schema.filtered_columns:
                    put_filtered(scope, columns.find)
                columns.put()
                columns.write_out()
    return tree


def _older_revisions(catalogue: QueryCatalogue) -> Mapping[str, OlderRevisions]:
    return {name: OlderRevisions(catalogue.revisions.get(name, ())) for name in catalogue.cubes}


def _cubes_with_computed_columns(catalogue: QueryCatalogue) -> frozenset[str]:
    return frozenset(
        name
        for name, schema in catalogue.cubes.items()
        if schema.filtered_columns
        or any(schema.column(source).expression is not None for source in schema.source_columns)
    )


class _Columns:
    """Computed columns of a cube in one SELECT.

    Attributes:
        alias: the cube's name in the SELECT.
        is_alone: True if nothing else is read, so that a column without a table is the cube's.
    """

    def __init__(
        self, scope: Scope, alias: str, schema: Schema, older: OlderRevisions, *, is_alone: bool
    ) -> None:
        assert isinstance(scope.expression, exp.Select), "only a SELECT has sources"
        self.alias = alias
        self.is_alone = is_alone
        self._scope = scope
        self._schema = schema
        self._older = older
        self._partials = {partial.name for partial in schema.partials}
        self._labels = {name.lower() for name in scope.expression.named_selects}
        self._inputs = {
            column.name: parsed(column.expression)
            for column in schema.table.columns
            if column.expression is not None
        }
        declared = [schema.column(name) for name in schema.source_columns]
        self._names = {
            plain(parsed(column.expression), self._inputs): column.name
            for column in declared
            if column.expression is not None
        }

    def find(self, expression: exp.Expr, place: exp.Expr, function: Aggregate | None) -> exp.Column | None:
        """Return the column whose expression this is, at a place of the SELECT.

        Args:
            function: the one that is asked of the column. Of a filtered column the cube keeps what is
                declared; whatever else is asked may follow from dimensions.
        """
        own = list(expression.find_all(exp.Column))
        if not all(column.table == self.alias or (self.is_alone and not column.table) for column in own):
            return None
        clause = place.find_ancestor(exp.Group, exp.Having, exp.Order, exp.Select)
        if not isinstance(clause, exp.Select) and self._labels & {column.name.lower() for column in own}:
            return None  # an alias that is called like a column may be meant
        name = self._names.get(plain(expression, self._inputs))
        if name is None or name in self._older.written_out:
            return None
        if name in self._schema.filtered_columns:
            if function is None or not self._keeps(name, function):
                return None
            if self._older.answer_without(name, function):
                return None
        return exp.column(name, table=self.alias, quoted=True)

    def _keeps(self, name: str, function: Aggregate) -> bool:
        either = _DISTINCT if function in _DISTINCT else (function,)
        return any(
            self._partials.issuperset(each.column_name(name) for each in one.accumulators()) for one in either
        )

    def put(self) -> None:
        """Put columns in the place of their expressions, of larger ones first."""
        kinds = {type(tree) for tree in self._names}
        if exp.Case in kinds:
            kinds.add(exp.If)
        nodes = [node for node in self._scope.find_all(*kinds) if not is_branch(node)] if kinds else []
        replaced: set[int] = set()
        for node in sorted(nodes, key=_size, reverse=True):
            if id(node) in replaced:
                continue
            column = self.find(node, node, function_of(node.find_ancestor(exp.AggFunc, exp.Select)))
            if column is not None:
                replaced.update(id(each) for each in node.walk())
                node.replace(column)

    def write_out(self) -> None:
        """Put its expression in the place of a column that an older revision can only compute, in WHERE and
        in FILTER.

        A boolean is the only type that an expression has by itself, without a cast that may change values.
        """
        written_out = {
            name
            for name in self._older.written_out
            if self._schema.column(name).column_type.kind == "boolean"
        }
        for column in list(self._scope.find_all(exp.Column)) if written_out else ():
            is_own = column.table == self.alias or (self.is_alone and not column.table)
            name = column.name.lower()
            clause = column.find_ancestor(exp.Where, exp.Select)
            if is_own and name in written_out and isinstance(clause, exp.Where):
                tree = exp.paren(self._inputs[name].copy(), copy=False)
                for each in list(tree.find_all(exp.Column)):
                    each.replace(exp.column(each.name, table=self.alias, quoted=True))
                column.replace(tree)


def _size(node: exp.Expr) -> int:
    return sum(1 for _ in node.walk())
