"""Hours merge to a day on real servers: built and merged by Spark, with kills, late events, and one answer.

Coordinators, a receiver and a query service run; each answer is held against a count of what was sent.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from rtolap.base.errors import NotYet, RtolapError
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer
from rtolap.protocols.coordinator.messages import MergePlans
from rtolap.protocols.query.client import QueryClient

from tests.support import commands
from tests.support.cubes.services import TOKEN, Services, wait_for
from tests.support.query.prices import define_prices
from tests.support.waiting import patience_s

pytestmark = pytest.mark.integration

JOBS = Path(__file__).resolve().parents[3] / "spark_jobs"
HOURS, PARTITIONS = 3, 2
MERGING = """
aggregation_groups:
  - {include: [kind], mandatory: [kind]}
late: {merge_after: 1s}
merge: {to: [day], after: 0s}
"""


class Sent:
    """What was sent, and a plain count of it."""

    def __init__(self, kafka: str, topic: str) -> None:
        self._producer = KafkaProducer(kafka, client_id="test")
        self._topic = topic
        self.kinds: Counter[str] = Counter()

    def send(self, at: str, count: int) -> None:
        records = []
        for number in range(count):
            kind = f"k{number % 5}"
            value = json.dumps({"ts": at, "kind": kind, "price": "1.00"}).encode()
            records.append(OutRecord(value, partition=number % PARTITIONS))
            self.kinds[kind] += 1
        self._producer.produce(self._topic, records)
        self._producer.flush(60)

    def close(self) -> None:
        self._producer.close()


def hour(number: int) -> str:
    return f"20131103{number:02d}0000_20131103{number + 1:02d}0000"


def test_hours_merge_to_a_day_under_kills(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> None:
    cube = unique_name
    create_topic(cube, PARTITIONS)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka, coordinators=2)
    path = define_prices(tmp_path, cube)
    path.write_text(path.read_text() + MERGING)
    sent = Sent(kafka, cube)
    client = services.coordinator

    def exact(asking: QueryClient) -> bool:
        with suppress(RtolapError):  # not read yet, or a leader is away
            rows = asking.query(f"SELECT kind, COUNT(*), SUM(price) FROM {cube} GROUP BY kind").rows
            assert all(float(str(total)) == count for _, count, total in rows)
            return Counter({str(kind): int(str(count)) for kind, count, _ in rows}) == sent.kinds
        return False

    def is_built(number: int, version: int) -> bool:
        with suppress(RtolapError):
            client.close_segment(cube, hour(number))
        services.build_queue(JOBS)
        found = client.segment(cube, hour(number))
        return (found.state, found.version) == ("READY", version)

    def read_from(asking: QueryClient) -> str:
        day = "hour_start >= '2013-11-03' AND hour_start < '2013-11-04'"
        rows = asking.query(f"EXPLAIN ANALYZE SELECT kind, COUNT(*) FROM {cube} WHERE {day} GROUP BY 1").rows
        return str(dict(rows)["cuboid"])  # type: ignore[arg-type]

    try:
        services.start_coordinators()
        services.start_receiver("r1", "only", "--checkpoint-interval-s", "1", "--idle-after-s", "60")
        services.start_query()
        wait_for("the receiver lives", lambda: len(client.receivers()) == 1)
        commands.rtolap(services.environment, "create", str(path), "--enable")
        with QueryClient(services.query_url, token=TOKEN) as asking:
            for number in range(HOURS):
                sent.send(f"2013-11-03T{number:02d}:10:00Z", 100)
            sent.send("2013-11-05T00:10:00Z", 10)  # the watermark passes the day
            for number in range(HOURS):
                wait_for(f"{hour(number)} is built", lambda number=number: is_built(number, 1), 300)
            wait_for("all is read", lambda: exact(asking))
            assert read_from(asking).endswith(f"({HOURS} segments)")

            dry = json.loads(
                commands.rtolap(services.environment, "segments", "merge", cube, "--dry-run", "--json")
            )
            assert [(each["level"], each["segments"]) for each in dry["merges"]] == [("day", HOURS)]

            plans = client.plan_merges(cube)
            merge = plans.merges[0].merge
            assert run(services, plans, kill_at="verified") == -signal.SIGKILL
            with pytest.raises(NotYet, match="is not written"):
                client.commit_merge(cube, merge)
            assert exact(asking)
            assert run(services, plans) == 0
            leader = services.leading_coordinator()
            assert leader is not None
            services.kill(leader)
            wait_for("the next leader commits", lambda: is_committed(services, cube, merge), 120)
            assert not client.commit_merge(cube, merge).committed
            wait_for(
                "the merged answer", lambda: exact(asking) and read_from(asking).endswith("(1 segments)")
            )
            assert client.segment(cube, hour(0)).merged == ("day",)

            sent.send("2013-11-03T01:20:00Z", 40)
            wait_for("the late events are read", lambda: exact(asking))
            wait_for("they are history", lambda: is_built(1, 2), 300)
            wait_for("the answer with them", lambda: exact(asking))
            assert client.segment(cube, hour(1)).merged == ()
            assert read_from(asking).endswith(f"({HOURS} segments)") or "+" in read_from(asking)

            again = client.plan_merges(cube)
            assert [each.segments for each in again.merges] == [HOURS]
            assert run(services, again) == 0
            assert client.commit_merge(cube, again.merges[0].merge).committed
            wait_for("one set again", lambda: read_from(asking).endswith("(1 segments)"))
            assert exact(asking)
            assert not client.plan_merges(cube).merges
    finally:
        sent.close()
        services.close()


def is_committed(services: Services, cube: str, merge: str) -> bool:
    with suppress(RtolapError):
        services.coordinator.commit_merge(cube, merge)
        return True
    return False


def run(services: Services, plans: MergePlans, kill_at: str | None = None) -> int:
    """Have Spark write the sets, or kill its driver at this event of its progress."""
    specs = json.dumps([each.spec for each in plans.merges])
    process = services.submit_job(JOBS / "merge_segments.py", specs, waiting=kill_at is None)
    assert process.stdout is not None
    for line in process.stdout:
        if kill_at is not None and f'"{kill_at}"' in line:
            os.killpg(process.pid, signal.SIGKILL)
            break
    code = process.wait(patience_s(300))
    process.stdout.close()
    return code
