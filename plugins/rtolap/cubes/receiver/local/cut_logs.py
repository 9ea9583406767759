"""Removes the records that a truncated log has lost from the local state. Pure.

Events of records that the log has lost are void. A table of such events alone is dropped; a table with other
events is read again without them, and answers nothing before that. Events that are in history, or that a
closing vector counts, cannot be taken back here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from rtolap.cubes.receiver.local.align import NO_VECTORS
from rtolap.cubes.receiver.local.tables import LocalSegment, LocalState, LocalTable, realigned
from rtolap.cubes.receiver.settled import SettledSegments, named_beyond
from rtolap.kafka.interfaces import CutPartition
from rtolap.metadata.records import SegmentRecord
from rtolap.metadata.segment_format.pages import HistoryFrontier
from rtolap.model.leader_epochs import LeaderEpochs, of_marks
from rtolap.model.offsets import Offsets
from rtolap.model.segment import SegmentState


def counted_beyond(
    records: Mapping[int, SegmentRecord],
    settled: SettledSegments,
    cuts: Collection[CutPartition],
    horizon_ms: int | None,
) -> list[str]:
    """Return the segments whose history or closing vector counts offsets beyond a cut, by name.

    If only settled ones do, the newest of them. Raises Unavailable where it has to be read and cannot be.
    """
    names = [
        record.name
        for _, record in sorted(records.items())
        if record.state is not SegmentState.PURGED
        and (horizon_ms is None or record.end_ms > horizon_ms)
        and any(
            max(record.covered.get(cut.partition, 0), record.target.get(cut.partition, 0)) > cut.diverges
            for cut in cuts
        )
    ]
    newest = named_beyond(settled, {cut.partition: cut.diverges for cut in cuts}, horizon_ms, names)
    return names if newest is None else [newest]


def known_by_vectors(
    records: Mapping[int, SegmentRecord], frontier: HistoryFrontier, partitions: Collection[int]
) -> dict[int, LeaderEpochs]:
    """Return the leader epochs that the segments' vectors and the frontier tell, of these partitions.

    A log that still holds the record below the frontier holds what the vectors of settled segments count.
    """
    vectors = [(frontier.covered, frontier.epochs)]
    for record in records.values():
        vectors += [(record.covered, record.covered_epochs), (record.target, record.target_epochs)]
    marks: dict[int, list[tuple[int, int]]] = {}
    for vector, epochs in vectors:
        for partition in epochs.keys() & vector.keys() & set(partitions):
            marks.setdefault(partition, []).append((vector[partition], epochs[partition]))
    found = {partition: of_marks(known) for partition, known in marks.items()}
    return {partition: known for partition, known in found.items() if known is not None}


def epochs_are_known(
    records: Mapping[int, SegmentRecord], frontier: HistoryFrontier, cuts: Collection[CutPartition]
) -> bool:
    """Return whether each vector that reaches beyond a cut says the leader epoch there, so that it can be
    compared with the log."""
    vectors = [(frontier.covered, frontier.epochs)]
    for record in records.values():
        vectors += [(record.covered, record.covered_epochs), (record.target, record.target_epochs)]
    return all(
        cut.partition in epochs
        for vector, epochs in vectors
        for cut in cuts
        if vector.get(cut.partition, 0) > cut.diverges
    )


def without_cut(
    state: LocalState, cuts: Iterable[CutPartition], valid_partitions: Collection[int]
) -> LocalState:
    """Return the state that counts nothing at or beyond the cuts, at positions no further than they are."""
    at = {cut.partition: cut.diverges for cut in cuts}
    changed: dict[int, LocalSegment] = {}
    for start, segment in state.segments.items():
        tables = tuple(_cut(table, at) for table in segment.tables)
        if tables != segment.tables:
            vectors = state.vectors.get(start, NO_VECTORS)
            changed[start] = realigned(LocalSegment(start, tables), vectors, valid_partitions)
    epochs = {p: known.cut(at[p]) if p in at else known for p, known in state.epochs.items()}
    return replace(
        state,
        positions={p: min(position, at.get(p, position)) for p, position in state.positions.items()},
        epochs={p: known for p, known in epochs.items() if known is not None},
        void={**state.void, **_void(state, at)},
    ).with_segments(changed)


def _cut(table: LocalTable, at: Offsets) -> LocalTable:
    cuts = {p: at[p] for p, (_, end) in table.ranges.items() if p in at and end > at[p]}
    if not cuts:
        return table
    smallest = {p: min(offset, table.cuts.get(p, offset)) for p, offset in cuts.items()}
    return replace(table, cuts={**table.cuts, **smallest}, sealed=False)


def _void(state: LocalState, at: Offsets) -> dict[int, tuple[int, int]]:
    void: dict[int, tuple[int, int]] = {}
    for partition, offset in at.items():
        before = state.void.get(partition, (offset, offset))
        position = state.positions.get(partition, offset)
        void[partition] = (min(offset, before[0]), max(position, before[1]))
    return void
