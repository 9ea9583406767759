"""All looks at what this host's settings name."""

from __future__ import annotations

from collections.abc import Iterator

from rtolap.base.errors import RtolapError
from rtolap.base.settings import Settings
from rtolap.doctor import host, kafka, services, storage, zookeeper
from rtolap.doctor.findings import Finding, failed, look_at_all

LOOK_S_MAX = 20.0


def examine(settings: Settings, *, each_s: float = LOOK_S_MAX) -> Iterator[Finding]:
    """Give what was found: this host, ZooKeeper, Kafka, the object store, services.

    each_s: seconds for each look; they are made at the same time.
    """
    looks = [*host.looks(settings), *zookeeper.looks(settings)]
    refused: Finding | None = None
    try:
        looks += kafka.looks(settings, services.topics_of(settings))
    except RtolapError as error:  # the file of clusters
        refused = failed(
            "Kafka clusters", str(error), error.action or "mend what RTOLAP_KAFKA_CLUSTERS names"
        )
    looks += [*storage.looks(settings), *services.looks(settings)]
    if refused is not None:
        yield refused
    yield from look_at_all(looks, each_s)
