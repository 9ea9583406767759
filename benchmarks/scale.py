"""How large records, views and the coordinator's periodic work become: the real code over stores in memory.

    python -m benchmarks.scale [--partitions 1000 --partitions 10000] [--receivers 200] [--cubes 1000]
                               [--days 365] [--segments 240] [--coordinators 1,2,4]
                               [--applications 100 --hosts 1000] [--json]

Seeded. A cube's hourly segments are closed by replica sets of two receivers each and become READY by the
functions that services use. `--segments` of them are made; sizes of `--days` follow from their mean, and are
marked with `*` where not all were made. Time is that of one processor without a network: `requests` says how
many round trips to ZooKeeper come on top of it. Of several coordinators that share applications a tick of the
busiest one is shown, after all hosts have reported anew, and what all of them spend together.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from rtolap.base.errors import NotFound, RtolapError
from rtolap.coordinator.applications.registry import Applications
from rtolap.coordinator.closable import Closable
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.members import Members
from rtolap.coordinator.placement.rules import PlacementRules
from rtolap.coordinator.watermarks import Watermarks
from rtolap.metadata import codec, paths, segments
from rtolap.metadata.cached import CachedStore
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import BuildAttempt, CubeControl, ReceiverRecord, SegmentRecord
from rtolap.metadata.segment_format.pages import PAGE_SEGMENTS
from rtolap.metadata.view import SegmentView
from rtolap.model.offsets import PartRange
from rtolap.model.segment import SegmentRange, StagedPart
from rtolap.protocols.coordinator import messages as wire

from benchmarks.scale_coordinators import spread_figures
from benchmarks.scale_figures import HOUR_MS, START_MS, CountingStore, Figure
from tests.support.cubes.flights import flights_schema
from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

HOURS_PER_DAY = 24
CUBES_OF_A_RECEIVER = 20
PLANS = 20


class MemoryFiles:
    """Vectors of READY versions, in memory. Implements `metadata.vectors.VersionFiles`."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def read(self, path: str) -> bytes:
        try:
            return self.kept[path]
        except KeyError as error:
            raise NotFound(f"no file {path}") from error

    def write(self, path: str, data: bytes) -> None:
        self.kept[path] = data


@dataclass
class World:
    """A cluster in memory.

    Attributes:
        sets: replica set → its partitions.
    """

    partitions: int
    receivers: int
    seed: int = 1
    clock: ManualClock = field(default_factory=lambda: ManualClock(START_MS))
    sets: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.ensemble = MemoryEnsemble()
        self.store = CountingStore(MemoryStore(self.ensemble))
        self.files = MemoryFiles()
        self.metadata = ClusterMetadata(self.store, self.clock, self.files)
        names = [f"rs{number}" for number in range(max(1, self.receivers // 2))]
        self.sets = {
            name: tuple(range(at, self.partitions, len(names)))
            for at, name in enumerate(names)
            if at < self.partitions
        }

    def make_cube(self, name: str, assignment: dict[str, tuple[int, ...]] | None = None) -> None:
        """Declare a cube that these replica sets take in; all of them where none is given."""
        schema = flights_schema()
        if not self.metadata.cubes():
            self.metadata.create_table(schema.table)
        self.metadata.create_cube(msgspec.structs.replace(schema.cube, name=name))
        control = CubeControl(
            enabled=True,
            assignment=self.sets if assignment is None else assignment,
            assignment_epoch=1,
            first_offsets=dict.fromkeys(range(self.partitions), 0),
        )
        self.metadata.update_control(name, lambda _: control)

    def kept_bytes(self, prefix: str) -> list[int]:
        return [len(node.data) for path, node in self.ensemble.nodes.items() if path.startswith(prefix)]

    def measured(self, what: str, work: Callable[[], Any], note: str = "") -> Figure:
        assert self.ensemble.settle(), "watches have told of what was done before"
        requests, read = self.store.requests, self.store.read_bytes
        began_s = time.process_time()
        work()
        spent_s = time.process_time() - began_s
        sent, got = self.store.requests - requests, self.store.read_bytes - read
        return Figure(what, round(spent_s, 4), sent, got, note)


def close_segment(world: World, cube: str, window: SegmentRange, offsets: dict[int, int]) -> int:
    """Have each replica set close its partitions and report its part, as leaders do. Return the bytes of the
    largest record on the way.
    """
    largest = 0
    first = dict.fromkeys(range(world.partitions), 0)
    for name, partitions in world.sets.items():
        vector = {partition: offsets[partition] for partition in partitions}

        def closed(record: SegmentRecord, vector: dict[int, int] = vector, by: str = name) -> SegmentRecord:
            return segments.close(record, vector, now_ms=world.clock.now_ms(), by=by)

        world.metadata.update_segment(cube, window, closed)
    for name, partitions in world.sets.items():
        path = f"staged/{cube}/{window.name}/v1/{name}-a"

        def joined(
            record: SegmentRecord, name: str = name, path: str = path, partitions: Any = partitions
        ) -> SegmentRecord:
            ranges = tuple(
                PartRange(p, record.covered.get(p, 0), record.target[p]) for p in sorted(partitions)
            )
            part = StagedPart(name, path, ranges, rows=1000, events=5000, bytes=50_000)
            return segments.add_part(
                record, part, partitions=range(world.partitions), first=first, now_ms=world.clock.now_ms()
            )

        after = world.metadata.update_segment(cube, window, joined)
        largest = max(largest, len(msgspec.json.encode(after)))
    return largest


def promote_segment(world: World, cube: str, window: SegmentRange) -> None:
    location = f"history/{cube}/{'0' * 32}/{window.name}/v1-{'b' * 16}"
    attempt = BuildAttempt("b" * 12, 1, world.clock.now_ms(), location)
    world.metadata.update_segment(cube, window, lambda record: segments.start_build(record, attempt))
    world.metadata.update_segment(
        cube,
        window,
        lambda record: segments.promote(record, "b" * 12, events=5000, now_ms=world.clock.now_ms()),
    )


def ready_copies(world: World, cube: str, model: SegmentRecord, count: int) -> None:
    """Make further READY segments like this one, each with offsets of its own."""
    for number in range(1, count):
        start_ms = model.start_ms + number * HOUR_MS
        step = number * world.random.randrange(900, 1100)
        covered = {partition: offset + step for partition, offset in model.covered.items()}
        window = SegmentRange(start_ms, start_ms + HOUR_MS)
        record = msgspec.structs.replace(
            model,
            start_ms=start_ms,
            end_ms=window.end_ms,
            covered=covered,
            location=f"history/{cube}/{'0' * 32}/{window.name}/v1-{number:016x}",
            vectors=None,
        )
        world.metadata.update_segment(cube, window, lambda _, record=record: record)  # type: ignore[misc]


def history_figures(partitions: int, receivers: int, days: int, made: int) -> list[Figure]:
    """Return figures of one cube's records: a close, the records of a year, and the memory of a service that
    follows them."""
    world, cube = World(partitions, receivers), "flights"
    world.make_cube(cube)
    window = SegmentRange(START_MS, START_MS + HOUR_MS)
    offsets = {p: world.random.randrange(10**9, 10**10) for p in range(partitions)}
    largest: list[int] = []
    figures: list[Figure] = []
    try:
        close = world.measured(
            "close a segment",
            lambda: largest.append(close_segment(world, cube, window, offsets)),
            f"{len(world.sets)} replica sets, one after the other",
        )
    except RtolapError as error:
        return [Figure("close a segment", note=f"refused: {error}")]
    figures += [close, Figure("largest record while it closes", bytes=largest[0])]
    nodes = [*world.kept_bytes(paths.segments(cube)), *world.kept_bytes(paths.closing(cube))]
    figures.append(Figure("largest node when it is closed", bytes=max(nodes), note=f"of {len(nodes)}"))
    promote_segment(world, cube, window)
    model = world.metadata.segment(cube, window.name)
    assert model is not None
    wanted = days * HOURS_PER_DAY
    count = min(made, wanted)
    ready_copies(world, cube, model, count)
    mark = "" if count == wanted else f"* of {count}"
    prefix = f"/cubes/{cube}/history/"
    pages = world.kept_bytes(prefix)
    records = [
        len(codec.encode(record))
        for page in world.metadata.nodes.page_ranges(cube)
        for record in world.metadata.nodes.page(cube, page)[0].values()
    ]
    figures.append(Figure("READY record", bytes=max(records), note="the largest; pages hold them compressed"))
    figures.append(Figure("the largest page", bytes=max(pages), note=f"of at most {PAGE_SEGMENTS} records"))
    figures.append(Figure(f"ZooKeeper, {days} days", bytes=sum(pages) * wanted // count, note=mark))
    figures.append(Figure("the frontier", bytes=sum(world.kept_bytes(paths.frontier(cube)))))
    vectors = sum(len(data) for data in world.files.kept.values())
    figures.append(
        Figure(f"vectors in the object store, {days} days", bytes=vectors * wanted // count, note=mark)
    )
    views: list[SegmentView] = []
    for what, follower in (
        ("a receiver", Follower(by_page=True, with_frontier=True)),
        ("a query service", Follower(by_page=True)),
        ("a coordinator", Follower()),
    ):
        figures += start_figures(world, cube, what, days, views, follower, wanted / count, mark)
    for view in views:
        view.close()
    world.store.close()
    return figures


class Follower(NamedTuple):
    """What a service follows of segments: see `SegmentView`."""

    by_page: bool = False
    with_frontier: bool = False

    def view(self, metadata: ClusterMetadata, cube: str) -> SegmentView:
        return SegmentView(metadata, cube, by_page=self.by_page, with_frontier=self.with_frontier)


def start_figures(
    world: World,
    cube: str,
    what: str,
    days: int,
    views: list[SegmentView],
    follower: Follower,
    factor: float,
    mark: str,
) -> list[Figure]:
    """Start a service's view, then have a statement ask for all of history."""
    start = world.measured(
        f"{what} starts, {days} days", lambda: views.append(follower.view(world.metadata, cube))
    )
    if not follower.by_page:
        return [scaled(start, world, views[-1], factor, mark)]
    whole = world.measured(f"{what}: a statement about all {days} days", lambda: views[-1].records())
    tracemalloc.start()
    view = follower.view(world.metadata, cube)
    opened_bytes = tracemalloc.get_traced_memory()[0]
    view.records()
    held_bytes = tracemalloc.get_traced_memory()[0] - opened_bytes
    tracemalloc.stop()
    views.append(view)
    return [
        start,
        Figure(f"{what} in memory after its start", bytes=opened_bytes),
        scaled(whole, world, view, factor, mark),
        Figure(f"{what} in memory then", bytes=round(opened_bytes + held_bytes * factor), note=mark),
    ]


def scaled(figure: Figure, world: World, view: SegmentView, factor: float, mark: str) -> Figure:
    """Return what a longer history costs: a look at what has changed costs the same, the rest grows."""
    look = world.measured("a look", view.refresh)

    def grown(whole: float | None, fixed: float | None) -> float:
        least = min(whole or 0, fixed or 0)
        return least + ((whole or 0) - least) * factor

    return Figure(
        figure.what,
        round(grown(figure.seconds, look.seconds), 4),
        round(grown(figure.requests, look.requests)),
        round(grown(figure.bytes, look.bytes)),
        mark,
    )


def heartbeat_of(
    world: World, number: int, partitions_by_cube: dict[str, tuple[int, ...]]
) -> wire.HeartbeatRequest:
    now_ms = world.clock.now_ms()
    reports = {
        cube: wire.CubeReport(
            state="CONSUMING",
            assignment_epoch=1,
            partitions={
                partition: wire.PartitionReport(
                    position=1000 + number, watermark_ms=now_ms, log_end=1000 + number
                )
                for partition in partitions
            },
        )
        for cube, partitions in partitions_by_cube.items()
    }
    return wire.HeartbeatRequest(
        receiver_id=f"r{number}",
        replica_set=replica_set_of(world, number),
        is_leader=number % 2 == 0,
        cubes=reports,
    )


def replica_set_of(world: World, receiver: int) -> str:
    sets = list(world.sets)
    return sets[receiver // 2 % len(sets)]


def make_cubes(world: World, count: int) -> dict[str, dict[str, tuple[int, ...]]]:
    """Declare cubes such that each replica set takes in its partitions of `CUBES_OF_A_RECEIVER` of them, or
    of all where there are fewer. Return replica set → cube → partitions.
    """
    held: dict[str, dict[str, tuple[int, ...]]] = {name: {} for name in world.sets}
    sets = list(world.sets)
    sharing = min(len(sets), max(1, len(sets) * CUBES_OF_A_RECEIVER // count))
    for number in range(count):
        cube = f"cube{number}"
        chosen = [sets[(number * sharing + at) % len(sets)] for at in range(sharing)]
        assignment = {name: tuple(range(at, world.partitions, sharing)) for at, name in enumerate(chosen)}
        world.make_cube(cube, assignment)
        for name, partitions in assignment.items():
            held[name][cube] = partitions
    return held


def coordinator_figures(receivers: int, cubes: int, partitions: int) -> list[Figure]:
    """Return figures of ticks over all cubes, and of the health of all receivers where each has some
    cubes."""
    world = World(partitions, receivers)
    held = make_cubes(world, cubes)
    heartbeats = Heartbeats(world.clock)
    applications = Applications(world.store, world.clock, lambda: None)
    ticked = ClusterMetadata(CachedStore(world.store), world.clock)
    watermarks = Watermarks(ticked, heartbeats, Closable(applications, world.clock))
    for number in range(receivers):
        replica_set = replica_set_of(world, number)
        world.metadata.register_receiver(ReceiverRecord(f"r{number}", "127.0.0.1", 7080, replica_set))
        world.metadata.announce_live(f"r{number}", "first")
        heartbeats.record(heartbeat_of(world, number, held[replica_set]))

    def tick() -> None:
        for name in ticked.cubes():
            watermarks.tick(name)

    members = Members(
        world.metadata, heartbeats, ticked, PlacementRules(world.metadata, "warn"), lambda name: ("", None)
    )
    of_each = max(len(cubes_of_one) for cubes_of_one in held.values())
    figures = [
        world.measured(f"first tick, {cubes} cubes", tick),
        world.measured(f"tick without a change, {cubes} cubes", tick),
        world.measured(f"health of {receivers} receivers, {of_each} cubes of {cubes}", members.receivers),
    ]
    assert all(info.health == "HEALTHY" for info in members.receivers()), "each takes in what it has to"
    applications.close()
    world.store.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, action="append")
    parser.add_argument("--receivers", type=int, default=200)
    parser.add_argument("--cubes", type=int, default=1000)
    parser.add_argument(
        "--coordinators", default="1,2,4", help="numbers of coordinators that share applications"
    )
    parser.add_argument("--applications", type=int, default=100)
    parser.add_argument("--hosts", type=int, default=1_000, help="of each application")
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--segments", type=int, default=240, help="segments of a year that are really made")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tables = {
        f"a cube of {count} partitions": history_figures(
            count, options.receivers, options.days, options.segments
        )
        for count in options.partitions or [1000, 10_000]
    }
    tables["a coordinator"] = coordinator_figures(options.receivers, options.cubes, 100)
    numbers = [int(number) for number in options.coordinators.split(",")]
    title = f"several coordinators, {options.applications} applications of {options.hosts} hosts"
    tables[title] = spread_figures(numbers, options.applications, options.hosts)
    if options.json:
        print(json.dumps({name: msgspec.to_builtins(figures) for name, figures in tables.items()}))
        return
    for name, figures in tables.items():
        print(f"{name}\n  {'':58}{'seconds':>10}{'requests':>10}{'bytes':>16}")
        for figure in figures:
            columns = (figure.seconds, figure.requests, figure.bytes)
            cells = ["" if value is None else f"{value:,}" for value in columns]
            print(f"  {figure.what:58}{cells[0]:>10}{cells[1]:>10}{cells[2]:>16}  {figure.note}")


if __name__ == "__main__":
    main()
