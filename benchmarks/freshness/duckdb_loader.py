"""A peer: a loader of one's own, which reads the topic into a table of DuckDB and asks that.

    python -m benchmarks.freshness.duckdb_loader BOOTSTRAP HELD BEGIN END FILE

One process, one thread in turns: take what has come, parse it into columns, insert it, ask the statement of
`asking`, and again. It reads HELD events of each partition, says so with a file beside FILE, reads on from
offset BEGIN of each to END, and writes when it asked, when it had the answer, and the positions of that. The
table is in memory and nothing is ever made durable, rolled up, replicated or sent to anybody, which is less
than what the product does meanwhile. DuckDB has both cores for a statement.
"""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.json
from confluent_kafka import Consumer, Message, TopicPartition
from rtolap.kafka.settings import consumer_settings

from benchmarks.freshness.asking import Answers
from benchmarks.freshness.stream import PARTITIONS, TOPIC

RECORDS_MAX = 10_000
HELD_RECORDS_MAX = 100_000
POLL_S = 0.5
SILENT_S_MAX = 60.0
STATEMENT = "SELECT country, COUNT(*), SUM(bytes_sent) FROM events GROUP BY country"
_COLUMNS = {
    "ts": pa.int64(),
    "country": pa.string(),
    "device": pa.string(),
    "page": pa.string(),
    "campaign": pa.string(),
    "user_id": pa.int64(),
    "duration_ms": pa.int32(),
    "bytes_sent": pa.int64(),
    "price": pa.decimal128(10, 2),
    "is_new": pa.bool_(),
}
_PARSING = pyarrow.json.ParseOptions(
    explicit_schema=pa.schema(_COLUMNS | {"price": pa.float64()}), unexpected_field_behavior="ignore"
)


def command(bootstrap: str, held: int, begin: int, end: int, path: Path) -> list[str]:
    """Return the command line of the peer; the last four as above."""
    arguments = (bootstrap, str(held), str(begin), str(end), str(path))
    return [sys.executable, "-m", __name__, *arguments]


def ready(path: Path) -> Path:
    """Return the file that is there once the peer has read what is held."""
    return path.with_suffix(".ready")


def answers(path: Path) -> Answers:
    with np.load(path) as noted:
        positions = [tuple(row) for row in noted["positions"].tolist()]
        return Answers(noted["asked_ns"].tolist(), noted["arrived_ns"].tolist(), positions)


class _Loader:
    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(consumer_settings("duckdb") | {"bootstrap.servers": bootstrap})
        self._database = duckdb.connect()
        declared = ", ".join(f"{name} {_duckdb_type(kind)}" for name, kind in _COLUMNS.items())
        self._database.execute(f"CREATE TABLE events ({declared})")
        self.loaded = 0

    def begin_at(self, offset: int) -> list[int]:
        self._consumer.assign([TopicPartition(TOPIC, each, offset) for each in range(PARTITIONS)])
        return [offset] * PARTITIONS

    def take(self, at: list[int], end: int, records_max: int) -> None:
        """Load what has come below `end`, and move `at` behind it."""
        heard_s = time.monotonic()
        wanted: list[Message] = []
        while not wanted:
            taken = [*self._consumer.consume(1, POLL_S), *self._consumer.consume(records_max, 0)]
            wanted = [each for each in taken if each.error() is None and (each.offset() or 0) < end]
            if not wanted and time.monotonic() - heard_s > SILENT_S_MAX:
                raise SystemExit(f"nothing came behind the offsets {at}, of {end}")
        for message in wanted:
            at[message.partition() or 0] = (message.offset() or 0) + 1
        lines = io.BytesIO(b"\n".join(message.value() or b"" for message in wanted))
        reading = pyarrow.json.ReadOptions(use_threads=False, block_size=1 << 26)
        batch = pyarrow.json.read_json(lines, reading, _PARSING)
        self._database.register("batch", batch)
        self._database.execute(f"INSERT INTO events SELECT {', '.join(_COLUMNS)} FROM batch")
        self._database.unregister("batch")
        self.loaded += len(wanted)

    def ask(self) -> None:
        """Ask the statement; an answer that does not count what is loaded ends the run."""
        rows = self._database.execute(STATEMENT).fetchall()
        if sum(row[1] for row in rows) != self.loaded:
            raise SystemExit(f"{self.loaded} events are loaded, and counted are {rows}")


def _duckdb_type(kind: pa.DataType) -> str:
    names = {"string": "VARCHAR", "int64": "BIGINT", "int32": "INTEGER", "bool": "BOOLEAN"}
    return names.get(str(kind), "DECIMAL(10,2)")


def run(bootstrap: str, held: int, begin: int, end: int, path: Path) -> None:
    loader, noted = _Loader(bootstrap), Answers()
    at = loader.begin_at(0)
    while min(at) < held:
        loader.take(at, held, HELD_RECORDS_MAX)
    at = loader.begin_at(begin)
    loader.ask()
    ready(path).touch()
    while min(at) < end:
        loader.take(at, end, RECORDS_MAX)
        noted.asked_ns.append(time.monotonic_ns())
        loader.ask()
        noted.arrived_ns.append(time.monotonic_ns())
        noted.positions.append(tuple(at))
    np.savez(
        path,
        asked_ns=np.array(noted.asked_ns),
        arrived_ns=np.array(noted.arrived_ns),
        positions=np.array(noted.positions),
    )


if __name__ == "__main__":
    bootstrap_, held_, begin_, end_, path_ = sys.argv[1:]
    run(bootstrap_, int(held_), int(begin_), int(end_), Path(path_))
