"""Two real brokers with tiered storage in one folder, which both of them reach: Kafka's own
`LocalTieredStorage`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rtolap.stack.artifacts import JavaArtifacts, fetch_jars

from tests.support.fleet.brokers import Brokers

_IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="local" module="tiers"/><configurations><conf name="tiers"/></configurations>
<dependencies><dependency org="org.apache.kafka" name="kafka-storage" rev="4.3.1" transitive="false"
 conf="tiers-&gt;default"><artifact name="kafka-storage" type="jar" ext="jar" m:classifier="test"/>
</dependency></dependencies></ivy-module>
"""
_CHECKSUMS = {
    "tiers/kafka-storage-4.3.1-test.jar": "f3236936854c13815ffaa7f35a3f2d6861c125616cba5395b538b8680dded886"
}


@contextmanager
def tiered_brokers(
    folder: Path, java: JavaArtifacts, jvm_options: Callable[[int], Sequence[str]]
) -> Iterator[Brokers]:
    """Yield brokers that copy closed segments, and look for what local retention removes, twice a second."""
    jar = tiered_storage_jar()
    overrides = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": (
            "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
        ),
        "remote.log.storage.manager.class.path": str(jar.absolute()),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rsm.config.dir": str(remote_folder(folder)),
        "rlmm.config.remote.log.metadata.topic.replication.factor": 2,
        "rlmm.config.remote.log.metadata.topic.min.isr": 1,  # one of the two may be down
        "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
        "remote.log.manager.task.interval.ms": 500,
        "log.retention.check.interval.ms": 500,
        "log.segment.delete.delay.ms": 100,
    }
    # a broker with remote storage takes one log directory
    with Brokers(folder, java, 2, disks=1, overrides=overrides, jvm_options=jvm_options) as started:
        yield started


def remote_folder(folder: Path) -> Path:
    return folder.absolute() / "remote"


def tiered_storage_jar() -> Path:
    """Return Kafka's remote storage in a folder, fetched first when the cache lacks it."""
    jars = fetch_jars(_IVY, ("tiers",), "Kafka's tiered storage", checksums=_CHECKSUMS)
    (jar,) = (jars / "tiers").glob("*.jar")
    return jar
