"""A query service as a process beside front ends and storage nodes."""

from __future__ import annotations

from typing import Any

import pymysql
from rtolap.base.addresses import host_port
from rtolap.base.users import password_hash
from rtolap.stack.probes import http_missing

from tests.support.stored.stream_load_cluster import PASSWORD, StreamLoadCluster

DEFINING_USER = "dora"  # with the same password as the loading user


class StoredCluster(StreamLoadCluster):
    mysql_port: int
    query_url: str  # of HTTP

    def start_query(self, zookeeper: str, root: str) -> None:
        """Start `rtolap query serve` over these endpoints, and over the cubes (none) below the root."""
        with (self.folder / "users").open("a") as users:
            users.write(f"{DEFINING_USER}:{password_hash(PASSWORD)}:define\n")
        http_port, self.mysql_port = self._port(), self._port()
        env = {
            "RTOLAP_ZOOKEEPER": zookeeper,
            "RTOLAP_ZOOKEEPER_ROOT": root,
            "RTOLAP_QUERY_HTTP_PORT": str(http_port),
            "RTOLAP_QUERY_MYSQL_PORT": str(self.mysql_port),
            "RTOLAP_INCLUDE_DIR": str(self.folder),
        }
        self.query_url = f"http://{host_port(self.host, http_port)}"
        url = f"{self.query_url}/health"
        self._start("query", ("query", "serve"), env, http_port, lambda _: http_missing(url))

    def settings(self) -> dict[str, str]:
        """Return the environment of commands."""
        return dict(self._env)

    def connect(self, database: str | None = None) -> pymysql.connections.Connection:
        """Connect to the MySQL endpoint, as a user who may define."""
        connection: pymysql.connections.Connection = pymysql.connections.Connection(
            host=self.host, port=self.mysql_port, user=DEFINING_USER, password=PASSWORD, database=database
        )
        return connection

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask in a connection of its own."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())
