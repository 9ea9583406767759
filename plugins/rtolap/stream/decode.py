"""JSON records → typed Arrow columns."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.format.schema import EVENT_MS as EVENT_MS, OFFSET as OFFSET, PARTITION as PARTITION
from rtolap.model.cube import Schema



@dataclass(frozen=True, slots=True)
class Rejects:
    """Refused records, as parallel sequences: position in the input, reason, detail for people."""

    index: NDArray[np.int64]
    reason: list[str]
    detail: list[str]

    def __len__(self) -> int:
        return len(self.reason)


@dataclass(frozen=True, slots=True)
class Decoded:
    """`table`: accepted records in input order: `Schema.source_columns`, then EVENT_MS, PARTITION, OFFSET."""

    table: pa.Table
    rejects: Rejects


class EventDecoder:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def decode(
        self,
        values: Sequence[bytes | None],
        partitions: NDArray[np.int32],
        offsets: NDArray[np.int64],
        *,
        now_ms: int,
    ) -> Decoded:
        raise NotImplementedError
