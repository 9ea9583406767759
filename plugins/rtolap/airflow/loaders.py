"""The loaders of this deployment: Variable `rtolap_loaders`, else `include/loaders.yaml`.

Each is `{name, port, complete}`: the name of a job (`rtolap loader create`), the port of its process, and, if
its table's partitions shall be announced, by what they are complete:

    complete: {application: access_logs, unit: day, lateness: 10m}

`unit` is that of the table's partitions (hour, day, week, month, year); `lateness`, waited for beyond a
partition's end, may be left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from rtolap.airflow.declared import Kind, checked_name, checked_port
from rtolap.base.errors import DefinitionError, NotFound
from rtolap.model.durations import parse_duration_ms
from rtolap.model.stored.table import PartitionUnit
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import ProcessStatus
from rtolap.protocols.loader.messages import process_key

KIND = "loader"
_UNITS = get_args(PartitionUnit)


class Completeness(msgspec.Struct, frozen=True):
    """A partition is complete when the application's windows up to its end, and `lateness_ms` beyond, may
    close, and all that was in the topic by then is in the table."""

    application: str
    unit: PartitionUnit
    lateness_ms: int = 0


class RunningLoader(msgspec.Struct, frozen=True):
    """A loader as its process on the agent is labelled."""

    name: str
    port: int
    complete: Completeness | None = None


def labels(loader: RunningLoader) -> dict[str, str]:
    """Return the labels of the process, so that whoever waits for the loader needs its name only."""
    return {"kind": KIND, KIND: msgspec.json.encode(loader).decode()}


def loader_of(status: ProcessStatus) -> RunningLoader | None:
    """None for a process of another kind."""
    if status.labels.get("kind") != KIND:
        return None
    return msgspec.json.decode(status.labels[KIND], type=RunningLoader)


def find_loader(agent: AgentClient, name: str) -> RunningLoader:
    """Raises NotFound where the agent never had a request to run it."""
    loader = loader_of(agent.get(process_key(name)))
    if loader is None:
        raise NotFound(f"process {process_key(name)} is no loader")
    return loader


def _parse_one(entry: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {
        "loader": checked_name(entry, "name", place),
        "port": checked_port(entry, place, smallest=1),
        "complete": _parse_complete(entry.get("complete"), place),
    }


def _parse_complete(declared: object, place: str) -> dict[str, Any] | None:
    if declared is None:
        return None
    known = {"application", "unit", "lateness"}
    if not isinstance(declared, dict) or not {"application", "unit"} <= set(declared) <= known:
        raise DefinitionError(
            f"{place} has a wrong `complete`", expected="{application, unit, lateness?}", found=repr(declared)
        )
    if declared["unit"] not in _UNITS:
        raise DefinitionError(
            f"{place} has a wrong unit", expected=", ".join(_UNITS), found=repr(declared["unit"])
        )
    complete = Completeness(
        checked_name(declared, "application", place),
        declared["unit"],
        parse_duration_ms(str(declared.get("lateness", "0s"))),
    )
    return msgspec.structs.asdict(complete)


LOADERS = Kind("loaders", ("name", "port"), ("complete",), "loader", _parse_one)
