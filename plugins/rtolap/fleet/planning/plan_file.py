"""A plan as JSON: canonical, with its own digest; and what Kafka's reassignment tool reads, beside it.

    rtolap plan      format, version, digest, cluster, snapshot, kind, arguments, why, bytes, time, disks,
                     partitions (a line each: replicas before and after), elections
    Kafka's          {"version": 1, "partitions": [{topic, partition, replicas, log_dirs}]}

The digest is SHA-256 over the canonical document without it, so equal plans have equal files, and one that
somebody has edited is refused when it is loaded. It is no signature: `applies` holds every plan against
the fleet and the rules before anything is submitted, and an approval names the digest that was approved.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from rtolap.base.errors import PlanChanged
from rtolap.fleet.planning.plan import Plan
from rtolap.fleet.planning.plan_document import (
    ANY,
    FORMAT,
    PlanDocument,
    digest_of_document,
    document_of,
    plan_of_document,
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
    """The canonical document: equal plans, equal bytes."""
    document = document_of(plan)
    document.digest = digest_of_document(document)
    return _encoded(document)


def plan_digest(plan: Plan) -> str:
    """Return the digest that an approval names."""
    return digest_of_document(document_of(plan))


def kafka_json(plan: Plan) -> bytes:
    """For `kafka-reassign-partitions --reassignment-json-file`. A directory is named where a replica comes
    to it. Partitions that only elect a leader are not in it."""
    document = document_of(plan)
    partitions = [
        _KafkaPartition(row.topic, row.partition, row.replicas, row.log_dirs)
        for row in document.partitions
        if (row.replicas, row.log_dirs) != (row.replicas_before, [ANY] * len(row.replicas))
    ]
    return _lines(msgspec.json.encode(_KafkaDocument(1, [])), [("partitions", partitions)])


def save_plan(plan: Plan, path: Path) -> None:
    FORMAT.write(path, plan_json(plan))


def load_plan(path: Path) -> Plan:
    """Raises NotFound, Corrupted for a file that is no plan, SchemaTooNew, PlanChanged for an edited one."""
    return plan_from(FORMAT.read(path), str(path))


def plan_from(data: bytes, name: str = "the plan") -> Plan:
    """Raises as `load_plan`."""
    document = FORMAT.decode(data, PlanDocument, name)
    expected = digest_of_document(document)
    if document.digest != expected:
        raise PlanChanged(
            f"{name} is not what its planner wrote",
            expected=document.digest,
            found=expected,
            action="make a plan with other arguments instead of editing one",
        )
    return plan_of_document(document, name)


def _encoded(document: PlanDocument) -> bytes:
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
