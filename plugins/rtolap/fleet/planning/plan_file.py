"""A plan as JSON: canonical, with its own digest; and what Kafka's reassignment tool reads, beside it.

    rtolap plan      format, version, digest, cluster, snapshot, kind, arguments, why, bytes, time, disks,
                     partitions (a line each: replicas before and after), elections
    Kafka's          {"version": 1, "partitions": [{topic, partition, replicas, log_dirs}]}

The digest is SHA-256 over the canonical document without it, so equal plans have equal files, and one that
somebody has edited is refused when it is loaded. It is no signature: `check_applies` holds every plan against
the fleet and the rules before anything is submitted, and an approval names the digest that was approved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import msgspec
import numpy as np

from rtolap.base.errors import (
    Corrupted,
    NotFound,
    OtherCluster,
    PlanChanged,
    PlanOutdated,
    PlanRefused,
    RtolapError,
    SchemaTooNew,
)
from rtolap.base.files import write_atomic
from rtolap.fleet.planning.allowed import AllowedBrokers
from rtolap.fleet.planning.plan import Assignment, Bounds, Disks, Kind, Plan
from rtolap.fleet.planning.rules import broken_rules
from rtolap.fleet.snapshot.file import digest_of
from rtolap.fleet.snapshot.model import UNKNOWN, Int64s, Snapshot

FORMAT = "rtolap fleet plan"
VERSION = 1
ANY = "any"


class _Made(msgspec.Struct, forbid_unknown_fields=True):
    digest: str
    taken_at_ms: int


class _Disk(msgspec.Struct, forbid_unknown_fields=True):
    broker: int
    path: str
    total_bytes: int
    before_bytes: int
    after_bytes: int


class _Partition(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: int
    size_bytes: int
    leader: int
    replicas_before: list[int]
    log_dirs_before: list[str]
    replicas: list[int]
    log_dirs: list[str]
    elect: bool


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    digest: str
    cluster_id: str
    snapshot: _Made
    kind: Kind
    arguments: dict[str, str]
    why: list[str]
    disk_limit: float
    throttle_bytes_per_s: int
    expected_s: int
    moves: int
    between_brokers_bytes: int
    between_disks_bytes: int
    least_before_bytes: int
    least_after_bytes: int
    disks: list[_Disk]
    partitions: list[_Partition]


class _KafkaPartition(msgspec.Struct):
    topic: str
    partition: int
    replicas: list[int]
    log_dirs: list[str]


class _KafkaDocument(msgspec.Struct):
    version: int
    partitions: list[_KafkaPartition]


class _Version(msgspec.Struct):
    format: str
    version: int


def plan_json(plan: Plan) -> bytes:
    """The canonical document: equal plans, equal bytes."""
    document = _document(plan)
    document.digest = _digest(document)
    return _encoded(document)


def plan_digest(plan: Plan) -> str:
    """Return the digest that an approval names."""
    return _digest(_document(plan))


def kafka_json(plan: Plan) -> bytes:
    """For `kafka-reassign-partitions --reassignment-json-file`. A directory is named where a replica comes
    to it. Partitions that only elect a leader are not in it."""
    document = _document(plan)
    partitions = [
        _KafkaPartition(row.topic, row.partition, row.replicas, row.log_dirs)
        for row in document.partitions
        if (row.replicas, row.log_dirs) != (row.replicas_before, [ANY] * len(row.replicas))
    ]
    return _lines(msgspec.json.encode(_KafkaDocument(1, [])), [("partitions", partitions)])


def save_plan(plan: Plan, path: Path) -> None:
    try:
        write_atomic(path, plan_json(plan))
    except OSError as error:
        raise RtolapError(f"{path} cannot be written", found=error.strerror or str(error)) from error


def load_plan(path: Path) -> Plan:
    """Raises NotFound, Corrupted for a file that is no plan, SchemaTooNew, PlanChanged for an edited one."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"there is no plan {path}") from error
    except OSError as error:
        raise RtolapError(f"{path} cannot be read", found=error.strerror or str(error)) from error
    return plan_from(data, str(path))


def plan_from(data: bytes, name: str = "the plan") -> Plan:
    """Raises as `load_plan`."""
    try:
        found = msgspec.json.decode(data, type=_Version)
        if found.format == FORMAT and found.version > VERSION:
            raise SchemaTooNew(
                f"{name} was written by a newer program",
                expected=f"version {VERSION} or earlier",
                found=f"version {found.version}",
            )
        if (found.format, found.version) != (FORMAT, VERSION):
            _damaged(name, f"{found.format!r} of version {found.version}")
        document = msgspec.json.decode(data, type=_Document)
    except msgspec.DecodeError as error:
        _damaged(name, str(error), error)
    expected = _digest(document)
    if document.digest != expected:
        raise PlanChanged(
            f"{name} is not what its planner wrote",
            expected=document.digest,
            found=expected,
            action="make a plan with other arguments instead of editing one",
        )
    return _plan(document, name)


def check_applies(plan: Plan, snapshot: Snapshot, *, allowed: AllowedBrokers | None = None) -> None:
    """allowed: where topics may stand, by default anywhere. Raises OtherCluster, PlanOutdated where a planned
    partition or a directory is no longer what it was, and PlanRefused where the plan would break a rule."""
    if plan.cluster_id != snapshot.cluster_id:
        raise OtherCluster(
            "the plan was made for another cluster", expected=plan.cluster_id, found=snapshot.cluster_id
        )
    rows = _rows(plan, snapshot)
    if digest_of(snapshot) != plan.snapshot_digest:
        _refuse_changed(plan, snapshot, rows)
    broken = broken_rules(plan, snapshot, rows, allowed)
    if broken:
        raise PlanRefused(
            "the plan would break a rule", found="; ".join(broken), action="plan again, of a new snapshot"
        )


def _rows(plan: Plan, snapshot: Snapshot) -> Int64s:
    """The planned partitions in the snapshot. Raises PlanOutdated where one is gone."""
    topics = {name: row for row, name in enumerate(snapshot.topics.names)}
    owners = np.array([topics.get(name, UNKNOWN) for name in plan.topics], np.int64)
    wanted = owners[plan.partition_topics] << 32 | plan.partition_numbers
    keys = snapshot.partitions.topics.astype(np.int64) << 32 | snapshot.partitions.numbers
    rows = np.searchsorted(keys, wanted)
    there = np.append(keys, UNKNOWN)[rows] == wanted
    if not there.all():
        gone = int(np.argmin(there))
        _outdated(f"{_name(plan, gone)} is there", "no such partition")
    return rows


def _refuse_changed(plan: Plan, snapshot: Snapshot, rows: Int64s) -> None:
    first = snapshot.partitions.first_replicas
    for row, partition in enumerate(rows):
        now = snapshot.brokers.ids[snapshot.replicas.brokers[first[partition] : first[partition + 1]]]
        was = plan.before.brokers[plan.before.first[row] : plan.before.first[row + 1]]
        if not np.array_equal(now, was):
            _outdated(f"{_name(plan, row)} has replicas {was.tolist()}", str(now.tolist()))


def _outdated(expected: str, found: str) -> NoReturn:
    raise PlanOutdated(
        "the fleet is no longer what the plan was made of",
        expected=expected,
        found=found,
        action="plan again, of a new snapshot",
    )


def _name(plan: Plan, row: int) -> str:
    return f"{plan.topics[plan.partition_topics[row]]}-{plan.partition_numbers[row]}"


def _document(plan: Plan) -> _Document:
    moves = plan.moves
    return _Document(
        FORMAT,
        VERSION,
        "",
        plan.cluster_id,
        _Made(plan.snapshot_digest, plan.taken_at_ms),
        plan.kind,
        dict(plan.arguments),
        list(plan.why),
        plan.disk_limit,
        plan.throttle_bytes_per_s,
        plan.expected_s,
        len(moves),
        plan.between_brokers_bytes,
        plan.between_disks_bytes,
        plan.bounds.before_bytes,
        plan.bounds.after_bytes,
        [
            _Disk(*values)
            for values in zip(
                plan.disks.brokers.tolist(),
                plan.disks.paths,
                plan.disks.total_bytes.tolist(),
                plan.disks.before_bytes.tolist(),
                plan.disks.after_bytes.tolist(),
                strict=True,
            )
        ],
        _partitions(plan),
    )


def _partitions(plan: Plan) -> list[_Partition]:
    paths = (*plan.disks.paths, ANY)
    brokers_before, dirs_before = plan.before.brokers.tolist(), plan.before.log_dirs.tolist()
    brokers_after = plan.after.brokers.tolist()
    # Where nothing comes the broker keeps the directory that it has.
    named = np.full(plan.after.log_dirs.size, UNKNOWN, np.int32)
    moves = plan.moves
    keys = np.repeat(np.arange(len(plan)), np.diff(plan.after.first)) << 32 | plan.after.brokers
    comes = np.isin(keys, moves.partitions.astype(np.int64) << 32 | moves.to_brokers)
    named[comes] = plan.after.log_dirs[comes]
    dirs_after = named.tolist()
    first_before, first_after = plan.before.first.tolist(), plan.after.first.tolist()
    elected = np.zeros(len(plan), np.bool_)
    elected[plan.elections] = True
    return [
        _Partition(
            plan.topics[topic],
            number,
            size_bytes,
            leader,
            brokers_before[first_before[row] : first_before[row + 1]],
            [paths[d] for d in dirs_before[first_before[row] : first_before[row + 1]]],
            brokers_after[first_after[row] : first_after[row + 1]],
            [paths[d] for d in dirs_after[first_after[row] : first_after[row + 1]]],
            elect,
        )
        for row, (topic, number, size_bytes, leader, elect) in enumerate(
            zip(
                plan.partition_topics.tolist(),
                plan.partition_numbers.tolist(),
                plan.partition_bytes.tolist(),
                plan.leaders.tolist(),
                elected.tolist(),
                strict=True,
            )
        )
    ]


def _digest(document: _Document) -> str:
    stated, document.digest = document.digest, ""
    found = hashlib.sha256(msgspec.json.encode(document)).hexdigest()
    document.digest = stated
    return found


def _encoded(document: _Document) -> bytes:
    """Head and lists, a line for each disk and partition: what changes is seen line by line."""
    disks, partitions = document.disks, document.partitions
    document.disks, document.partitions = [], []
    head = msgspec.json.encode(document)
    document.disks, document.partitions = disks, partitions
    return _lines(head, [("disks", disks), ("partitions", partitions)])


def _lines(head: bytes, lists: Sequence[tuple[str, Sequence[msgspec.Struct]]]) -> bytes:
    """The document `head` with these of its empty lists filled."""
    for name, rows in lists:
        body = b",\n".join(msgspec.json.encode(row) for row in rows)
        head = head.replace(f'"{name}":[]'.encode(), f'\n"{name}":[\n'.encode() + body + b"\n]", 1)
    return head + b"\n"


def _plan(document: _Document, name: str) -> Plan:
    disks, rows = document.disks, document.partitions
    topics = sorted({row.topic for row in rows})
    topic_rows = {topic: n for n, topic in enumerate(topics)}
    dirs = {(disk.broker, disk.path): n for n, disk in enumerate(disks)}
    try:
        before = _assignment(
            [row.replicas_before for row in rows], [row.log_dirs_before for row in rows], dirs
        )
        after = _assignment([row.replicas for row in rows], [row.log_dirs for row in rows], dirs)
        plan = Plan(
            document.cluster_id,
            document.snapshot.digest,
            document.snapshot.taken_at_ms,
            document.kind,
            tuple(sorted(document.arguments.items())),
            tuple(document.why),
            document.disk_limit,
            document.throttle_bytes_per_s,
            Bounds(document.least_before_bytes, document.least_after_bytes),
            Disks(
                np.array([disk.broker for disk in disks], np.int32),
                tuple(disk.path for disk in disks),
                np.array([disk.total_bytes for disk in disks], np.int64),
                np.array([disk.before_bytes for disk in disks], np.int64),
                np.array([disk.after_bytes for disk in disks], np.int64),
            ),
            tuple(topics),
            np.array([topic_rows[row.topic] for row in rows], np.int32),
            np.array([row.partition for row in rows], np.int32),
            np.array([row.size_bytes for row in rows], np.int64),
            np.array([row.leader for row in rows], np.int32),
            before,
            after,
            np.flatnonzero([row.elect for row in rows]).astype(np.int32),
        )
    except (KeyError, ValueError, OverflowError) as error:
        _damaged(name, f"{type(error).__name__}: {error}", error)
    if _digest(_document(plan)) != document.digest:
        _damaged(name, "figures that do not follow from its partitions")
    return plan


def _assignment(
    brokers: list[list[int]], paths: list[list[str]], dirs: dict[tuple[int, str], int]
) -> Assignment:
    counts = [len(row) for row in brokers]
    placed = [
        UNKNOWN if path == ANY else dirs[broker, path]
        for row, own in zip(brokers, paths, strict=True)
        for broker, path in zip(row, own, strict=True)
    ]
    return Assignment(
        np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(np.int64),
        np.array([broker for row in brokers for broker in row], np.int32),
        np.array(placed, np.int32),
    )


def _damaged(name: str, problem: str, cause: Exception | None = None) -> NoReturn:
    raise Corrupted(
        f"{name} is no readable plan", expected=f"{FORMAT}, version {VERSION}", found=problem
    ) from (cause)
