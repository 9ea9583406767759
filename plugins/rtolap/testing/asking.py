"""Questions to the in-process cluster, and the recount of what an answer names."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from rtolap.base.errors import StaleSnapshot, Unavailable
from rtolap.metadata.records import SegmentRecord
from rtolap.model.segment_states import SegmentState
from rtolap.receiver.align import Vectors
from rtolap.receiver.query_service import answer
from rtolap.receiver.states import ConsumerState
from rtolap.testing.builders import DIMENSIONS, PARTIALS, Event
from rtolap.testing.cluster import Cluster
from rtolap.testing.recount import VISITORS, Answer, from_table, merge_into, recount
from rtolap.testing.stepped_receiver import Receiver
from rtolap.wire.receiver import ANSWER_KEY, PartialAnswer, PartialQuery, Snapshot

Span = tuple[int, int]  # event time, [start_ms, end_ms)


@dataclass(frozen=True)
class Found:
    """An answer, the prefix that it holds, and what those who answered know of vectors, by partition."""

    answer: Answer
    positions: dict[int, int]
    horizon_ms: int | None
    vectors: Mapping[int, Mapping[int, Vectors]]


class Asker:
    """One query service: it remembers the positions that it has answered with."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._visitors = VISITORS in {partial.name for partial in cluster.schema.partials}
        self.seen: dict[int, int] = {}

    def ask(self, choose: Callable[[str], Receiver], span: Span | None = None) -> Found | None:
        """History of one snapshot plus each replica set's partials; None when somebody cannot answer yet."""
        cluster = self._cluster
        control = cluster.metadata.control(cluster.cube)
        ready = [record for record in cluster.records().values() if _stands(record, control.horizon_ms)]
        start_ms, end_ms = span if span is not None else (None, None)
        versions = {record.name: record.version for record in ready}
        snapshot = Snapshot(versions, control.horizon_ms, start_ms, end_ms, control.assignment_epoch)
        partials = (*PARTIALS, VISITORS) if self._visitors else PARTIALS
        query = PartialQuery(cluster.cube, DIMENSIONS, partials, snapshot, None, dict(self.seen))
        merged: Answer = {}
        positions: dict[int, int] = {}
        vectors: dict[int, Mapping[int, Vectors]] = {}
        for replica_set in sorted(control.assignment):
            receiver = choose(replica_set)
            core = receiver.core
            if core.consumer_state is ConsumerState.STOPPED:
                return None
            try:
                table = answer(
                    cluster.schema,
                    core.state,
                    query,
                    owned=core.owned,
                    receiver_id=receiver.name,
                    progress=core.progress,
                )
            except (Unavailable, StaleSnapshot):
                return None
            said = msgspec.json.decode(table.schema.metadata[ANSWER_KEY], type=PartialAnswer)
            assert not positions.keys() & said.positions.keys(), "two replica sets answer for a partition"
            positions.update(said.positions)
            vectors.update(dict.fromkeys(said.positions, core.state.vectors))
            merge_into(merged, from_table(table))
        for record in ready:
            if span is None or (record.start_ms < span[1] and record.end_ms > span[0]):
                assert record.location is not None, "a version has its place"
                merge_into(merged, cluster.history[record.location])
        self.seen = positions
        return Found(merged, positions, control.horizon_ms, vectors)

    def expected(self, found: Found, span: Span | None = None) -> Answer:
        """The recount of the prefix that the positions name, without what is purged or dropped as late."""
        return recount(
            (
                event
                for part, events in self._cluster.log.items()
                for offset, event in enumerate(events[: found.positions[part]])
                if event is not None and self._counts(found, span, part, offset, event)
            ),
            visitors=self._visitors,
        )

    def _counts(self, found: Found, span: Span | None, part: int, offset: int, event: Event) -> bool:
        cube = self._cluster.schema.cube
        start_ms, end_ms = event.segment_ms, event.segment_ms + cube.segment.window_ms
        if found.horizon_ms is not None and end_ms <= found.horizon_ms:
            return False
        if span is not None and not (start_ms < span[1] and end_ms > span[0]):
            return False
        known = found.vectors[part].get(start_ms) if cube.late.policy == "drop" else None
        if known is None:
            return True
        closed = known.covered if known.version else known.target
        return part not in closed or offset < closed[part]


def _stands(record: SegmentRecord, horizon_ms: int | None) -> bool:
    beyond = horizon_ms is None or record.end_ms > horizon_ms
    return record.version > 0 and record.state is not SegmentState.PURGED and beyond


def chooser(cluster: Cluster, random_: random.Random) -> Callable[[str], Receiver]:
    def choose(replica_set: str) -> Receiver:
        return random_.choice([r for r in cluster.receivers if r.replica_set == replica_set])

    return choose
