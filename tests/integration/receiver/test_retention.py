"""A cube whose policy is PURGE forgets by the stream's own time: no purge command, no build."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import msgspec
import pytest
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer
from rtolap.model.cube import RetentionPolicy

from tests.support.cubes.builders import START_MS, WINDOW_MS, small_schema
from tests.support.cubes.day_stream import declare_cube
from tests.support.cubes.services import Services, wait_for

pytestmark = [pytest.mark.integration]

AFTER_MS = 3 * WINDOW_MS
RECEIVERS = ("r1", "r2")
Answer = dict[int, tuple[int, int]]  # minute since START_MS → number of events and the sum of their amounts


@pytest.fixture
def services(tmp_path: Path, zookeeper: str, kafka: str, unique_name: str) -> Iterator[Services]:
    one = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka, coordinators=1)
    try:
        one.start_coordinators()
        for name in RECEIVERS:
            one.start_receiver(name, "both", "--checkpoint-interval-s", "0.5")
        one.start_query()
        one.coordinator.put_replica_set("both", list(RECEIVERS))
        wait_for("the receivers live", lambda: len(one.coordinator.receivers()) == len(RECEIVERS))
        yield one
    finally:
        one.close()


class World:
    """The cube, and every event that was sent to it."""

    def __init__(self, services: Services, kafka: str, cube: str) -> None:
        schema = small_schema(name=cube, table=cube, retention=RetentionPolicy("PURGE", AFTER_MS))
        table = msgspec.structs.replace(schema.table, name=cube, topic=cube)
        declare_cube(services.coordinator, table, schema.cube)
        self.services, self.cube = services, cube
        self.producer = KafkaProducer(kafka)
        self.sent: list[tuple[int, int, int]] = []  # minute, amount, offset
        self.end = 0
        self.horizon_ms = self.horizon_before_ms = START_MS

    def send(self, *minutes: int) -> None:
        """Four events a minute, the last half a minute in, and a record that is none."""
        records = []
        for minute in minutes:
            for at_ms in (0, 10_000, 20_000, 30_000):
                amount = 100 * minute + self.end
                body = {"ts": START_MS + minute * WINDOW_MS + at_ms, "kind": "a", "amount": amount}
                records.append(OutRecord(json.dumps(body).encode()))
                self.sent.append((minute, amount, self.end))
                self.end += 1
            records.append(OutRecord(b"{"))
            self.end += 1
        self.producer.produce(self.cube, records)
        self.producer.flush(30)

    def recount(self, position: int, horizon_ms: int) -> Answer:
        """Of the prefix, without what ended at or below the horizon."""
        found: Answer = {}
        for minute, amount, offset in self.sent:
            if offset < position and START_MS + (minute + 1) * WINDOW_MS > horizon_ms:
                count, total = found.get(minute, (0, 0))
                found[minute] = count + 1, total + amount
        return found

    def exact(self) -> bool:
        """Whether all is answered; whatever is answered equals the recount, or the test has failed."""
        sql = f"SELECT minute_start, COUNT(*), SUM(amount) FROM {self.cube} GROUP BY minute_start"
        try:
            found = self.services.sql(sql)
        except httpx.HTTPStatusError:
            return False
        minutes = {_minute(str(start)): (int(count), int(total)) for start, count, total in found["rows"]}
        position = found["positions"][self.cube]["0"]
        if minutes == self.recount(position, self.horizon_ms):
            self.horizon_before_ms = self.horizon_ms  # from here on, nothing older may be answered
        else:
            assert minutes == self.recount(position, self.horizon_before_ms), (minutes, position)
            return False
        return position == self.end

    def retention(self) -> int | None:
        """What the task of the retention DAG calls; the horizon."""
        newest = START_MS + max(minute for minute, _, _ in self.sent) * WINDOW_MS + 30_000

        def is_published() -> bool:
            return self.services.coordinator.watermark(self.cube).low_watermark_ms == newest

        wait_for("the watermark is published", is_published)
        self.horizon_ms = max(self.horizon_ms, newest - AFTER_MS)
        return self.services.coordinator.retention(self.cube).horizon_ms

    def on_disk(self) -> set[int]:
        """Minutes of which some receiver has a fragment."""
        found = set()
        for path in (self.services.folder / "receivers").glob("*/cubes/*/*/fragments/*.fragment"):
            found.add((int(path.name.partition("-")[0]) - START_MS) // WINDOW_MS)
        return found


def _minute(start: str) -> int:
    at = datetime.fromisoformat(start).replace(tzinfo=UTC)
    return (round(at.timestamp() * 1000) - START_MS) // WINDOW_MS


def test_old_segments_go_by_the_streams_time_and_never_come_back(
    services: Services, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> None:
    create_topic(unique_name)
    world = World(services, kafka, unique_name)
    world.send(0, 1, 2)
    wait_for("all is read", world.exact)
    assert world.retention() == START_MS - WINDOW_MS // 2, "nothing is old enough yet"
    wait_for("nothing is gone", lambda: world.exact() and world.on_disk() == {0, 1, 2})

    world.send(3, 4, 5)
    assert world.retention() == START_MS + 2 * WINDOW_MS + 30_000
    wait_for("minutes 0 and 1 are gone, 2 is not over", world.exact)
    assert set(world.recount(world.end, world.horizon_ms)) == {2, 3, 4, 5}
    wait_for("their files too, of both receivers", lambda: world.on_disk() == {2, 3, 4, 5})

    for keeps_its_files in (True, False):
        for name in RECEIVERS:
            services.kill(name)
            if not keeps_its_files:
                shutil.rmtree(services.folder / "receivers" / name)
        for name in RECEIVERS:
            services.start_again(name)
        wait_for(f"it answers again, files kept: {keeps_its_files}", world.exact)

    world.send(0, 1, 5, 6)
    wait_for("sent again, they are left out", world.exact)
    world.send(9)
    world.retention()
    wait_for("the time has gone on", world.exact)
    assert set(world.recount(world.end, world.horizon_ms)) == {6, 9}
    wait_for("no file is left over", lambda: world.on_disk() == {6, 9})
    states = {segment.state for segment in services.coordinator.segments(unique_name)}
    assert not states & {"REMOTE_PERSISTED", "READY", "BUILDING"}, "nothing is uploaded or built"
