"""Reads of cubes and stored tables for one statement, within its account."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from rtolap.base.clock import Clock
from rtolap.model.predicate import columns_of
from rtolap.query.cancel import Cancellation
from rtolap.query.cubes.fetch import Fetched
from rtolap.query.cubes.revisions import RevisionFetcher
from rtolap.query.engine_session import EngineSession
from rtolap.query.memory_budget import READ, Account
from rtolap.query.plan import CubeRead, Rewritten, TableRead, TableStats
from rtolap.query.relation_rows import CountedRows, RelationRows
from rtolap.query.session_token import SessionPositions
from rtolap.query.stored.reader import StoredReader


@dataclass(frozen=True)
class Sources:
    """The sources that the statements of one service read from."""

    fetcher: RevisionFetcher
    tables: StoredReader
    clock: Clock


@dataclass(frozen=True)
class Reads:
    """The reads of one statement.

    Attributes:
        positions: what the statement's session has been answered.
        account: the memory that the rows are counted in.
    """

    sources: Sources
    ending: Cancellation
    positions: SessionPositions
    account: Account

    def tables(self, rewritten: Rewritten, session: EngineSession, *, as_planned: bool) -> list[TableStats]:
        """Give the engine the rows of the stored tables. Raises DefinitionChanged."""
        if not rewritten.tables:
            return []
        began_s = self.sources.clock.monotonic_s()

        def open_sink(read: TableRead) -> RelationRows:
            return CountedRows(session.rows_of(read.relation, read.relation_schema), self.account)

        stats = self.sources.tables.read(rewritten.tables, self.ending, open_sink, as_planned=as_planned)
        for done in stats:
            done.fetch_ms = (self.sources.clock.monotonic_s() - began_s) * 1000
        self.ending.check()
        return stats

    def cube(self, read: CubeRead) -> Fetched:
        """Fetch the partials of a cube."""
        self.ending.check()
        began_s = self.sources.clock.monotonic_s()
        fetched = self.sources.fetcher.fetch(read, self.ending, self.positions, self.account)
        if isinstance(fetched.table, pa.Table):
            self.account.reserve_more(READ, fetched.table.nbytes)
            fetched.stats.partial_bytes = fetched.table.nbytes
        fetched.stats.fetch_ms = (self.sources.clock.monotonic_s() - began_s) * 1000
        fetched.stats.dimensions = tuple(sorted({*read.dimensions, *columns_of(read.filter)}))
        self.ending.check()
        return fetched
