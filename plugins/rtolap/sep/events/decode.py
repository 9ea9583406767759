"""A ReplicateWALEntry call → its events in columns: an event for each row of each WAL entry.

What HBase ships is more than what a subscription wants: edits older than its start come with the first log of
a new peer, and cells of the family METAFAMILY (bulk loads, flushes, compactions, openings of regions) tell of
regions, not of rows. Both are counted and left out, the latter unless they are asked for.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from rtolap.base.errors import Corrupted, TooLarge
from rtolap.sep.events.cells import CellBlock, decode_cells
from rtolap.sep.events.edit_batch import CELLS_SCHEMA, EVENTS_SCHEMA, EditBatch, empty_batch
from rtolap.sep.events.filters import EditFilter
from rtolap.sep.hbase.replication_pb2 import UUID, ReplicateWALEntryRequest, WALKey

METAFAMILY: Final = b"METAFAMILY"

_UNCOUNTED_BYTES: Final = 512 << 10  # what so few bytes become is small enough
_PARAMETER_BYTES_MAX: Final = 64 << 20
_OTHER_FIELDS_BYTES_MAX: Final = 64 << 10
_ENTRY_TAG: Final = 0x0A  # field 1, with a length
_CLUSTERS_MAX: Final = 64

MetaCells = Literal["skip", "event"]
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DecodedCall:
    """The selected events of a call, and counts of the rest.

    Attributes:
        entries_before_start: entries written before the subscription's start.
        meta_cells_skipped: cells of METAFAMILY that were left out.
        events_filtered: events of which the filters left no cell.
    """

    batch: EditBatch
    entries: int
    entries_before_start: int = 0
    meta_cells_skipped: int = 0
    events_filtered: int = 0


class EditDecoder:
    """Decodes the calls of one subscription. It stores nothing between calls and is thread-safe.

    Args:
        start_ms: entries written before it are left out; None for no limit.
        meta_cells: "event" makes events of cells of METAFAMILY too.
        filters: applied in their order.
        entries_max: the most entries of one call. An entry takes two bytes of a message and hundreds in
            memory, so entries are counted before they are parsed.
        cells_max: the most cells of one call, counted in the same way.
    """

    def __init__(
        self,
        *,
        start_ms: int | None = None,
        meta_cells: MetaCells = "skip",
        filters: Sequence[EditFilter] = (),
        entries_max: int = 200_000,
        cells_max: int = 2_000_000,
    ) -> None:
        self._start_ms = start_ms
        self._skips_meta_cells = meta_cells == "skip"
        self._filters = tuple(filters)
        self._entries_max, self._cells_max = entries_max, cells_max

    def decode(
        self, parameter: bytes | bytearray | memoryview, cell_block: bytes | bytearray | memoryview
    ) -> DecodedCall:
        """Decode a call. `parameter` is its ReplicateWALEntryRequest as bytes.

        Corrupted: either of both cannot be read, or they contradict each other. TooLarge: more entries or
        cells than there may be.
        """
        _check_entries(parameter, self._entries_max)
        entries, cells = _decode_entries(parameter), decode_cells(cell_block, self._cells_max)
        claimed = int(entries.cell_count.sum())
        if claimed != len(cells):
            raise Corrupted(
                "a call's entries and its cell block contradict each other",
                expected=f"{claimed} cells, as the entries say",
                found=len(cells),
            )
        if not len(cells):
            return DecodedCall(empty_batch(), len(entries))
        before_start, meta_cells = 0, 0
        families = cells.families().dictionary_encode()
        wanted = np.ones(len(cells), bool)
        if self._start_ms is not None:
            old = entries.write_time_ms < self._start_ms
            if before_start := int(np.count_nonzero(old)):
                wanted &= ~np.repeat(old, entries.cell_count)
        if self._skips_meta_cells and METAFAMILY in (names := families.dictionary.to_pylist()):
            is_meta = families.indices.to_numpy() == names.index(METAFAMILY)
            meta_cells = int(np.count_nonzero(is_meta))
            wanted &= ~is_meta
        places = None if wanted.all() else np.flatnonzero(wanted)
        batch = _batch(entries, cells, families, places)
        made = batch.num_events
        for edit_filter in self._filters:
            batch = edit_filter(batch)
        return DecodedCall(batch, len(entries), before_start, meta_cells, made - batch.num_events)


def _batch(
    entries: _EntryColumns, cells: CellBlock, families: pa.DictionaryArray, places: Places | None
) -> EditBatch:
    """Build the batch of the cells at `places`, of all where it is None."""
    entry_of_cell = np.repeat(np.arange(len(entries)), entries.cell_count)
    if places is not None:
        entry_of_cell = entry_of_cell[places]
    groups = _group_by_entry_and_row(entry_of_cell, cells.rows(places))
    if groups.order is not None:
        places = groups.order if places is None else places[groups.order]
    of_entry = pa.array(groups.entry)
    events = [
        entries.table.take(of_entry),
        entries.region.take(of_entry),
        pa.array(entries.sequence_id[groups.entry]),
        pa.array(entries.write_time_ms[groups.entry]),
        groups.row,
        entries.cluster_ids.take(of_entry),
        pa.array(groups.first_cell.astype(np.int32)),
        pa.array(groups.cell_count.astype(np.int32)),
    ]
    event_of_cell = np.repeat(np.arange(len(groups.entry), dtype=np.int32), groups.cell_count)
    columns = [
        pa.array(event_of_cell),
        families if places is None else families.take(pa.array(places)),
        cells.qualifiers(places),
        pa.array(cells.timestamp_ms if places is None else cells.timestamp_ms[places]),
        pa.array(cells.type if places is None else cells.type[places]),
        cells.values(places),
        cells.tags(places) if cells.has_tags else _no_tags(len(event_of_cell)),
    ]
    return EditBatch(
        pa.RecordBatch.from_arrays(events, schema=EVENTS_SCHEMA),
        pa.RecordBatch.from_arrays(columns, schema=CELLS_SCHEMA),
    )


def _no_tags(count: int) -> pa.BinaryArray:
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(bytes(4 * (count + 1))), pa.py_buffer(b"")]
    )


@dataclass(frozen=True, slots=True)
class _EventGroups:
    """The events of a call, as groups of cells.

    Attributes:
        entry: the entry of each event.
        row: the row of each event.
        first_cell: the place of each event's first cell.
        cell_count: the number of each event's cells.
        order: the former place of each cell; None if no cell moves.
    """

    entry: Places
    row: pa.BinaryArray
    first_cell: Places
    cell_count: Places
    order: Places | None


def _group_by_entry_and_row(entry_of_cell: Places, rows: pa.BinaryArray) -> _EventGroups:
    """Group cells by entry and row. `entry_of_cell` ascends; `rows[i]` is the row of cell i. Events stand in
    the order of first cells.

    Neighbours of one entry and row are one run of cells. Only where the same row comes again within an entry,
    after another one, do cells move.
    """
    cell_total = len(entry_of_cell)
    if not cell_total:
        none = np.empty(0, np.int64)
        return _EventGroups(none, rows, none, none, None)
    new_entry = entry_of_cell[1:] != entry_of_cell[:-1]
    new_row = pc.not_equal(rows[1:], rows[:-1]).to_numpy(zero_copy_only=False)
    run_starts = np.concatenate([[0], np.flatnonzero(new_entry | new_row) + 1])
    run_cells = np.diff(run_starts, append=cell_total)
    run_entry = entry_of_cell[run_starts]
    run_rows = rows if len(run_starts) == cell_total else rows.take(pa.array(run_starts))
    one_run_each = len(run_starts) == np.count_nonzero(new_entry) + 1
    event_of_run = None if one_run_each else _events_where_rows_return(run_entry, run_rows)
    if event_of_run is None:
        return _EventGroups(run_entry, run_rows, run_starts, run_cells, None)
    event_total = int(event_of_run.max()) + 1
    first_run = np.full(event_total, len(event_of_run), np.int64)
    np.minimum.at(first_run, event_of_run, np.arange(len(event_of_run)))
    cell_count = np.zeros(event_total, np.int64)
    np.add.at(cell_count, event_of_run, run_cells)
    order = np.argsort(np.repeat(event_of_run, run_cells), kind="stable")
    return _EventGroups(
        run_entry[first_run],
        run_rows.take(pa.array(first_run)),
        np.cumsum(cell_count) - cell_count,
        cell_count,
        order,
    )


def _events_where_rows_return(run_entry: Places, run_rows: pa.BinaryArray) -> Places | None:
    """Number the pairs of entry and row in the order of their first appearance; None if each appears once."""
    rows = run_rows.dictionary_encode()
    pairs = run_entry * len(rows.dictionary) + rows.indices.to_numpy()
    numbered = pa.array(pairs).dictionary_encode()
    if len(numbered.dictionary) == len(pairs):
        return None
    numbers: Places = numbered.indices.to_numpy().astype(np.int64)
    return numbers


@dataclass(frozen=True, slots=True)
class _EntryColumns:
    """A row an entry; `table` and `region` are dictionaries, `cluster_ids` lists of texts."""

    table: pa.DictionaryArray
    region: pa.DictionaryArray
    sequence_id: NDArray[np.int64]
    write_time_ms: NDArray[np.int64]
    cluster_ids: pa.ListArray
    cell_count: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sequence_id)


def _check_entries(parameter: bytes | bytearray | memoryview, entries_max: int) -> None:
    """Raise TooLarge for more parts than there may be entries. Torn messages are left to the parser."""
    if len(parameter) > _PARAMETER_BYTES_MAX:
        raise TooLarge(
            "the keys of a call's WAL entries are too large",
            expected=f"at most {_PARAMETER_BYTES_MAX} bytes",
            found=len(parameter),
            action="lower replication.source.nb.capacity of the region servers",
        )
    if len(parameter) <= _UNCOUNTED_BYTES:
        return
    view = memoryview(parameter)
    place, end, count = 0, len(view), 0
    while place < end and view[place] == _ENTRY_TAG:
        place += 1
        length = shift = 0
        while place < end:
            byte = view[place]
            place += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 63:
                break
        place += length
        count += 1
        if count > entries_max:
            raise TooLarge(
                "a call holds too many WAL entries",
                expected=f"at most {entries_max}",
                found="more",
                action="lower replication.source.nb.capacity of the region servers, or raise "
                "RTOLAP_SEP_ENTRIES_MAX",
            )
    if end - place > _OTHER_FIELDS_BYTES_MAX:
        raise Corrupted(
            "a ReplicateWALEntryRequest has much behind its entries",
            expected=f"its other fields, at most {_OTHER_FIELDS_BYTES_MAX} bytes",
            found=f"{end - place} bytes",
        )


def _decode_entries(parameter: bytes | bytearray | memoryview) -> _EntryColumns:
    """Decode the entries of a serialized ReplicateWALEntryRequest. Raises Corrupted where `parameter` is
    none, or contradicts itself."""
    request = ReplicateWALEntryRequest()
    try:
        request.ParseFromString(bytes(parameter))
    except DecodeError as error:
        raise Corrupted(
            "the parameter of ReplicateWALEntry cannot be read",
            expected="a ReplicateWALEntryRequest",
            found=f"{len(parameter)} bytes: {error}",
        ) from error
    entries = list(request.entry)
    keys = [entry.key for entry in entries]
    if any(len(key.cluster_ids) > _CLUSTERS_MAX for key in keys):
        raise Corrupted("a WAL entry names too many clusters", expected=f"at most {_CLUSTERS_MAX}")
    cell_counts = [entry.associated_cell_count for entry in entries]
    if min(cell_counts, default=0) < 0 or any(entry.key_value_bytes for entry in entries):
        raise Corrupted(
            "a WAL entry does not say how many cells of the block are its own",
            expected="a count of at least 0, and no cells within the entry",
            action="let region servers of HBase 2.5 or newer ship to this peer",
        )
    try:
        return _EntryColumns(
            _names("table", [key.table_name for key in keys]),
            _names("region", [key.encoded_region_name for key in keys]),
            np.array([key.log_sequence_number for key in keys], np.int64),
            np.array([key.write_time for key in keys], np.int64),
            _clusters(keys),
            np.array(cell_counts, np.int64),
        )
    except OverflowError as error:
        raise Corrupted(
            "the key of a WAL entry is broken", expected="a sequence id and a time below 2^63"
        ) from error


def _names(kind: str, names: Sequence[bytes]) -> pa.DictionaryArray:
    encoded = pa.array(names, pa.binary()).dictionary_encode()
    try:
        texts = encoded.dictionary.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise Corrupted(f"a WAL entry names its {kind} in bytes that are no UTF-8") from error
    if "" in texts.to_pylist():
        raise Corrupted(f"a WAL entry does not name its {kind}")
    return pa.DictionaryArray.from_arrays(encoded.indices, texts)


def _clusters(keys: Sequence[WALKey]) -> pa.ListArray:
    codes: dict[tuple[bytes, ...], int] = {}
    code_of = codes.setdefault
    chosen = [code_of(tuple(key.cluster_ids), len(codes)) for key in keys]
    lists = [[_cluster_id(serialized) for serialized in ids] for ids in codes]
    return pa.array(lists, pa.list_(pa.string())).take(pa.array(chosen, pa.int32()))


def _cluster_id(serialized: bytes) -> str:
    try:
        parsed = UUID.FromString(serialized)
    except DecodeError as error:
        raise Corrupted("the id of a cluster in a WAL entry cannot be read", expected="a UUID") from error
    return str(uuid.UUID(int=(parsed.most_sig_bits << 64) | parsed.least_sig_bits))
