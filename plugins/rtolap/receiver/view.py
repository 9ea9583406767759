"""What the core is told about the cluster at each step: a value, made by the service or by a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.model.offsets import Offsets

_NO_CONTROL = CubeControl()


@dataclass(frozen=True)
class CubeView:
    """
    records            by segment start; an unchanged mapping is the same object as before
    start_offsets      where a partition starts that this receiver has no position for
    leading            does this receiver lead its replica set, as far as its live session knows?
    connected          False: keep consuming and serving, close nothing
    low_watermark_ms   the published one
    """

    control: CubeControl = _NO_CONTROL
    records: Mapping[int, SegmentRecord] = field(default_factory=dict)
    start_offsets: Offsets = field(default_factory=dict)
    leading: bool = False
    connected: bool = True
    low_watermark_ms: int | None = None
