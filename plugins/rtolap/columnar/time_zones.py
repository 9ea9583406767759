"""Instants as the clocks of a time zone show them, by the rules that this machine has of it.

Arrow knows the rules from the system's database alone (package tzdata). Governments change them several times
a year: machines of one cluster may have different ones.
"""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError

_HOUR_MS = 3_600_000
_RULES_UNTIL = np.datetime64("2038-01-01", "ms")  # what most databases list; from there on they have a rule


def local_time(instant_ms: NDArray[np.int64], zone: str) -> pa.Array:
    """Convert instants to naive local microseconds."""
    instants = pa.array(instant_ms * 1000).cast(pa.timestamp("us"))
    if zone == "UTC":
        return instants
    return pc.local_timestamp(instants.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us", zone)))


def require_zone(zone: str) -> None:
    """Raise DefinitionError where this machine's database does not know the zone. Python may know it from a
    database of its own, which is newer."""
    try:
        local_time(np.zeros(1, np.int64), zone)
    except pa.ArrowInvalid as error:
        raise DefinitionError(
            f"this machine's database does not know the time zone {zone}",
            found=str(error),
            action="update the system's package tzdata",
        ) from error


@functools.cache
def rules_of(zone: str) -> str:
    """Return a checksum of the rules of a zone: of its clocks at every hour since 1970. "" for UTC, which has
    none."""
    if zone == "UTC":
        return ""
    hours_ms = np.arange(0, _RULES_UNTIL.astype(np.int64), _HOUR_MS)
    shown: NDArray[np.int64] = local_time(hours_ms, zone).cast(pa.int64()).to_numpy()
    return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(shown).data)
