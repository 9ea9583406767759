"""A backup compared with Kafka: whether offsets still count in the same topics, and are still there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from rtolap.backup.findings import Finding
from rtolap.base.errors import NotFound
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.model.completeness import behind_losses, offsets_text
from rtolap.model.offsets import Offsets, PartRange
from rtolap.model.table import Table


class TopicLogs(Protocol):
    """The questions that a Kafka cluster is asked."""

    def topic_id(self, topic: str) -> str: ...

    def offsets(self, topic: str, which: str) -> Offsets: ...


LogsOf = Callable[[str], TopicLogs]  # of the Kafka cluster with that name


def compare_positions(backup: ClusterMetadata, logs_of: LogsOf) -> Iterator[Finding]:
    """Yield what stands in the way of reading on, cube by cube. Raises Unavailable, DefinitionError."""
    for cube in backup.cubes():
        control = backup.control(cube)
        if control.ended or not control.first_offsets:
            continue  # history holds all of it, or nobody has read it yet
        table = backup.schema(cube).table
        logs = logs_of(table.kafka_cluster)
        try:
            topic_id = logs.topic_id(table.topic)
            begins, ends = logs.offsets(table.topic, "earliest"), logs.offsets(table.topic, "latest")
        except NotFound:
            yield _lacking(cube, table, "is missing", "restore the topic, with its offsets")
            continue
        yield from _compare(cube, table, backup, _Log(topic_id, begins, ends))


class _Log(NamedTuple):
    topic_id: str
    begins: Offsets
    ends: Offsets


def _compare(cube: str, table: Table, backup: ClusterMetadata, log: _Log) -> Iterator[Finding]:
    control = backup.control(cube)
    if control.topic_id and log.topic_id and log.topic_id != control.topic_id:
        yield _lacking(
            cube,
            table,
            f"is another topic of that name: its id is {log.topic_id}, not {control.topic_id}",
            "its offsets mean other events: drop the cube and create it again, or restore the topic",
        )
        return
    covered = backup.nodes.frontier(cube).covered
    gone, short = [], []
    for partition, reported in sorted(backup.replay_from(cube).items()):
        at = behind_losses(control.losses, partition, reported)
        reached = max(at, covered.get(partition, 0))
        if log.ends.get(partition, 0) < reached:
            short.append(PartRange(partition, log.ends.get(partition, 0), reached))
        elif log.begins[partition] > at:
            gone.append(PartRange(partition, at, log.begins[partition]))
    if short:
        yield _lacking(
            cube,
            table,
            f"ends before offsets that history holds: {offsets_text(short)}",
            "its log was cut or recreated: restore it, or drop the cube and create it again",
        )
    if gone:
        yield _lacking(
            cube,
            table,
            f"no longer holds offsets {offsets_text(gone)}, which restored history may lack",
            f"receivers wait for them: restore the log, or `rtolap segments accept-loss {cube} SEGMENT`",
        )


def _lacking(cube: str, table: Table, message: str, action: str) -> Finding:
    return Finding("lacking", f"cube {cube}", f"topic {table.topic} {message}", action)
