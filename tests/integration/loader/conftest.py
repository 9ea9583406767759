"""A door and a storage node as processes, over a ledger in this session's MariaDB."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest
from rtolap.ledger.database import Ledger
from rtolap.stack.process import ManagedProcess
from rtolap.testing.loader_world import Around
from rtolap.testing.stored_cluster import StoredCluster

PASSWORD = "kept-in-a-file"


@pytest.fixture(scope="session")
def around(
    kafka_server: ManagedProcess, mariadb_server: ManagedProcess, server_folder: Path
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
    password_file = server_folder / "loader-ledger-password"
    password_file.write_text(PASSWORD)
    address = f"mysql://{name}@{mariadb_server.address}/{name}"
    env = {"RTOLAP_LEDGER": address, "RTOLAP_LEDGER_PASSWORD_FILE": str(password_file)}
    cluster = StoredCluster(server_folder / "loader-sink", address, password_file)
    with Ledger.open(address, password_file=password_file) as ledger, cluster:
        cluster.start(doors=1, nodes=1)
        yield Around(kafka_server, mariadb_server, cluster, ledger, env)
