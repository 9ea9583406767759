"""Which records are restored as they are, which are changed, and which are left: one table.

Numbers that only grow have grown since the backup, nobody knows how far. A restored number must not come to
mean what another has meant already, so such numbers are raised by more than they grow in a cluster's life.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from rtolap.backup.findings import Finding
from rtolap.metadata import codec
from rtolap.metadata.records import ApplicationState, ChangeLog, CubeControl, ReplicaSetRecord

R = TypeVar("R", bound=msgspec.Struct)

RAISED_BY = 1 << 20  # epochs and generations; their 32 lower bits are terms of an election


class Carried(NamedTuple):
    records: dict[str, bytes]
    findings: tuple[Finding, ...]


def carry(records: Mapping[str, bytes], restored: str) -> Carried:
    """Return the records that are written. `restored`: id of this restore. Raises Corrupted."""
    written: dict[str, bytes] = {}
    findings: list[Finding] = []
    for path, data in records.items():
        left = next((finding(path) for pattern, finding in _LEFT if pattern.fullmatch(path)), None)
        if left is not None:
            findings.append(left)
            continue
        change = next((change for pattern, change in _CHANGED if pattern.fullmatch(path)), None)
        written[path] = data if change is None else change(path, data, restored)
    return Carried(written, tuple(dict.fromkeys(findings)))


def _changing(kind: type[R], change: Callable[[R, str], R]) -> Callable[[str, bytes, str], bytes]:
    """Return what changes an encoded record, by its path, its bytes and the id of the restore."""
    return lambda path, data, restored: codec.encode(change(codec.decode(data, kind, path), restored))


def _control(control: CubeControl, restored: str) -> CubeControl:
    """Receivers drop what they hold. The terms of their elections begin anew, so generations are raised."""
    base = control.generation_base + RAISED_BY
    return msgspec.structs.replace(control, restored=restored, generation_base=base)


def _changes(log: ChangeLog, restored: str) -> ChangeLog:
    """A service that has followed the log of before, and runs still, reads all records again."""
    return msgspec.structs.replace(log, sequence=log.sequence + RAISED_BY, recent=())


def _application(state: ApplicationState, restored: str) -> ApplicationState:
    """The owner went with its session. A client that knows an epoch after the backup registers again."""
    return msgspec.structs.replace(state, owner=None, epoch=state.epoch + RAISED_BY)


def _replica_set(record: ReplicaSetRecord, restored: str) -> ReplicaSetRecord:
    """The time for which nobody lived is counted from the restore on: receivers start after it."""
    return msgspec.structs.replace(record, missing_since_ms=None)


def _left_plan(path: str) -> Finding:
    return Finding(
        "left",
        f"fleet {path.split('/')[2]}",
        "its plan of moves does not go on: brokers have gone further than the backup knows",
        "compare `rtolap fleet brokers` and throttles of topics with what you want, and submit a new plan",
    )


def _left_requests(path: str) -> Finding:
    return Finding("left", f"fleet {path.split('/')[2]}", "requests to its mover are not repeated")


_CHANGED: tuple[tuple[re.Pattern[str], Callable[[str, bytes, str], bytes]], ...] = (
    (re.compile(r"/cubes/[^/]+/control"), _changing(CubeControl, _control)),
    (re.compile(r"/cubes/[^/]+/changes"), _changing(ChangeLog, _changes)),
    (re.compile(r"/applications/[^/]+/state"), _changing(ApplicationState, _application)),
    (re.compile(r"/replica_sets/[^/]+"), _changing(ReplicaSetRecord, _replica_set)),
)
_LEFT: tuple[tuple[re.Pattern[str], Callable[[str], Finding]], ...] = (
    (re.compile(r"/fleet/[^/]+/current"), _left_plan),
    (re.compile(r"/fleet/[^/]+/requests/[^/]+"), _left_requests),
)
