"""A plan as the document that its file holds, and back: a row for each disk and for each partition.

The digest is SHA-256 over the canonical document without it, so equal plans have equal digests.
"""

from __future__ import annotations

import hashlib
import math

import msgspec
import numpy as np

from rtolap.fleet.file_format import FileFormat
from rtolap.fleet.planning.plan import Assignment, Bounds, Disks, Kind, Plan
from rtolap.fleet.snapshot.model import UNKNOWN

FORMAT = FileFormat("rtolap fleet plan", 1, "plan")
ANY = "any"


class Made(msgspec.Struct, forbid_unknown_fields=True):
    digest: str
    taken_at_ms: int


class DiskRow(msgspec.Struct, forbid_unknown_fields=True):
    broker: int
    path: str
    total_bytes: int
    before_bytes: int
    after_bytes: int


class PartitionRow(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """bytes_in_per_s: left out where it is not known."""

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


class PlanDocument(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    digest: str
    cluster_id: str
    snapshot: Made
    kind: Kind
    arguments: dict[str, str]
    why: list[str]
    disk_limit: float
    throttle_bytes_per_s: int
    expected_s: int | None
    moves: int
    between_brokers_bytes: int
    between_disks_bytes: int
    least_before_bytes: int
    least_after_bytes: int
    disks: list[DiskRow]
    partitions: list[PartitionRow]


def document_of(plan: Plan) -> PlanDocument:
    moves = plan.moves
    return PlanDocument(
        FORMAT.name,
        FORMAT.version,
        "",
        plan.cluster_id,
        Made(plan.snapshot_digest, plan.taken_at_ms),
        plan.kind,
        dict(plan.arguments),
        list(plan.why),
        plan.disk_limit,
        plan.throttle_bytes_per_s,
        plan.copy_time.expected_s,
        len(moves),
        plan.between_brokers_bytes,
        plan.between_disks_bytes,
        plan.bounds.before_bytes,
        plan.bounds.after_bytes,
        [
            DiskRow(*values)
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


def _partitions(plan: Plan) -> list[PartitionRow]:
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
        PartitionRow(
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
        )
        for row, (topic, number, size_bytes, leader, elect, written) in enumerate(
            zip(
                plan.partition_topics.tolist(),
                plan.partition_numbers.tolist(),
                plan.partition_bytes.tolist(),
                plan.leaders.tolist(),
                elected.tolist(),
                plan.bytes_in_per_s.tolist(),
                strict=True,
            )
        )
    ]


def digest_of_document(document: PlanDocument) -> str:
    stated, document.digest = document.digest, ""
    found = hashlib.sha256(msgspec.json.encode(document)).hexdigest()
    document.digest = stated
    return found


def plan_of_document(document: PlanDocument, name: str) -> Plan:
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
        )
    except (KeyError, ValueError, OverflowError) as error:
        FORMAT.damaged(name, f"{type(error).__name__}: {error}", error)
    if digest_of_document(document_of(plan)) != document.digest:
        FORMAT.damaged(name, "figures that do not follow from its partitions")
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
