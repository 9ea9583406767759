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
            assert asking.query(sql).warnings == ()
        assert services.ended() == []
    finally:
        services.close()


def by_revision(older: Iterable[Sent], newer: Iterable[Sent], moment: int) -> tuple[int, int]:
    """Return the events, and the sum of what only the newer revision has, where it begins at this hour."""
    of_newer = [each for each in newer if each.hour >= moment]
    return sum(each.hour < moment for each in older) + len(of_newer), total(of_newer)


def total(sent: Iterable[Sent]) -> int:
    return sum(each.quantity for each in sent)


def integers(asking: QueryClient, sql: str) -> list[int]:
    return [int(str(each)) for each in next(iter(asking.query(sql).rows))]


def since_hour(services: Services, cube: str) -> int:
    revision: dict[str, Any] = services.coordinator.cube(cube).definition["revision"]
    return int(revision["since_ms"]) // 3_600_000 % 24
