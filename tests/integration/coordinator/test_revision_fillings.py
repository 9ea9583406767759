"""Older events are filled into a revision on real servers, from the topic that has them all.

Events flow, late ones too, receivers are killed, and Spark builds segments of both. At each moment an answer
is that of one revision for each time: of the older one before, of the newer one after, of nothing between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from rtolap.base.errors import QueryTimeout, Unavailable
from rtolap.protocols.query.client import QueryClient

from tests.integration.coordinator.test_alter import JOBS, both_live
from tests.integration.coordinator.test_revisions import PARTITIONS, Flow, Sent, built, changed
from tests.support import commands
from tests.support.cubes.services import TOKEN, Services, wait_for
from tests.support.query.prices import define_prices

pytestmark = pytest.mark.integration

MOMENT = 4  # the hour at which the revision begins, and that moves back to 0


def test_a_revision_is_filled_from_the_topic_while_events_flow(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> None:
    cube, second = unique_name, f"{unique_name}_r2"
    create_topic(cube, PARTITIONS)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka, coordinators=1)
    path = define_prices(tmp_path, cube)
    flow = Flow(kafka, cube)
    answers: Counter[str] = Counter()

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
        later = flow.below(positions[second], range(MOMENT, 24))
        before = len(later) + len(flow.below(positions.get(cube, {}), range(MOMENT)))
        whole = flow.below(positions[second], range(24))
        of_older, of_newer = (before, total(later)), (len(whole), total(whole))
        assert (count, quantity) in (of_older, of_newer), f"of its positions {positions}"
        answers["before" if (count, quantity) == of_older else "after"] += 1
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
            wait_for("answers of both", lambda: exact(asking) and answers["before"] > 1)
            flow.late = True
            flow.hour = MOMENT
            built(services, cube, 2, 1)
            services.kill("r1")
            built(services, second, 2, 2)
            exact(asking)
            services.start_again("r1")
            assert since_hour(services, second) == MOMENT, "of the first hours it has no history yet"
            built(services, second, 0, 2)
            services.kill("r2")

            def is_filled() -> bool:
                exact(asking)
                services.build_queue(JOBS)  # late events
                return since_hour(services, second) == 0

            wait_for("it is filled", is_filled, 240)
            services.start_again("r2")
            wait_for("answers of it alone", lambda: exact(asking) and answers["after"] > 3)
            wait_for("all live", lambda: both_live(services))
            exact(asking)
        with QueryClient(services.query_url, token=TOKEN) as asking:
            sent = flow.total()
            sql = f"SELECT COUNT(*), SUM(quantity) FROM {cube}"
            wait_for("all is read", lambda: integers(asking, sql)[0] == len(sent), 120)
            assert integers(asking, sql) == [len(sent), total(sent)]
            assert asking.query(sql).warnings == ()
        assert services.ended() == []
    finally:
        services.close()


def total(sent: Iterable[Sent]) -> int:
    return sum(each.quantity for each in sent)


def integers(asking: QueryClient, sql: str) -> list[int]:
    return [int(str(each)) for each in next(iter(asking.query(sql).rows))]


def since_hour(services: Services, cube: str) -> int:
    revision: dict[str, Any] = services.coordinator.cube(cube).definition["revision"]
    return int(revision["since_ms"]) // 3_600_000 % 24
