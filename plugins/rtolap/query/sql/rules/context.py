"""The context of one statement that the rules share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from rtolap.model.cube import Schema
from rtolap.model.predicate import Or, Predicate
from rtolap.protocols.query.messages import QueryWarning
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.plan import CubeRead, CutCheck, LatestRows, PlainMerge, TableRead, ValueSet

S = TypeVar("S")
FoldConstant = Callable[
    [exp.Expr], object
]  # a constant expression → its value; LookupError if it has none yet


@dataclass
class Context:
    """The state that the rules share while they rewrite one statement.

    Attributes:
        fold: computes constants, parameters included.
        information_tables: names of the tables of information_schema.
        check: raises the error that ended the statement.
        lookups: names of the lookups that the statement reads and that are files.
        information: names of the tables of information_schema that the statement reads.
        rolls_up: True if the outermost SELECT shows roll-up rows.
    """

    catalogue: QueryCatalogue
    fold: FoldConstant
    information_tables: frozenset[str] = frozenset()
    check: Callable[[], None] = lambda: None
    reads: tuple[CubeRead, ...] = ()
    lookups: set[str] = field(default_factory=set)
    information: set[str] = field(default_factory=set)
    rolls_up: bool = False
    latest: LatestRows | None = None
    tables: tuple[TableRead, ...] = ()
    merge: PlainMerge | None = None
    sets: tuple[ValueSet, ...] = ()
    warnings: list[QueryWarning] = field(default_factory=list)
    cuts: list[CutCheck] = field(default_factory=list)
    _scope: tuple[exp.Expr, Scope] | None = None

    def scopes(self, tree: exp.Expr) -> list[Scope]:
        """Return the scopes of a tree, inner ones first.

        That of a statement without inner SELECTs is made once for all rules between two that change the tree.
        """
        if self._scope is not None and self._scope[0] is tree:
            return [self._scope[1]]
        found = traverse_scope(tree)
        self._scope = (tree, found[0]) if len(found) == 1 else None
        return found

    def tree_changed(self) -> None:
        """Forget what was seen of the tree. `RULES` says which rules call this themselves."""
        self._scope = None


RewriteRule = Callable[[exp.Expr, Context], exp.Expr]


@dataclass(frozen=True)
class CubeScope:
    """A SELECT that reads a cube.

    Attributes:
        alias: the cube's name in the SELECT.
        nullable: True if an outer join may fill the cube's columns with NULL.
    """

    scope: Scope
    alias: str
    table: exp.Table
    schema: Schema
    nullable: bool

    @property
    def select(self) -> exp.Select:
        expression = self.scope.expression
        assert isinstance(expression, exp.Select), "only a SELECT has sources"
        return expression

    def columns(self) -> list[exp.Column]:
        """Return the references to the cube, including those of correlated subqueries."""
        return [column for column in self.scope.columns if column.table == self.alias]

    def is_measure(self, column: exp.Column) -> bool:
        return column.table == self.alias and column.name not in self.schema.cube.all_dimensions

    def column(self, name: str) -> exp.Column:
        return exp.column(name, table=self.alias, quoted=True)


@dataclass
class SourceNeed(Generic[S]):
    """The columns and rows of a cube or table that a statement needs, all uses together.

    Attributes:
        filters: one filter for each use; None: all rows.
    """

    source: S
    columns: set[str] = field(default_factory=set)
    filters: list[Predicate | None] = field(default_factory=list)

    def filter(self) -> Predicate | None:
        """Return what passes all rows that one of the uses needs."""
        known = tuple(predicate for predicate in self.filters if predicate is not None)
        if len(known) != len(self.filters):
            return None
        return known[0] if len(known) == 1 else Or(known)


def named_tables(tree: exp.Expr, context: Context) -> Iterator[tuple[Scope, str, exp.Table]]:
    """Yield the SELECT, the alias and the table of all that is read by a name, inner SELECTs first.

    Names that a WITH defines are left out.
    """
    for scope in context.scopes(tree):
        if not isinstance(scope.expression, exp.Select):
            continue
        for alias, (_, source) in scope.selected_sources.items():
            if isinstance(source, exp.Table) and not source.db:
                yield scope, alias, source


def cube_scopes(tree: exp.Expr, context: Context) -> Iterator[CubeScope]:
    """Yield every cube of every SELECT, inner SELECTs first, and those of one SELECT one after the other."""
    for scope in context.scopes(tree):
        if not isinstance(scope.expression, exp.Select):
            continue
        sources = [
            (alias, source)
            for alias, (_, source) in scope.selected_sources.items()
            if isinstance(source, exp.Table) and not source.db and source.name in context.catalogue.cubes
        ]
        for alias, table in sources:
            schema = context.catalogue.cubes[table.name]
            yield CubeScope(scope, alias, table, schema, is_nullable(scope.expression, alias))


def joined_cubes(tree: exp.Expr, context: Context) -> list[list[CubeScope]]:
    """Return the cubes of each SELECT that reads one, inner SELECTs first."""
    by_select: dict[int, list[CubeScope]] = {}
    for cube in cube_scopes(tree, context):
        by_select.setdefault(id(cube.select), []).append(cube)
    return list(by_select.values())


def own_aggregates(cube: CubeScope) -> list[exp.Expr]:
    """Return the aggregates of this SELECT over rows, outermost first, without functions of a window."""
    aggregates: list[exp.Expr] = []
    for node in cube.scope.find_all(exp.AggFunc):
        wrapper = node.parent
        while isinstance(wrapper, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
            wrapper = wrapper.parent
        if not isinstance(wrapper, exp.Window):
            aggregates.append(node)
    return aggregates


def is_aggregated(cube: CubeScope) -> bool:
    return cube.select.args.get("group") is not None or bool(own_aggregates(cube))


def is_nullable(select: exp.Select, alias: str) -> bool:
    """Return True if an outer join may fill the source with NULL."""
    for join in select.args.get("joins") or ():
        side = str(join.side).upper()
        if side in ("RIGHT", "FULL") or (side == "LEFT" and join.alias_or_name == alias):
            return True
    return False
