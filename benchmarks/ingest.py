"""Events/s to a queryable roll-up on one core, beside the bare loop that only consumes and parses.

    python -m benchmarks.ingest [--events 2000000] [--rounds 3] [--malformed-share 0.01] [--json]

Both workers run in turn on the same pinned core over the same topic of a real Kafka (4 partitions, 200-byte
JSON, 10 columns): `bare` is consume → arro3 JSON → Arrow with the collector of cycles off, the limit of this
path; `rtolap` is the receiver's whole core: decode with checks, aggregate, keep, checkpoint, and at the end a
partial query whose count is compared with the number of events. Rates are given by the wall clock and by the
processor time that the worker took, which a busy machine disturbs less; ratios are of medians of the latter.
Memory is the peak resident size of the worker.
With `--malformed-share`, a third worker `malformed` is `rtolap` over the same events of which that share is
broken (cut short, no JSON, a wrong type, no time, in equal parts), its refusals kept in a dead-letter topic.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from arro3.io import read_json
from confluent_kafka import Consumer, Message, TopicPartition
from rtolap.base.clock import SystemClock
from rtolap.base.cycle_collection import CycleCollection
from rtolap.cubes.receiver.answers.query_service import answer
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.producer import KafkaProducer
from rtolap.kafka.settings import consumer_settings
from rtolap.metadata.records import CubeControl
from rtolap.model.cube import Schema
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery

from benchmarks import events
from benchmarks.command_line import new_parser
from benchmarks.servers import create_topic, fill, kafka

TOPIC, MALFORMED_TOPIC = "bench", "bench-malformed"
PARTITIONS = 4
BASE_EVENTS = 500_000
CONSUMED, PARSED = 10_000, 1_024  # at once: what is fastest
JSON_TYPES = pa.schema(
    [
        ("ts", pa.int64()),
        ("country", pa.string()),
        ("device", pa.string()),
        ("page", pa.string()),
        ("campaign", pa.string()),
        ("user_id", pa.int64()),
        ("duration_ms", pa.int32()),
        ("bytes_sent", pa.int64()),
        ("price", pa.decimal128(10, 2)),
        ("is_new", pa.bool_()),
    ]
)


def bare(bootstrap: str, total: int) -> int:
    """Consume and parse as fast as Python can, nothing else: no positions, no collector of cycles, blocks of
    memory kept as in the other. Returns the rows seen."""
    CycleCollection(SystemClock()).begin()
    consumer = Consumer(consumer_settings("bare") | {"bootstrap.servers": bootstrap})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    rows = 0
    while rows < total:
        messages = consumer.consume(CONSUMED, 1.0)
        if any(map(Message.error, messages)):
            messages = [message for message in messages if message.error() is None]
        records = list(map(Message.value, messages))
        for first in range(0, len(records), PARSED):
            stream = b"\n".join(records[first : first + PARSED])  # type: ignore[arg-type]
            rows += pa.table(read_json(io.BytesIO(stream), JSON_TYPES, batch_size=PARSED + 1)).num_rows
    consumer.close()
    return rows


def rtolap(bootstrap: str, total: int) -> int:
    return ingested(bootstrap, total, events.schema(TOPIC))


def ingested(bootstrap: str, total: int, schema: Schema) -> int:
    """Run the receiver's core from Kafka to an answer. Returns the rows counted by a query, and those
    refused."""
    CycleCollection(SystemClock()).begin()  # as the process of a receiver does
    with tempfile.TemporaryDirectory() as folder:
        core = CubeReceiver(
            schema,
            replica_set="rs",
            consumer=KafkaConsumer(bootstrap, schema.table.topic, with_create_ms=True),
            producer=KafkaProducer(bootstrap),
            folder=Path(folder),
            clock=SystemClock(),
            settings=ReceiverSettings(),
        )
        partitions = tuple(range(PARTITIONS))
        view = CubeView(
            control=CubeControl(enabled=True, assignment={"rs": partitions}, assignment_epoch=1),
            start_offsets=dict.fromkeys(partitions, 0),
        )
        while sum(core.state.positions.values()) < total:
            core.step(view, 1.0)
        query = PartialQuery(schema.cube.name, ("country",), ("__rows", "price__sum"), HistorySnapshot())
        table = answer(
            schema, core.state, query, owned=partitions, receiver_id="bench", progress=core.progress
        )
        core.checkpoint()  # the refused ones are kept
        refused = sum(sum(counter.rejected.values()) for counter in core.progress.counters.values())
        core.close()
    return int(sum(table.column("__rows").to_pylist())) + refused


def malformed(bootstrap: str, total: int) -> int:
    return ingested(bootstrap, total, events.schema(MALFORMED_TOPIC))


WORKERS = {"bare": bare, "rtolap": rtolap, "malformed": malformed}


def work(name: str, bootstrap: str, total: int) -> None:
    """Run in a process of its own: pinned, timed, its peak memory its own."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    rows = WORKERS[name](bootstrap, total)
    seconds, cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
    if rows != total:
        raise SystemExit(f"{name} counted {rows} of {total} events")
    status = Path("/proc/self/status").read_text().splitlines()  # of `getrusage`, the parent's would count
    peak_bytes = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
    rates = {"events_per_s": total / seconds, "events_per_cpu_s": total / cpu_s}
    print(json.dumps({**rates, "peak_bytes": peak_bytes}))


def run(name: str, bootstrap: str, total: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.ingest", "--worker", name, bootstrap, "--events", str(total)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    result: dict[str, float] = json.loads(printed.splitlines()[-1])
    return result


def main() -> None:
    parser = new_parser(__doc__, worker=("NAME", "BOOTSTRAP"))
    parser.add_argument("--events", type=int, default=4 * BASE_EVENTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--malformed-share", type=float, default=0.0, help="0 leaves that worker out")
    arguments = parser.parse_args()
    if arguments.worker:
        name, address = arguments.worker
        work(name, address, arguments.events)
        return
    share = arguments.malformed_share
    workers = [name for name in WORKERS if share or name != "malformed"]
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in workers}
    with kafka() as bootstrap:
        values = events.values(BASE_EVENTS, seed=1)
        times = max(1, arguments.events // BASE_EVENTS)
        total = fill(bootstrap, TOPIC, values, partitions=PARTITIONS, times=times)
        if share:
            create_topic(bootstrap, events.schema(MALFORMED_TOPIC).table.dead_letter_topic, 1)
            broken = events.broken(values, share, seed=2)
            fill(bootstrap, MALFORMED_TOPIC, broken, partitions=PARTITIONS, times=times)
        for _ in range(arguments.rounds):
            for name in workers:
                runs[name].append(run(name, bootstrap, total))
    rate = {
        name: statistics.median(figures["events_per_s"] for figures in measured)
        for name, measured in runs.items()
    }
    cpu = {
        name: statistics.median(figures["events_per_cpu_s"] for figures in measured)
        for name, measured in runs.items()
    }
    peak = {name: max(figures["peak_bytes"] for figures in measured) for name, measured in runs.items()}
    ratio = cpu["rtolap"] / cpu["bare"]
    print(
        f"{total} events of {sum(map(len, values)) / len(values):.0f} bytes, one core, "
        f"{arguments.rounds} rounds"
    )
    for name in workers:
        wall, taken, top = rate[name] / 1e3, cpu[name] / 1e3, peak[name] / (1 << 20)
        print(f"  {name:9} {wall:8.0f} k events/s {taken:8.0f} k per CPU second   peak {top:6.0f} MiB")
    print(f"  ratio     {ratio:8.2f} of the bare consume-and-parse loop")
    if share:
        print(f"  time with {share:.1%} malformed: {cpu['rtolap'] / cpu['malformed']:.2f} of that without")
    if arguments.json:
        print(
            json.dumps(
                {
                    "benchmark": "ingest",
                    "ratio": round(ratio, 3),
                    "events": total,
                    "events_per_s": round(rate["rtolap"]),
                    "bare_events_per_s": round(rate["bare"]),
                    "events_per_cpu_s": round(cpu["rtolap"]),
                    "bare_events_per_cpu_s": round(cpu["bare"]),
                    "peak_bytes": int(peak["rtolap"]),
                    "malformed_share": share,
                    "malformed_events_per_cpu_s": round(cpu["malformed"]) if share else None,
                }
            )
        )


if __name__ == "__main__":
    main()
