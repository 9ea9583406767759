"""An HBase of separate processes on a ZooKeeper of its own: each can be killed and started again."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rtolap.stack.artifacts import JavaArtifacts, hbase_jars
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.servers.hbase import hbase_settings, hbase_spec, site_xml
from rtolap.stack.servers.zookeeper import zookeeper_spec
from rtolap.stack.spec import ProcessSpec

from tests.support.hbase.client import HBaseClient
from tests.support.waiting import until

REGION_SERVERS = 2
_HOST = "127.0.0.1"
# seconds, where an HBase in earnest takes half a minute to give up on a server
_FAST = {
    "zookeeper.session.timeout": 4000,
    "replication.source.shipedits.timeout": 4000,
    "hbase.regionserver.handler.count": 10,
}


class DistributedHBase:
    """`zookeeper`, `master` and `region_servers`: handles with .kill(), .start() and .stop(). `address`: of
    ZooKeeper, host:port; the parent node is /hbase. `kill`, `stop` and `start` are of all of them."""

    def __init__(self, java: JavaArtifacts, folder: Path) -> None:
        ports: list[int] = []
        while len(ports) < 2 + REGION_SERVERS:
            ports.append(free_port(ports))
        zookeeper_port, master_port, *server_ports = ports
        self.zookeeper = ManagedProcess(zookeeper_spec(java, folder / "zookeeper", zookeeper_port))
        self.address = self.zookeeper.address
        self._java, self._folder = java.java, folder
        self._ports = (zookeeper_port, master_port)
        self.master = ManagedProcess(self._master())
        self.region_servers = [
            ManagedProcess(self._region_server(number, port)) for number, port in enumerate(server_ports)
        ]

    def start(self) -> None:
        """Return when the master is ready, for which both region servers have to be there."""
        self.zookeeper.start()
        for process in (self.master, *self.region_servers):
            process.start(wait=False)
        for process in (*self.region_servers, self.master):
            process.wait_ready()

    def revive(self) -> None:
        """Start whatever has ended: a server whose session with ZooKeeper is over ends itself."""
        for process in (self.master, *self.region_servers):
            if process.pid() is None:
                process.start(wait=False)

    def living(self) -> bool:
        """Return whether none of the processes has ended."""
        return None not in [process.pid() for process in (self.zookeeper, self.master, *self.region_servers)]

    def stop(self) -> None:
        """End in order, ZooKeeper last; `start` goes on from there."""
        servers = (self.master, *self.region_servers)
        with HBaseClient(self.address) as client:
            client.shut_down()
            until(lambda: all(server.pid() is None for server in servers), "HBase has ended in order")
        self.zookeeper.stop()

    def kill(self) -> None:
        """Send SIGKILL, all at once."""
        for process in (*self.region_servers, self.master, self.zookeeper):
            process.kill()

    def _settings(self, name: str) -> dict[str, object]:
        zookeeper_port, master_port = self._ports
        settings = hbase_settings(self._folder / "data", master_port, zookeeper_port, REGION_SERVERS)
        own = {"hbase.cluster.distributed": "true", "hbase.tmp.dir": self._folder / name / "tmp"}
        return {**settings, **_FAST, **own, "hbase.master.info.port": -1}

    def _master(self) -> ProcessSpec:
        zookeeper_port, master_port = self._ports
        folder = self._folder / "hbase-master"
        spec = hbase_spec(
            self._java,
            hbase_jars(),
            folder,
            master_port,
            zookeeper_port,
            region_servers=REGION_SERVERS,
            overrides=self._settings("hbase-master"),
        )
        return replace(
            spec,
            name="hbase-master",
            address=f"{_HOST}:{master_port}",
            ports=(master_port,),
            argv=spec.argv[:-1],  # without servers in its own process
        )

    def _region_server(self, number: int, port: int) -> ProcessSpec:
        name = f"hbase-rs{number}"
        master = self._master()
        config = self._folder / name / "conf"
        settings = {**self._settings(name), "hbase.regionserver.port": port}

        def prepare() -> None:
            config.mkdir(parents=True, exist_ok=True)
            (config / "hbase-site.xml").write_text(site_xml(settings))
            master_config = self._folder / "hbase-master" / "conf"
            (config / "log4j.properties").write_text((master_config / "log4j.properties").read_text())

        old, new = str(self._folder / "hbase-master" / "conf"), str(config)
        argv = [word.replace(old, new) for word in master.argv]
        place = argv.index("org.apache.hadoop.hbase.master.HMaster")
        argv[place] = "org.apache.hadoop.hbase.regionserver.HRegionServer"
        return replace(
            master,
            name=name,
            folder=self._folder / name,
            address=f"{_HOST}:{port}",
            ports=(port,),
            argv=tuple(argv),
            prepare=prepare,
            ready=lambda _: _missing(port),
        )


@contextmanager
def distributed_hbase(java: JavaArtifacts, folder: Path) -> Iterator[DistributedHBase]:
    cluster = DistributedHBase(java, folder / f"hbase-{uuid.uuid4().hex[:8]}")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


def _missing(port: int) -> str | None:
    try:
        socket.create_connection((_HOST, port), timeout=2).close()
    except OSError as error:
        return f"region server on {_HOST}:{port}: {error}"
    return None
