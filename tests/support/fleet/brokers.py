"""A small fleet of real brokers: racks, two log directories each or as many as are asked for, a quick start
and a small heap.

Broker 1 is the controller too, unless more are asked for; every broker has a rack of its own, unless racks
are given. With small disks each log directory is a file system of its own, in memory, which its broker's
process alone sees: it ends with the process, so a broker that is started again has empty disks.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from rtolap.base.errors import Unavailable
from rtolap.kafka.administration.client import KafkaAdministration
from rtolap.kafka.clusters import KafkaCluster
from rtolap.stack.artifacts import JavaArtifacts
from rtolap.stack.java import properties
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.servers.kafka import kafka_spec, new_cluster_id

from tests.support.waiting import patience_s, result_of, until

_HOST = "127.0.0.1"
_PROPERTIES, _CHECKPOINT = "meta.properties", "bootstrap.checkpoint"
_BOOTSTRAP: list[bytes] = []  # the first records of a cluster's metadata, when they are known


class Brokers:
    """Use as a context manager. `servers`: by broker id; `.kill()`, `.start()` and `.stop()` each."""

    def __init__(
        self,
        folder: Path,
        java: JavaArtifacts,
        count: int = 3,
        *,
        racks: Sequence[str] | None = None,
        controllers: Collection[int] = (1,),
        overrides: Mapping[str, object] | None = None,
        jvm_options: Callable[[int], Sequence[str]] = lambda node: (),
        environment: Mapping[str, str] | None = None,
        log_level: str = "warn",
        disks: int = 2,
        disk_bytes: int | None = None,
    ) -> None:
        self.folder = folder
        self._disks = disks
        self._metadata_apart = disk_bytes is not None
        self.ids = tuple(range(1, count + 1))
        self._cluster_id = cluster_id = new_cluster_id()
        taken: set[int] = set()
        ports, controller_ports = self._ports(taken), self._ports(taken)
        voters = ",".join(f"{node}@{_HOST}:{controller_ports[node]}" for node in sorted(controllers))
        self.servers: dict[int, ManagedProcess] = {}
        for node in self.ids:
            own = folder / f"broker{node}"
            settings = {
                "node.id": node,
                "broker.rack": racks[node - 1] if racks else f"rack{node}",
                "log.dirs": ",".join(str(path) for path in self.log_dirs(node)),
                "controller.quorum.bootstrap.servers": None,
                "controller.quorum.voters": voters,
                "offsets.topic.replication.factor": min(3, count),
                "log.initial.task.delay.ms": 1000,
                "log.segment.delete.delay.ms": 1000,  # what is moved away leaves its disk soon
                "replica.fetch.wait.max.ms": 100,
                "auto.leader.rebalance.enable": "false",
                # a throttle binds after the first fetch: by default that is all of a small partition
                "replica.fetch.max.bytes": 65_536,
                "replica.fetch.response.max.bytes": 65_536,
                "num.network.threads": 2,
                "num.io.threads": 4,
                **(overrides or {}),
            }
            if self._metadata_apart:
                settings["metadata.log.dir"] = str(own / "metadata")
            if node not in controllers:
                settings["process.roles"] = "broker"
                settings["listeners"] = settings["advertised.listeners"] = (
                    f"PLAINTEXT://{_HOST}:{ports[node]}"
                )
            spec = kafka_spec(
                java,
                own,
                ports[node],
                controller_ports[node],
                overrides=settings,
                name=f"broker{node}",
                cluster_id=cluster_id,
                heap="160m",
                jvm_options=jvm_options(node),
                log_level=log_level,
            )
            spec = replace(spec, env=dict(environment or {}))
            if node not in controllers:
                spec = replace(spec, ports=(ports[node],))
            if disk_bytes is not None:
                spec = replace(spec, argv=(*with_disks(self.log_dirs(node), disk_bytes), *spec.argv))
            self.servers[node] = ManagedProcess(spec)
        self.cluster = KafkaCluster.of(",".join(server.address for server in self.servers.values()))

    def __enter__(self) -> Brokers:
        try:
            self._format()
            with ThreadPoolExecutor(len(self.ids)) as pool:
                for started in [pool.submit(server.start) for server in self.servers.values()]:
                    started.result()
            self.wait_alive(self.ids)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the brokers at once: a broker that stops in order waits for a controller, which may have
        stopped before."""
        with ThreadPoolExecutor(len(self.ids)) as pool:
            list(pool.map(ManagedProcess.kill, self.servers.values()))
            list(pool.map(ManagedProcess.stop, self.servers.values()))

    def log_dirs(self, node: int) -> tuple[Path, ...]:
        own = self.folder.absolute() / f"broker{node}"
        return tuple(own / f"d{number}" for number in range(self._disks))

    def wait_alive(self, wanted: Collection[int]) -> None:
        """Wait until just these brokers are registered and unfenced."""
        # while a new controller is elected nobody answers
        administration = result_of(lambda: KafkaAdministration(self.cluster, "wait"), Unavailable)

        def alive() -> bool:
            try:
                brokers = administration.describe_cluster().brokers
            except Unavailable:
                return False
            return {broker.broker_id for broker in brokers if not broker.fenced} == set(wanted)

        try:
            until(alive, f"brokers {sorted(wanted)}", poll_s=0.1)
        finally:
            administration.close()

    def _format(self) -> None:
        """Format once by Kafka's tool for all of this process. The files differ in their ids alone, and each
        run costs a second of processor time."""
        first = self.ids[0]
        if not _BOOTSTRAP:
            self.servers[first].spec.prepare()
            _BOOTSTRAP.append((self.log_dirs(first)[0] / _CHECKPOINT).read_bytes())
        for node in self.ids:
            metadata = self.folder.absolute() / f"broker{node}" / "metadata"
            for folder in (*self.log_dirs(node), *([metadata] if self._metadata_apart else [])):
                if not (folder / _PROPERTIES).exists():
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / _CHECKPOINT).write_bytes(_BOOTSTRAP[0])
                    ids = {"cluster.id": self._cluster_id, "node.id": node, "directory.id": new_cluster_id()}
                    (folder / _PROPERTIES).write_text(properties({"version": 1, **ids}))

    def _ports(self, taken: set[int]) -> dict[int, int]:
        ports = {}
        for node in self.ids:
            ports[node] = free_port(taken)
            taken.add(ports[node])
        return ports


def with_disks(folders: Sequence[Path], size_bytes: int) -> tuple[str, ...]:
    """Return the words before a command that give it a disk of this size at each of the folders, as they have
    been formatted."""
    mounts = [
        f"mkdir -p '{folder}' && rm -rf '{folder}.formatted' && cp -a '{folder}' '{folder}.formatted'"
        f" && mount -t tmpfs -o size={size_bytes} tmpfs '{folder}' && cp -a '{folder}.formatted/.' '{folder}'"
        for folder in folders
    ]
    script = " && ".join([*mounts, 'exec "$@"'])
    return "unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh"


def require_small_disks() -> None:
    """Skip the test where this host lets nobody mount what only a process of its own sees."""
    with tempfile.TemporaryDirectory() as folder:
        tried = subprocess.run(
            [*with_disks([Path(folder) / "disk"], 1 << 20), "true"],
            capture_output=True,
            text=True,
            timeout=patience_s(30),
            check=False,
        )
    if tried.returncode:
        pytest.skip(f"no file system of a process of its own: {tried.stderr.strip()}")
