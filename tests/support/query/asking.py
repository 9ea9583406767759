"""SQL to the query service of the in-process cluster, and the recount of what an answer names."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain

from rtolap.base.errors import Unavailable
from rtolap.cubes.receiver.local.align import Vectors, vectors_of

from tests.support.cubes.builders import DIMENSIONS, Event
from tests.support.cubes.cluster import Cluster
from tests.support.cubes.recount import VALUES, VISITORS, Answer, counted, recount
from tests.support.cubes.stepped_receiver import Receiver
from tests.support.query.asked_statements import number
from tests.support.query.stepped_query import SteppedQuery
from tests.support.query.visitors import plain_estimates

MINUTE_MS = 60_000
Span = tuple[int, int]  # event time, [start_ms, end_ms), of whole minutes


@dataclass(frozen=True)
class Found:
    """An answer, the prefix that it holds, and what those who answered know of vectors, by partition.

    Attributes:
        locations: of the versions that it was read from, by the start of the segment.
    """

    answer: Answer
    positions: dict[int, int]
    horizon_ms: int | None
    vectors: Mapping[int, Mapping[int, Vectors]]
    locations: Mapping[int, str]


@dataclass
class Client:
    """A client of any query service: the token that its answers came with, and the positions they held."""

    session_token: str = ""
    seen: Mapping[int, int] = field(default_factory=dict)


class Asker:
    """A query service that remembers the positions that it has answered with, and its last look."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._visitors = VISITORS in {partial.name for partial in cluster.schema.partials}
        self._query = SteppedQuery(
            cluster.ensemble, cluster.clock, cluster.cube, cluster.receivers, cluster.history, cluster.folder
        )
        self.seen: dict[int, int] = {}

    def look(self) -> None:
        self._query.look()

    @property
    def asked_ahead(self) -> int:
        return self._query.asked_ahead

    def ask(
        self, choose: Callable[[str], Receiver], span: Span | None = None, client: Client | None = None
    ) -> Found | None:
        """Ask for whole minutes of event time, or all; None when somebody cannot answer yet. Of each replica
        set only the chosen receiver can be reached. `client` sends its token and takes the next one."""
        client = client or Client()
        control = self._cluster.metadata.control(self._cluster.cube)
        chosen = [choose(replica_set) for replica_set in sorted(control.assignment)]
        up = {receiver.name for receiver in chosen if receiver.alive}
        try:
            table, positions, client.session_token = self._query.execute(
                self._sql(span), up, client.session_token
            )
        except Unavailable as error:
            if "does not settle" in str(error):
                raise AssertionError("two replica sets answer for a partition") from error
            return None
        vectors, horizon_ms = self._query.vectors, self._query.horizon_ms
        if self._cluster.metadata.control(self._cluster.cube).ended and not vectors:
            positions, vectors, horizon_ms = self._of_ended()
        self.seen = client.seen = positions
        rows = [tuple(row.values()) for row in table.to_pylist()]
        keys = len(DIMENSIONS)
        found = {row[:keys]: tuple(number(cell) for cell in row[keys:]) for row in rows}
        assert len(found) == len(rows), "a group is in two rows"
        return Found(found, positions, horizon_ms, vectors, self._query.locations)

    def _of_ended(self) -> tuple[dict[int, int], dict[int, dict[int, Vectors]], int | None]:
        """Return what an answer of a revision holds that nobody reads any more: all that its log will ever
        have, as the records of the last look say what late events are."""
        cluster = self._cluster
        drop_late = cluster.schema.cube.late.policy == "drop"
        whole = (cluster.metadata.whole_segment(record) for record in self._query.records.values())
        of_records = {record.start_ms: vectors_of(record, drop_late=drop_late) for record in whole}
        ends = {part: len(events) for part, events in cluster.log.items()}
        return ends, dict.fromkeys(ends, of_records), self._query.horizon_ms

    def close(self) -> None:
        self._query.close()

    def _sql(self, span: Span | None) -> str:
        values = f"{VALUES}, APPROX_COUNT_DISTINCT(visitor)" if self._visitors else VALUES
        condition = ""
        if span is not None:
            assert not any(at_ms % MINUTE_MS for at_ms in span), "cubes keep minutes"
            start, end = (datetime.fromtimestamp(at_ms / 1000, UTC).replace(tzinfo=None) for at_ms in span)
            condition = f" WHERE ts >= '{start}' AND ts < '{end}'"
        keys = ", ".join(DIMENSIONS)
        return f"SELECT {keys}, {values} FROM {self._cluster.cube}{condition} GROUP BY {keys}"

    def expected(self, found: Found, span: Span | None = None) -> Answer:
        """Return the recount of the prefix that the positions name, without what is purged or dropped as
        late, and with what batches say in place of the topic."""
        streamed = (
            event
            for part, events in self._cluster.log.items()
            for offset, event in enumerate(events[: found.positions[part]])
            if event is not None and self._counts(found, span, part, offset, event)
        )
        said = (
            event
            for location in found.locations.values()
            if location in self._cluster.said_by_batches
            for event in self._cluster.said_by_batches[location].events
            if self._is_asked_for(found, span, event)
        )
        as_asked = counted(recount(chain(streamed, said), visitors=self._visitors))
        return plain_estimates(as_asked) if self._visitors else as_asked

    def _is_asked_for(self, found: Found, span: Span | None, event: Event) -> bool:
        end_ms = event.segment_ms + self._cluster.schema.cube.segment.window_ms
        if found.horizon_ms is not None and end_ms <= found.horizon_ms:
            return False
        return span is None or span[0] <= event.event_ms < span[1]

    def _counts(self, found: Found, span: Span | None, part: int, offset: int, event: Event) -> bool:
        cube, start_ms = self._cluster.schema.cube, event.segment_ms
        if not self._is_asked_for(found, span, event):
            return False
        said = self._cluster.said_by_batches.get(found.locations.get(start_ms, ""))
        if said is not None and offset < said.below.get(part, 0):
            return False
        known = found.vectors[part].get(start_ms) if cube.late.policy == "drop" else None
        if known is None:
            return True
        closed = known.covered if known.version else known.target
        return part not in closed or offset < closed[part]


def members(cluster: Cluster, replica_set: str) -> list[Receiver]:
    """Return the receivers of a replica set that live; all, where none does."""
    known = [r for r in cluster.receivers if r.replica_set == replica_set]
    return [receiver for receiver in known if receiver.alive] or known


def chooser(cluster: Cluster, random_: random.Random) -> Callable[[str], Receiver]:
    def choose(replica_set: str) -> Receiver:
        return random_.choice(members(cluster, replica_set))

    return choose
