"""The content of a batch: the records of a range, in an order that does not depend on how they arrived."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from rtolap.kafka.batch import joined_texts
from rtolap.kafka.interfaces import Batch
from rtolap.model.offsets import Offsets


@dataclass(frozen=True, slots=True)
class Content:
    """Records by partition and offset, control records among them. `sha256` covers the places and values of
    all of them, so that the same range gives the same sum, whatever the definition, the table's columns or
    the format are by then."""

    batch: Batch
    bytes: int
    latest_ms: dict[int, int] = field(default_factory=dict)  # partition -> its largest timestamp, where known

    @property
    def sha256(self) -> str:
        batch, digest = self.batch, hashlib.sha256()
        lengths = np.fromiter((-1 if value is None else len(value) for value in batch.values), np.int64)
        for array in (batch.partitions, batch.offsets, lengths):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(b"".join(value for value in batch.values if value is not None))
        return digest.hexdigest()


def content_of(batches: Sequence[Batch], end: Offsets | None = None) -> Content:
    """Return the polled records, in order. With `end`, without those at or beyond it."""
    values = [value for batch in batches for value in batch.values]
    partitions = np.concatenate([np.zeros(0, np.int32), *(batch.partitions for batch in batches)])
    offsets = np.concatenate([np.zeros(0, np.int64), *(batch.offsets for batch in batches)])
    statements = None
    texts = joined_texts(batches)
    created = [batch.create_ms for batch in batches if batch.create_ms is not None]
    created_ms = np.concatenate(created) if created and len(created) == len(batches) else None
    if any(batch.statements is not None for batch in batches):
        statements = [text for batch in batches for text in batch.statements or ()]
    order = np.lexsort((offsets, partitions))
    if end is not None and values:
        ends = np.zeros(int(partitions.max()) + 1, np.int64)
        for partition, at in end.items():
            if partition < len(ends):
                ends[partition] = at
        order = order[offsets[order] < ends[partitions[order]]]
    if len(order) != len(values) or (np.diff(order) != 1).any():
        values = list(_taken(values, order.tolist()))
        statements = None if statements is None else list(_taken(statements, order.tolist()))
        texts = {source: list(_taken(each, order.tolist())) for source, each in texts.items()}
        created_ms = None if created_ms is None else created_ms[order]
        partitions, offsets = partitions[order], offsets[order]
    size = sum(map(len, filter(None, values)))
    accepted = Batch(
        values,
        partitions.astype(np.int32),
        offsets.astype(np.int64),
        created_ms,
        statements=statements,
        texts=texts,
    )
    return Content(accepted, size, _latest_ms(batches))


def _latest_ms(batches: Sequence[Batch]) -> dict[int, int]:
    latest: dict[int, int] = {}
    for batch in batches:
        if batch.create_ms is None:
            continue
        for partition in np.unique(batch.partitions).tolist():
            latest_ms = int(batch.create_ms[batch.partitions == partition].max())
            if latest_ms >= 0:
                latest[partition] = max(latest_ms, latest.get(partition, latest_ms))
    return latest


def _taken(values: list[bytes | None], order: list[int]) -> Sequence[bytes | None]:
    if len(order) < 2:  # itemgetter gives one item bare
        return [values[place] for place in order]
    taken: tuple[bytes | None, ...] = itemgetter(*order)(values)
    return taken
