"""A cube gets columns and another window on real servers while its events flow: every answer is exact.

Late events come for hours of the older revision, receivers are killed, and Spark builds segments of both.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rtolap.base.errors import QueryTimeout, Unavailable
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer
from rtolap.protocols.query.client import QueryClient

from tests.integration.coordinator.test_alter import JOBS, alter, both_live
from tests.support import commands
from tests.support.cubes.services import TOKEN, Services, wait_for
from tests.support.query.prices import define_prices

pytestmark = pytest.mark.integration

PARTITIONS = 2
SINCE_HOUR = 2  # where the revision begins


class Sent(NamedTuple):
    hour: int
    country: str
    quantity: int


class Flow:
    """Events of an hour, with late ones of the hours before it once `late` is set; and a log of them."""

    def __init__(self, kafka: str, topic: str) -> None:
        self._producer = KafkaProducer(kafka, client_id="test")
        self._topic = topic
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self.log: dict[int, list[Sent]] = {partition: [] for partition in range(PARTITIONS)}
        self.hour, self.late = 0, False
        self._thread = threading.Thread(target=self._run)

    @contextmanager
    def flowing(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join()
            self._producer.flush(60)
            self._producer.close()

    def below(self, positions: dict[int, int], hours: range) -> list[Sent]:
        """Return the events of these hours below the positions."""
        with self._lock:
            return [
                sent
                for partition, events in self.log.items()
                for sent in events[: positions.get(partition, 0)]
                if sent.hour in hours
            ]

    def total(self) -> list[Sent]:
        return [sent for events in self.log.values() for sent in events]

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(0.02):
            records = []
            with self._lock:
                for _ in range(10):
                    hour = number % max(self.hour, 1) if self.late and number % 7 == 0 else self.hour
                    sent = Sent(hour, f"c{number % 3}", number % 11)
                    at = f"2013-11-03T{hour:02d}:{number % 60:02d}:00Z"
                    value = {
                        "ts": at,
                        "kind": f"k{number % 5}",
                        "price": "1.00",
                        "country": sent.country,
                        "quantity": sent.quantity,
                    }
                    partition = number % PARTITIONS
                    records.append(OutRecord(json.dumps(value).encode(), partition=partition))
                    self.log[partition].append(sent)
                    number += 1
            self._producer.produce(self._topic, records)


def changed(text: str) -> str:
    """Return the file with two more columns, one a dimension, one summed, and segments of two hours."""
    columns = "  - {name: country, type: string}\n  - {name: quantity, type: int}\n---"
    return (
        text.replace("---", columns, 1)
        .replace("dimensions: [kind]", "dimensions: [kind, country]", 1)
        .replace("  - {function: count}\n", "  - {function: count}\n  - {function: sum, column: quantity}\n")
        .replace("window: 1h,", "window: 2h,")
    )


def test_a_cube_gets_columns_while_events_flow(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> None:
    cube, second = unique_name, f"{unique_name}_r2"
    create_topic(cube, PARTITIONS)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka, coordinators=1)
    path = define_prices(tmp_path, cube)
    flow = Flow(kafka, cube)
    older, newer = range(SINCE_HOUR), range(SINCE_HOUR, 24)
    sql = f"SELECT COUNT(*), SUM(price) FROM {cube}"
    answers: Counter[str] = Counter()

    def exact(asking: QueryClient) -> bool:
        """Ask once; an answer is that of the positions of both revisions."""
        try:
            answer = asking.query(sql)
        except (QueryTimeout, Unavailable):  # anything else fails the test
            return False
        ((count, total),) = answer.rows
        positions = answer.positions
        own = flow.below(positions[cube], older if second in positions else range(24))
        expected = len(own) + len(flow.below(positions.get(second, {}), newer))
        assert count == expected, f"of its positions {positions}"
        assert (total is None and not count) or float(str(total)) == count
        answers["both" if second in positions else "one"] += 1
        return bool(count)

    try:
        services.start_coordinators()
        for name in ("r1", "r2"):
            services.start_receiver(name, "only", "--checkpoint-interval-s", "1", "--idle-after-s", "60")
        services.start_query()
        wait_for("the receivers live", lambda: len(services.coordinator.receivers()) == 2)
        commands.rtolap(services.environment, "create", str(path), "--enable")
        with flow.flowing():
            with QueryClient(services.query_url, token=TOKEN) as asking:
                wait_for("answers", lambda: exact(asking))
                flow.hour = 1
                built(services, cube, 0, 1)
                flow.late = True
                wait_for("the second hour is open", lambda: 1 in open_hours(services, cube))

                path.write_text(changed(path.read_text()))
                plan = alter(services, path, "--plan")
                assert (plan["revision"], plan["applied"]) == (second, False)
                assert plan["table_columns"] == ["country", "quantity"]
                assert plan["added_columns"] == ["country", "quantity__sum"]
                refused = commands.ended(services.environment, "alter", str(path))
                assert refused.returncode == 1
                assert "takes a revision" in refused.stderr
                services.kill("r1")
                done = alter(services, path, "--new-revision")
                assert (done["applied"], done["since_ms"]) == (True, 1383444000000)  # 2013-11-03T02:00Z
                exact(asking)
                services.start_again("r1")
                wait_for("answers of both", lambda: exact(asking) and answers["both"] > 3)
                flow.hour = 2
                wait_for("the killed one is back", lambda: both_live(services))
                built(services, cube, 1, 1)
                exact(asking)
                flow.hour = 4
                built(services, second, 2, 2)
                services.kill("r2")
                exact(asking)
                services.start_again("r2")
            wait_for("all live", lambda: both_live(services))
        with QueryClient(services.query_url, token=TOKEN) as asking:
            total = flow.total()
            wait_for("all is read", lambda: exact(asking) and count_of(asking, sql) == len(total), 120)
            answer = asking.query(f"SELECT country, COUNT(*), SUM(quantity) FROM {cube} GROUP BY country")
            expected: dict[Any, list[int]] = {}
            for sent in total:
                known = sent.hour in newer
                counted = expected.setdefault(sent.country if known else None, [0, 0])
                counted[0] += 1
                counted[1] += sent.quantity if known else 0
            found = {row[0]: [row[1], row[2] or 0] for row in answer.rows}
            assert {key: [int(str(each)) for each in row] for key, row in found.items()} == expected
            assert [warning.code for warning in answer.warnings] == ["column_since"]
            only = asking.query(f"SELECT COUNT(*) FROM {cube} WHERE country = 'c1'")
            assert only.rows == [(expected["c1"][0],)] or [list(row) for row in only.rows] == [
                [expected["c1"][0]]
            ]
        commands.rtolap(services.environment, "drop", cube, "--yes", "--disable")
        assert services.coordinator.cubes() == []
        assert services.ended() == []
    finally:
        services.close()


def count_of(asking: QueryClient, sql: str) -> int:
    ((count, _),) = asking.query(sql).rows
    return int(str(count))


def open_hours(services: Services, cube: str) -> set[int]:
    return {
        (segment.start_ms // 3_600_000) % 24
        for segment in services.coordinator.segments(cube)
        if segment.state == "ACTIVE"
    }


def built(services: Services, cube: str, hour: int, hours: int) -> None:
    """Close a segment of so many hours, and let Spark build its first version."""
    name = f"20131103{hour:02d}0000_20131103{hour + hours:02d}0000"
    client = services.coordinator

    def is_staged() -> bool:
        try:
            client.close_segment(cube, name)
        except Unavailable:
            return False
        return client.segment(cube, name).state == "REMOTE_PERSISTED"

    wait_for(f"{name} is staged", is_staged, 120)

    def is_built() -> bool:
        services.build_queue(JOBS)
        return client.segment(cube, name).version >= 1

    wait_for(f"{name} is built", is_built, 300)
