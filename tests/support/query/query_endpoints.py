"""Both SQL endpoints on loopback ports over a world in memory: the sockets, threads and clients are real."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pymysql
from rtolap.base.users import Users, password_hash
from rtolap.query.http.server import make_app
from rtolap.query.mysql.handshake import Tls
from rtolap.query.mysql.server import MySqlLimits, MySqlServer
from rtolap.query.statement_service import QueryLimits, QueryService
from rtolap.query.stored.source import StoredSource
from rtolap.servers.http_server import HttpConnections, HttpServer
from rtolap.servers.limits import HttpLimits

from tests.support.query.query_world import QueryWorld
from tests.support.query.workers import LentWorkers
from tests.support.waiting import patience_s

USER, PASSWORD, TOKEN = "ann", "s3cret #1", "cluster-token"
OTHER_USER, DEFINING_USER, LOADING_USER = "bob", "dora", "lena"  # with the same password
# Some 2^26 rows: no engine finishes it within a test.
SLOW = "select count(*) from airlines a, airlines b, " + ", ".join(
    f"(select carrier from airlines union all select name from airlines) t{i}" for i in range(24)
)
_START_S = 20.0


@dataclass
class Endpoints:
    world: QueryWorld
    service: QueryService
    mysql_port: int
    http_port: int
    mysql: MySqlServer
    is_tls: bool = False

    @property
    def http_url(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://127.0.0.1:{self.http_port}"

    @property
    def sqlalchemy_url(self) -> str:
        return f"mysql+pymysql://{USER}:{quote(PASSWORD)}@127.0.0.1:{self.mysql_port}/rtolap"

    def connect(self, **options: Any) -> pymysql.connections.Connection:
        """Connect with PyMySQL's options, which would read the system's authorities for each connection."""
        settings: dict[str, Any] = {
            "user": USER,
            "password": PASSWORD,
            "database": "rtolap",
            "ssl_disabled": not (self.is_tls or "ssl" in options),
            **options,
        }
        connection: pymysql.connections.Connection = pymysql.connections.Connection(
            host="127.0.0.1", port=self.mysql_port, **settings
        )
        return connection


@contextmanager
def open_endpoints(
    world: QueryWorld,
    *,
    context: ssl.SSLContext | None = None,
    require_tls: bool = False,
    limits: MySqlLimits = MySqlLimits(),
    query_limits: QueryLimits = QueryLimits(),
    stored: StoredSource | None = None,
    http_limits: HttpLimits = HttpLimits(),
) -> Iterator[Endpoints]:
    """Open the endpoints; the world stays its caller's. `context` lets both endpoints speak TLS. `stored` are
    stored tables, which DEFINING_USER may define. Statements run in workers that all endpoints share."""
    service = world.service(query_limits, stored, engine=LentWorkers(query_limits))
    names = (USER, OTHER_USER, DEFINING_USER, LOADING_USER)
    rights = {DEFINING_USER: ("define",), LOADING_USER: ("load",)}
    users = Users({name: bytes.fromhex(password_hash(PASSWORD)) for name in names}, rights)
    tls = None if context is None else Tls(context, require_tls)
    mysql = MySqlServer(service, users, host="127.0.0.1", port=0, tls=tls, limits=limits)
    mysql.start()
    connections = HttpConnections(service.metrics.registry, http_limits)
    server = HttpServer(make_app(service, users, TOKEN, http_limits, mysql), connections, tls=context)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + patience_s(_START_S)
        while not server.started:
            assert time.monotonic() < deadline, "the HTTP server did not start"
            thread.join(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Endpoints(world, service, mysql.port, port, mysql, is_tls=context is not None)
    finally:
        server.should_exit = True
        thread.join(10)
        mysql.close()
        service.close()
