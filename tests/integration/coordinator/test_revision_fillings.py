"""Older events are filled into a revision on real servers, from the topic that has them all.

Events flow, late ones too, receivers are killed, and Spark builds segments of both. At each moment an answer
is that of one revision for each time: of the older one before, of the newer one after, of nothing between.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rtolap.base.errors import QueryTimeout, Unavailable
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer
from rtolap.protocols.coordinator.operations import planned_batch
from rtolap.protocols.query.client import QueryClient

from tests.integration.coordinator.test_alter import JOBS, both_live
from tests.integration.coordinator.test_revisions import PARTITIONS, Flow, Sent, built, changed
from tests.integration.spark.conftest import spark_submit
from tests.support import commands
from tests.support.cubes.services import TOKEN, Services, wait_for
from tests.support.query.prices import define_prices
from tests.support.runs import spark_drivers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

START_MS, HOUR_MS = 1_383_436_800_000, 3_600_000  # 2013-11-03
MOMENTS = (4, 2, 0)  # hours at which the revision begins, one after the other


def test_a_revision_is_filled_from_the_topic_while_events_flow(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> None:
    cube, second = unique_name, f"{unique_name}_r2"
    create_topic(cube, PARTITIONS)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka, coordinators=1)
    path = define_prices(tmp_path, cube)
    flow = Flow(kafka, cube)
    answers: Counter[int] = Counter()

    def exact(asking: QueryClient) -> bool:
        """Ask once; an answer is that of the positions of the revisions that it is of."""
        columns = "COUNT(*), SUM(quantity)" if known else "COUNT(*), COUNT(*)"
        try:
            answer = asking.query(f"SELECT {columns} FROM {cube}")
        except (QueryTimeout, Unavailable):  # anything else fails the test
            return False
        count, quantity = (int(str(each or 0)) for each in next(iter(answer.rows)))
        positions = answer.positions
        if not known:
            assert count == len(flow.below(positions[cube], range(24)))
            return bool(count)
        newer = flow.below(positions[second], range(24))
        older = flow.below(positions.get(cube, {}), range(24))
        allowed = {moment: by_revision(older, newer, moment) for moment in MOMENTS}
        moments = [moment for moment, expected in allowed.items() if expected == (count, quantity)]
        assert moments, f"{count}, {quantity} of positions {positions}, beside {allowed}"
        answers.update(moments)
        return True

    known: set[str] = set()
    try:
        services.start_coordinators()
        for name in ("r1", "r2"):
            services.start_receiver(name, "only", "--checkpoint-interval-s", "1", "--idle-after-s", "60")
        services.start_query()
        client = services.coordinator
        wait_for("the receivers live", lambda: len(client.receivers()) == 2)
        commands.rtolap(services.environment, "create", str(path), "--enable")
        with flow.flowing(), QueryClient(services.query_url, token=TOKEN) as asking:
            wait_for("answers", lambda: exact(asking))
            flow.hour = 2
            built(services, cube, 0, 1)
            wait_for("the third hour is open", lambda: bool(client.cube(cube).segments.get("ACTIVE")))
            path.write_text(changed(path.read_text()))
            plan = commands.rtolap(
                services.environment, "alter", str(path), "--new-revision", "--older", "fill"
            )
            assert "it reads them again" in plan
            known.add(second)
            wait_for("answers of both", lambda: exact(asking) and answers[MOMENTS[0]] > 1)
            flow.late = True
            flow.hour = MOMENTS[0]
            built(services, cube, 2, 1)
            services.kill("r1")
            built(services, second, 2, 2)
            exact(asking)
            services.start_again("r1")
            assert since_hour(services, second) > 0, "of the first hours it has no history yet"
            built(services, second, 0, 2)
            services.kill("r2")

            def is_filled() -> bool:
                exact(asking)
                services.build_queue(JOBS)  # late events
                return since_hour(services, second) == 0

            wait_for("it is filled", is_filled, 240)
            services.start_again("r2")
            wait_for("answers of it alone", lambda: exact(asking) and answers[MOMENTS[-1]] > 3)
            wait_for("all live", lambda: both_live(services))
            exact(asking)
        with QueryClient(services.query_url, token=TOKEN) as asking:
            sent = flow.total()
            sql = f"SELECT COUNT(*), SUM(quantity) FROM {cube}"
            wait_for("all is read", lambda: integers(asking, sql)[0] == len(sent), 120)
            assert integers(asking, sql) == [len(sent), total(sent)]
            # Events from before the filled range would still be the older revision's.
            assert [warning.code for warning in asking.query(sql).warnings] == ["column_since"]
        assert services.ended() == []
    finally:
        services.close()


def test_a_revision_is_filled_by_a_batch(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> None:
    """Late events are dropped, so the topic, read again, would be another choice of them."""
    cube, second = unique_name, f"{unique_name}_r2"
    create_topic(cube, 1)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka, coordinators=1)
    path = define_prices(tmp_path, cube)
    path.write_text(path.read_text() + "late: {policy: drop}\n")
    sent = [Sent(hour, f"c{number % 3}", number) for hour in (0, 1, 2, 4) for number in range(50)]
    warehouse = [Sent(hour, f"w{number % 2}", 7 * number) for hour in range(4) for number in range(30)]
    sql = f"SELECT COUNT(*), SUM(quantity) FROM {cube}"
    try:
        services.start_coordinators()
        services.start_receiver("r1", "only", "--checkpoint-interval-s", "1", "--idle-after-s", "60")
        services.start_query()
        client = services.coordinator
        wait_for("the receiver lives", lambda: len(client.receivers()) == 1)
        commands.rtolap(services.environment, "create", str(path), "--enable")
        send(kafka, cube, [each for each in sent if each.hour <= 2])
        for hour in (0, 1):
            built(services, cube, hour, 1)
        path.write_text(changed(path.read_text()))
        plan = commands.rtolap(services.environment, "alter", str(path), "--new-revision", "--older", "fill")
        assert f"apply batches to {second}" in plan
        send(kafka, cube, [each for each in sent if each.hour == 4])
        of_newer = total(each for each in sent if each.hour == 4)
        with QueryClient(services.query_url, token=TOKEN) as asking:
            wait_for("all is read", lambda: says(asking, sql) == [len(sent), of_newer], 120)

            def are_built() -> bool:
                """The older one has history of all hours, and the newer one of what it has read of them."""
                services.build_queue(JOBS)
                older, newer = client.cube(cube).segments, client.cube(second).segments
                waits = newer["IMMUTABLE"] + newer["REMOTE_PERSISTED"]
                return older["READY"] == 3 and newer["READY"] > 0 and not waits

            wait_for("history of both", are_built, 300)
            source = written(warehouse, tmp_path / "warehouse")
            batch = planned_batch(client, second, "b1", START_MS, START_MS + 4 * HOUR_MS, source)
            staged(batch.spec, tmp_path)
            assert client.apply_batch(second, "b1").left == 0
            assert says(asking, sql) == [len(sent), of_newer], "what is not built is nothing yet"
            after = [50 + len(warehouse), of_newer + total(warehouse)]
            seen = []

            def is_filled() -> bool:
                services.build_queue(JOBS)
                seen.append(says(asking, sql))
                return seen[-1] == after

            wait_for("it is filled", is_filled, 300)
            half = [50 + sum(each.hour >= 2 for each in warehouse) + 100, 0]
            half[1] = of_newer + total(each for each in warehouse if each.hour >= 2)
            assert all(each in ([len(sent), of_newer], half, after, []) for each in seen), seen
            assert since_hour(services, second) == 0
            late = asking.query(f"SELECT COUNT(*) FROM {cube} WHERE country = 'w1'")
            assert [int(str(each)) for each in next(iter(late.rows))] == [60]
        assert services.ended() == []
    finally:
        services.close()


def says(asking: QueryClient, sql: str) -> list[int]:
    """Return the answer; nothing while there is none."""
    try:
        return integers(asking, sql)
    except (QueryTimeout, Unavailable):  # anything else fails the test
        return []


def send(kafka: str, topic: str, sent: Iterable[Sent]) -> None:
    producer = KafkaProducer(kafka, client_id="test")
    try:
        producer.produce(
            topic, [OutRecord(json.dumps(as_event(each)).encode(), partition=0) for each in sent]
        )
        producer.flush(60)
    finally:
        producer.close()


def as_event(sent: Sent) -> dict[str, Any]:
    return {
        "ts": f"2013-11-03T{sent.hour:02d}:{sent.quantity % 60:02d}:00Z",
        "kind": "k",
        "price": "1.00",
        "country": sent.country,
        "quantity": sent.quantity,
    }


def written(sent: Iterable[Sent], folder: Path) -> dict[str, Any]:
    """Write rows as files of a batch's source, and return that."""
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist([as_event(each) for each in sent]), folder / "rows.parquet")
    return {"format": "parquet", "path": folder.as_uri()}


def staged(spec: dict[str, Any], folder: Path) -> None:
    file = folder / "batch.json"
    file.write_text(json.dumps(spec))
    command, environment = spark_submit(str(file), job=JOBS / "stage_batch.py")
    done = spark_drivers.run(command, environment)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def by_revision(older: Iterable[Sent], newer: Iterable[Sent], moment: int) -> tuple[int, int]:
    """Return the events, and the sum of what only the newer revision has, where it begins at this hour."""
    of_newer = [each for each in newer if each.hour >= moment]
    return sum(each.hour < moment for each in older) + len(of_newer), total(of_newer)


def total(sent: Iterable[Sent]) -> int:
    return sum(each.quantity for each in sent)


def integers(asking: QueryClient, sql: str) -> list[int]:
    return [int(str(each or 0)) for each in next(iter(asking.query(sql).rows))]


def since_hour(services: Services, cube: str) -> int:
    revision: dict[str, Any] = services.coordinator.cube(cube).definition["revision"]
    return int(revision["since_ms"]) // 3_600_000 % 24
