"""Kafka's own tools, as oracles: where partitions are by the plan that was read, and their offsets."""

from __future__ import annotations

import subprocess
from pathlib import Path

from rtolap.kafka.clusters import KafkaCluster
from rtolap.stack.artifacts import JavaArtifacts, fetch_jars
from rtolap.stack.java import LEAN_FLAGS, archive_flags, class_path

_IVY = """<ivy-module version="2.0"><info organisation="local" module="tools"/>
<configurations><conf name="tools"/></configurations>
<dependencies>
<dependency org="org.apache.kafka" name="kafka-tools" rev="4.3.1" transitive="false"
 conf="tools-&gt;default"/>
</dependencies></ivy-module>
"""
_CHECKSUMS = {
    "tools/kafka-tools-4.3.1.jar": "62f3c5dd7aa3442d4c5bc6a95f86e2502178ea09de8e27f74d9563bf955e253c"
}
_TIMEOUT_S = 120


def verify_plan(java: JavaArtifacts, cluster: KafkaCluster, plan: Path) -> str:
    """Return what `--verify` prints; the plan's throttles, if any, stay."""
    return _run(
        java,
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        *("--bootstrap-server", cluster.servers, "--reassignment-json-file", str(plan)),
        *("--verify", "--preserve-throttles"),
    )


def offsets_by_tool(java: JavaArtifacts, cluster: KafkaCluster, topic: str, time: int) -> dict[int, int]:
    """Return what `kafka-get-offsets` prints, by partition; those without such an offset are not in it."""
    printed = _run(
        java,
        "org.apache.kafka.tools.GetOffsetShell",
        *("--bootstrap-server", cluster.servers, "--topic", topic, "--time", str(time)),
    )
    found: dict[int, int] = {}
    for line in printed.splitlines():
        name, partition, offset = line.rsplit(":", 2)
        assert name == topic, printed
        found[int(partition)] = int(offset)
    return found


def _run(java: JavaArtifacts, *command: str) -> str:
    jars = sorted((kafka_tools() / "tools").glob("*.jar"))
    flags = (*LEAN_FLAGS, *archive_flags("kafka", java.java, java.kafka))
    done = subprocess.run(
        [java.java, "-Xmx128m", *flags, "-cp", class_path([*java.kafka, *jars]), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def kafka_tools() -> Path:
    """Return the folder of their jars, fetched first when the cache lacks it."""
    return fetch_jars(_IVY, ("tools",), "Kafka's tools", checksums=_CHECKSUMS)
