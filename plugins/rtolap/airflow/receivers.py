"""Which receivers this deployment runs: Variable `rtolap_receivers`, else `include/receivers.yaml`, else two.

Each is `{id, replica_set, port, bounds}`, in JSON or YAML; `port` may be left out (0: a free one), and so may
`bounds`, options of `rtolap receiver serve` by name: `{flush_rows: 200000}`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from rtolap.base.errors import DefinitionError

VARIABLE = "rtolap_receivers"
FILE_NAME = "receivers.yaml"
RECEIVERS_MAX = 500
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
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def parse(declared: object, where: str) -> list[dict[str, Any]]:
    """Operator arguments, one set a receiver. Raises DefinitionError naming the entry."""
    if not isinstance(declared, Sequence) or isinstance(declared, str) or not declared:
        raise DefinitionError(f"{where} declares no receivers", expected="a list of {id, replica_set, port}")
    if len(declared) > RECEIVERS_MAX:
        raise DefinitionError(f"{where} declares too many", expected=RECEIVERS_MAX, found=len(declared))
    receivers = [_parse_one(entry, f"{where}, entry {number}") for number, entry in enumerate(declared, 1)]
    ids = [receiver["receiver_id"] for receiver in receivers]
    if len(set(ids)) != len(ids):
        raise DefinitionError(f"{where} names a receiver twice", found=sorted(ids))
    return receivers


def _parse_one(entry: object, where: str) -> dict[str, Any]:
    known = {"id", "replica_set", "port", "bounds"}
    if not isinstance(entry, dict) or not {"id", "replica_set"} <= set(entry) <= known:
        raise DefinitionError(
            f"{where} is no receiver", expected="id, replica_set, port and bounds", found=repr(entry)
        )
    port = entry.get("port", 0)
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 65536:
        raise DefinitionError(f"{where} has a wrong port", expected="0 to 65535", found=repr(port))
    for name in ("id", "replica_set"):
        if not isinstance(entry[name], str) or not _NAME.fullmatch(entry[name]):
            raise DefinitionError(
                f"{where} has a wrong {name}", expected="letters, digits and . _ -", found=repr(entry[name])
            )
    return {
        "receiver_id": entry["id"],
        "replica_set": entry["replica_set"],
        "port": port,
        "bounds": _parse_bounds(entry.get("bounds", {}), where),
    }


def _parse_bounds(declared: object, where: str) -> dict[str, int | float]:
    """Names and positive numbers; how large each may be is the receiver's to say."""
    if not isinstance(declared, dict) or not set(declared) <= set(BOUNDS):
        raise DefinitionError(f"{where} has wrong bounds", expected=", ".join(BOUNDS), found=repr(declared))
    for name, value in declared.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise DefinitionError(f"{where} has a wrong {name}", expected="a number", found=repr(value))
    return declared


def declared_receivers(variable: object, include_dir: Path) -> list[dict[str, Any]]:
    """`variable` is the Variable's decoded value, None if it is not set."""
    if variable is not None:
        return parse(variable, f"Variable {VARIABLE}")
    path = include_dir / FILE_NAME
    if not path.exists():
        return parse(DEFAULT, "the default")
    try:
        content = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise DefinitionError(f"{path} is not YAML", found=str(error)) from error
    if isinstance(content, dict):
        content = content.get("receivers")
    return parse(content, str(path))
