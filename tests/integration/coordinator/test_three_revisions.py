"""Three revisions on real servers, the second and the third filled with all older events, the first dropped.

Events flow, late ones too; a receiver is killed while the third is filled, and the coordinator that leads the
filling. Each answer is that of one revision for each time.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import QueryTimeout, Unavailable
from rtolap.base.settings import Settings
from rtolap.coordinator.purge import GRACE_MS
from rtolap.metadata.cluster_store import open_cluster_store
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.protocols.query.client import QueryClient

from tests.integration.coordinator.test_alter import JOBS, both_live
from tests.integration.coordinator.test_revision_fillings import START_MS, integers, since_hour, total
from tests.integration.coordinator.test_revisions import PARTITIONS, Flow, built, changed
from tests.support import commands
from tests.support.cubes.services import TOKEN, Services, wait_for
from tests.support.query.prices import define_prices

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not os.environ.get("RTOLAP_TEST_LONG"), reason="takes five minutes: set RTOLAP_TEST_LONG=1"
    ),
]

HOURS = (0, 2, 4, 6, 24)  # at which revisions begin; 24: one that is not there yet


def with_largest(text: str) -> str:
    """Return the file with the largest quantity, which the second revision does not have."""
    return text.replace(
        "  - {function: sum, column: quantity}\n",
        "  - {function: sum, column: quantity}\n  - {function: max, column: quantity}\n",
    )


def test_three_revisions(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> None:
    cube, second, third = unique_name, f"{unique_name}_r2", f"{unique_name}_r3"
    create_topic(cube, PARTITIONS)
    root = f"/{unique_name}"
    services = Services(tmp_path, zookeeper=zookeeper, root=root, kafka=kafka, coordinators=1)
    path = define_prices(tmp_path, cube)
    flow = Flow(kafka, cube)
    sql = f"SELECT COUNT(*) FROM {cube}"
    asked = [0]

    def exact(asking: QueryClient) -> bool:
        """Ask once: each time is counted by one revision, below the positions that it names."""
        try:
            answer = asking.query(sql)
        except (QueryTimeout, Unavailable):  # anything else fails the test
            return False
        (count,) = (int(str(each or 0)) for each in next(iter(answer.rows)))
        at = [answer.positions.get(name, {}) for name in (cube, second, third)]
        counts = [Counter(sent.hour for sent in flow.below(positions, range(24))) for positions in at]
        allowed = {
            sum(
                count_of[hour]
                for count_of, since, until in zip(counts, (0, *moments), (*moments, 24), strict=True)
                for hour in range(since, until)
            )
            for moments in ((one, two) for one in HOURS for two in HOURS if one <= two)
        }
        assert count in allowed, f"{count} of positions {answer.positions}, beside {sorted(allowed)}"
        asked[0] += 1
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

            def filled(revision: str) -> Callable[[], bool]:
                def is_filled() -> bool:
                    exact(asking)
                    services.build_queue(JOBS)  # late events
                    return since_hour(services, revision) == 0

                return is_filled

            wait_for("answers", lambda: exact(asking))
            flow.hour = 2
            built(services, cube, 0, 1)
            wait_for("the third hour is open", lambda: bool(client.cube(cube).segments.get("ACTIVE")))
            path.write_text(changed(path.read_text()))
            commands.rtolap(services.environment, "alter", str(path), "--new-revision", "--older", "fill")
            flow.hour, flow.late = 4, True
            for hour in (2, 3):
                built(services, cube, hour, 1)
            for hour in (2, 0):
                built(services, second, hour, 2)
            wait_for("the second is filled", filled(second), 240)

            path.write_text(with_largest(path.read_text()))
            commands.rtolap(services.environment, "alter", str(path), "--new-revision", "--older", "fill")
            assert since_hour(services, third) == 6
            flow.hour = 6
            built(services, second, 4, 2)
            services.kill("r1")
            built(services, third, 4, 2)
            exact(asking)
            leader = services.leading_coordinator()
            assert leader is not None
            services.kill(leader)
            services.start_again(leader)
            services.start_again("r1")
            for hour in (2, 0):
                built(services, third, hour, 2)
            wait_for("the third is filled", filled(third), 240)
            assert since_hour(services, third) == 0
            wait_for("all live", lambda: both_live(services))

            client.purge(cube, START_MS)
            with opened(services) as metadata:
                wait_for("the first is retired", lambda: exact(asking) and is_retired(metadata, cube), 60)
                age(metadata, cube)
                assert client.retention(cube).dropped == cube
                wait_for("answers come", lambda: exact(asking))
                assert cube not in metadata.cubes()
        with QueryClient(services.query_url, token=TOKEN) as asking:
            sent = flow.total()
            wait_for("all is read", lambda: integers(asking, sql) == [len(sent)], 120)
            whole = f"SELECT COUNT(*), SUM(quantity), MAX(quantity) FROM {cube}"
            assert integers(asking, whole) == [len(sent), total(sent), max(each.quantity for each in sent)]
        assert asked[0] > 5
        assert services.ended() == []
    finally:
        services.close()


@contextmanager
def opened(services: Services) -> Iterator[ClusterMetadata]:
    with patch.dict(os.environ, services.environment):
        store = open_cluster_store(Settings())
    try:
        yield ClusterMetadata(store, SystemClock())
    finally:
        store.close()


def is_retired(metadata: ClusterMetadata, cube: str) -> bool:
    revision = metadata.cube(cube).revision
    return revision is not None and revision.retired_ms is not None


def age(metadata: ClusterMetadata, cube: str) -> None:
    """Have the revision be retired for longer than any statement lasts, in place of a wait of ten minutes."""
    found = metadata.cube(cube)
    assert found.revision is not None
    assert found.revision.retired_ms is not None
    earlier = msgspec.structs.replace(found.revision, retired_ms=found.revision.retired_ms - 2 * GRACE_MS)
    after = msgspec.structs.replace(found, revision=earlier)
    metadata.change_cube(found, after, metadata.cube_id(cube))
