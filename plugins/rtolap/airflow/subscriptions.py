"""The subscriptions of this deployment: Variable `rtolap_subscriptions`, else the file
`include/subscriptions.yaml`, else every subscription of `include/sep`.

Each is `{name, host, ports}`: a subscription that `rtolap sep create` has made, and where region servers
reach its process; by default by the name of the agent's host, at free ports.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rtolap.airflow.declared import Kind, checked_name
from rtolap.base.errors import DefinitionError
from rtolap.model.subscription import Subscription
from rtolap.model.yaml_files import read_definitions

FOLDER = "sep"
_PORTS_MAX = 64


def defined_subscriptions(include_dir: Path) -> dict[str, Subscription]:
    """Subscriptions of `include/sep`, by name. Raises DefinitionError for a wrong file, or an unknown one."""
    folder = include_dir / FOLDER
    return read_definitions(folder).subscriptions if folder.is_dir() else {}


def _all_defined(include_dir: Path) -> list[dict[str, Any]]:
    return [{"name": name} for name in defined_subscriptions(include_dir)]


def _parse_one(entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    ports = entry.get("ports", [])
    if not isinstance(ports, list) or len(ports) > _PORTS_MAX or not all(map(_is_port, ports)):
        raise DefinitionError(f"{where} has wrong ports", expected="a list of 1 to 65535", found=repr(ports))
    host = checked_name(entry, "host", where) if "host" in entry else ""
    return {"subscription": checked_name(entry, "name", where), "host": host, "ports": ports}


def _is_port(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536


SUBSCRIPTIONS = Kind(
    "subscriptions", ("name",), ("host", "ports"), "subscription", _parse_one, default=_all_defined
)
