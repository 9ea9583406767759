"""Fourteen days of events in segments of a day: all of them READY, or the last seven in a receiver's process.

The receiver reads Kafka in memory and answers by Flight; the query service runs in the benchmark's process,
and beside it DuckDB over the raw events in the order of their time.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import msgspec
import pyarrow.json as pj
from rtolap.base.clock import SystemClock
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, ReceiverRecord, SegmentRecord
from rtolap.model.cube import AggregationGroup, Schema, SegmentPolicy
from rtolap.model.segment import SegmentState
from rtolap.object_store.store import open_store
from rtolap.protocols.receiver.client import ReceiverClients
from rtolap.query.cluster.view import Cluster
from rtolap.query.cubes.history import EmbeddedHistory, MemoryBounds
from rtolap.query.cubes.realtime import FlightSource
from rtolap.query.lookups import Lookups
from rtolap.query.statement_service import QueryLimits, QueryService

from benchmarks import events
from benchmarks.ready_history import build, new_metadata
from benchmarks.small_queries import SET, TOKEN, serve
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer

TOPIC = "bench"
DAY_MS = 86_400_000
DAYS = 14
HALF_MS = events.START_MS + DAYS // 2 * DAY_MS
_LONG_AGO, _FAR_OFF = "2026-01-01", "2026-01-15"
_IN_RANGE = f"hour_start >= TIMESTAMP '{_LONG_AGO}' AND hour_start < TIMESTAMP '{_FAR_OFF}'"
STATEMENTS = {
    "by country": "SELECT country, COUNT(*) n, SUM(duration_ms) d, SUM(price) p FROM events_cube "
    f"WHERE {_IN_RANGE} GROUP BY country ORDER BY country",
    "by hour": f"SELECT hour_start, COUNT(*) n, SUM(bytes_sent) b FROM events_cube WHERE {_IN_RANGE} "
    "GROUP BY hour_start ORDER BY hour_start",
    "pages of a country": f"SELECT page, COUNT(*) n, SUM(price) p FROM events_cube WHERE {_IN_RANGE} "
    "AND country = 'jp' GROUP BY page ORDER BY page",
    "base: devices by campaign": "SELECT device, campaign, MAX(duration_ms) d, SUM(price) p FROM events_cube "
    f"WHERE {_IN_RANGE} AND country IN ('de', 'fr', 'us') GROUP BY device, campaign "
    "ORDER BY device, campaign",
    "base: all of it": "SELECT country, device, campaign, COUNT(*) n, SUM(bytes_sent) b FROM events_cube "
    f"WHERE {_IN_RANGE} AND page <> '/section-00/index.html' GROUP BY country, device, campaign "
    "ORDER BY country, device, campaign",
}


class World(NamedTuple):
    """What is measured. `services`: by the bounds of what is kept in memory, then by what holds the second
    half, `ready` or `half`; all answer about the same events as table `events_cube` of `raw`."""

    services: dict[str, dict[str, QueryService]]
    raw: Any
    figures: dict[str, float]


def schema() -> Schema:
    made = events.schema(TOPIC)
    groups = (("hour_start",), ("country", "hour_start"), ("country", "page", "hour_start"))
    cube = msgspec.structs.replace(
        made.cube,
        aggregation_groups=tuple(AggregationGroup(include=names, mandatory=names) for names in groups),
        segment=SegmentPolicy(window_ms=DAY_MS),
    )
    return Schema(made.table, cube)


def values_of(half: int, count: int) -> list[bytes]:
    start_ms = events.START_MS if half == 0 else HALF_MS
    return events.values(count // 2, seed=half, start_ms=start_ms, span_ms=DAYS // 2 * DAY_MS)


def serve_receiver(count: int) -> None:
    """Hold the second half, say the port, and serve until the parent is gone."""
    made, broker = schema(), MemoryBroker()
    broker.create(TOPIC, 1)
    for value in values_of(1, count):
        broker.append(TOPIC, OutRecord(value, partition=0, timestamp_ms=events.START_MS))
    with tempfile.TemporaryDirectory() as folder:
        core = CubeReceiver(
            made,
            replica_set=SET,
            consumer=MemoryConsumer(broker, TOPIC, with_create_ms=True),
            producer=MemoryProducer(broker),
            folder=Path(folder),
            clock=SystemClock(),
            settings=ReceiverSettings(disk_free_bytes_min=0),
        )
        records = {
            start_ms: SegmentRecord(
                cube=made.cube.name,
                start_ms=start_ms,
                end_ms=start_ms + DAY_MS,
                state=SegmentState.READY,
                version=1,
            )
            for start_ms in range(events.START_MS, HALF_MS, DAY_MS)
        }
        view = CubeView(control=_control((0,)), records=records, start_offsets={0: 0})
        serve(core, view)


def _control(partitions: tuple[int, ...]) -> CubeControl:
    assignment = {SET: partitions} if partitions else {}
    return CubeControl(enabled=True, assignment=assignment, assignment_epoch=1)


@contextmanager
def opened(
    count: int, folder: Path, limits: QueryLimits, bounds: Mapping[str, MemoryBounds]
) -> Iterator[World]:
    made = schema()
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.fourteen_days", "--events", str(count)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert process.stdin is not None
        assert process.stdout is not None
        stack.callback(process.stdin.close)
        raw = stack.enter_context(duckdb.connect())
        for half in (0, 1):
            lines = io.BytesIO(b"\n".join(values_of(half, count)))
            raw.register(f"half_{half}", pj.read_json(lines))
        raw.execute(
            "CREATE TABLE raw AS SELECT * REPLACE (CAST(price AS DECIMAL(10,2)) AS price, "
            "CAST(duration_ms AS INTEGER) AS duration_ms) FROM (SELECT * FROM half_0 UNION ALL FROM half_1)"
        )
        raw.execute(
            "CREATE VIEW events_cube AS "
            "SELECT *, date_trunc('hour', make_timestamp(ts * 1000)) AS hour_start FROM raw"
        )
        port = int(process.stdout.readline())
        services: dict[str, dict[str, QueryService]] = {kind: {} for kind in bounds}
        figures: dict[str, float] = {"events": count}
        for name, before_ms in (("ready", HALF_MS + DAYS * DAY_MS), ("half", HALF_MS)):
            store = open_store((folder / name).as_uri())
            metadata = new_metadata(made, _control((0,) if name == "half" else ()))
            figures[f"{name}_files"] = build(raw, "raw", store, metadata, made, before_ms)
            metadata.register_receiver(ReceiverRecord("r", "127.0.0.1", port, SET))
            metadata.announce_live("r", "first")
            for kind, each in bounds.items():
                service = _service(metadata, EmbeddedHistory(store, None, each), folder, limits, stack)
                services[kind][name] = stack.enter_context(closing(service))
        yield World(services, raw, figures)


def _service(
    metadata: ClusterMetadata,
    history: EmbeddedHistory,
    folder: Path,
    limits: QueryLimits,
    stack: ExitStack,
) -> QueryService:
    clients = ReceiverClients(TOKEN)
    stack.callback(clients.close)
    clock = SystemClock()
    return QueryService(
        *(Cluster(metadata, clock), history, FlightSource(clients), Lookups(folder), clock, limits)
    )


def main() -> None:
    """Run the receiver's process, which `benchmarks.history` starts."""
    parser = argparse.ArgumentParser(description="The receiver of benchmarks.history.")
    parser.add_argument("--events", type=int, required=True)
    serve_receiver(parser.parse_args().events)


if __name__ == "__main__":
    main()
