"""Coordinator protocol, REST and JSON: its messages. Bearer token on everything but `/health`.

Errors: HTTP status of the error's class and `{"code", "message"}` (`RtolapError.to_dict`), plus
`leader_url` where a standby answers 503. A standby that knows its leader answers 307 to it.
Instants are milliseconds since the epoch; an offset means next-to-read.
"""

from __future__ import annotations

from rtolap.protocols.coordinator.messages.batches import BatchPlanMessage, BatchProgress, BatchRequest
from rtolap.protocols.coordinator.messages.cubes import (
    Alteration,
    AlterRequest,
    CleanupResult,
    ClusterInfo,
    CubeStatus,
    EnableRequest,
    Move,
    PartitionWatermark,
    PurgeRequest,
    PurgeResult,
    Reassignment,
    ReassignRequest,
    SettingChange,
    WatermarkInfo,
)
from rtolap.protocols.coordinator.messages.members import (
    CubeReport,
    Health,
    HeartbeatRequest,
    HeartbeatResponse,
    MetricsTargets,
    PartitionReport,
    ReceiverHealth,
    ReceiverInfo,
    ReplicaSetInfo,
    ReplicaSetRequest,
)
from rtolap.protocols.coordinator.messages.segments import (
    AcceptLossRequest,
    BuildInfo,
    BuildSpecMessage,
    CompletenessInfo,
    FailRequest,
    HistoryEntry,
    LossInfo,
    PartInfo,
    PartitionRange,
    Queue,
    QueueEntry,
    SegmentInfo,
)
from rtolap.protocols.rest.messages import (
    API,
    Definition,
    ErrorAnswer,
    Message,
)

__all__ = [
    "API",
    "AcceptLossRequest",
    "AlterRequest",
    "Alteration",
    "BatchPlanMessage",
    "BatchProgress",
    "BatchRequest",
    "BuildInfo",
    "BuildSpecMessage",
    "CleanupResult",
    "ClusterInfo",
    "CompletenessInfo",
    "CubeReport",
    "CubeStatus",
    "Definition",
    "EnableRequest",
    "ErrorAnswer",
    "FailRequest",
    "Health",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "HistoryEntry",
    "LossInfo",
    "Message",
    "MetricsTargets",
    "Move",
    "PartInfo",
    "PartitionRange",
    "PartitionReport",
    "PartitionWatermark",
    "PurgeRequest",
    "PurgeResult",
    "Queue",
    "QueueEntry",
    "ReassignRequest",
    "Reassignment",
    "ReceiverHealth",
    "ReceiverInfo",
    "ReplicaSetInfo",
    "ReplicaSetRequest",
    "SegmentInfo",
    "SettingChange",
    "WatermarkInfo",
]
