"""Prometheus' JMX exporters of real brokers, beside their agents: with our rules, or with the usual ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from rtolap.base.files import checkout
from rtolap.stack.ports import free_port

from tests.support.fleet.agents import PASSWORD, USER
from tests.support.fleet.jmx_agents import prometheus_exporter

HOST = "127.0.0.1"
# Names as the exporter's examples for Kafka make them: no means, no rates, nothing of who the broker is.
USUAL_RULES = r"""
lowercaseOutputName: true
rules:
  - pattern: kafka\.(\w+)<type=(.+), name=(.+)PerSec, (.+)=(.+)><>Count
    name: kafka_$1_$2_$3_total
    type: COUNTER
    labels: {"$4": "$5"}
  - pattern: kafka\.(\w+)<type=(.+), name=(.+)PerSec><>Count
    name: kafka_$1_$2_$3_total
    type: COUNTER
  - pattern: kafka\.(\w+)<type=(.+), name=(.+), (.+)=(.+)><>Count
    name: kafka_$1_$2_$3_count
    type: COUNTER
    labels: {"$4": "$5"}
  - pattern: kafka\.(\w+)<type=(.+), name=(.+), (.+)=(.+)><>(\d+)thPercentile
    name: kafka_$1_$2_$3
    type: GAUGE
    labels: {"$4": "$5", quantile: "0.$6"}
  - pattern: kafka\.(\w+)<type=(.+), name=(.+), (.+)=(.+)><>Value
    name: kafka_$1_$2_$3
    type: GAUGE
    labels: {"$4": "$5"}
  - pattern: kafka\.(\w+)<type=(.+), name=(.+)><>Value
    name: kafka_$1_$2_$3
    type: GAUGE
"""
_LOGIN = f"""
httpServer: {{authentication: {{basic: {{username: {USER}, password: {PASSWORD}}}}}}}
"""


class Exporters:
    """`jvm_options` as of `Agents`; brokers that are not named have none."""

    def __init__(self, folder: Path, *, ours: Collection[int] = (), usual: Collection[int] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._ours, self._usual = ours, usual
        self._jar = prometheus_exporter()
        self.ports: dict[int, int] = {}

    def url(self, node: int) -> str:
        return f"http://{HOST}:{self.ports[node]}/metrics"

    def jvm_options(self, node: int) -> Sequence[str]:
        if node not in (*self._ours, *self._usual):
            return ()
        root = checkout()
        assert root is not None
        shipped = root / "include" / "fleet" / "jmx-exporter.conf"
        port = self.ports[node] = free_port(set(self.ports.values()))
        config = self._folder / f"exporter{node}.conf"
        config.write_text(_LOGIN + (shipped.read_text() if node in self._ours else USUAL_RULES))
        config.chmod(0o600)
        return (f"-javaagent:{self._jar}={HOST}:{port}:{config}",)
