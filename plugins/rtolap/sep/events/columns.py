"""Declared columns of events: the cell of an event that stands for a column, and what it did to its row."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.sep.events.edit_batch import CellType, EditBatch

_WHOLE_FAMILY: Final = (CellType.DELETE_FAMILY, CellType.DELETE_FAMILY_VERSION)
_ONE_VERSION: Final = (CellType.DELETE, CellType.DELETE_FAMILY_VERSION)
_COLUMN: Final = (CellType.PUT, CellType.DELETE, CellType.DELETE_COLUMN)


def deciding_cells(batch: EditBatch, family: bytes, qualifier: bytes) -> NDArray[np.int64]:
    """Return the position of the cell that says what each event did to the column; -1 where none does.

    As in HBase, the newest timestamp decides; of equal ones a delete, and then the last cell. A delete of one
    version counts against puts of that timestamp alone. Deletes of the whole family are those of each of its
    columns.
    """
    families = batch.cells["family"]
    names = families.dictionary.to_pylist()
    decided = np.full(batch.num_events, -1, np.int64)
    if family not in names:
        return decided
    of_family = families.indices.to_numpy() == names.index(family)
    types = batch.cells["type"].to_numpy()
    of_column = np.isin(types, _COLUMN) & _equals(batch.cells["qualifier"], qualifier)
    places = np.flatnonzero(of_family & (of_column | np.isin(types, _WHOLE_FAMILY)))
    if not len(places):
        return decided
    owners = batch.cells["event"].to_numpy()[places]
    if (owners[1:] == owners[:-1]).any():
        times = batch.cells["timestamp_ms"].to_numpy()[places]
        of_version = np.isin(types[places], _ONE_VERSION)
        is_delete, lasting = types[places] != CellType.PUT, ~of_version
        if of_version.any():
            lasting &= is_delete | ~_of_these_versions(owners, times, of_version)
        order = np.lexsort((places, is_delete, times, of_version, lasting, owners))
        places, owners = places[order], owners[order]
    decided[owners] = places  # the last one of an event stays
    return decided


def column_values(batch: EditBatch, family: bytes, qualifier: bytes) -> pa.BinaryArray:
    """Return the value that each event put into the column; null where it put none or deleted it."""
    decided = deciding_cells(batch, family, qualifier)
    is_put = decided >= 0
    is_put[is_put] = batch.cells["type"].to_numpy()[decided[is_put]] == CellType.PUT
    return batch.cells["value"].take(pa.array(decided, mask=~is_put))


def _of_these_versions(
    owners: NDArray[np.int32], times: NDArray[np.int64], of_version: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Tell which cells have event and timestamp in common with a delete of one version."""
    _, numbers = np.unique(np.stack([owners.astype(np.int64), times]), axis=1, return_inverse=True)
    numbers = numbers.ravel()
    return np.isin(numbers, numbers[of_version])


def only_deletes(batch: EditBatch) -> NDArray[np.bool_]:
    """Tell which events put nothing: all of their cells are deletes."""
    puts = batch.cells["event"].to_numpy()[batch.cells["type"].to_numpy() == CellType.PUT]
    deletes = np.ones(batch.num_events, bool)
    deletes[puts] = False
    return deletes


def deletes_families(batch: EditBatch) -> NDArray[np.bool_]:
    """Tell which events put nothing and delete a whole family of their row, as deletes of a row do."""
    is_family = batch.cells["type"].to_numpy() == CellType.DELETE_FAMILY
    owners = batch.cells["event"].to_numpy()[is_family]
    marked = np.zeros(batch.num_events, bool)
    marked[owners] = True
    return marked & only_deletes(batch)


def _equals(column: pa.BinaryArray, value: bytes) -> NDArray[np.bool_]:
    equal = pc.equal(column, pa.scalar(value, pa.binary()))
    return np.asarray(equal.to_numpy(zero_copy_only=False), bool)
