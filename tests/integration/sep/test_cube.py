"""The topic of a subscription is a table of a cube: SQL counts every write once, live and out of history.

The number of each row grows by one with every write. So the answers before the end have to be those of a
prefix: a row with k writes has the numbers 1 to k.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import httpx
import msgspec
import pytest
from rtolap.base.errors import RtolapError
from rtolap.model.cube import Cube, Measure, SegmentPolicy
from rtolap.model.subscription import HBaseSource
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.sep.subscriptions import commands
from rtolap.sep.subscriptions.source import open_source

from tests.support.cubes.services import Services, wait_for
from tests.support.hbase.client import HBaseClient
from tests.support.sep.consumers import ConsumerProcess, wait_for_leader
from tests.support.sep.numbered_rows import Writer, subscription_of

pytestmark = pytest.mark.integration

JOBS = Path(__file__).resolve().parents[3] / "spark_jobs"
CUBE = "writes"
SQL = f"SELECT row_key, COUNT(*) AS n, SUM(n) AS total FROM {CUBE} GROUP BY row_key"
SEED = 11

Answer = dict[str, tuple[int, int]]  # row → its writes, and the sum of their numbers


@pytest.fixture
def services(tmp_path: Path, zookeeper: str, kafka: str, unique_name: str) -> Iterator[Services]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    running = Services(folder, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka, coordinators=1)
    try:
        running.start_coordinators()
        running.start_receiver("left", "left", "--checkpoint-interval-s", "2", "--idle-after-s", "2")
        running.start_query()
        yield running
    finally:
        running.close()


def define(services: Services, topic: str) -> None:
    columns = (Column("row_key", "string", path="row"), Column("n", "bigint"))
    table = Table(
        name="changes",
        topic=topic,
        columns=(*columns, Column("operation", "string"), Column("write_time_ms", "bigint")),
        time=TimeColumn("write_time_ms", "epoch_ms"),
    )
    cube = Cube(
        name=CUBE,
        table="changes",
        dimensions=("row_key", "operation"),
        measures=(Measure("count"), Measure("sum", "n")),
        segment=SegmentPolicy(window_ms=3_600_000),
    )
    client = services.coordinator
    client.create_table(msgspec.to_builtins(table))
    client.create_cube(msgspec.to_builtins(cube))
    wait_for("the receiver lives", lambda: any(r.health != "DOWN" for r in client.receivers()))
    client.enable_cube(CUBE)


def answer(services: Services) -> Answer:
    rows = services.sql(SQL)["rows"]
    return {str(row): (int(count), int(total)) for row, count, total in rows}


def recount(writer: Writer) -> Answer:
    return {row.decode(): (count, count * (count + 1) // 2) for row, count in writer.written.items() if count}


def is_reached(services: Services, writer: Writer, before: Answer) -> bool:
    """Whether SQL counts all writes; what it counts until then is a prefix, and never shrinks."""
    try:
        counted = answer(services)
    except httpx.HTTPError:
        return False  # it is not served yet
    for row, (count, total) in counted.items():
        assert total == count * (count + 1) // 2, (row, count, total)
        assert before.get(row, (0, 0))[0] <= count <= writer.written[row.encode()], (row, count)
    before.update(counted)
    return counted == recount(writer)


def test_each_write_counts_once_live_and_built(
    services: Services,
    hbase: str,
    kafka: str,
    hbase_client: HBaseClient,
    unique_name: str,
    create_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = create_topic(f"{unique_name}_changes", 2)
    define(services, topic)
    table = hbase_client.create_table(unique_name, splits=[b"20"])
    with ExitStack() as opened:
        source = opened.enter_context(open_source(HBaseSource(zookeeper=hbase)))
        commands.create(source, subscription_of(unique_name, table, hbase), time.time_ns() // 1_000_000)
        processes = []
        for number in range(2):
            processes.append(ConsumerProcess(unique_name, hbase, kafka, tmp_path / f"consumer-{number}.log"))
            opened.callback(processes[-1].kill)
        opened.callback(commands.drop, source, unique_name)
        writer = Writer(hbase_client, table, Random(SEED))
        seen: Answer = {}
        writer.write(20)
        leader = wait_for_leader(processes)
        wait_for("the first writes are counted", lambda: is_reached(services, writer, seen))
        for _ in range(3):
            writer.write(20)
            is_reached(services, writer, seen)
        leader.kill()
        services.kill("left")
        writer.write(40)
        services.start_again("left")
        wait_for_leader([process for process in processes if process is not leader])
        writer.write(20)
        wait_for("all writes are counted", lambda: is_reached(services, writer, seen), 120)

        wait_for("all writes are in history", lambda: build_round(services, writer), 200)
        assert answer(services) == recount(writer)
        writer.write(20)
        wait_for("writes behind history are counted", lambda: is_reached(services, writer, seen))
        assert services.ended() == []


def build_round(services: Services, writer: Writer) -> bool:
    """Close what is open and build what is staged; tells whether history holds every write."""
    client = services.coordinator
    try:
        for segment in client.segments(CUBE):
            if segment.state == "ACTIVE":
                client.close_segment(CUBE, segment.segment)
        services.build_queue(JOBS)
    except RtolapError:
        return False  # an upload or a promotion is under way
    return sum(segment.events or 0 for segment in client.segments(CUBE)) == writer.total
