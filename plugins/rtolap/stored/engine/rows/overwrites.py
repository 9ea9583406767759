"""Finds the rows that a publish deletes in a unique table, so that reading needs no merge.

Of every key at most one row is alive. A new row finds it by the hash of the key and deletes it; with a
sequence column the larger one stays, and of equal ones the later. A null in it is smaller than everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap, FrozenBitMap

from rtolap.columnar.groups import single_chunk
from rtolap.model.stored.schema import StoredSchema
from rtolap.stored.engine.deletes import FileId
from rtolap.stored.engine.files.sorted_file import Matches, SortedFile
from rtolap.stored.engine.rows.columns import file_column
from rtolap.stored.engine.rows.keys import Longs, hashes, rows_below

_ROWS_AT_ONCE = 262_144


class Older(NamedTuple):
    id: FileId
    file: SortedFile
    deleted: FrozenBitMap


class Overwriting:
    """Files of one transaction, in order of arrival, over what is older."""

    def __init__(self, older: Sequence[Older], schema: StoredSchema) -> None:
        self._against = list(older)
        self._schema = schema
        self._keys = [file_column(column_id) for column_id in schema.keys]
        self._found: dict[FileId, BitMap] = {}

    @property
    def deleted(self) -> dict[FileId, BitMap]:
        """Rows to delete so far, of older files and of the new ones."""
        return {file_id: rows for file_id, rows in self._found.items() if rows}

    def add_file(self, file_id: FileId, file: SortedFile) -> None:
        """The next one: whole rows."""
        for start in range(0, file.rows, _ROWS_AT_ONCE):
            for other, matches in self.alive(file.slice(start, start + _ROWS_AT_ONCE, self._keys)):
                new_rows, old_rows = matches.mine, matches.theirs + start
                stays = _stays(file, old_rows, other.file, new_rows, self._schema)
                self._found.setdefault(other.id, BitMap()).update(new_rows[~stays].astype(np.uint32))
                self._found.setdefault(file_id, BitMap()).update(old_rows[stays].astype(np.uint32))
        self._against.append(Older(file_id, file, FrozenBitMap()))

    def alive(self, table: pa.Table) -> Iterator[tuple[Older, Matches]]:
        """Rows that are alive so far of some sorted keys, by the file that has them."""
        columns = [single_chunk(table.column(name)) for name in self._keys]
        for other in self._against:
            first = rows_below(columns, [column[0] for column in other.file.sparse_keys()])
            last = rows_below(columns, other.file.last_key(), inclusive=True)
            if last <= first:
                continue
            keys = [column.slice(first, last - first) for column in columns]
            matches = other.file.find(hashes(keys), keys)
            alive = ~_among(matches.mine, other.deleted | self._found.get(other.id, BitMap()))
            yield other, Matches(matches.theirs[alive] + first, matches.mine[alive])


def _among(rows: Longs, deleted: BitMap | FrozenBitMap) -> NDArray[np.bool_]:
    hit = BitMap(rows.astype(np.uint32)) & deleted
    return np.isin(rows, np.frombuffer(hit.to_array(), np.uint32))


def _stays(
    file: SortedFile, rows: Longs, other: SortedFile, other_rows: Longs, schema: StoredSchema
) -> NDArray[np.bool_]:
    """Return a mask of the pairs in which the older row has the larger sequence."""
    if schema.sequence is None or not len(rows):
        return np.zeros(len(rows), np.bool_)
    name = file_column(schema.sequence)
    new = single_chunk(file.read_rows(rows, [name]).column(0))
    old = single_chunk(other.read_rows(other_rows, [name]).column(0))
    larger = pc.fill_null(pc.greater(old, new), False)
    is_larger = pc.or_(larger, pc.and_(new.is_null(), old.is_valid())) if new.null_count else larger
    return np.asarray(is_larger.to_numpy(zero_copy_only=False))
