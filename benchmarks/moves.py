"""The longest time without an answer while all partitions of a cube move, with much held and no history.

    python -m benchmarks.moves [--rows 1000000] [--move-s-max 3600] [--json]

Real ZooKeeper, Kafka, coordinator, two receivers in replica sets of their own, and query service on loopback.
`--rows` events, none of which rolls up with another, are read by the first receiver; nothing is built. Then a
client asks for count and sum as soon as it has an answer, some 400 events a second go on arriving, and all
partitions move to the second receiver, with the warm-up that hides it. Every answer is held against the
positions that it names, and these never go back. Measured are:

- `gap_s`: the longest time between two answers, from the request of the move until three seconds after it;
  `gap_before_s`: the same without a move, in the ten seconds before.
- `gap_switch_s`: the part of `gap_s` that is the hand-over's: the longest from a second before the assignment
  was seen to stand until three seconds after it. Before, two receivers share the processors with the reading.
- `warm_up_s`: from the request until the second receiver owns everything, which then has read all of it.
- `read_mb`: values of the records that it has read again. `copied_mb`: files that it has written of them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import httpx
import msgspec
from confluent_kafka import Producer
from rtolap.model.cube import Measure, Schema
from rtolap.protocols.coordinator.messages import ReassignRequest

from benchmarks.servers import create_topic, kafka, zookeeper
from tests.support.cubes.builders import START_MS, WINDOW_MS
from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import Services, wait_for
from tests.support.moves.asked_stream import Asking, Stream

NAME = "moved"
SETS: dict[str, tuple[str, ...]] = {"old": ("o0",), "new": ("n0",)}
READ_S_MAX = 1_800.0
BEFORE_S, AFTER_S = 10.0, 3.0
SWITCH_S = 1.0  # within which an assignment that stands is seen
_BYTES_PER_MB = 1e6


def preload(bootstrap: str, count: int) -> tuple[dict[int, int], int]:
    """Send events as `Stream` does. Return the end of each partition, and the bytes of all values."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 1_000_000,
            "compression.type": "lz4",
        }
    )
    size_bytes = 0
    for place in range(count):
        at, partition = divmod(place, PARTITIONS)
        ts = START_MS + place % (WINDOW_MS // 2)
        value = f'{{"ts":{ts},"kind":"a","place":{place},"amount":{at}}}'.encode()
        size_bytes += len(value)
        while True:
            try:
                producer.produce(NAME, value, partition=partition)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()
    return dict.fromkeys(range(PARTITIONS), count // PARTITIONS), size_bytes


def without_sets(schema: Schema) -> Schema:
    """Return the cube with a count and a sum alone: sets of numbers that differ are another benchmark's."""
    cube = msgspec.structs.replace(
        schema.cube, measures=(Measure("count"), Measure("sum", "amount")), aggregation_groups=()
    )
    return Schema(schema.table, cube)


def counted(services: Services) -> int:
    """Return the number of events; -1 while nobody answers."""
    try:
        return int(services.sql(f"SELECT COUNT(*) FROM {NAME}")["rows"][0][0])
    except httpx.HTTPError:
        return -1


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(
    bootstrap: str, ensemble: str, folder: Path, rows: int, move_s_max: float
) -> dict[str, float | int]:
    create_topic(bootstrap, NAME, PARTITIONS)
    services = Services(folder, zookeeper=ensemble, root="/bench", kafka=bootstrap, coordinators=1)
    world = World(services, bootstrap, NAME, 1, SETS)
    world.schema = without_sets(world.schema)
    stream = Stream(world, bootstrap)
    asking = Asking(world)
    try:
        services.start_coordinators()
        for replica_set in SETS:
            world.start_receivers(replica_set)
        services.start_query()
        client = services.coordinator
        world.declare()
        everything = tuple(range(PARTITIONS))
        client.reassign(NAME, ReassignRequest(assignment={"old": everything}, warm_up=False))
        stream.ends, read_bytes = preload(bootstrap, rows)
        wait_for("all is read", lambda: counted(services) == rows, READ_S_MAX)
        stream.start()
        asking.start()
        time.sleep(BEFORE_S)
        begun_s = time.monotonic()
        client.reassign(NAME, ReassignRequest(assignment={"new": everything}, warm_up=True))
        wait_for(
            "the move is over",
            lambda: dict(client.cube(NAME).assignment) == {"new": everything},
            move_s_max,
        )
        moved_s = time.monotonic()
        time.sleep(AFTER_S)
        ended_s = time.monotonic()
        asking.stop()
        if asking.wrong or asking.errors:
            raise SystemExit(
                f"{len(asking.wrong)} wrong answers, errors: {asking.wrong[:1]} {asking.errors[:1]}"
            )
        return {
            "rows": rows,
            "answers": len([at for at in asking.answered_s if begun_s <= at <= ended_s]),
            "gap_s": asking.largest_gap_s(begun_s, ended_s),
            "gap_switch_s": asking.largest_gap_s(moved_s - SWITCH_S, ended_s),
            "gap_before_s": asking.largest_gap_s(asking.answered_s[0], begun_s),
            "warm_up_s": moved_s - begun_s,
            "read_mb": read_bytes / _BYTES_PER_MB,
            "copied_mb": folder_bytes(folder / "receivers" / "n0") / _BYTES_PER_MB,
        }
    finally:
        stream.close()
        world.close()
        services.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000, help="events that are held when it begins")
    parser.add_argument("--move-s-max", type=float, default=3_600.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = arguments.rows // PARTITIONS * PARTITIONS
    with kafka() as bootstrap, zookeeper() as ensemble, tempfile.TemporaryDirectory() as folder:
        found = measure(bootstrap, ensemble, Path(folder), rows, arguments.move_s_max)
    print(
        f"{found['rows']:,} rows held: {found['answers']} answers, all exact, the longest gap "
        f"{found['gap_s']:.2f} s, of the hand-over {found['gap_switch_s']:.2f} s "
        f"(without a move {found['gap_before_s']:.2f} s); warm-up "
        f"{found['warm_up_s']:.1f} s, {found['read_mb']:.0f} MB read again, "
        f"{found['copied_mb']:.0f} MB written"
    )
    if arguments.json:
        print(json.dumps({"benchmark": "moves", **{key: round(value, 3) for key, value in found.items()}}))


if __name__ == "__main__":
    main()
