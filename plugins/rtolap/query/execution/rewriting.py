"""Statements rewritten over the relations that they read, and the relations that need no fetching."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from rtolap.base.errors import QueryError
from rtolap.query.cancel import Cancellation
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.cluster.view import Cluster
from rtolap.query.cubes.merge import merge
from rtolap.query.engine_session import EngineSession
from rtolap.query.information_schema import INFORMATION_PREFIX, information_table
from rtolap.query.lookups import Lookups
from rtolap.query.plan import Rewritten
from rtolap.query.query_log.entries import QUERY_LOG, SCHEMA
from rtolap.query.sql.rules.pushdown import relation_name
from rtolap.query.sql.statement import SqlStatement
from rtolap.query.statement_cache import StatementCache


@dataclass(eq=False)
class Rewriting:
    """Rewrites statements by the catalogue, and by a fresh one where the cached one does not do.

    `on_fresh` is told of a catalogue that differs from the one before it.
    """

    cluster: Cluster
    cache: StatementCache
    lookups: Lookups
    on_fresh: Callable[[QueryCatalogue], None]

    def rewrite(
        self,
        statement: SqlStatement,
        values: Mapping[str, object],
        session: EngineSession,
        ending: Cancellation,
    ) -> tuple[Rewritten, QueryCatalogue]:
        """Return the statement over its relations, and the catalogue by which it is. Raises QueryError."""
        catalogue = self.cluster.catalogue()
        try:
            rewritten = self._rewritten(catalogue, statement, values, session)
            if not rewritten.information:
                return rewritten, catalogue
            newest = self.cluster.catalogue(fresh=True)  # it lists what other services define too
            return self._rewritten(newest, statement, values, session), newest
        except QueryError:  # perhaps about a definition that is newer than the cached catalogue
            ending.check()
            fresh = self.cluster.catalogue(fresh=True)
            if fresh == catalogue:
                raise
            self.on_fresh(fresh)
            return self._rewritten(fresh, statement, values, session), fresh

    def _rewritten(
        self,
        catalogue: QueryCatalogue,
        statement: SqlStatement,
        values: Mapping[str, object],
        session: EngineSession,
    ) -> Rewritten:
        return self.cache.rewritten(
            statement, catalogue, values, lambda one, bound: session.plan(one, bound, catalogue)
        )

    def register(
        self,
        rewritten: Rewritten,
        catalogue: QueryCatalogue,
        session: EngineSession,
        logged: Callable[[], pa.Table] | None,
    ) -> None:
        """Give the engine lookups and the tables of information_schema. `logged` returns the entries of the
        query log; None where no rows are wanted, but the columns alone."""
        for name in rewritten.lookups:
            read = self.lookups.empty if logged is None else self.lookups.read
            session.register(relation_name(name), read(catalogue.lookups[name]))
        for name in rewritten.information:
            if name != QUERY_LOG:
                table = information_table(name, catalogue)
            else:
                table = SCHEMA.empty_table() if logged is None else logged()
            session.register(f"{INFORMATION_PREFIX}{name}", table)


def result_columns(rewritten: Rewritten, values: Mapping[str, object], session: EngineSession) -> pa.Schema:
    """Return the result's columns, over empty cubes and tables. Raises QueryError for what the engine
    refuses."""
    for read in rewritten.reads:
        session.register(read.relation, merge(read, ()))
    for table in rewritten.tables:
        session.register(table.relation, table.relation_schema.empty_table())
    # LIMIT outside: a parameter in the statement's own LIMIT may be NULL here.
    return session.run(f"SELECT * FROM ({rewritten.sql}) AS described LIMIT 0", values).schema
