"""Endpoints and storage nodes as processes, over ledgers in this session's MariaDB."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
import pytest
from rtolap.stack.process import ManagedProcess
from rtolap.stored.metastore.database import Ledger

from tests.support.loader.loader_world import Around
from tests.support.runs.loopback import LOOPBACK
from tests.support.stored.stored_cluster import StoredCluster

PASSWORD = "kept-in-a-file"


@pytest.fixture(scope="package")
def around(
    kafka_server: ManagedProcess, mariadb_server: ManagedProcess, server_folder: Path
) -> Iterator[Around]:
    """One endpoint and one node."""
    with _around(kafka_server, mariadb_server, server_folder, endpoints=1, nodes=1) as one:
        yield one


@pytest.fixture(scope="module")
def replicated(
    kafka_server: ManagedProcess, mariadb_server: ManagedProcess, server_folder: Path
) -> Iterator[Around]:
    """Two endpoints and three nodes, of which each tablet has a replica on every one."""
    with _around(kafka_server, mariadb_server, server_folder, endpoints=2, nodes=3) as one:
        yield one


@contextmanager
def _around(
    kafka_server: ManagedProcess,
    mariadb_server: ManagedProcess,
    server_folder: Path,
    *,
    endpoints: int,
    nodes: int,
) -> Iterator[Around]:
    name = f"loader_{uuid.uuid4().hex[:8]}"
    socket = str(mariadb_server.spec.folder / "s.sock")
    with pymysql.connect(unix_socket=socket, user="root", autocommit=True) as connection:
        for statement in (
            f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4",
            f"CREATE USER '{name}'@'%' IDENTIFIED BY '{PASSWORD}'",
            f"GRANT ALL ON `{name}`.* TO '{name}'@'%'",
        ):
            connection.cursor().execute(statement)
    password_file = server_folder / f"{name}-password"
    password_file.write_text(PASSWORD)
    address = f"mysql://{name}@{mariadb_server.address}/{name}"
    env = {"RTOLAP_LEDGER": address, "RTOLAP_LEDGER_PASSWORD_FILE": str(password_file)}
    cluster = StoredCluster(server_folder / name, address, password_file, host=LOOPBACK)
    with Ledger.open(address, password_file=password_file) as ledger, cluster:
        cluster.start(endpoints=endpoints, nodes=nodes)
        yield Around(kafka_server, mariadb_server, cluster, ledger, env)
