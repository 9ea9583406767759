"""The memory of delivered edits: exact, compact, and bounded.

An edit is (region, sequence id). A region's ids grow over its whole life, also when it moves, so an id names
one edit for ever. Sets of ids are remembered, never "everything up to": a server that a region has left may
ship its share late, even in one call with later edits of the region, after it came back.

    remembered   what comes again is a duplicate
    late         new, and below the highest delivered id of its region, or of another that has had its row
                 since, see `row_ranges`: delivered, and flagged
    forgotten    comes again as late, and is delivered again

Ids that are used again, as after a restored snapshot, show by their write time: an edit that was written
after all that was delivered of its region is no repetition of any.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap64

from rtolap.sep.delivery.edit_records import I64, RegionEdits, bitmap_of, ids_of, packed, unpacked
from rtolap.sep.delivery.row_ranges import ROW_BYTES_MAX, DeliveredRegion, RowRanges, first_and_last
from rtolap.sep.events.edit_batch import EditBatch

Mask = NDArray[np.bool_]

REMEMBERED_EDITS = 10_000_000
GENERATION_EDITS = 50_000  # twice the most entries that HBase ships in one call
REGIONS_MAX = 100_000
_SNAPSHOT_IDS = 200_000  # of one region in one record: below 1 MB however they are spread


@dataclass(frozen=True, slots=True)
class Split:
    """Masks over the events of a batch. An event is new or a duplicate; `late` ones are new."""

    new: Mask
    duplicate: Mask
    late: Mask


@dataclass(slots=True)
class _Region:
    """The remembered edits of a region.

    Attributes:
        delivered: all remembered ids.
        generations: the same ids by age; the last generation still grows.
        partial: edits of which some rows are still due, with the rows that were delivered.
    """

    delivered: BitMap64 = field(default_factory=BitMap64)
    generations: deque[BitMap64] = field(default_factory=lambda: deque([BitMap64()]))
    partial: dict[int, set[bytes]] = field(default_factory=dict)
    progress: DeliveredRegion = field(default_factory=DeliveredRegion)

    @property
    def edits(self) -> int:
        return len(self.delivered) + len(self.partial)


class DeliveredEdits:
    """The edits that were delivered. Not thread-safe.

    Args:
        remembered_edits: the most edits that are remembered; the oldest are dropped first.
        generation_edits: the newest edits of each region that are never dropped, because a queue may stand
            still while others go on.
        regions_max: the most regions; beyond it, the regions without an edit for longest are forgotten.
    """

    def __init__(
        self,
        remembered_edits: int = REMEMBERED_EDITS,
        *,
        generation_edits: int = GENERATION_EDITS,
        regions_max: int = REGIONS_MAX,
    ) -> None:
        self._remembered_edits = remembered_edits
        self._generation_edits = generation_edits
        self._regions_max = regions_max
        self._regions: OrderedDict[str, _Region] = OrderedDict()
        self._row_ranges = RowRanges()
        self._droppable: deque[tuple[str, BitMap64]] = deque()  # full generations, oldest first
        self.num_edits = 0

    def highest(self, region: str) -> int:
        """Return the highest delivered id of the region, -1 where there is none."""
        known = self._regions.get(region)
        return -1 if known is None else known.progress.highest

    def delivered_of(self, region: str) -> BitMap64:
        """Return the ids of the region's whole edits that are remembered. Not to be changed."""
        known = self._regions.get(region)
        return BitMap64() if known is None else known.delivered

    def split(self, batch: EditBatch) -> Split:
        """Tell new events from those that were delivered. Changes nothing.

        An event that stands twice in the batch is a duplicate at its second place.
        """
        sequence_ids, write_ms, names, codes = _keys(batch)
        duplicate = np.zeros(batch.num_events, bool)
        late = np.zeros(batch.num_events, bool)
        for code, places in _by_region(codes):
            ids, written_ms = sequence_ids[places], write_ms[places]
            known = self._regions.get(names[code])
            progress = None if known is None else known.progress
            rows, table = _rows(batch, places), _table(batch, places)
            late[places] = self._row_ranges.behind(table, progress, rows, ids, written_ms)
            if known is not None:
                repeated = self._repeated(known, batch, places, ids)
                duplicate[places] = repeated & (written_ms <= known.progress.newest_write_ms)
                late[places] |= ids < known.progress.highest
            if _may_repeat(rows, ids):
                duplicate[places] |= _second_places(rows, ids)
        return Split(~duplicate, duplicate, late & ~duplicate)

    def edits_of(self, batch: EditBatch, split: Split, delivered: Mask) -> list[RegionEdits]:
        """Return what there is to remember once the events of the mask are delivered, as records.
        `split`: that of the batch, as it is now.

        `batch` holds every event of its edits; an event outside of the mask is still due, unless it was
        delivered before. Changes nothing: see `remember`.
        """
        sequence_ids, write_ms, names, codes = _keys(batch)
        due = split.new & ~delivered
        none_due = not due.any()
        records: list[RegionEdits] = []
        for code, places in _by_region(codes):
            done = places[delivered[places]]
            if not len(done):
                continue
            known = self._regions.get(names[code])
            ids = _distinct(sequence_ids[done])
            torn = ids[:0] if none_due else np.intersect1d(ids, sequence_ids[places[due[places]]])
            partial: list[tuple[int, tuple[bytes, ...]]] = []
            for sequence_id in torn.tolist():
                of_edit = done[sequence_ids[done] == sequence_id]
                rows = batch.events["row"].take(pa.array(of_edit)).to_pylist()
                partial.append((sequence_id, tuple(rows)))
            whole = bitmap_of(ids if none_due else np.setdiff1d(ids, torn, assume_unique=True))
            # an id that is there already and was not taken for a repetition: it is used again
            reused = known is not None and (
                bool(known.delivered.intersect(whole)) or any(int(i) in known.delivered for i in torn)
            )
            first_row, last_row = first_and_last(_rows(batch, done))
            records.append(
                RegionEdits(
                    names[code],
                    packed(whole),
                    int(write_ms[done].max()),
                    tuple(partial),
                    reused,
                    table=_table(batch, done),
                    first_row=first_row[:ROW_BYTES_MAX],
                    last_row=last_row[:ROW_BYTES_MAX],
                )
            )
        return records

    def remember(self, records: Sequence[RegionEdits]) -> None:
        for record in records:
            known = self._regions.get(record.region)
            if known is not None and record.forgets:
                self._forget(record.region)
                known = None
            if known is None:
                known = self._regions[record.region] = _Region(progress=DeliveredRegion(record.table))
            self._regions.move_to_end(record.region)
            before, progress = known.edits, known.progress
            whole = unpacked(record.sequence_ids)
            for sequence_id, rows in record.partial:
                if sequence_id not in known.delivered:
                    known.partial.setdefault(sequence_id, set()).update(rows)
                progress.highest = max(progress.highest, sequence_id)
            if whole:
                for sequence_id in [each for each in known.partial if each in whole]:
                    del known.partial[sequence_id]
                known.generations[-1] |= whole - known.delivered
                known.delivered |= whole
                progress.highest = max(progress.highest, int(whole.max()))
            progress.highest = max(progress.highest, record.highest)
            progress.newest_write_ms = max(progress.newest_write_ms, record.newest_write_ms)
            if record.last_row:
                self._row_ranges.deliver(progress, record.first_row, record.last_row)
            self.num_edits += known.edits - before
            if len(known.generations[-1]) >= self._generation_edits:
                known.generations[-1].run_optimize()
                known.delivered.run_optimize()
                if len(known.generations) > 1:
                    self._droppable.append((record.region, known.generations[-2]))
                known.generations.append(BitMap64())
        self._drop_oldest()

    def records(self) -> Iterator[RegionEdits]:
        """Yield everything that is remembered, in records of less than 1 MB."""
        for name, known in self._regions.items():
            ids, progress = ids_of(known.delivered), known.progress
            partial = tuple((at, tuple(sorted(rows))) for at, rows in sorted(known.partial.items()))
            for first in range(0, max(1, len(ids)), _SNAPSHOT_IDS):
                some = packed(bitmap_of(ids[first : first + _SNAPSHOT_IDS]))
                yield RegionEdits(
                    name,
                    some,
                    progress.newest_write_ms,
                    partial,
                    highest=progress.highest,
                    table=progress.table,
                    first_row=progress.first,
                    last_row=progress.last,
                )
                partial = ()

    def _repeated(self, known: _Region, batch: EditBatch, places: I64, ids: I64) -> Mask:
        repeated = np.isin(ids, ids_of(known.delivered & bitmap_of(_distinct(ids))))
        if known.partial:
            for at in np.flatnonzero(np.isin(ids, np.fromiter(known.partial, np.int64))).tolist():
                row = batch.events["row"][int(places[at])].as_py()
                repeated[at] = row in known.partial[int(ids[at])]
        return repeated

    def _drop_oldest(self) -> None:
        while self.num_edits > self._remembered_edits and self._droppable:
            name, generation = self._droppable.popleft()
            known = self._regions.get(name)
            # it may be another region's life: one that was forgotten and came again
            if known is not None and any(each is generation for each in known.generations):
                known.generations.remove(generation)
                known.delivered -= generation
                self.num_edits -= len(generation)
        while len(self._regions) > self._regions_max:
            self._forget(next(iter(self._regions)))

    def _forget(self, name: str) -> None:
        forgotten = self._regions.pop(name)
        self.num_edits -= forgotten.edits
        self._row_ranges.forget(forgotten.progress)


def _keys(batch: EditBatch) -> tuple[I64, I64, list[str], NDArray[np.int32]]:
    """Return the events' sequence ids, write times in ms, names of regions, and each event's index of its
    region's name."""
    regions = batch.events["region"]
    return (
        batch.events["sequence_id"].to_numpy(),
        batch.events["write_time_ms"].to_numpy(),
        regions.dictionary.to_pylist(),
        regions.indices.to_numpy(),
    )


def _by_region(codes: NDArray[np.int32]) -> Iterator[tuple[int, I64]]:
    """Yield the index of each region's name, with the places of its events in their order."""
    if not len(codes):
        return
    if codes.min() == codes.max():
        yield int(codes[0]), np.arange(len(codes))
        return
    order = np.argsort(codes, kind="stable")
    borders = np.flatnonzero(np.diff(codes[order])) + 1
    for places in np.split(order, borders):
        yield int(codes[places[0]]), places


def _rows(batch: EditBatch, places: I64) -> pa.BinaryArray:
    """Return the rows at ascending `places`."""
    rows = batch.events["row"]
    return rows if len(places) == len(rows) else rows.take(pa.array(places))


def _table(batch: EditBatch, places: I64) -> str:
    """Return the table of the events, which are of one region."""
    return str(batch.events["table"][int(places[0])].as_py())


def _distinct(ids: I64) -> I64:
    """Return the distinct ids, in ascending order; ids of a log are in order already."""
    ascending = ids if np.all(ids[1:] >= ids[:-1]) else np.sort(ids)
    return ascending[np.concatenate(([True], ascending[1:] != ascending[:-1]))[: len(ids)]]


def _may_repeat(rows: pa.BinaryArray, ids: I64) -> bool:
    """Return False for ids that have one event each, in any order, and for those of a log, which grow, with
    each row of an edit once."""
    steps = np.diff(ids)
    if np.all(steps > 0):
        return False
    if np.any(steps < 0):
        return len(np.unique(ids)) < len(ids)
    # an edit that follows itself shows its first row again
    starts = np.concatenate(([0], np.flatnonzero(steps) + 1))
    first_rows = rows.take(pa.array(np.repeat(starts, np.diff(starts, append=len(ids)))))
    return int(pc.sum(pc.equal(rows, first_rows)).as_py()) > len(starts)


def _second_places(rows: pa.BinaryArray, ids: I64) -> Mask:
    """Return events of one region whose edit and row stood before them. Calls that come side by side are put
    together out of order, so this is not rare."""
    codes = rows.dictionary_encode().indices.to_numpy()
    order = np.lexsort((codes, ids))  # stable: of equal ones the first place comes first
    before, after = order[:-1], order[1:]
    second = np.zeros(len(ids), bool)
    second[after[(ids[before] == ids[after]) & (codes[before] == codes[after])]] = True
    return second
