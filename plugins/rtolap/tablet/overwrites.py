"""Which rows a publish deletes in a unique table, so that reading needs no merge.

Of every key at most one row is alive. A new row finds it by the hash of the key and deletes it; with a
sequence column the larger one stays, and of equal ones the later. A null in it is smaller than everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap, FrozenBitMap

from rtolap.format.groups import single_chunk
from rtolap.model.stored_schema import StoredSchema
from rtolap.tablet.columns import file_column
from rtolap.tablet.deletes import FileId
from rtolap.tablet.keys import Longs, hashes, rows_below
from rtolap.tablet.sorted_file import SortedFile

_ROWS_AT_ONCE = 262_144


class Older(NamedTuple):
    id: FileId
    file: SortedFile
    deleted: FrozenBitMap


def overwritten(
    new: Sequence[tuple[FileId, SortedFile]], older: Sequence[Older], schema: StoredSchema
) -> dict[FileId, BitMap]:
    """Rows to delete, of older files and of the new ones, which are in order of arrival."""
    found: dict[FileId, BitMap] = {}
    against = list(older)
    for file_id, file in new:
        for start in range(0, file.rows, _ROWS_AT_ONCE):
            for other in against:
                _against(file_id, file, start, other, schema, found)
        against.append(Older(file_id, file, FrozenBitMap()))
    return {file_id: rows for file_id, rows in found.items() if rows}


def _against(
    file_id: FileId,
    file: SortedFile,
    start: int,
    other: Older,
    schema: StoredSchema,
    found: dict[FileId, BitMap],
) -> None:
    names = [file_column(column_id) for column_id in schema.keys]
    table = file.slice(start, start + _ROWS_AT_ONCE, names)
    keys = [single_chunk(table.column(name)) for name in names]
    first = rows_below(keys, [column[0] for column in other.file.sparse_keys()])
    last = rows_below(keys, other.file.last_key(), inclusive=True)
    if last <= first:
        return
    keys = [column.slice(first, last - first) for column in keys]
    matches = other.file.find(hashes(keys), keys)
    deleted = other.deleted | found.get(other.id, BitMap())
    alive = ~_among(matches.mine, deleted)
    mine, theirs = matches.mine[alive], matches.theirs[alive] + start + first
    stays = _stays(file, theirs, other.file, mine, schema)
    found.setdefault(other.id, BitMap()).update(mine[~stays].astype(np.uint32))
    found.setdefault(file_id, BitMap()).update(theirs[stays].astype(np.uint32))


def _among(rows: Longs, deleted: BitMap | FrozenBitMap) -> NDArray[np.bool_]:
    hit = BitMap(rows.astype(np.uint32)) & deleted
    return np.isin(rows, np.frombuffer(hit.to_array(), np.uint32))


def _stays(
    file: SortedFile, rows: Longs, other: SortedFile, other_rows: Longs, schema: StoredSchema
) -> NDArray[np.bool_]:
    """Where the older row has the larger sequence."""
    if schema.sequence is None or not len(rows):
        return np.zeros(len(rows), np.bool_)
    name = file_column(schema.sequence)
    new = single_chunk(file.take(rows, [name]).column(0))
    old = single_chunk(other.take(other_rows, [name]).column(0))
    larger = pc.fill_null(pc.greater(old, new), False)
    found = pc.or_(larger, pc.and_(new.is_null(), old.is_valid())) if new.null_count else larger
    return np.asarray(found.to_numpy(zero_copy_only=False))
