"""Time from a record's create time to the arrival of the first SQL answer that holds it, of every record.

    python -m benchmarks.freshness [--rate 100000] [--seconds 20] [--preload 0] [--settle-s 5] [--askers 1]
                                   [--rest-ms 0] [--pages 400] [--others 25] [--answers flight] [--bare]
                                   [--stages]

Real ZooKeeper, Kafka, coordinator, receiver and query service on loopback. One process sends 200-byte JSON to
4 partitions in small even slices and notes when each offset was made: just before it is handed to the client,
so the client's own batching counts. One asker sends a group-by over HTTP, again as soon as it has
the answer, and checks its count. An answer names the positions that it holds; an event is visible when the
first answer with a position beyond its offset has arrived. All events but those of the warm-up are measured.

The stream is as wide as what is held: both draw from 80 000 combinations of the dimensions' values. Before
anything is measured, five other group-bys are asked, each `--others` times in all with conditions of its own.

`--preload`: so many events are held already when it begins, spread over 24 hours. `--pages 1000000`: one of
the four dimensions has so many values, in what is held and in the stream.
`--settle-s 0`: measuring begins as soon as what is held was read, while the receiver still writes fragments,
merges them and uploads the hours that are complete; how many files of each were written meanwhile is told.
`--askers`: all but the first ask five other group-bys in turn. `--rest-ms`: an asker rests so long between
two statements; with less to answer, what the events alone cost a receiver is seen. Processor time is that of
the seconds in which the measured events were made. `--answers`: the receiver's answers come over a guarded
HTTP port, by one of the clients of `benchmarks.answer_transport`, instead of Flight.

`--bare`: a bare consumer of one of the four partitions runs beside all that, and notes when it has each
record: the least that can be seen of that partition in that run, on the machine as it is. `--stages`: says of
what the latency is made, by the receiver's steps and the statements.

`ratio` is p50 over the round trip of the same query on the same cube when it is idle. An asker that never
rests sees 1.5 at best: an event waits half a round for the question that can see it, and a whole round for
the answer. Everything shares the machine's cores, the producer, Kafka and the asker too: on a busy or small
machine the figures are the machine's, and the achieved rate is part of the result.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec
import numpy as np
import numpy.typing as npt
from confluent_kafka import Producer
from rtolap.model.cube import Schema

from benchmarks import bare_consumer, events, sampled, stages
from benchmarks.answer_transport import switched
from benchmarks.command_line import new_parser
from benchmarks.process_figures import CpuWatch, memory_mb, written_since
from benchmarks.servers import create_topic, fill, kafka, zookeeper
from tests.support.cubes.services import Services, wait_for

TOPIC = "fresh"
PARTITIONS = 4
BASE_EVENTS = 200_000  # sent over and over
SLICE_S = 0.01
WARM_UP_S = 3.0
IDLE_ROUNDS = 200
SETTLE_S = 5.0
P50_MS_MAX, P99_MS_MAX = 30.0, 90.0
# Apache Pinot 1.5.1 with aggregation on ingest, measured once on a machine of two such cores: events of the
# same 198 bytes out of four partitions of Kafka 4.3.1 at 106 k events/s, nothing held.
PEER = "Pinot 1.5.1, aggregated on ingest, 106 k/s, nothing held"
PEER_P50_MS, PEER_P99_MS = 30.0, 72.0
# The same with 11 M events held, at 100 k events/s.
PEER_HELD = "Pinot 1.5.1, aggregated on ingest, 100 k/s, 11 M held"
PEER_HELD_P50_MS, PEER_HELD_P99_MS = 91.0, 358.0
CATCH_UP_S = 300.0
FLIGHT = "flight"
PLACES = 60  # of functions that are named in a profile

PRELOAD_BASE = 1_000_000
PRELOAD_SPAN_MS, PRELOAD_PAGES = 86_400_000, 400
OTHERS_ASKED = 25
OTHER_STATEMENTS = (
    "SELECT device, COUNT(*) FROM {cube} GROUP BY device",
    "SELECT page, COUNT(*), SUM(price) FROM {cube} GROUP BY page",
    "SELECT country, device, SUM(duration_ms) FROM {cube} GROUP BY country, device",
    "SELECT campaign, MAX(duration_ms) FROM {cube} WHERE device = 'tv' GROUP BY campaign",
    "SELECT country, COUNT(*), SUM(bytes_sent) FROM {cube} WHERE country IN ('de', 'fr') GROUP BY country",
)

Int64s = npt.NDArray[np.int64]


# -- the producer's process ---------------------------------------------------------------------------------


def slices_of(rate: int, seconds: float) -> tuple[int, int]:
    """Return how many events of a partition a slice has, and how many slices there are."""
    return max(1, round(rate * SLICE_S / PARTITIONS)), round(seconds / SLICE_S)


def produce(bootstrap: str, rate: int, seconds: float, path: Path, pages: int) -> None:
    """Send at an even rate; write, a slice and partition a row, the create time and the end offset.

    A late slice is sent at once and the next ones keep their times, so that a stall is followed by a burst;
    an event's create time is when it was really made.
    """
    values = [{"value": value} for value in events.values(BASE_EVENTS, seed=1, pages=pages)]
    per_partition, slices = slices_of(rate, seconds)
    made_ns = np.zeros((slices, PARTITIONS), np.int64)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,  # offsets come in the order of sending
            "linger.ms": 1,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": max(100_000, rate),
            "compression.type": "lz4",
        }
    )
    producer.list_topics(TOPIC, timeout=10)  # connected before the clock starts
    at, started_ns = 0, time.monotonic_ns()
    for number in range(slices):
        due_ns = started_ns + round(number * SLICE_S * 1e9)
        time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
        for partition in range(PARTITIONS):
            part = values[at : at + per_partition]
            made_ns[number, partition] = time.monotonic_ns()
            if producer.produce_batch(TOPIC, part, partition=partition) != per_partition:
                raise SystemExit(f"the producer's queue is full: Kafka does not keep up with {rate} events/s")
            at = at + per_partition if at + 2 * per_partition <= len(values) else 0
        producer.poll(0)
    if producer.flush(60):
        raise SystemExit("Kafka did not take all events within 60 s")
    np.savez(path, made_ns=made_ns, per_slice=per_partition)


def preloaded(count: int, pages: int = PRELOAD_PAGES) -> Iterator[list[bytes]]:
    """Yield `count` events in blocks, in the order of time: an hour is over when the next one begins."""
    blocks = -(-count // PRELOAD_BASE)
    span_ms = PRELOAD_SPAN_MS // max(blocks, 1)
    for number, left in enumerate(range(count, 0, -PRELOAD_BASE)):
        yield events.values(
            min(left, PRELOAD_BASE),
            seed=100 + number,
            start_ms=events.START_MS + number * span_ms,
            span_ms=span_ms,
            pages=pages,
        )


def preload(bootstrap: str, count: int, pages: int = PRELOAD_PAGES) -> None:
    """Send `count` events, the same number to each partition."""
    for values in preloaded(count, pages):
        fill(bootstrap, TOPIC, values, partitions=PARTITIONS, create=False)


# -- the asker ----------------------------------------------------------------------------------------------


@dataclass
class Answers:
    """Answers, in order: when each it was asked and had arrived, and the position of every partition."""

    asked_ns: list[int]
    arrived_ns: list[int]
    positions: list[tuple[int, ...]]


class Asker:
    def __init__(self, services: Services, cube: str) -> None:
        self.answers = Answers([], [], [])
        self._services = services
        self.cube = cube
        self._sql = f"SELECT country, COUNT(*), SUM(bytes_sent) FROM {cube} GROUP BY country"

    def ask_other(self, number: int, condition: str = "") -> None:
        text = OTHER_STATEMENTS[number % len(OTHER_STATEMENTS)].format(cube=self.cube)
        if condition:
            before, after = text.rsplit(" GROUP BY ", 1)
            text = f"{before} {'AND' if ' WHERE ' in before else 'WHERE'} {condition} GROUP BY {after}"
        self._services.sql(text)

    def ask(self) -> tuple[int, ...]:
        asked_ns = time.monotonic_ns()
        body = self._services.sql(self._sql)
        self.answers.arrived_ns.append(time.monotonic_ns())
        self.answers.asked_ns.append(asked_ns)
        answered = body["positions"][self.cube]
        positions = tuple(int(answered[str(partition)]) for partition in range(PARTITIONS))
        if sum(row[1] for row in body["rows"]) != sum(positions):
            raise SystemExit(f"an answer of positions {positions} counts {body['rows']}")
        self.answers.positions.append(positions)
        return positions

    def round_trips_ms(self) -> npt.NDArray[np.float64]:
        taken_ns = np.array(self.answers.arrived_ns) - np.array(self.answers.asked_ns)
        return np.asarray(taken_ns / 1e6, np.float64)


def latencies_ms(
    made_ns: Int64s, per_slice: int, answers: Answers, first_slice: int, begin: int
) -> npt.NDArray[np.float64]:
    """Return the latencies of every event from `first_slice` on. `begin`: the first offset that was sent."""
    arrived_ns = np.array(answers.arrived_ns)
    positions = np.array(answers.positions)
    latencies = []
    for partition in range(PARTITIONS):
        created_ns = np.repeat(made_ns[first_slice:, partition], per_slice)
        offsets = np.arange(len(created_ns)) + begin + first_slice * per_slice
        first = np.searchsorted(positions[:, partition], offsets, side="right")
        latencies.append((arrived_ns[first] - created_ns) / 1e6)
    return np.concatenate(latencies)


# -- the run ------------------------------------------------------------------------------------------------


def declare(services: Services, schema: Schema) -> str:
    """Declare and assign the cube, wait until it answers, and return its name."""
    client = services.coordinator
    client.put_replica_set("rs", ("r0",))
    client.create_table(msgspec.to_builtins(schema.table))
    client.create_cube(msgspec.to_builtins(schema.cube))
    wait_for("the receiver lives", lambda: len(client.receivers()) == 1)
    client.enable_cube(schema.cube.name)
    return schema.cube.name


def answering(asker: Asker) -> bool:
    try:
        asker.ask()
    except httpx.HTTPError:  # the cluster starts; what does not pass ends in the time-out of the wait
        return False
    return True


def ask_others(asker: Asker, stopping: threading.Event, rest_s: float) -> None:
    number = 0
    while not stopping.is_set():
        asker.ask_other(number)
        number += 1
        time.sleep(rest_s)


def measure(
    bootstrap: str,
    ensemble: str,
    folder: Path,
    rate: int,
    seconds: float,
    held: int,
    askers: int,
    settle_s: float,
    rest_s: float = 0.0,
    profiled: bool = False,
    answers: str = FLIGHT,
    pages: int = PRELOAD_PAGES,
    others_asked: int = OTHERS_ASKED,
    bare: bool = False,
    staged: bool = False,
) -> dict[str, float]:
    create_topic(bootstrap, TOPIC, PARTITIONS)
    services = Services(folder, zookeeper=ensemble, root="/bench", kafka=bootstrap, coordinators=1)
    reading: subprocess.Popen[bytes] | None = None
    try:
        services.start_coordinators()
        samples = folder / "samples.json"
        if profiled:
            services.environment |= sampled.environment(samples)
        noted_stages = folder / "stages.jsonl"
        if staged:
            services.environment |= stages.environment(noted_stages)
        if answers != FLIGHT:
            services.environment |= switched.environment(answers, folder / "answers")
        services.start_receiver("r0", "rs")
        services.start_query()
        asker = Asker(services, declare(services, events.schema(TOPIC)))
        wait_for("the cube answers", lambda: answering(asker))
        if held:
            command = [sys.executable, "-m", "benchmarks.freshness", "--worker", bootstrap, "-"]
            command += ["--pages", str(pages)]
            subprocess.run([*command, "--preload", str(held)], check=True)
            wait_for("what is held was read", lambda: sum(asker.ask()) == held, CATCH_UP_S)
            time.sleep(settle_s)  # fragments are merged
        for number in range(others_asked):
            asker.ask_other(number, f"campaign <> 'statement {number}'")
        memory = memory_mb("receiver")
        watched = ("receiver", "query")
        watch = CpuWatch(watched)
        sampled_before = sampled.taken_ns(samples) if profiled else None
        asker.answers = Answers([], [], [])
        started_ns = time.time_ns()
        noted = folder / "produced.npz"
        command = [sys.executable, "-m", "benchmarks.freshness", "--worker", bootstrap, str(noted)]
        command += ["--rate", str(rate), "--seconds", str(seconds + WARM_UP_S), "--pages", str(pages)]
        begin = held // PARTITIONS
        per_partition, slices = slices_of(rate, seconds + WARM_UP_S)
        read_bare = folder / "bare.npz"
        end = begin + per_partition * slices
        beside = bare_consumer.command(bootstrap, TOPIC, begin, end, read_bare)
        if bare:
            reading = subprocess.Popen(beside)
        stopping = threading.Event()
        others = [
            threading.Thread(target=ask_others, args=(asker, stopping, rest_s), daemon=True)
            for _ in range(askers - 1)
        ]
        with subprocess.Popen(command) as producer:
            for thread in others:
                thread.start()
            while producer.poll() is None:
                asker.ask()
                time.sleep(rest_s)
        stopping.set()
        for thread in others:
            thread.join()
        if producer.returncode:
            raise SystemExit("the producer failed")
        with np.load(noted) as produced:
            made_ns, per_slice = produced["made_ns"], int(produced["per_slice"])
        ends = (begin + len(made_ns) * per_slice,) * PARTITIONS
        wait_for("every event is visible", lambda: asker.ask() == ends, CATCH_UP_S)
        if reading is not None and reading.wait(CATCH_UP_S):
            raise SystemExit("the bare consumer failed")
        watch.stop()
        memory |= {"receiver_peak_mb": memory_mb("receiver")["receiver_peak_mb"]}
        written = written_since(folder, started_ns)
        if sampled_before is not None:
            sampled.report(sampled_before, sampled.taken_ns(samples), seconds + WARM_UP_S, PLACES)
        busy = asker
        idle = Asker(services, busy.cube)
        for _ in range(IDLE_ROUNDS):
            idle.ask()
    finally:
        services.close()
        if reading is not None:
            reading.kill()
    first = round(WARM_UP_S / SLICE_S)
    bare_figures: dict[str, float] = {}
    if bare:
        alone = bare_consumer.latencies_ms(read_bare, made_ns, per_slice, first, begin)
        bare_figures = dict(zip(("bare_p50_ms", "bare_p99_ms"), np.percentile(alone, (50, 99)), strict=True))
    if staged:
        steps = stages.read(noted_stages, PARTITIONS)
        given = (busy.answers.asked_ns, busy.answers.arrived_ns, busy.answers.positions)
        asked_ns, arrived_ns, answered = (np.array(each, np.int64) for each in given)
        of_events = stages.stages_ms(steps, made_ns, per_slice, asked_ns, arrived_ns, answered, first, begin)
        stages.report(steps, of_events, int(made_ns[first, 0]), int(made_ns[-1, -1]))
    latencies = latencies_ms(made_ns, per_slice, busy.answers, first, begin)
    took_s = (made_ns[-1, -1] - made_ns[first, 0]) / 1e9 + SLICE_S
    p50, p99 = np.percentile(latencies, (50, 99))
    during = np.array(busy.answers.asked_ns) <= made_ns[-1, -1]
    idle_p50, idle_p99 = np.percentile(idle.round_trips_ms(), (50, 99))
    busy_p50, busy_p99 = np.percentile(busy.round_trips_ms()[during], (50, 99))
    return {
        "ratio": float(p50 / idle_p50),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "max_ms": float(latencies.max()),
        "events": len(latencies),
        "events_per_s": len(latencies) / took_s,
        "queries": int(during.sum()),
        "query_p50_ms": float(busy_p50),
        "query_p99_ms": float(busy_p99),
        "idle_query_p50_ms": float(idle_p50),
        "idle_query_p99_ms": float(idle_p99),
        "held_events": held,
        **memory,
        **written,
        **bare_figures,
        **{f"{word}_cpu_s": watch.share(word, made_ns[first, 0], made_ns[-1, -1]) for word in watched},
    }


def report(figures: dict[str, float], rate: int) -> None:
    lines: tuple[tuple[str, float, float], ...] = (
        ("create time → visible in SQL", figures["p50_ms"], figures["p99_ms"]),
        ("  wanted at most", P50_MS_MAX, P99_MS_MAX),
        (f"  {PEER}", PEER_P50_MS, PEER_P99_MS),
        (f"  {PEER_HELD}", PEER_HELD_P50_MS, PEER_HELD_P99_MS),
        ("query meanwhile", figures["query_p50_ms"], figures["query_p99_ms"]),
        ("query on the idle cube", figures["idle_query_p50_ms"], figures["idle_query_p99_ms"]),
    )
    print(f"{figures['events']:.0f} events, {figures['events_per_s'] / 1e3:.1f} k/s of {rate / 1e3:g} k/s")
    if "bare_p50_ms" in figures:
        lines += (("a bare consumer of a partition", figures["bare_p50_ms"], figures["bare_p99_ms"]),)
    for name, p50_ms, p99_ms in lines:
        print(f"  {name:58} p50 {p50_ms:6.1f} ms   p99 {p99_ms:6.1f} ms")
    print(f"  ratio {figures['ratio']:.2f} of the idle round trip (1.5 is the least that can be seen)")
    print(
        f"  {figures['queries']:.0f} queries; CPU a second of events: "
        f"receiver {figures['receiver_cpu_s']:.2f} s, query {figures['query_cpu_s']:.2f} s"
    )
    print(
        f"  {figures['held_events']:.0f} events held before, receiver {figures['receiver_held_mb']:.0f} MB: "
        f"its own {figures['receiver_own_mb']:.0f}, mapped files {figures['receiver_mapped_mb']:.0f}; "
        f"peak in the end {figures['receiver_peak_mb']:.0f}"
    )
    print(
        f"  written meanwhile: {figures['fragments_written']:.0f} fragments, "
        f"{figures['files_uploaded']:.0f} files of uploaded segments"
    )


def main() -> None:
    parser = new_parser(__doc__, worker=("BOOTSTRAP", "FILE"))
    parser.add_argument("--rate", type=int, default=100_000, help="events per second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--preload", type=int, default=0, help="events that are held before")
    parser.add_argument("--settle-s", type=float, default=SETTLE_S, help="between reading that and measuring")
    parser.add_argument("--askers", type=int, default=1, help="statements at the same time")
    parser.add_argument("--rest-ms", type=float, default=0.0, help="of an asker between two statements")
    parser.add_argument("--pages", type=int, default=PRELOAD_PAGES, help="values of one dimension")
    parser.add_argument("--others", type=int, default=OTHERS_ASKED, help="other statements asked before")
    parser.add_argument("--profile", action="store_true", help="say where the receiver spends its time")
    parser.add_argument("--stages", action="store_true", help="say of what the latency is made")
    parser.add_argument("--bare", action="store_true", help="run a bare consumer of one partition beside")
    parser.add_argument(
        "--answers",
        choices=(FLIGHT, "httpx", "http.client"),
        default=FLIGHT,
        help="how the query service gets the receiver's answers",
    )
    arguments = parser.parse_args()
    if arguments.profile and arguments.answers != FLIGHT:
        parser.error("--profile samples the product as it is: leave --answers out")
    if arguments.profile and arguments.stages:
        parser.error("--profile and --stages each bring a module of the same name: one at a time")
    if arguments.worker:
        bootstrap, path = arguments.worker
        if arguments.preload:
            preload(bootstrap, arguments.preload, arguments.pages)
            return
        produce(bootstrap, arguments.rate, arguments.seconds, Path(path), arguments.pages)
        return
    with kafka() as bootstrap, zookeeper() as ensemble, tempfile.TemporaryDirectory() as folder:
        figures = measure(
            bootstrap,
            ensemble,
            Path(folder),
            arguments.rate,
            arguments.seconds,
            arguments.preload // PARTITIONS * PARTITIONS,
            arguments.askers,
            arguments.settle_s,
            arguments.rest_ms / 1000,
            arguments.profile,
            arguments.answers,
            arguments.pages,
            arguments.others,
            arguments.bare,
            arguments.stages,
        )
    report(figures, arguments.rate)
    if arguments.json:
        print(
            json.dumps(
                {"benchmark": "freshness", **{name: round(figure, 2) for name, figure in figures.items()}}
            )
        )


if __name__ == "__main__":
    main()
