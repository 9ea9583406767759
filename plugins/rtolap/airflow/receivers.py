"""The receivers of this deployment: Variable `rtolap_receivers`, else `include/receivers.yaml`, else two.

Each is `{id, replica_set, port, bounds}`; `port` may be left out (0: a free one), and so may `bounds`,
options of `rtolap receiver serve` by name: `{flush_rows: 200000}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtolap.airflow.declared import Kind, checked_name, checked_port
from rtolap.base.errors import DefinitionError

BOUNDS = (
    "flush_rows",
    "flush_bytes",
    "checkpoint_interval_s",
    "fragments_max",
    "merge_bytes_max",
    "unbuilt_segments_max",
    "disk_free_bytes_min",
    "idle_after_s",
)

# One replica set of two: each event is kept twice, and either receiver may be lost.
DEFAULT: tuple[dict[str, Any], ...] = (
    {"id": "r0", "replica_set": "rs-0", "port": 0},
    {"id": "r1", "replica_set": "rs-0", "port": 0},
)


def _parse_one(entry: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {
        "receiver_id": checked_name(entry, "id", place),
        "replica_set": checked_name(entry, "replica_set", place),
        "port": checked_port(entry, place, smallest=0),
        "bounds": _parse_bounds(entry.get("bounds", {}), place),
    }


def _parse_bounds(declared: object, place: str) -> dict[str, int | float]:
    """Names and positive numbers; how large each may be is the receiver's to say."""
    if not isinstance(declared, dict) or not set(declared) <= set(BOUNDS):
        raise DefinitionError(f"{place} has wrong bounds", expected=", ".join(BOUNDS), found=repr(declared))
    for name, value in declared.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise DefinitionError(f"{place} has a wrong {name}", expected="a number", found=repr(value))
    return declared


RECEIVERS = Kind(
    "receivers",
    ("id", "replica_set"),
    ("port", "bounds"),
    "receiver_id",
    _parse_one,
    default=lambda include_dir: DEFAULT,
)
