"""A real HBase with two region servers, one for the tests of this package.

    hbase_server   handle: .kill() (SIGKILL), .start() (until it answers), .stop(); .address: its ZooKeeper's
    hbase          that address, "127.0.0.1:port"; the parent node is /hbase
    hbase_client   tables, rows and regions of it: `tests.support.hbase.client`
    hbase_processes  another one, whose ZooKeeper, master and region servers are processes of their own, to be
                   killed one by one: `tests.support.hbase.distributed`

Its sources ship within fractions of a second and give up on a call after four seconds. Use tables and peers
of your own (`unique_name`; peers' names have no "-"), and remove your peers: one whose consumer is gone keeps
logs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.stack.artifacts import JavaArtifacts, find_java, hbase_jars
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.servers.hbase import hbase_spec

from tests.support.hbase.client import HBaseClient
from tests.support.hbase.distributed import DistributedHBase, distributed_hbase

FAST = {"replication.source.shipedits.timeout": 4000}


@pytest.fixture(scope="package")
def hbase_server(owned: None, server_folder: Path) -> Iterator[ManagedProcess]:
    ports: list[int] = []
    while len(ports) < 3:
        ports.append(free_port(ports))
    folder = server_folder / "hbase"
    spec = hbase_spec(
        find_java(), hbase_jars(), folder, ports[0], ports[1], info_port=ports[2], overrides=FAST
    )
    server = ManagedProcess(spec)
    try:
        server.start()
        yield server
    finally:
        server.kill()  # its orderly end takes 20 s; the folder goes anyway


@pytest.fixture(scope="package")
def hbase(hbase_server: ManagedProcess) -> str:
    return hbase_server.address


@pytest.fixture(scope="package")
def hbase_processes(java: JavaArtifacts, server_folder: Path) -> Iterator[DistributedHBase]:
    with distributed_hbase(java, server_folder) as cluster:
        yield cluster


@pytest.fixture
def hbase_client(hbase: str) -> Iterator[HBaseClient]:
    with HBaseClient(hbase) as client:
        yield client
