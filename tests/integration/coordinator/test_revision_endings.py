"""An older revision ends on real servers while events flow, and a receiver and the leader are killed.

Its receivers stop and delete what they have of it, statements go on, and each answer is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rtolap.base.errors import QueryTimeout, Unavailable
from rtolap.protocols.query.client import QueryClient

from tests.integration.coordinator.test_alter import alter, both_live
from tests.integration.coordinator.test_revisions import PARTITIONS, SINCE_HOUR, Flow, changed, open_hours
from tests.support import commands
from tests.support.cubes.services import TOKEN, Services, wait_for
from tests.support.query.prices import define_prices

pytestmark = pytest.mark.integration


def test_an_older_revision_ends_while_events_flow(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> None:
    cube, second = unique_name, f"{unique_name}_r2"
    create_topic(cube, PARTITIONS)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka, coordinators=2)
    path = define_prices(tmp_path, cube, retention="{policy: FULL_BUILD, after: 1h}")
    flow = Flow(kafka, cube)
    older, newer = range(SINCE_HOUR), range(SINCE_HOUR, 24)

    def local_folders(receiver: str) -> list[Path]:
        return list((tmp_path / "receivers" / receiver).glob(f"**/{cube}/*"))

    def exact(asking: QueryClient, *, purged: bool | None) -> bool:
        """Ask once. `purged`: whether the older events are gone; None: just now."""
        try:
            answer = asking.query(f"SELECT COUNT(*) FROM {cube}")
        except (QueryTimeout, Unavailable):  # anything else fails the test
            return False
        count = int(str(next(iter(answer.rows))[0]))
        positions = answer.positions
        with_newer = len(flow.below(positions.get(second, {}), newer))
        with_all = with_newer + len(
            flow.below(positions.get(cube, {}), older if second in positions else range(24))
        )
        allowed = {None: {with_newer, with_all}, True: {with_newer}, False: {with_all}}[purged]
        assert count in allowed, f"of its positions {positions}"
        return bool(count)

    try:
        services.start_coordinators()
        for name in ("r1", "r2"):
            services.start_receiver(name, "only", "--checkpoint-interval-s", "1", "--idle-after-s", "60")
        services.start_query()
        client = services.coordinator
        wait_for("the receivers live", lambda: len(client.receivers()) == 2)
        commands.rtolap(services.environment, "create", str(path), "--enable")
        with flow.flowing(), QueryClient(services.query_url, token=TOKEN) as asking:
            wait_for("answers", lambda: exact(asking, purged=False))
            flow.hour = 1
            wait_for("the second hour is open", lambda: 1 in open_hours(services, cube))
            path.write_text(changed(path.read_text()))
            assert alter(services, path, "--new-revision")["revision"] == second
            flow.hour, flow.late = 2, True
            wait_for("answers of both", lambda: exact(asking, purged=False))
            wait_for("files of it", lambda: bool(local_folders("r1") and local_folders("r2")))
            flow.hour = 5
            wait_for(
                "it is five",
                lambda: (client.cube(cube).low_watermark_ms or 0) % 86_400_000 >= 5 * 3_600_000,
            )
            services.kill("r1")
            assert client.retention(cube).horizon_ms is not None
            leader = services.leading_coordinator()
            assert leader is not None
            services.kill(leader)
            exact(asking, purged=None)
            services.start_again(leader)
            wait_for("it has ended", lambda: exact(asking, purged=None) and client.cube(cube).ended)
            wait_for("it is read by nobody", lambda: not client.cube(cube).assignment)
            services.start_again("r1")
            wait_for("both live", lambda: both_live(services))
            for name in ("r1", "r2"):
                wait_for(f"{name} has deleted it", lambda name=name: not local_folders(name))
            wait_for("it answers on", lambda: exact(asking, purged=True))
        with QueryClient(services.query_url, token=TOKEN) as asking:
            sent = [each for each in flow.total() if each.hour in newer]
            wait_for(
                "all is read",
                lambda: (
                    [list(row) for row in asking.query(f"SELECT COUNT(*) FROM {cube}").rows] == [[len(sent)]]
                ),
                120,
            )
            answer = asking.query(f"SELECT SUM(quantity) FROM {cube}")
            assert int(str(next(iter(answer.rows))[0])) == sum(each.quantity for each in sent)
            assert answer.warnings == (), "no revision without the column is read"
        assert client.retention(cube).dropped == "", "a statement that began before may still read it"
        assert services.ended() == []
    finally:
        services.close()
