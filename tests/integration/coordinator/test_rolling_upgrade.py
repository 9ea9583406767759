"""A cluster of the version before is upgraded service by service: no statement is refused, none is wrong.

Events flow and somebody asks all the time. Half way, with services of both versions, a cube is created.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import Services, wait_for
from tests.support.moves.asked_stream import Asking, Stream
from tests.support.paths import PLUGINS
from tests.support.versions.golden import golden
from tests.support.versions.released import NoHistory, released_plugins

pytestmark = pytest.mark.integration

SETS = {"left": ("l0", "l1")}
NEW = {"PYTHONPATH": str(PLUGINS)}


class TwoVersions(Services):
    """Services of either version. Statements go to one of two query services, as behind a load balancer."""

    asked = "query"

    def sql(self, text: str) -> dict[str, Any]:
        response = self._http.post(f"{self.url(self.asked)}/api/v1/query", json={"sql": text})
        response.raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer

    def upgrade(self, name: str) -> None:
        """Stop it in order, and start the new version in its place."""
        self.stop(name)
        self.start(name, *self._arguments[name], env={**self._extra[name], **NEW})


@pytest.fixture
def old_plugins(tmp_path: Path) -> Path:
    try:
        return released_plugins(golden()["commit"], tmp_path / "old")
    except NoHistory as reason:
        pytest.skip(f"the version before cannot be run: {reason}")


@pytest.fixture
def world(
    tmp_path: Path,
    old_plugins: Path,
    zookeeper: str,
    kafka: str,
    unique_name: str,
    create_topic: Callable[..., str],
) -> Iterator[World]:
    name = unique_name.replace("__", "_")
    create_topic(name, PARTITIONS)
    services = TwoVersions(
        tmp_path,
        zookeeper=zookeeper,
        root=f"/{name}",
        kafka=kafka,
        coordinators=2,
        host="127.0.0.1",  # the version before knows no other kind
    )
    services.environment["PYTHONPATH"] = str(old_plugins)
    one = World(services, kafka, name, 7, SETS)
    with closing(services):
        services.start_coordinators()
        for replica_set in SETS:
            one.start_receivers(replica_set)
        services.start_query()
        services.start_further_query("query-b")
        one.declare()
        yield one


def imported_from(services: Services, name: str) -> str:
    """Return where a process has its code from."""
    pid = services.pids()[name]
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    [path] = [each for each in variables if each.startswith(b"PYTHONPATH=")]
    return os.fsdecode(path).partition("=")[2]


def test_no_statement_is_refused_or_wrong_while_services_are_upgraded(
    world: World, kafka: str, old_plugins: Path
) -> None:
    services, client = world.services, world.services.coordinator
    assert isinstance(services, TwoVersions)
    assert {imported_from(services, name) for name in services.running()} == {str(old_plugins)}
    with closing(Stream(world, kafka)) as stream:
        stream.produce(50 * PARTITIONS)
        wait_for("all owners serve", lambda: client.cube(world.cube).catching_up == (), 90)
        wait_for("statements are answered", lambda: answered(services, world.cube), 60)
        stream.start()
        asking = Asking(world)
        asking.start()

        def more_answers(step: str) -> None:
            before = len(asking.answered_s)
            wait_for(f"answers after {step}", lambda: len(asking.answered_s) > before + 10, 60)
            assert (asking.errors, asking.wrong) == ([], []), step

        def upgrade_receiver(name: str) -> None:
            services.upgrade(name)
            wait_for(f"{name} reads on", lambda: is_back(world, name, stream), 90)
            more_answers(name)

        def upgrade_coordinator(name: str) -> None:
            services.upgrade(name)
            wait_for("a coordinator leads", lambda: services.leading_coordinator() is not None, 60)
            more_answers(name)

        def upgrade_query(name: str, other: str) -> None:
            services.asked = other
            more_answers(f"{other} is asked")
            services.upgrade(name)
            wait_for(f"{name} answers", lambda: services._answers(services.url(name)), 60)

        more_answers("the start")
        leader = services.leading_coordinator()
        assert leader is not None
        upgrade_coordinator(leader)
        upgrade_receiver("l0")
        upgrade_query("query", "query-b")

        # both versions read what either has written
        later = f"{world.cube}_later"
        definition = client.cube(world.cube).definition
        assert definition is not None
        client.create_cube({**definition, "name": later})
        client.enable_cube(later)
        for name in ("query", "query-b"):
            services.asked = name
            wait_for(f"{name} answers of the cube", lambda: answered(services, later), 60)
        more_answers("a cube is created")

        upgrade_receiver("l1")
        upgrade_query("query-b", "query")
        [last] = {"coordinator-0", "coordinator-1"} - {leader}
        upgrade_coordinator(last)
        assert {imported_from(services, name) for name in services.running()} == {str(PLUGINS)}
        asking.stop()
    assert (asking.errors, asking.wrong) == ([], [])
    assert {one.program for one in client.receivers()} != {""}
    ends = stream.ends
    for cube in (world.cube, later):
        wait_for("every event is counted once", lambda cube=cube: counted(services, cube, ends), 60)


def is_back(world: World, name: str, stream: Stream) -> bool:
    """Return True if the receiver is healthy and has read what was there when it was asked."""
    ends = dict(stream.ends)
    for one in world.services.coordinator.receivers():
        report = one.cubes.get(world.cube)
        if one.receiver_id == name and one.health == "HEALTHY" and report is not None:
            positions = {partition: each.position for partition, each in report.partitions.items()}
            return bool(positions) and all(at >= ends[p] - 400 for p, at in positions.items())
    return False


def answered(services: Services, cube: str) -> bool:
    try:
        services.sql(f"SELECT COUNT(*) FROM {cube}")
    except httpx.HTTPError:
        return False
    return True


def counted(services: Services, cube: str, ends: dict[int, int]) -> bool:
    body = services.sql(f"SELECT COUNT(*), SUM(amount) FROM {cube}")
    expected = [sum(ends.values()), sum(end * (end - 1) // 2 for end in ends.values())]
    return [int(cell or 0) for cell in body["rows"][0]] == expected
