"""The result of a statement whose tables have been read: cubes are fetched, and the engine runs over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from rtolap.protocols.query.messages import QueryWarning
from rtolap.query.cubes.fetch import Fetched
from rtolap.query.cubes.merged_answer import top_groups
from rtolap.query.cubes.planner import narrowed
from rtolap.query.cubes.shared_answer import shared_answer
from rtolap.query.cubes.value_sets import ValueSets
from rtolap.query.engine_session import EngineResult, EngineSession, TableResult
from rtolap.query.execution.reads import Reads
from rtolap.query.memory_budget import READ
from rtolap.query.plan import LatestRows, ReadStats, Rewritten
from rtolap.query.statement_cache import StatementCache


@dataclass(frozen=True)
class Ran:
    """A result, what was read for it, and the warnings that the rows gave."""

    result: EngineResult
    stats: list[ReadStats]
    warnings: tuple[QueryWarning, ...] = ()


@dataclass(frozen=True)
class Run:
    """The run of one statement.

    Attributes:
        values: of the parameters, also of those that the rewritten statement does not have any more.
    """

    rewritten: Rewritten
    values: Mapping[str, object]
    session: EngineSession
    reads: Reads
    cache: StatementCache

    @cached_property
    def used(self) -> dict[str, object]:
        """The values of the rewritten statement's parameters."""
        return {name: self.values[name] for name in self.rewritten.parameters}

    def result(self) -> Ran:
        if self.rewritten.latest is not None:
            return self._latest(self.rewritten.latest)
        sets = ValueSets(
            self.rewritten.sets,
            self.values,
            self.session.read,
            self.session.register,
            self.reads.ending.check,
        )
        fetched: list[Fetched] = []
        for read in self.rewritten.reads:
            narrower = sets.narrowed(read)
            if self.rewritten.merge is not None:
                top = top_groups(read, self.rewritten.merge, self.values)
                if top is not None:  # the read of a statement that comes again knows its columns already
                    narrower = replace(narrower, top=top)
            fetched.append(self.reads.cube(narrower))
            sets.have(read, fetched[-1].table)
        stats = [each.stats for each in fetched]
        if self.rewritten.sets:
            stats = [replace(each, value_sets=sets.of(each.cube)) for each in stats]
        left = [
            (read.relation, each)
            for read, each in zip(self.rewritten.reads, fetched, strict=True)
            if read.relation not in sets.registered
        ]
        warnings = self._cut(left)
        return Ran(self._answer(fetched, left), stats, warnings)

    def _answer(self, fetched: Sequence[Fetched], left: Sequence[tuple[str, Fetched]]) -> EngineResult:
        """Run the statement over the fetched partials: in the engine, unless it is a plain merge. `left`: the
        relations that the engine does not have yet."""
        merge = self.rewritten.merge
        if merge is not None and isinstance(fetched[0].table, pa.Table):
            answer, made = shared_answer(
                self.rewritten.reads[0], merge, fetched[0].table, fetched[0].made, self.used
            )
            if answer is not None:
                return TableResult(answer, made)
        if self.rewritten.is_constant:
            known = self.cache.constant_answer(self.rewritten)
            if known is None:
                known = self.session.read(self.rewritten.sql, {})
                self.cache.keep_constant_answer(self.rewritten, known)
            return TableResult(known)
        self._register(left)
        return self.session.run(self.rewritten.sql, self.used)

    def _cut(self, left: Sequence[tuple[str, Fetched]]) -> tuple[QueryWarning, ...]:
        """Return the warnings of joined texts that are cut, each once."""
        if not self.rewritten.cuts:
            return ()
        self._register(left)
        found = [
            check.warning
            for check in self.rewritten.cuts
            if self.session.value(check.sql, {name: self.used[name] for name in check.parameters})
        ]
        return tuple(dict.fromkeys(found))

    def _register(self, left: Sequence[tuple[str, Fetched]]) -> None:
        for relation, each in left:
            self.session.register(relation, each.table)

    def _latest(self, latest: LatestRows) -> Ran:
        """Read the newest segments first, and no more of them than the statement needs."""
        (read,) = self.rewritten.reads
        rows_read, fetch_ms, files_cached, files_remote = 0, 0.0, 0, 0
        for narrower in narrowed(read, latest, self.reads.sources.fetcher.segments(read, self.reads.ending)):
            self.reads.account.reserve(READ, 0)  # of the narrower read before
            fetched = self.reads.cube(narrower)
            done = fetched.stats
            self.session.register(read.relation, fetched.table)
            done.rows_read += rows_read
            done.fetch_ms += fetch_ms
            done.files_cached += files_cached
            done.files_remote += files_remote
            rows_read, fetch_ms = done.rows_read, done.fetch_ms
            files_cached, files_remote = done.files_cached, done.files_remote
            table = self.session.read(self.rewritten.sql, self.used)
            if table.num_rows >= latest.rows:
                break
        return Ran(TableResult(table), [done])
