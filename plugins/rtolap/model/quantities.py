"""Quantities as people read them: bytes in powers of 1024, instants in UTC, spans of time.

Every table and message on a terminal uses these. JSON and pipes have the raw numbers, with units in names.
"""

from __future__ import annotations

from datetime import UTC, datetime

from rtolap.model.durations import format_duration

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_EXACT_BELOW_MS = 10_000


def size_text(size_bytes: float) -> str:
    """Return `512 B`, `1.5 MiB`, `-2.0 GiB`."""
    size, unit = float(size_bytes), 0
    while abs(size) >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def instant_text(at_ms: int) -> str:
    """Return `2026-03-01 09:20:00Z`."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):  # beyond the years that there are
        return f"{at_ms} ms"


def span_text(duration_ms: float) -> str:
    """Return a span to the second, below ten seconds to the millisecond: `1h5m`, `9s500ms`."""
    sign, whole_ms = ("-" if duration_ms < 0 else ""), int(abs(duration_ms))
    exact = whole_ms < _EXACT_BELOW_MS
    return sign + format_duration(whole_ms if exact else whole_ms // 1000 * 1000)
