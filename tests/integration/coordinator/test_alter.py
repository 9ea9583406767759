"""A cube is altered on real servers while its events flow: every answer before, meanwhile and after is exact.

Two receivers of one replica set begin again with the changed cube, one is killed meanwhile; a segment is
built by Spark before the change, and one after it.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from rtolap.base.errors import QueryTimeout, RtolapError, Unavailable
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer
from rtolap.protocols.query.client import QueryClient
from rtolap.protocols.query.messages import QueryAnswer

from tests.support import commands
from tests.support.cubes.services import TOKEN, Services, wait_for
from tests.support.query.prices import define_prices

pytestmark = pytest.mark.integration

JOBS = Path(__file__).resolve().parents[3] / "spark_jobs"
KINDS, PARTITIONS = 5, 2
ADDED = """
aggregation_groups:
  - {include: [kind], mandatory: [kind]}
late: {merge_after: 2h}
"""


class Flow:
    """Events of one hour after the other, sent until it is told to stop, and a plain count of them."""

    def __init__(self, kafka: str, topic: str) -> None:
        self._producer = KafkaProducer(kafka, client_id="test")
        self._topic = topic
        self._stopping = threading.Event()
        self.sent: Counter[str] = Counter()
        self.hour = 0
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

    def total(self) -> int:
        return sum(self.sent.values())

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(0.02):
            records = []
            for _ in range(20):
                kind = f"k{number % KINDS}"
                at = f"2013-11-03T{self.hour:02d}:{number % 60:02d}:00Z"
                value = json.dumps({"ts": at, "kind": kind, "price": "1.00"}).encode()
                records.append(OutRecord(value, partition=number % PARTITIONS))
                self.sent[kind] += 1
                number += 1
            self._producer.produce(self._topic, records)


def test_a_cube_is_altered_while_events_flow(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> None:
    cube = unique_name
    create_topic(cube, PARTITIONS)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka, coordinators=1)
    path = define_prices(tmp_path, cube)
    flow = Flow(kafka, cube)
    seen: list[int] = []

    def exact(asking: QueryClient) -> QueryAnswer | None:
        """Ask once; an answer has to be that of its positions, and none goes back."""
        try:
            answer = asking.query(f"SELECT COUNT(*), SUM(price) FROM {cube}")
        except (QueryTimeout, Unavailable):  # anything else fails the test
            return None
        ((count, total),) = answer.rows
        assert count == sum(answer.positions[cube].values()), "of its positions"
        assert (total is None and not count) or float(str(total)) == count
        assert not seen or int(str(count)) >= seen[-1]
        seen.append(int(str(count)))
        return answer

    try:
        services.start_coordinators()
        for name in ("r1", "r2"):
            services.start_receiver(name, "only", "--checkpoint-interval-s", "1", "--idle-after-s", "60")
        services.start_query()
        wait_for("the receivers live", lambda: len(services.coordinator.receivers()) == 2)
        commands.rtolap(services.environment, "create", str(path), "--enable")
        with flow.flowing(), QueryClient(services.query_url, token=TOKEN) as asking:
            wait_for("answers", lambda: exact(asking) is not None and bool(seen[-1]))
            flow.hour = 1
            built(services, cube, 0)

            path.write_text(path.read_text() + ADDED)
            plan = alter(services, path, "--plan")
            settings = [change["setting"] for change in plan["changes"]]
            assert settings == ["aggregation_groups", "late.merge_after_ms"]
            assert (plan["new_cuboids"], plan["applied"]) == (["kind"], False)
            assert plan["segments_without_new_cuboids"] == ["20131103000000_20131103010000"]
            assert alter(services, path)["applied"]
            services.kill("r1")
            exact(asking)
            services.start_again("r1")
            wait_for("the other one begins again", lambda: has_begun_again(tmp_path, "r2", asking, exact))
            wait_for("the killed one is back", lambda: both_live(services))
            flow.hour = 2
            built(services, cube, 1)
            exact(asking)
        total = flow.total()
        with QueryClient(services.query_url, token=TOKEN) as asking:
            wait_for("all is read", lambda: exact(asking) is not None and seen[-1] == total)
            rows = asking.query(f"SELECT kind, COUNT(*) FROM {cube} GROUP BY kind").rows
            assert Counter(dict(rows)) == flow.sent  # type: ignore[arg-type]
            explained = dict(
                asking.query(f"EXPLAIN ANALYZE SELECT kind, COUNT(*) FROM {cube} GROUP BY 1").rows
            )
            # The second version of the first hour, where events came late to it, has the new cuboid, too.
            merged = services.coordinator.segment(cube, "20131103000000_20131103010000").version > 1
            expected = "kind (2 segments)" if merged else "hour_start+kind (1 segments), kind (1 segments)"
            assert explained["cuboid"] == expected
        again = alter(services, path)
        assert (again["changes"], again["applied"]) == ([], False)
        refused = commands.ended(services.environment, "alter", str(of_other_measures(path)))
        assert refused.returncode == 1
        assert "takes a revision" in refused.stderr
        assert services.ended() == []
    finally:
        services.close()


def both_live(services: Services) -> bool:
    return all(each.health != "DOWN" for each in services.coordinator.receivers())


def alter(services: Services, path: Path, *options: str) -> dict[str, Any]:
    (found,) = json.loads(commands.rtolap(services.environment, "alter", str(path), "--json", *options))
    assert isinstance(found, dict)
    return found


def built(services: Services, cube: str, hour: int) -> None:
    """Close the hour, and let Spark build it."""
    name = f"20131103{hour:02d}0000_20131103{hour + 1:02d}0000"
    client = services.coordinator

    def is_staged() -> bool:
        with suppress(RtolapError):  # it is closed by now, or a receiver is not back yet
            client.close_segment(cube, name)
        return client.segment(cube, name).state == "REMOTE_PERSISTED"

    wait_for(f"{name} is staged", is_staged, 120)
    wait_for(f"{name} is built", lambda: bool(services.build_queue(JOBS)), 300)
    assert client.segment(cube, name).version == 1


def has_begun_again(
    folder: Path, receiver: str, asking: QueryClient, exact: Callable[[QueryClient], object]
) -> bool:
    exact(asking)
    return "has changed: beginning again" in (folder / f"{receiver}.log").read_text()


def of_other_measures(path: Path) -> Path:
    other = path.with_name("other.yaml")
    other.write_text(path.read_text().replace("  - {function: count}\n", ""))
    return other
