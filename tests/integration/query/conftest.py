"""Both doors on loopback ports over a world in memory: the sockets, threads and clients are real."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from urllib.parse import quote

import pyarrow as pa
import pymysql
import pytest
import uvicorn
from rtolap.format.schema import arrow_type
from rtolap.model.cube import Cube, Measure, Schema
from rtolap.model.table import Column, Lookup, Table, TimeColumn
from rtolap.query.http import make_app
from rtolap.query.mysql.server import MySqlServer
from rtolap.query.service import QueryService
from rtolap.query.users import Users, password_hash
from rtolap.testing.query_world import PARTITIONS, QueryWorld

USER, PASSWORD, TOKEN = "ann", "s3cret #1", "cluster-token"


@dataclass
class Doors:
    world: QueryWorld
    service: QueryService
    mysql_port: int
    http_port: int

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def sqlalchemy_url(self) -> str:
        return f"mysql+pymysql://{USER}:{quote(PASSWORD)}@127.0.0.1:{self.mysql_port}/rtolap"

    def connect(self, **options: object) -> pymysql.connections.Connection:
        settings = {"user": USER, "password": PASSWORD, "database": "rtolap", **options}
        return pymysql.connect(host="127.0.0.1", port=self.mysql_port, **settings)  # type: ignore[arg-type]


def make_world() -> QueryWorld:
    table = Table(
        name="flight_events",
        topic="flights",
        columns=(
            Column("ts", "timestamp"),
            Column("carrier", "string"),
            Column("gate", "int"),
            Column("flown_on", "date"),
            Column("fare_class", "decimal(6,2)"),
            Column("on_time", "boolean"),
            Column("delay", "int"),
            Column("price", "decimal(10,2)"),
        ),
        time=TimeColumn("ts"),
    )
    cube = Cube(
        name="flights",
        table="flight_events",
        dimensions=("carrier", "gate", "flown_on", "fare_class", "on_time"),
        measures=(Measure("sum", "delay"), Measure("avg", "price"), Measure("max", "price")),
    )
    rng = random.Random(5)
    rows = []
    for offset in range(400):
        at = datetime(2013, 1, 1) + timedelta(seconds=rng.randrange(20_000))
        rows.append(
            {
                "ts": at,
                "carrier": rng.choice(["AA", "UA", "日本 😀", None]),
                "gate": rng.choice([1, 2, -3, None]),
                "flown_on": at.date(),
                "fare_class": rng.choice([Decimal("1.25"), Decimal("-0.50"), None]),
                "on_time": rng.choice([True, False, None]),
                "delay": rng.randrange(100),
                "price": Decimal(rng.randrange(100_000)) / 100,
                "__partition": offset % PARTITIONS,
                "__offset": offset // PARTITIONS,
            }
        )
    fields = [pa.field(column.name, arrow_type(column.column_type)) for column in table.columns]
    fields += [pa.field("__partition", pa.int32()), pa.field("__offset", pa.int64())]
    lookup = Lookup(
        name="airlines", file="airlines.csv", columns=(Column("carrier", "string"), Column("name", "string"))
    )
    world = QueryWorld(
        Schema(table, cube),
        pa.Table.from_pylist(rows, schema=pa.schema(fields)),
        {"airlines": (lookup, "carrier,name\nAA,American\nUA,United\n")},
    )
    for segment in world.segments()[:2]:
        world.build(segment, rng)
    return world


@pytest.fixture(scope="session")
def doors() -> Iterator[Doors]:
    world = make_world()
    service = world.service()
    users = Users({name: bytes.fromhex(password_hash(PASSWORD)) for name in (USER, "bob")})
    mysql = MySqlServer(service, users, host="127.0.0.1", port=0)
    mysql.start()
    server = uvicorn.Server(
        uvicorn.Config(make_app(service, users, TOKEN), host="127.0.0.1", port=0, log_level="warning")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline, "the HTTP server did not start"
        thread.join(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield Doors(world, service, mysql.port, port)
    server.should_exit = True
    thread.join(10)
    mysql.close()
    service.close()
    world.close()
