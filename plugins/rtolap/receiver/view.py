"""What the core is told about the cluster at each step: a value, made by the service or by a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.model.completeness import Completeness
from rtolap.model.offsets import Offsets
from rtolap.receiver.takeover import Takeover

_NO_CONTROL = CubeControl()


@dataclass(frozen=True)
class CubeView:
    """
    records            by segment start; an unchanged mapping is the same object as before
    start_offsets      where a partition starts that this receiver has no position for
    leading            does this receiver lead its replica set, as far as its live session knows?
    connected          False: keep consuming and serving, close nothing
    low_watermark_ms   the published one
    windows            of a cube with an application: the newest windows that it lets close, ascending
    generation         as which this receiver's reading is reported to it; None while it does not lead
    takeover           since when it counts on that; None before
    """

    control: CubeControl = _NO_CONTROL
    records: Mapping[int, SegmentRecord] = field(default_factory=dict)
    start_offsets: Offsets = field(default_factory=dict)
    leading: bool = False
    connected: bool = True
    low_watermark_ms: int | None = None
    windows: tuple[Completeness, ...] = ()
    generation: int | None = None
    takeover: Takeover | None = None
