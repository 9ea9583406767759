"""The services that this deployment declares: by a Variable, else by a file in `include`, else by default.

    Variable               file                         by default
    rtolap_receivers       include/receivers.yaml       two
    rtolap_loaders         include/loaders.yaml         none
    rtolap_subscriptions   include/subscriptions.yaml   every one of include/sep
    rtolap_publications    include/publications.yaml    none

A receiver is `{id, replica_set, port, bounds}`; `port` may be left out (0: a free one), and so may `bounds`,
options of `rtolap receiver serve` by name: `{flush_rows: 200000}`.

A loader is `{name, port, complete}`: the name of a job (`rtolap loader create`), the port of its process,
and, if its table's partitions shall be announced, by what they are complete:

    complete: {application: access_logs, unit: day, lateness: 10m}

`unit` is that of the table's partitions (hour, day, week, month, year); `lateness`, waited for beyond a
partition's end, may be left out.

A subscription is `{name, host, ports}`: one that `rtolap sep create` has made, and where region servers reach
its process; by default by the name of the agent's host, at free ports.

A publication is `{name}`: one that `rtolap publish create` has made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import msgspec
import yaml

from rtolap.base.decoding import decode_json
from rtolap.base.errors import DefinitionError, NotFound
from rtolap.model.durations import parse_duration_ms
from rtolap.model.stored.table import PartitionUnit
from rtolap.model.subscription import Subscription
from rtolap.model.yaml_files import read_definitions
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import LastGeneration, ProcessStatus
from rtolap.protocols.loader.messages import process_key

ENTRIES_MAX = 500
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RECEIVER_BOUNDS = (
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
_DEFAULT_RECEIVERS: tuple[dict[str, Any], ...] = (
    {"id": "r0", "replica_set": "rs-0", "port": 0},
    {"id": "r1", "replica_set": "rs-0", "port": 0},
)
_LOADER = "loader"
_RECEIVER = "receiver"
_UNITS = get_args(PartitionUnit)
_SUBSCRIPTIONS_FOLDER = "sep"
_PORTS_MAX = 64


@dataclass(frozen=True)
class ServiceKind:
    """A kind of declared service: the place of its entries in JSON or YAML, and the way to parse them.

    `plural` names the Variable (`rtolap_<plural>`) and the file (`<plural>.yaml`, a list, or a mapping
    with the list under that name). `parse_one` gives an operator's arguments, of which `identity` is unique.
    `default` gives the entries where neither is there, from what else stands in `include`.
    """

    plural: str
    needed: tuple[str, ...]
    optional: tuple[str, ...]
    identity: str
    parse_one: Callable[[Mapping[str, Any], str], dict[str, Any]]
    default: Callable[[Path], Sequence[Mapping[str, Any]]] = lambda include_dir: ()

    @property
    def variable(self) -> str:
        return f"rtolap_{self.plural}"

    def declared(self, variable: object, include_dir: Path) -> list[dict[str, Any]]:
        """Return the operator's arguments, one set for each entry; an empty list where nothing is declared.
        `variable` is the Variable's decoded value, None if it is not set. Raises DefinitionError naming
        the entry."""
        if variable is not None:
            return self.parse(variable, f"Variable {self.variable}")
        path = include_dir / f"{self.plural}.yaml"
        if not path.exists():
            return self.parse(
                self.default(include_dir),
                f"neither Variable {self.variable} nor {path} is there; the default",
            )
        try:
            content = yaml.safe_load(path.read_bytes())
        except yaml.YAMLError as error:
            raise DefinitionError(f"{path} is not YAML", found=str(error)) from error
        if isinstance(content, dict):
            content = content.get(self.plural)
        return self.parse(content, str(path))

    def parse(self, declared: object, place: str) -> list[dict[str, Any]]:
        if not isinstance(declared, Sequence) or isinstance(declared, str):
            raise DefinitionError(f"{place} declares no {self.plural}", expected=f"a list of {self._fields}")
        if len(declared) > ENTRIES_MAX:
            raise DefinitionError(f"{place} declares too many", expected=ENTRIES_MAX, found=len(declared))
        parsed = [self._one(entry, f"{place}, entry {number}") for number, entry in enumerate(declared, 1)]
        names = [parsed_entry[self.identity] for parsed_entry in parsed]
        if len(set(names)) != len(names):
            raise DefinitionError(f"{place} names one of its {self.plural} twice", found=sorted(names))
        return parsed

    def _one(self, entry: object, place: str) -> dict[str, Any]:
        known = {*self.needed, *self.optional}
        if not isinstance(entry, dict) or not set(self.needed) <= set(entry) <= known:
            raise DefinitionError(f"{place} is wrong", expected=self._fields, found=repr(entry))
        return self.parse_one(entry, place)

    @property
    def _fields(self) -> str:
        return f"{{{', '.join((*self.needed, *(f'{name}?' for name in self.optional)))}}}"


def checked_name(entry: Mapping[str, Any], field: str, place: str) -> str:
    value = entry[field]
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise DefinitionError(
            f"{place} has a wrong {field}", expected="letters, digits and . _ -", found=repr(value)
        )
    return value


def checked_port(entry: Mapping[str, Any], place: str, *, smallest: int) -> int:
    port = entry.get("port", 0)
    if isinstance(port, bool) or not isinstance(port, int) or not smallest <= port < 65536:
        raise DefinitionError(f"{place} has a wrong port", expected=f"{smallest} to 65535", found=repr(port))
    return port


def _parse_receiver(entry: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {
        "receiver_id": checked_name(entry, "id", place),
        "replica_set": checked_name(entry, "replica_set", place),
        "port": checked_port(entry, place, smallest=0),
        "bounds": _parse_bounds(entry.get("bounds", {}), place),
    }


def _parse_bounds(declared: object, place: str) -> dict[str, int | float]:
    """Return names and positive numbers; how large each may be is the receiver's to say."""
    if not isinstance(declared, dict) or not set(declared) <= set(RECEIVER_BOUNDS):
        raise DefinitionError(
            f"{place} has wrong bounds", expected=", ".join(RECEIVER_BOUNDS), found=repr(declared)
        )
    for name, value in declared.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise DefinitionError(f"{place} has a wrong {name}", expected="a number", found=repr(value))
    return declared


RECEIVERS = ServiceKind(
    "receivers",
    ("id", "replica_set"),
    ("port", "bounds"),
    "receiver_id",
    _parse_receiver,
    default=lambda include_dir: _DEFAULT_RECEIVERS,
)


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


def receiver_labels(receiver_id: str) -> dict[str, str]:
    return {"kind": _RECEIVER, _RECEIVER: receiver_id}


def receiver_of(status: ProcessStatus) -> str | None:
    """Return the receiver's id; None for a process of another kind."""
    return status.labels.get(_RECEIVER) if status.labels.get("kind") == _RECEIVER else None


def loader_labels(loader: RunningLoader) -> dict[str, str]:
    """Return the labels of the process, by which a task that waits for the loader needs only its name."""
    return {"kind": _LOADER, _LOADER: msgspec.json.encode(loader).decode()}


def consumer_key(subscription: str) -> str:
    """Return the key of a subscription's process on an agent."""
    return f"sep.{subscription}"


def loader_of(status: ProcessStatus | LastGeneration) -> RunningLoader | None:
    """Return the loader that the process runs; None for a process of another kind."""
    if status.labels.get("kind") != _LOADER:
        return None
    return decode_json(status.labels[_LOADER], RunningLoader)


def find_loader(agent: AgentClient, name: str) -> RunningLoader:
    """Return the loader as its agent runs it. Raises NotFound where the agent never had a request to run
    it."""
    loader = loader_of(agent.get(process_key(name)))
    if loader is None:
        raise NotFound(f"process {process_key(name)} is no loader")
    return loader


def _parse_loader(entry: Mapping[str, Any], place: str) -> dict[str, Any]:
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


LOADERS = ServiceKind("loaders", ("name", "port"), ("complete",), "loader", _parse_loader)


def defined_subscriptions(include_dir: Path) -> dict[str, Subscription]:
    """Return the subscriptions of `include/sep`, by name. Raises DefinitionError for a wrong file, or an
    unknown one."""
    folder = include_dir / _SUBSCRIPTIONS_FOLDER
    return read_definitions(folder).subscriptions if folder.is_dir() else {}


def _all_defined(include_dir: Path) -> list[dict[str, Any]]:
    return [{"name": name} for name in defined_subscriptions(include_dir)]


def _parse_subscription(entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    ports = entry.get("ports", [])
    if not isinstance(ports, list) or len(ports) > _PORTS_MAX or not all(map(_is_port, ports)):
        raise DefinitionError(f"{where} has wrong ports", expected="a list of 1 to 65535", found=repr(ports))
    host = checked_name(entry, "host", where) if "host" in entry else ""
    return {"subscription": checked_name(entry, "name", where), "host": host, "ports": ports}


def _is_port(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536


SUBSCRIPTIONS = ServiceKind(
    "subscriptions", ("name",), ("host", "ports"), "subscription", _parse_subscription, default=_all_defined
)


def _parse_publication(entry: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {"publication": checked_name(entry, "name", place)}


PUBLICATIONS = ServiceKind("publications", ("name",), (), "publication", _parse_publication)
