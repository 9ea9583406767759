"""One run: services, what is held, the stream and its asker, and the figures of all that."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import psutil
from rtolap.model.cube import Schema

from benchmarks import bare_consumer, events, hooks, sampled, stages
from benchmarks.answer_transport import switched
from benchmarks.freshness import duckdb_loader, stream
from benchmarks.freshness.asking import Answers, Asker, OtherAskers, answering
from benchmarks.freshness.figures import WATCHED
from benchmarks.freshness.stream import PARTITIONS, SLICE_S, TOPIC, WARM_UP_S, Produced
from benchmarks.process_figures import (
    CpuWatch,
    child_process,
    memory_mb,
    service_process,
    written_since,
)
from benchmarks.servers import create_topic
from tests.support.cubes.services import Services, wait_for

IDLE_ROUNDS = 200
SETTLE_S = 5.0
OTHERS_ASKED = 25
CATCH_UP_S = 300.0
FLIGHT = "flight"
PLACES = 60  # of functions that are named in a profile


@dataclass(frozen=True)
class Settings:
    """What a run is made of.

    Attributes:
        rate: events a second.
        held: events that are there before, a multiple of the partitions.
        settle_s: between reading those and measuring.
        askers: statements at the same time.
        rest_s: of an asker between two statements.
        pages: values of one dimension.
        others_asked: other statements that are asked before.
        answers: how the query service gets the receiver's answers.
        profiled: True if the receiver is sampled.
        bare: True if a bare consumer of one partition runs beside.
        staged: True if the receiver notes its steps and answers.
        peer: True if a loader into DuckDB gets such a stream afterwards, alone.
    """

    rate: int
    seconds: float
    held: int = 0
    settle_s: float = SETTLE_S
    askers: int = 1
    rest_s: float = 0.0
    pages: int = stream.PAGES
    others_asked: int = OTHERS_ASKED
    answers: str = FLIGHT
    profiled: bool = False
    bare: bool = False
    staged: bool = False
    peer: bool = False


@dataclass(frozen=True)
class Files:
    """The files of a run, below one folder."""

    folder: Path

    @property
    def samples(self) -> Path:
        return self.folder / "samples.json"

    @property
    def stages(self) -> Path:
        return self.folder / "stages.jsonl"

    @property
    def produced(self) -> Path:
        return self.folder / "produced.npz"

    @property
    def bare(self) -> Path:
        return self.folder / "bare.npz"

    @property
    def peer(self) -> Path:
        return self.folder / "duckdb.npz"

    def hooks(self, settings: Settings) -> list[hooks.Hook]:
        """Return the hooks that the services of such a run have to be started with."""
        wanted = []
        if settings.profiled:
            wanted.append(sampled.hook(self.samples))
        if settings.staged:
            wanted.append(stages.hook(self.stages))
        if settings.answers != FLIGHT:
            wanted.append(switched.hook(settings.answers, self.folder / "answers"))
        return wanted


@dataclass
class Measured:
    """What was noted while the stream came.

    Attributes:
        idle: answers of the same statement when no event came any more.
        memory: of the receiver, in MB, by name.
        written: numbers of files that the receiver wrote meanwhile.
    """

    watch: CpuWatch
    busy: Answers = field(default_factory=Answers)
    idle: Answers = field(default_factory=Answers)
    memory: dict[str, float] = field(default_factory=dict)
    written: dict[str, float] = field(default_factory=dict)


def declare(services: Services, schema: Schema) -> str:
    """Declare and assign the cube, wait until it answers, and return its name."""
    client = services.coordinator
    client.put_replica_set("rs", ("r0",))
    client.create_table(msgspec.to_builtins(schema.table))
    client.create_cube(msgspec.to_builtins(schema.cube))
    wait_for("the receiver lives", lambda: len(client.receivers()) == 1)
    client.enable_cube(schema.cube.name)
    return schema.cube.name


def measure(bootstrap: str, ensemble: str, folder: Path, settings: Settings) -> dict[str, float]:
    create_topic(bootstrap, TOPIC, PARTITIONS)
    services = Services(folder, zookeeper=ensemble, root="/bench", kafka=bootstrap, coordinators=1)
    files = Files(folder)
    with ExitStack() as ending:
        ending.callback(services.close)
        services.start_coordinators()
        services.environment |= hooks.environment(files.hooks(settings))
        services.start_receiver("r0", "rs")
        services.start_query()
        asker = Asker(services, declare(services, events.schema(TOPIC)))
        wait_for("the cube answers", lambda: answering(asker))
        if settings.held:
            stream.send_held(bootstrap, settings.held, settings.pages)
            wait_for("what is held was read", lambda: sum(asker.ask()) == settings.held, CATCH_UP_S)
            time.sleep(settings.settle_s)  # fragments are merged
        for number in range(settings.others_asked):
            asker.ask_other(number, f"campaign <> 'statement {number}'")
        measured = _streamed(bootstrap, asker, files, settings)
        produced = stream.produced(files.produced, settings.held // PARTITIONS)
        idle = Asker(services, asker.cube)
        for _ in range(IDLE_ROUNDS):
            idle.ask()
        measured.idle = idle.answers
    if settings.staged:
        _report_stages(files, measured.busy, produced)
    figures = _figures(files, settings, measured, produced)
    return figures | (_of_peer(bootstrap, files, settings, produced.ends[0]) if settings.peer else {})


def _of_peer(bootstrap: str, files: Files, settings: Settings, begin: int) -> dict[str, float]:
    """Send the stream again, behind `begin`, to a loader into DuckDB that holds what the cube held."""
    held = settings.held // PARTITIONS
    per_partition, slices = stream.slices_of(settings.rate, settings.seconds + WARM_UP_S)
    command = duckdb_loader.command(bootstrap, held, begin, begin + per_partition * slices, files.peer)
    with ExitStack() as ending:
        loader = subprocess.Popen(command)
        ending.callback(loader.kill)
        wait_for("the peer has read what is held", duckdb_loader.ready(files.peer).exists, CATCH_UP_S)
        producer = stream.live(bootstrap, settings.rate, settings.seconds, settings.pages, files.produced)
        ending.callback(producer.kill)
        if producer.wait(CATCH_UP_S) or loader.wait(CATCH_UP_S):
            raise SystemExit("the producer or the peer failed")
    answers = duckdb_loader.answers(files.peer)
    latencies = answers.latencies_ms(stream.produced(files.produced, begin))
    peer_ms = np.percentile(latencies, (50, 99))
    return dict(zip(("duckdb_p50_ms", "duckdb_p99_ms"), map(float, peer_ms), strict=True))


def _streamed(bootstrap: str, asker: Asker, files: Files, settings: Settings) -> Measured:
    """Send the stream and ask meanwhile, until every event is visible."""
    begin = settings.held // PARTITIONS
    per_partition, slices = stream.slices_of(settings.rate, settings.seconds + WARM_UP_S)
    ends = (begin + per_partition * slices,) * PARTITIONS
    memory = memory_mb("receiver")
    sampled_before = sampled.taken_ns(files.samples) if settings.profiled else None
    started_ns = time.time_ns()
    with ExitStack() as ending:
        reading: subprocess.Popen[bytes] | None = None
        if settings.bare:
            reading = subprocess.Popen(bare_consumer.command(bootstrap, TOPIC, begin, ends[0], files.bare))
            ending.callback(reading.kill)
        producer = stream.live(bootstrap, settings.rate, settings.seconds, settings.pages, files.produced)
        ending.callback(producer.kill)
        measured = Measured(CpuWatch(_watched(producer.pid)))
        asker.answers = measured.busy
        with OtherAskers(asker, settings.askers - 1, settings.rest_s):
            while producer.poll() is None:
                asker.ask()
                time.sleep(settings.rest_s)
        if producer.returncode:
            raise SystemExit("the producer failed")
        wait_for("every event is visible", lambda: asker.ask() == ends, CATCH_UP_S)
        if reading is not None and reading.wait(CATCH_UP_S):
            raise SystemExit("the bare consumer failed")
    measured.watch.stop()
    measured.memory = memory | {"receiver_peak_mb": memory_mb("receiver")["receiver_peak_mb"]}
    measured.written = written_since(files.folder, started_ns)
    if sampled_before is not None:
        taken = sampled.taken_ns(files.samples)
        sampled.report(sampled_before, taken, settings.seconds + WARM_UP_S, PLACES)
    return measured


def _watched(producer: int) -> dict[str, psutil.Process]:
    """Return what shares the machine, by the words of WATCHED. This process is the asker."""
    processes = {word: service_process(word) for word in ("receiver", "query")}
    processes |= {"kafka": child_process("kafka.Kafka"), "producer": psutil.Process(producer)}
    return processes | {"asker": psutil.Process()}


def _report_stages(files: Files, answers: Answers, produced: Produced) -> None:
    steps = stages.read(files.stages, PARTITIONS)
    given = (answers.asked_ns, answers.arrived_ns, answers.positions)
    asked_ns, arrived_ns, answered = (np.array(each, np.int64) for each in given)
    of_events = stages.stages_ms(
        steps,
        produced.made_ns,
        produced.per_slice,
        asked_ns,
        arrived_ns,
        answered,
        produced.first_slice,
        produced.begin,
    )
    stages.report(steps, of_events, produced.from_ns, produced.until_ns)


def _figures(files: Files, settings: Settings, measured: Measured, produced: Produced) -> dict[str, float]:
    latencies = measured.busy.latencies_ms(produced)
    took_s = (produced.until_ns - produced.from_ns) / 1e9 + SLICE_S
    p50, p99 = np.percentile(latencies, (50, 99))
    during = np.array(measured.busy.asked_ns) <= produced.until_ns
    idle_p50, idle_p99 = np.percentile(measured.idle.round_trips_ms(), (50, 99))
    busy_p50, busy_p99 = np.percentile(measured.busy.round_trips_ms()[during], (50, 99))
    bare: dict[str, float] = {}
    if settings.bare:
        alone = bare_consumer.latencies_ms(
            files.bare, produced.made_ns, produced.per_slice, produced.first_slice, produced.begin
        )
        bare = dict(zip(("bare_p50_ms", "bare_p99_ms"), np.percentile(alone, (50, 99)), strict=True))
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
        "held_events": settings.held,
        **measured.memory,
        **measured.written,
        **bare,
        **{
            f"{word}_cpu_s": measured.watch.share(word, produced.from_ns, produced.until_ns)
            for word in WATCHED
        },
    }
