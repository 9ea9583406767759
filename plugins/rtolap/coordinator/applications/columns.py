"""Reads the columns of a report."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError
from rtolap.protocols.watermark.messages import SourceReport


@dataclass(frozen=True, slots=True)
class Columns:
    """`index` counts in the session's names. `events` is None where they were not counted."""

    index: NDArray[np.int32]
    latest_ms: NDArray[np.int64]
    events: NDArray[np.int64] | None


def columns(report: SourceReport) -> Columns:
    """Views of the report's bytes. Raises DefinitionError where lengths do not fit, or what counts from 0
    does not."""
    where = f"{report.level}/{report.partition}"
    latest_ms = _read(report.latest_ms, "<i8", f"latest_ms of {where}")
    index = _read(report.index, "<i4", f"index of {where}")
    events = _read(report.events, "<i8", f"events of {where}") if report.events else None
    if index.size != latest_ms.size or (events is not None and events.size != index.size):
        lengths = f"{index.size}, {latest_ms.size}" + (f", {events.size}" if events is not None else "")
        raise DefinitionError(f"the columns of {where} differ in length", found=f"{lengths} entries")
    for what, column in (("index", index), ("events", events)):
        if column is not None and column.size and int(column.min()) < 0:
            raise DefinitionError(
                f"{what} of {where} has a negative entry", expected="0 or more", found=int(column.min())
            )
    return Columns(index.astype(np.int32, copy=False), latest_ms.astype(np.int64, copy=False), events)


def _read(data: bytes, kind: str, what: str) -> NDArray[np.int64]:
    size = np.dtype(kind).itemsize
    if len(data) % size:
        raise DefinitionError(f"{what} is cut off", expected=f"a multiple of {size} bytes", found=len(data))
    column: NDArray[np.int64] = np.frombuffer(data, kind)
    return column
