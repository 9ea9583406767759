"""A plan as JSON: canonical, with its own digest; and what Kafka's reassignment tool reads, beside it.

    rtolap plan      format, version, digest, cluster, snapshot, kind, arguments, why, what is left out,
                     bytes, time, disks, partitions (a line each: stage, replicas before and after), elections
    Kafka's          {"version": 1, "partitions": [{topic, partition, replicas, log_dirs}]}, a file for each
                     stage, because the tool begins all that a file says at once

The digest is SHA-256 over the canonical document without it, so equal plans have equal files, and one that
somebody has edited is refused when it is loaded. It is no signature: `rules` hold every plan against the
fleet before anything is submitted, and an approval names the digest that was approved.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from rtolap.base.errors import PlanChanged
from rtolap.fleet.file_format import FileFormat
from rtolap.fleet.planning.plan import Assignment, Bounds, Disks, LeftOut, Plan, PlanKind
from rtolap.fleet.snapshot.model import UNKNOWN, Int32s

_FORMAT = FileFormat("rtolap fleet plan", 2, "plan")
_ANY = "any"


class _Made(msgspec.Struct, forbid_unknown_fields=True):
    digest: str
    taken_at_ms: int


class _DiskRow(msgspec.Struct, forbid_unknown_fields=True):
    broker: int
    path: str
    total_bytes: int
    before_bytes: int
    after_bytes: int


class _PartitionRow(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A partition in the file of a plan.

    Attributes:
        bytes_in_per_s: Left out where it is not known.
        stage: Left out for the first stage.
    """

    topic: str
    partition: int
    size_bytes: int
    leader: int
    replicas_before: list[int]
    log_dirs_before: list[str]
    replicas: list[int]
    log_dirs: list[str]
    elect: bool
    bytes_in_per_s: float | None = None
    stage: int = 0


class _LeftOutRow(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    reason: str


class _PlanDocument(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    digest: str
    cluster_id: str
    snapshot: _Made
    kind: PlanKind
    arguments: dict[str, str]
    why: list[str]
    left_out: list[_LeftOutRow]
    disk_limit: float
    throttle_bytes_per_s: int
    expected_s: int | None
    moves: int
    between_brokers_bytes: int
    between_disks_bytes: int
    least_before_bytes: int
    least_after_bytes: int
    disks: list[_DiskRow]
    partitions: list[_PartitionRow]


def _document_of(plan: Plan) -> _PlanDocument:
    moves = plan.moves
    return _PlanDocument(
        _FORMAT.name,
        _FORMAT.version,
        "",
        plan.cluster_id,
        _Made(plan.snapshot_digest, plan.taken_at_ms),
        plan.kind,
        dict(plan.arguments),
        list(plan.why),
        [_LeftOutRow(each.name, each.reason) for each in plan.left_out],
        plan.disk_limit,
        plan.throttle_bytes_per_s,
        plan.copy_time.expected_s,
        len(moves),
        plan.between_brokers_bytes,
        plan.between_disks_bytes,
        plan.bounds.before_bytes,
        plan.bounds.after_bytes,
        [
            _DiskRow(*values)
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


def _partitions(plan: Plan) -> list[_PartitionRow]:
    paths = (*plan.disks.paths, _ANY)
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
        _PartitionRow(
            plan.topics[topic],
            number,
            size_bytes,
            leader,
            brokers_before[first_before[row] : first_before[row + 1]],
            [paths[d] for d in dirs_before[first_before[row] : first_before[row + 1]]],
            brokers_after[first_after[row] : first_after[row + 1]],
            [paths[d] for d in dirs_after[first_after[row] : first_after[row + 1]]],
            elect,
            None if math.isnan(written) else written,
            stage,
        )
        for row, (topic, number, size_bytes, leader, elect, written, stage) in enumerate(
            zip(
                plan.partition_topics.tolist(),
                plan.partition_numbers.tolist(),
                plan.partition_bytes.tolist(),
                plan.leaders.tolist(),
                elected.tolist(),
                plan.bytes_in_per_s.tolist(),
                plan.stages.tolist(),
                strict=True,
            )
        )
    ]


def _digest_of_document(document: _PlanDocument) -> str:
    stated, document.digest = document.digest, ""
    found = hashlib.sha256(msgspec.json.encode(document)).hexdigest()
    document.digest = stated
    return found


def _plan_of_document(document: _PlanDocument, name: str) -> Plan:
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
            np.array([row.bytes_in_per_s for row in rows], np.float64),
            np.array([row.leader for row in rows], np.int32),
            before,
            after,
            np.flatnonzero([row.elect for row in rows]).astype(np.int32),
            _stages([row.stage for row in rows]),
            tuple(LeftOut(each.name, each.reason) for each in document.left_out),
        )
    except (KeyError, ValueError, OverflowError) as error:
        _FORMAT.damaged(name, f"{type(error).__name__}: {error}", error)
    if _digest_of_document(_document_of(plan)) != document.digest:
        _FORMAT.damaged(name, "figures that do not follow from its partitions")
    return plan


def _stages(stages: list[int]) -> Int32s:
    """Return the stages. Raises ValueError where they are not in order, or one has no partition."""
    steps = np.diff(np.array([0, *stages], np.int64))
    if ((steps < 0) | (steps > 1)).any():
        raise ValueError("stages are not in their order")
    return np.array(stages, np.int32)


def _assignment(
    brokers: list[list[int]], paths: list[list[str]], dirs: dict[tuple[int, str], int]
) -> Assignment:
    counts = [len(row) for row in brokers]
    placed = [
        UNKNOWN if path == _ANY else dirs[broker, path]
        for row, own in zip(brokers, paths, strict=True)
        for broker, path in zip(row, own, strict=True)
    ]
    return Assignment(
        np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(np.int64),
        np.array([broker for row in brokers for broker in row], np.int32),
        np.array(placed, np.int32),
    )


class _KafkaPartition(msgspec.Struct):
    topic: str
    partition: int
    replicas: list[int]
    log_dirs: list[str]


class _KafkaDocument(msgspec.Struct):
    version: int
    partitions: list[_KafkaPartition]


def plan_json(plan: Plan) -> bytes:
    """Return the canonical document: equal plans, equal bytes."""
    document = _document_of(plan)
    document.digest = _digest_of_document(document)
    return _encoded(document)


def plan_digest(plan: Plan) -> str:
    """Return the digest that an approval names."""
    return _digest_of_document(_document_of(plan))


def kafka_json(plan: Plan, stage: int = 0) -> bytes:
    """Return a stage of the plan for `kafka-reassign-partitions --reassignment-json-file`.

    A directory is named where a replica comes to it. Partitions that only elect a leader are left out.
    """
    document = _document_of(plan)
    partitions = [
        _KafkaPartition(row.topic, row.partition, row.replicas, row.log_dirs)
        for row in document.partitions
        if row.stage == stage
        and (row.replicas, row.log_dirs) != (row.replicas_before, [_ANY] * len(row.replicas))
    ]
    return _lines(msgspec.json.encode(_KafkaDocument(1, [])), [("partitions", partitions)])


def save_plan(plan: Plan, path: Path) -> None:
    _FORMAT.write(path, plan_json(plan))


def load_plan(path: Path) -> Plan:
    """Load a plan. Raises NotFound, Corrupted for a file that is no plan, SchemaTooNew, and PlanChanged for
    an edited one."""
    return plan_from(_FORMAT.read(path), str(path))


def plan_from(data: bytes, name: str = "the plan") -> Plan:
    """Return the plan in these bytes. Raises as `load_plan`."""
    document = _FORMAT.decode(data, _PlanDocument, name)
    expected = _digest_of_document(document)
    if document.digest != expected:
        raise PlanChanged(
            f"{name} is not what its planner wrote",
            expected=document.digest,
            found=expected,
            action="make a plan with other arguments instead of editing one",
        )
    return _plan_of_document(document, name)


def _encoded(document: _PlanDocument) -> bytes:
    """Encode the document with a line for each disk and partition, so that a change is seen line by line."""
    disks, partitions = document.disks, document.partitions
    document.disks, document.partitions = [], []
    head = msgspec.json.encode(document)
    document.disks, document.partitions = disks, partitions
    return _lines(head, [("disks", disks), ("partitions", partitions)])


def _lines(head: bytes, lists: Sequence[tuple[str, Sequence[msgspec.Struct]]]) -> bytes:
    """Return the document `head` with these of its empty lists filled."""
    for name, rows in lists:
        body = b",\n".join(msgspec.json.encode(row) for row in rows)
        head = head.replace(f'"{name}":[]'.encode(), f'\n"{name}":[\n'.encode() + body + b"\n]", 1)
    return head + b"\n"
