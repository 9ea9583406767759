"""Rules on what broker logs say of disks, replicas and controllers: one table.

A rule has the texts of Kafka 4.3 that it stands for, each with the class that has it, `{}` where a value
stands. A test looks each up in the classes of the real jars, so that a release that words one otherwise is
noticed. Classes are as Java names them; which of them writes the line may be another one.

What is in no log is not here: a reassignment that stands still prints nothing by itself. What makes it stand
still does: `replica_failed`, for such a partition is not fetched again until its leader changes, `disk_error`
and `fenced`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

_LOG_MANAGER = "kafka.log.LogManager"
_UNIFIED_LOG = "org.apache.kafka.storage.internals.log.UnifiedLog"
_LOCAL_LOG = "org.apache.kafka.storage.internals.log.LocalLog"
_REPLICA_MANAGER = "kafka.server.ReplicaManager"
_FETCHER = "kafka.server.AbstractFetcherThread"
_CONTROLLER = "org.apache.kafka.controller.ReplicationControlManager"
_QUORUM = "org.apache.kafka.controller.QuorumController$QuorumMetaLogListener"


@dataclass(frozen=True)
class LogText:
    """The text of a line.

    Attributes:
        text: The message, with `{}` in place of values.
        fields: Names of the values in order. Empty for a value that nobody uses.
    """

    of_class: str
    text: str
    fields: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        """The longest part that is always the same."""
        return max(self.text.split("{}"), key=len)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        parts = [re.escape(part) for part in self.text.split("{}")]
        names = (*self.fields, *("",) * len(parts))
        pattern = parts[0]
        for number, (name, part) in enumerate(zip(names, parts[1:], strict=False), 2):
            value = "(.+)" if number == len(parts) and not part else "(.+?)"
            pattern += (f"(?P<{name}>{value[1:-1]})" if name else value) + part
        return re.compile(pattern)


@dataclass(frozen=True)
class LogRule:
    """A rule that finds lines.

    Attributes:
        serious: Somebody has to look at the broker.
        storm: Number of lines within a minute that make a storm, which is serious where a few lines are not.
            None: no storms.
    """

    name: str
    meaning: str
    texts: tuple[LogText, ...]
    serious: bool = True
    storm: int | None = None
    storm_window_ms: int = field(default=60_000)


RULES: tuple[LogRule, ...] = (
    LogRule(
        "disk_error",
        "a log directory could not be read or written; the broker gives it up",
        (
            LogText(
                _REPLICA_MANAGER,
                "Stopping serving replicas in dir {} with uuid {} because the log directory has failed.",
                ("log_dir",),
            ),
            LogText(_LOG_MANAGER, "Stopping serving logs in dir {}", ("log_dir",)),
            LogText(_LOG_MANAGER, "Error while loading log dir {}", ("log_dir",)),
            LogText(_LOG_MANAGER, "Shutdown broker because all log dirs in {} have failed", ("log_dir",)),
            LogText(
                _LOG_MANAGER,
                "Disk error while writing recovery offsets checkpoint in directory {}: {}",
                ("log_dir",),
            ),
            LogText(
                _LOG_MANAGER,
                "Disk error while writing log start offsets checkpoint in directory {}: {}",
                ("log_dir",),
            ),
            LogText(
                _REPLICA_MANAGER, "Error while writing to highwatermark file in directory {}", ("log_dir",)
            ),
            LogText(_UNIFIED_LOG, "Error while appending records to {} in dir {}", ("partition", "log_dir")),
            LogText(
                _UNIFIED_LOG,
                "Error while flushing log for {} in dir {} with offset {} ({}) and recovery point {}",
                ("partition", "log_dir"),
            ),
            LogText(_LOCAL_LOG, "Error while rolling log segment for {} in dir {}", ("partition", "log_dir")),
        ),
    ),
    LogRule(
        "replica_failed",
        "a replica is not fetched any more until its leader changes; a move of it stands still",
        (
            LogText(_FETCHER, "Partition {} marked as failed", ("partition",)),
            LogText(
                _FETCHER,
                "Unexpected error occurred while processing data for partition {} at offset {}",
                ("partition",),
            ),
            LogText(
                _FETCHER, "Unexpected error occurred during truncation for {} at offset {}", ("partition",)
            ),
        ),
    ),
    LogRule(
        "reassignment_refused",
        "the controller did not take a reassignment",
        (
            LogText(
                _CONTROLLER,
                "Unable to alter partition reassignment for {}:{} because of an {} error: {}",
                ("", "partition"),
            ),
        ),
    ),
    LogRule(
        "isr_shrink",
        "a leader took followers out of the in-sync replicas",
        (
            LogText(
                "kafka.cluster.Partition",
                "Shrinking ISR from {} to {}. Leader: (highWatermark: {}, endOffset: {})."
                " Out of sync replicas: {}.",
            ),
        ),
        serious=False,
        storm=20,
    ),
    LogRule(
        "below_min_isr",
        "writes with acks=all are refused: too few replicas are in sync",
        (
            LogText(
                "kafka.cluster.Partition",
                "The size of the current ISR : {} is insufficient to satisfy the min.isr requirement of {}"
                " for partition {}, live replica(s) broker.id are : {}",
                ("", "", "partition"),
            ),
        ),
    ),
    LogRule(
        "controller_change",
        "another controller became active",
        (
            LogText(_QUORUM, "Becoming the active controller at epoch {}, next write offset {}."),
            LogText(
                _QUORUM,
                "Renouncing the leadership due to a metadata log event. We were the leader at epoch {},"
                " but in the new epoch {}, the leader is {}. Reverting to last stable offset {}.",
            ),
        ),
        serious=False,
        storm=3,
        storm_window_ms=600_000,
    ),
    LogRule(
        "fenced",
        "the controller heard nothing of a broker for its session, and takes its leaders away",
        (
            LogText(
                _CONTROLLER,
                "Fencing broker {} at epoch {} because its session has timed out.",
                ("fenced_broker",),
            ),
        ),
    ),
    LogRule(
        "heartbeat_lost",
        "the broker could not tell its controller in time that it lives",
        (
            LogText(
                "org.apache.kafka.server.BrokerLifecycleManager$BrokerHeartbeatResponseHandler",
                "Unable to send a heartbeat because the RPC got timed out before it could be sent.",
            ),
        ),
        serious=False,
        storm=10,
    ),
    LogRule(
        "unclean_election",
        "a replica that was not in sync leads: acknowledged records may be lost",
        (
            LogText(
                "org.apache.kafka.controller.PartitionChangeBuilder",
                "Setting new leader for topicId {}, partition {} to {} using an unclean election."
                " Previous partition: {}, change record: {}",
            ),
            LogText(
                "org.apache.kafka.metadata.PartitionRegistration",
                "UNCLEAN partition change for {}: {}",
                ("partition",),
            ),
        ),
    ),
    LogRule(
        "corruption",
        "a log or an index on the disk was damaged",
        (
            LogText(
                "org.apache.kafka.storage.internals.log.LogLoader",
                "Found a corrupted index file corresponding to log file {} due to {},"
                " recovering segment and rebuilding index files...",
            ),
            LogText(
                "org.apache.kafka.storage.internals.log.LogLoader",
                "Corruption found in segment {}, truncating to offset {}",
            ),
        ),
        serious=False,  # as after every kill
        storm=50,
    ),
    LogRule(
        "slow_controller",
        "an event kept the controller busy for long",
        (
            LogText(
                "org.apache.kafka.controller.EventPerformanceMonitor",
                "Exceptionally slow controller event {} took {} ms.",
            ),
        ),
        serious=False,
        storm=5,
    ),
    LogRule(
        "fatal",
        "the broker ends by itself",
        (
            LogText(
                "org.apache.kafka.server.fault.ProcessTerminatingFaultHandler",
                "Encountered fatal fault: {}",
            ),
            LogText("kafka.Kafka$", "Exiting Kafka due to fatal exception"),
        ),
    ),
)
BY_NAME = {rule.name: rule for rule in RULES}


def _anchored() -> Iterator[tuple[str, LogRule, LogText]]:
    for rule in RULES:
        for text in rule.texts:
            yield text.anchor, rule, text


ANCHORS: tuple[tuple[str, LogRule, LogText], ...] = tuple(_anchored())
