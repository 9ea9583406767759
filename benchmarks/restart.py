"""Time from kill -9 of a receiver to its first right answer, by how much it holds in fragments.

    python -m benchmarks.restart [--gb 4] [--rounds 2] [--json]

Real ZooKeeper, Kafka, coordinator, receiver and query service on loopback. A receiver reads some thousand
events and writes a checkpoint. It is killed, and fragments of about 100 MB, one for each hour, are put into
its folder and checkpoint by the product's own code: a fortieth of `--gb`, a quarter, all of it. Then, some
times for each size, it is killed again, the files are put out of the page cache, and it is started:
measured are the first answer over SQL about the newest hour, and the first about all hours, which reads
every fragment. Both are held against what was written. `ratio` is the time to the newest hour with all of
`--gb` over that with least.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import httpx
import msgspec
import numpy as np
import pyarrow as pa
from rtolap.cubes.format.fragment import write_fragment
from rtolap.cubes.receiver.local.checkpoint import CheckpointFile, FragmentEntry
from rtolap.model.cube import Schema

from benchmarks import events
from benchmarks.first_answers import HOUR_MS, declared, rows_of
from benchmarks.servers import fill, kafka, zookeeper
from tests.support.cubes.services import Services, wait_for

TOPIC = "restart"
PARTITIONS = 4
EVENTS = 20_000
ROWS_PER_FRAGMENT = 1_000_000
SHARES = (1 / 40, 1 / 4, 1.0)
ANSWER_S_MAX = 600.0
POLL_S = 0.01


class Held:
    """The fragments in a receiver's folder that were made here, and what all of them hold by country."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._schema = schema
        self._file = CheckpointFile(folder)
        self._rows = rows_of(schema, ROWS_PER_FRAGMENT, 0, np.random.default_rng(1))
        self._at = self._rows.schema.get_field_index("hour_start")
        countries = self._rows.column("country").to_pylist()
        self._counts: Counter[str] = Counter()
        for country, count in zip(countries, self._rows.column("__rows").to_pylist(), strict=True):
            self._counts[country] += count
        self._entries: list[FragmentEntry] = []
        self.bytes = 0

    @property
    def number(self) -> int:
        return len(self._entries)

    def grow(self, wanted_bytes: float) -> None:
        checkpoint = self._file.load()
        if checkpoint is None:
            raise SystemExit("the receiver has written no checkpoint")
        while self.bytes < wanted_bytes:
            hour = self.number
            start_ms = events.START_MS + hour * HOUR_MS
            times = pa.array(np.full(self._rows.num_rows, start_ms * 1000), pa.timestamp("us"))
            table = self._rows.set_column(self._at, self._rows.schema.field(self._at), times)
            info = write_fragment(self._file.fragments, f"{start_ms}-made{hour}", table, self._schema)
            # Each stands for one event of the topic: what it holds beyond that is made up.
            self._entries.append(FragmentEntry(start_ms, info.name, info.events, {0: (hour, hour + 1)}))
            self.bytes += info.bytes
        self._file.save(msgspec.structs.replace(checkpoint, fragments=tuple(self._entries)))

    def forget_cached(self) -> None:
        """Put the files out of the page cache: they are read from the disk then."""
        for path in self._file.fragments.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def expected(self, hours: int) -> dict[str, int]:
        return {country: count * hours for country, count in self._counts.items()}


class World:
    def __init__(self, services: Services, schema: Schema) -> None:
        self._services = services
        self._cube = schema.cube.name

    def declare(self, schema: Schema) -> None:
        client = self._services.coordinator
        client.put_replica_set("rs", ("r0",))
        client.create_table(msgspec.to_builtins(schema.table))
        client.create_cube(msgspec.to_builtins(schema.cube))
        wait_for("the receiver lives", lambda: len(client.receivers()) == 1)
        client.enable_cube(self._cube)
        wait_for("all events were read", lambda: sum(self.counts("").values()) == EVENTS)

    def counts(self, where: str) -> dict[str, int]:
        """Return them by country; nothing while nobody answers."""
        try:
            rows = self._services.sql(f"SELECT country, COUNT(*) FROM {self._cube} {where} GROUP BY country")
        except httpx.HTTPError:
            return {}
        return {country: int(count) for country, count in rows["rows"]}

    def restart_s(self, held: Held) -> tuple[float, float]:
        """Return the seconds from the kill to the newest hour, and to all hours."""
        self._services.kill("r0")
        held.forget_cached()
        started_s = time.monotonic()
        self._services.start_again("r0")
        newest = datetime.fromtimestamp(events.START_MS / 1000 + (held.number - 1) * HOUR_MS / 1000, UTC)
        newest_s = self._first_s(started_s, f"WHERE ts >= '{newest:%Y-%m-%d %H:%M:%S}'", held.expected(1))
        return newest_s, self._first_s(started_s, "", held.expected(held.number))

    def _first_s(self, started_s: float, where: str, expected: dict[str, int]) -> float:
        while (found := self.counts(where)) != expected:
            if found:
                raise SystemExit(f"answered {found}, not {expected}")
            if time.monotonic() - started_s > ANSWER_S_MAX:
                raise SystemExit(f"no answer within {ANSWER_S_MAX} s")
            time.sleep(POLL_S)
        return time.monotonic() - started_s


def measure(bootstrap: str, ensemble: str, folder: Path, gb: float, rounds: int) -> list[dict[str, float]]:
    schema = declared(TOPIC)
    fill(bootstrap, TOPIC, events.values(EVENTS, seed=1), partitions=PARTITIONS)
    services = Services(folder, zookeeper=ensemble, root="/bench", kafka=bootstrap, coordinators=1)
    try:
        services.start_coordinators()
        services.start_receiver("r0", "rs", "--checkpoint-interval-s", "1")
        services.start_query()
        world = World(services, schema)
        world.declare(schema)
        (cube_folder,) = (folder / "receivers" / "r0" / "cubes" / schema.cube.name).iterdir()
        wait_for("a checkpoint is written", _holds_all(CheckpointFile(cube_folder)))
        services.kill("r0")
        held = Held(schema, cube_folder)
        found = []
        for share in SHARES:
            held.grow(gb * share * (1 << 30))
            services.start_again("r0")
            taken = [world.restart_s(held) for _ in range(rounds)]
            services.kill("r0")
            newest_s, all_s = (statistics.median(times) for times in zip(*taken, strict=True))
            found.append(
                {
                    "held_gb": held.bytes / (1 << 30),
                    "fragments": held.number,
                    "newest_hour_s": newest_s,
                    "all_hours_s": all_s,
                }
            )
        return found
    finally:
        services.close()


def _holds_all(file: CheckpointFile) -> Callable[[], bool]:
    def holds_all() -> bool:
        checkpoint = file.load()
        return checkpoint is not None and sum(checkpoint.positions.values()) == EVENTS

    return holds_all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gb", type=float, default=4.0, help="of fragments, at most")
    parser.add_argument("--rounds", type=int, default=2, help="restarts with each size")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with kafka() as bootstrap, zookeeper() as ensemble, tempfile.TemporaryDirectory() as folder:
        found = measure(bootstrap, ensemble, Path(folder), arguments.gb, arguments.rounds)
    for one in found:
        print(
            f"{one['held_gb']:6.2f} GB in {one['fragments']:3.0f} fragments: the newest hour after "
            f"{one['newest_hour_s']:5.2f} s, all of them after {one['all_hours_s']:6.2f} s"
        )
    if arguments.json:
        ratio = found[-1]["newest_hour_s"] / found[0]["newest_hour_s"]
        sizes = [{key: round(value, 3) for key, value in one.items()} for one in found]
        print(json.dumps({"benchmark": "restart", "ratio": round(ratio, 3), "sizes": sizes}))


if __name__ == "__main__":
    main()
