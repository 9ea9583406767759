"""The reduction of a batch of records' statements to one row per (partition, producer), over columns.

Of a producer in a partition the latest generation counts, and of that the largest watermark: the larger of
(generation, watermark, ended). So neither order nor repetition nor the split into batches matters, and
statements of a process that its successor has replaced count no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.base.errors import Corrupted
from rtolap.kafka.interfaces import Batch
from rtolap.watermark.records.statement import Statement, decode

UNKNOWN_MS = -1


def _empty() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Statements:
    """Statements of a batch, a row each.

    Attributes:
        producers: who states it.
        partitions: where it stands.
        generations: the generation of its producer.
        watermarks_ms: what is stated; UNKNOWN_MS where the producer does not know.
        ended: whether the producer has ended.
        unreadable: how many records carried something that is no statement; they state nothing.
    """

    producers: tuple[str, ...] = ()
    partitions: NDArray[np.int64] = field(default_factory=_empty)
    generations: NDArray[np.int64] = field(default_factory=_empty)
    watermarks_ms: NDArray[np.int64] = field(default_factory=_empty)
    ended: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    unreadable: int = 0

    def __len__(self) -> int:
        return len(self.producers)


@dataclass(frozen=True, slots=True)
class Stated:
    """Statements in a batch.

    Attributes:
        control: whether the i-th record is a control record, and so no event.
    """

    statements: Statements
    control: NDArray[np.bool_]


def stated(
    texts: pa.Array | Sequence[bytes | None], partitions: NDArray[np.int32] | NDArray[np.int64]
) -> Stated:
    """Return what is stated. `texts[i]` is what stands in the header or in the field of a record of
    `partitions[i]`; None: nothing.

    Statements change about once a second, so few texts are distinct: each of those is parsed once.
    """
    given = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.binary())
    encoded = given.dictionary_encode()
    words = [_decoded(text) for text in encoded.dictionary.to_pylist()]
    absent = len(words)
    codes = encoded.indices.fill_null(absent).to_numpy(zero_copy_only=False).astype(np.int64)
    is_control = np.array([word is not None and word.is_control for word in words] + [False], np.bool_)
    is_readable = np.array([word is not None for word in words] + [True], np.bool_)
    unreadable = int(np.count_nonzero(~is_readable[codes]))
    pairs = np.unique(np.asarray(partitions, np.int64) * (absent + 1) + codes)
    at_partition, code = pairs // (absent + 1), pairs % (absent + 1)
    chosen = (code < absent) & is_readable[code]
    return Stated(_reduced(at_partition[chosen], code[chosen], words, unreadable), is_control[codes])


def batch_statements(batch: Batch) -> Stated | None:
    """Return the statements in the records' headers; None where the consumer was opened without them."""
    return None if batch.statements is None else stated(batch.statements, batch.partitions)


def _decoded(text: bytes | str) -> Statement | None:
    try:
        return decode(text)
    except Corrupted:
        return None  # counted by the caller, record by record


def _reduced(
    partitions: NDArray[np.int64],
    codes: NDArray[np.int64],
    words: Sequence[Statement | None],
    unreadable: int,
) -> Statements:
    known = [word for word in words if word is not None]
    if not known or not codes.size:
        return Statements(unreadable=unreadable)
    place = np.cumsum([word is not None for word in words]) - 1  # of a word among the known ones
    at = place[codes]
    names, name_codes = np.unique([word.producer for word in known], return_inverse=True)
    marks = [UNKNOWN_MS if word.watermark_ms is None else word.watermark_ms for word in known]
    generation = np.array([word.generation for word in known], np.int64)[at]
    watermark_ms = np.array(marks, np.int64)[at]
    ended = np.array([word.kind == "end" for word in known], np.bool_)[at]
    producer = name_codes[at]
    order = np.lexsort((ended, watermark_ms, generation, producer, partitions))
    group = np.stack([partitions[order], producer[order]])
    is_last = np.append((group[:, 1:] != group[:, :-1]).any(axis=0), True)
    last = order[is_last]
    return Statements(
        tuple(names[producer[last]].tolist()),
        partitions[last],
        generation[last],
        watermark_ms[last],
        ended[last],
        unreadable,
    )
