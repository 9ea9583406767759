"""Agents that tell a broker's JMX over HTTP: Jolokia, and Prometheus' exporter."""

from __future__ import annotations

from pathlib import Path

from rtolap.stack.artifacts import fetch_jars
from rtolap.stack.jar_checksums import listed

CHECKSUMS = Path(__file__).with_name("jmx_agents.sha256")

_JOLOKIA_IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="local" module="jolokia"/><configurations><conf name="jolokia"/></configurations>
<dependencies><dependency org="org.jolokia" name="jolokia-agent-jvm" rev="2.1.2" transitive="false"
 conf="jolokia-&gt;default"><artifact name="jolokia-agent-jvm" type="jar" ext="jar" m:classifier="javaagent"/>
</dependency></dependencies></ivy-module>
"""
_EXPORTER_IVY = """<ivy-module version="2.0"><info organisation="local" module="exporter"/>
<configurations><conf name="exporter"/></configurations>
<dependencies><dependency org="io.prometheus.jmx" name="jmx_prometheus_javaagent" rev="1.0.1"
 transitive="false" conf="exporter-&gt;default"/></dependencies></ivy-module>
"""


def jolokia_agent() -> Path:
    """Return the jar to run a broker with, `-javaagent:…`; fetched first when the cache lacks it (0.7 MB)."""
    return _agent(_JOLOKIA_IVY, "jolokia", "Jolokia")


def prometheus_exporter() -> Path:
    """Return the jar of Prometheus' JMX exporter, as `jolokia_agent`."""
    return _agent(_EXPORTER_IVY, "exporter", "the JMX exporter")


def checksums(name: str) -> dict[str, str]:
    """Return the digests of `jolokia` or of the `exporter`."""
    return {path: digest for path, digest in listed(CHECKSUMS).items() if path.startswith(f"{name}/")}


def _agent(ivy: str, name: str, what: str) -> Path:
    folder = fetch_jars(ivy, (name,), what, checksums=checksums(name))
    (jar,) = (folder / name).glob("*.jar")
    return jar
