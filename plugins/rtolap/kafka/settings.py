"""The settings of librdkafka, and the reasons for them.

| setting | value | why |
|---|---|---|
| `fetch.queue.backoff.ms` | 5 | the default of 1000 lets a consumer sleep that has drained its queue |
| `fetch.wait.max.ms` | 100 | a broker answers at once when it has data; this bounds only the idle wait |
| `auto.offset.reset` | error | an offset outside the log is never skipped silently |
| `enable.partition.eof` | true | at the log's end, positions pass transaction markers and compaction gaps |
| `queued.max.messages.kbytes` | 16384 | bounds what is fetched ahead, of all partitions together |
| `queued.min.messages` | 20000 | of a partition: beside a small record the client keeps as much again |
| `isolation.level` | read_committed | aborted transactions are no events |
"""

from __future__ import annotations

from typing import Any

QUEUED_KBYTES_MAX = 16_384
QUEUED_RECORDS = 20_000  # of a partition: more are not fetched while so many wait


def consumer_settings(client_id: str) -> dict[str, Any]:
    """Return the settings of a consumer that joins no group and commits nothing. A cluster's own settings are
    added to it."""
    return {
        "client.id": client_id,
        "group.id": f"{client_id}-unused",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "allow.auto.create.topics": False,
        "fetch.queue.backoff.ms": 5,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 100,
        "queued.max.messages.kbytes": QUEUED_KBYTES_MAX,
        "queued.min.messages": QUEUED_RECORDS,
        "topic.metadata.refresh.interval.ms": 5_000,
        "topic.metadata.propagation.max.ms": 3_000,
        "reconnect.backoff.max.ms": 1_000,
    }
