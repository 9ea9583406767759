"""Columns that are not in a record's value: its key, a header, its timestamp, its partition, its offset.

They stand in the rows beside what was read out of values, each at a path of its own that no value can have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.events.classify import Leaf, Problem
from rtolap.events.formats.reader import Flags, Places, Problems
from rtolap.events.formats.values import fitted, misfit
from rtolap.kafka.interfaces import Batch


class Beside(NamedTuple):
    """The fields that the records of a batch carry beside their values, each by its place in the batch.

    Attributes:
        create_ms: timestamps, -1 for none; None where the consumer does not tell them.
        texts: by source: `key`, `header:<name>`.
    """

    partitions: NDArray[np.int32]
    offsets: Places
    create_ms: Places | None = None
    texts: Mapping[str, Sequence[bytes | None]] = {}

    @classmethod
    def of(cls, batch: Batch) -> Beside:
        return cls(batch.partitions, batch.offsets, batch.create_ms, batch.texts)


NOTHING_BESIDE = Beside(np.zeros(0, np.int32), np.zeros(0, np.int64))


def with_sources(
    rows: pa.StructArray, places: Places, leaves: Mapping[str, Leaf], beside: Beside, problems: Problems
) -> tuple[pa.StructArray, Places]:
    """Return the rows with these columns, by source, and their places; `problems` gets rows whose source does
    not fit its column."""
    if not leaves:
        return rows, places
    columns, names = list(rows.flatten()), [each.name for each in rows.type]
    keep = np.ones(len(rows), bool)
    for source, leaf in leaves.items():
        values = _values(source, places, beside, keep, leaf, problems)
        column, bad = fitted(values, leaf)
        for row in np.flatnonzero(bad & keep).tolist():
            problems[int(places[row])] = misfit(leaf, values, row)
        keep &= ~bad
        columns.append(column)
        names.append(leaf.path[0])
    found = pa.StructArray.from_arrays(columns, names=names)
    return (found, places) if keep.all() else (found.filter(pa.array(keep)), places[keep])


def _values(
    source: str, places: Places, beside: Beside, keep: Flags, leaf: Leaf, problems: Problems
) -> pa.Array:
    match source:
        case "partition":
            return pa.array(np.asarray(beside.partitions, np.int64)[places])
        case "offset":
            return pa.array(np.asarray(beside.offsets, np.int64)[places])
        case "timestamp":
            if beside.create_ms is None:
                return pa.nulls(len(places), pa.timestamp("ms"))
            created = np.asarray(beside.create_ms, np.int64)[places]
            return pa.array(created, mask=created < 0).cast(pa.timestamp("ms"))
    given = beside.texts.get(source)
    if given is None:
        return pa.nulls(len(places), pa.string())
    octets = pa.array([given[place] for place in places.tolist()], pa.binary())
    try:
        return octets.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [_text(each) for each in octets.to_pylist()]
    for row, text in enumerate(texts):
        if text is None and octets[row].is_valid:
            detail = f"column {leaf.name}: {source} holds broken bytes"
            problems[int(places[row])] = Problem("invalid_utf8", detail)
            keep[row] = False
    return pa.array(texts, pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
