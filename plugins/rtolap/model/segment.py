"""Segments: windows of event time, and their names."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from rtolap.base.errors import DefinitionError

_NAME_FORMAT = "%Y%m%d%H%M%S"
_NAME_LENGTH = 14


class SegmentRange(msgspec.Struct, frozen=True, order=True):
    """`[start_ms, end_ms)` in UTC. Ordered by start."""

    start_ms: int
    end_ms: int

    @property
    def name(self) -> str:
        """`20130101000000_20130102000000`: sorts by time, safe as a path and as a znode."""
        return f"{_stamp(self.start_ms)}_{_stamp(self.end_ms)}"


def segment_of(event_ms: int, window_ms: int) -> SegmentRange:
    """The segment that holds an event; floor division, so instants before 1970 work too."""
    start_ms = event_ms // window_ms * window_ms
    return SegmentRange(start_ms, start_ms + window_ms)


def parse_segment_name(name: str) -> SegmentRange:
    start, underscore, end = name.partition("_")
    try:
        if not underscore or len(start) != _NAME_LENGTH or len(end) != _NAME_LENGTH:
            raise ValueError(name)
        return SegmentRange(_instant_ms(start), _instant_ms(end))
    except ValueError:
        raise DefinitionError(
            "not a segment name", expected="YYYYMMDDhhmmss_YYYYMMDDhhmmss in UTC", found=repr(name)
        ) from None


@lru_cache(maxsize=4096)  # a day of minutes twice over: names are made with every statement and step
def _stamp(instant_ms: int) -> str:
    return datetime.fromtimestamp(instant_ms / 1000, UTC).strftime(_NAME_FORMAT)


def _instant_ms(stamp: str) -> int:
    return int(datetime.strptime(stamp, _NAME_FORMAT).replace(tzinfo=UTC).timestamp()) * 1000
