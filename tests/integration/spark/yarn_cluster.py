"""A real YARN on loopback: a resource manager and a node manager, from the jars that Hadoop publishes."""

from __future__ import annotations

import os
from pathlib import Path
from xml.sax.saxutils import escape

import httpx
from rtolap.stack.artifacts import JavaArtifacts, fetch_jars, pyspark_jars
from rtolap.stack.java import LEAN_FLAGS, write_log4j
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.spec import ProcessSpec

HOST = "127.0.0.1"
_DEPENDENCIES = (
    ("org.apache.hadoop", "hadoop-client-minicluster", "3.5.0"),  # the servers, without pyspark's clients
    ("org.bouncycastle", "bcprov-jdk18on", "1.82"),
    ("org.bouncycastle", "bcpkix-jdk18on", "1.82"),
    ("org.bouncycastle", "bcutil-jdk18on", "1.82"),
)
_IVY = (
    '<ivy-module version="2.0"><info organisation="local" module="yarn"/>\n'
    '<configurations><conf name="yarn"/></configurations>\n<dependencies>\n'
    + "".join(
        f'<dependency org="{org}" name="{name}" rev="{rev}" transitive="false" conf="yarn-&gt;default"/>\n'
        for org, name, rev in _DEPENDENCIES
    )
    + "</dependencies></ivy-module>\n"
)
_CHECKSUMS = {
    "yarn/bcpkix-jdk18on-1.82.jar": "bdc723e20834832ac6af136cb5b5ff05e43b71d4fa151cc6510d9212ee086e63",
    "yarn/bcprov-jdk18on-1.82.jar": "14cde2fdfaa8890480a8e5b67aceef0c90f96682c1e23c133bafdc9e0b3255ce",
    "yarn/bcutil-jdk18on-1.82.jar": "4420691958ad1c0ba275a6d6d8a6317adbdbdc9277055b6a72aa89c88cda8c7d",
    "yarn/hadoop-client-minicluster-3.5.0.jar": (
        "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c"
    ),
}
_CLIENT_JARS = ("slf4j-api-*.jar", "log4j-*.jar", "jcl-over-slf4j-*.jar", "hadoop-client-*.jar")
_SERVER = "org.apache.hadoop.yarn.server"
_SERVERS = {
    "resourcemanager": f"{_SERVER}.resourcemanager.ResourceManager",
    "nodemanager": f"{_SERVER}.nodemanager.NodeManager",
}
_LIVE = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"


class YarnCluster:
    """One node of 4 GB and four cores. `conf` is the folder that HADOOP_CONF_DIR names."""

    def __init__(self, folder: Path, java: JavaArtifacts) -> None:
        self.conf = folder / "conf"
        self.conf.mkdir()
        self._folder = folder
        self._ports: dict[str, int] = {}
        write_log4j(self.conf, "warn")
        self._write("core-site.xml", {"fs.defaultFS": "file:///"})
        self._write("yarn-site.xml", self._settings())
        capacities = {"root.queues": "default", "root.default.capacity": "100"}
        capacities["maximum-am-resource-percent"] = "1.0"
        self._write(
            "capacity-scheduler.xml",
            {f"yarn.scheduler.capacity.{name}": value for name, value in capacities.items()},
        )
        jars = fetch_jars(_IVY, ("yarn",), "YARN", checksums=_CHECKSUMS)
        clients = [jar for pattern in _CLIENT_JARS for jar in sorted(pyspark_jars().glob(pattern))]
        path = [self.conf, *clients, *sorted((jars / "yarn").glob("*.jar"))]
        class_path = os.pathsep.join(map(str, path))
        self.manager, self.node = (
            ManagedProcess(self._part(java.java, class_path, name, kind)) for name, kind in _SERVERS.items()
        )

    def start(self) -> None:
        self.manager.start()
        self.node.start()

    def stop(self) -> None:
        """Stop both; the node ends its containers."""
        self.node.stop()
        self.manager.stop()

    def living(self) -> list[str]:
        """Return the ids of applications that are not over."""
        answer = self._get(f"apps?states={_LIVE}")
        apps = (answer.get("apps") or {}).get("app", [])
        return [app["id"] for app in apps]

    def applications(self) -> dict[str, str]:
        """Return, of each application, its state in the end."""
        apps = (self._get("apps").get("apps") or {}).get("app", [])
        return {app["id"]: app["finalStatus"] for app in apps}

    def _get(self, path: str) -> dict[str, dict[str, list[dict[str, str]]]]:
        port = self._ports["resourcemanager.webapp.address"]
        answer = httpx.get(f"http://{HOST}:{port}/ws/v1/cluster/{path}", timeout=5, trust_env=False)
        found: dict[str, dict[str, list[dict[str, str]]]] = answer.raise_for_status().json()
        return found

    def _missing(self, nodes: int) -> str | None:
        try:
            found = (self._get("nodes").get("nodes") or {}).get("node", [])
        except (httpx.HTTPError, ValueError) as error:
            return f"GET /ws/v1/cluster/nodes: {error}"
        running = sum(node["state"] == "RUNNING" for node in found)
        return None if running >= nodes else f"nodes running: {running}"

    def _part(self, java: str, class_path: str, name: str, kind: str) -> ProcessSpec:
        nodes = int(name == "nodemanager")
        return ProcessSpec(
            name=name,
            folder=self._folder,
            argv=(java, "-Xmx256m", *LEAN_FLAGS, "-cp", class_path, kind),
            env={"HADOOP_CONF_DIR": str(self.conf), "JAVA_HOME": str(Path(java).resolve().parents[1])},
            ready=lambda _: self._missing(nodes),
            ready_timeout_s=90.0,
        )

    def _settings(self) -> dict[str, str]:
        for name in (
            *("resourcemanager.address", "resourcemanager.scheduler.address"),
            *("resourcemanager.resource-tracker.address", "resourcemanager.admin.address"),
            *("resourcemanager.webapp.address", "nodemanager.address", "nodemanager.localizer.address"),
            *("nodemanager.webapp.address", "nodemanager.collector-service.address"),
        ):
            self._ports[name] = free_port(list(self._ports.values()))
        settings = {name: f"{HOST}:{port}" for name, port in self._ports.items()} | {
            "resourcemanager.hostname": HOST,
            "nodemanager.hostname": HOST,
            "nodemanager.local-dirs": str(self._folder / "local"),
            "nodemanager.log-dirs": str(self._folder / "containers"),
            "nodemanager.resource.memory-mb": "4096",
            "nodemanager.resource.cpu-vcores": "4",
            "nodemanager.vmem-check-enabled": "false",
            "nodemanager.pmem-check-enabled": "false",
            "nodemanager.disk-health-checker.enable": "false",
            "nodemanager.sleep-delay-before-sigkill.ms": "100",
            "resourcemanager.nodemanagers.heartbeat-interval-ms": "100",  # at which containers are given
            "scheduler.minimum-allocation-mb": "256",
            "app.mapreduce.am.staging-dir": str(self._folder / "staging"),
        }
        return {f"yarn.{name}": value for name, value in settings.items()}

    def _write(self, name: str, settings: dict[str, str]) -> None:
        properties = "".join(
            f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>\n"
            for key, value in settings.items()
        )
        (self.conf / name).write_text(f"<configuration>\n{properties}</configuration>\n")
