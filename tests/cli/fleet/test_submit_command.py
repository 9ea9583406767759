"""`rtolap fleet submit` refuses what the registry forbids before it asks anybody for anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rtolap.base.errors import (
    DefinitionError,
    Forbidden,
    OtherCluster,
    PlanChanged,
    PlanOutdated,
    PlanRefused,
)
from rtolap.cli.fleet import moves
from rtolap.cli.fleet.commands import app
from rtolap.fleet.planning.drain import plan_drain
from rtolap.fleet.planning.plan_file import save_plan
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.kafka.administration.values import Partition
from typer.testing import CliRunner

from tests.support.fleet.mover_runs import MoverWorld

REGISTRY = """kind: kafka_fleet
name: f
topics: [{match: ["*"], business: shop}]
clusters:
  one:
    businesses: [shop]
    kafka_cluster: default
    pools: {vip: {brokers: [1, 3, %d]}}
    placement: [{match: [orders], pools: [vip]}]
"""


ORDERS = Partition("orders", 0)


class Asked(Exception):
    """The plan has passed all checks."""


@pytest.fixture
def world() -> MoverWorld:
    made = MoverWorld(4)
    made.add("orders", 0, [1, 3])
    return made


@pytest.fixture
def plan(world: MoverWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Broker 3 is to be empty, whose replica goes to broker 4: the idlest of its rack."""
    save_plan(plan_drain(collect_snapshot(world.administration, world.clock), [3]), tmp_path / "plan.json")

    @contextmanager
    def administration(_: str) -> Iterator[FleetAdministration]:
        yield world.administration

    def ask(*_: object) -> None:
        raise Asked

    monkeypatch.setattr(moves, "open_administration", administration)
    monkeypatch.setattr(moves, "operator", ask)
    monkeypatch.setenv("RTOLAP_INCLUDE_DIR", str(tmp_path / "include"))
    return str(tmp_path / "plan.json")


def _submit(plan: str, *arguments: str) -> None:
    CliRunner().invoke(app, ["submit", plan, *arguments], catch_exceptions=False)


def test_rules_of_the_registry_hold_when_a_plan_is_submitted(plan: str, tmp_path: Path) -> None:
    with pytest.raises(Asked):  # no registry at all
        _submit(plan)
    (tmp_path / "include").mkdir()
    registry = tmp_path / "include" / "clusters.yaml"
    registry.write_text(REGISTRY % 4)
    with pytest.raises(Asked):
        _submit(plan)
    registry.write_text(REGISTRY % 2)
    for named in ((), ("--cluster-name", "one"), ("--registry", str(registry))):
        with pytest.raises(PlanRefused, match="orders-0 comes to a broker where its topic may not stand"):
            _submit(plan, *named)
    registry.write_text("kind: kafka_fleet\n")
    with pytest.raises(DefinitionError):
        _submit(plan)


def _another_cluster(world: MoverWorld) -> None:
    world.cluster.cluster_id = "another"


def _an_older_state(world: MoverWorld) -> None:
    orders = world.cluster.partitions[ORDERS]
    orders.replicas, orders.leader = [2, 3], 2


def _a_topic_that_is_gone(world: MoverWorld) -> None:
    world.cluster.remove_topic("orders")


def _an_unknown_broker(world: MoverWorld) -> None:
    world.cluster.stop_broker(4)
    world.cluster.forget_broker(4)


def _no_log_directories(world: MoverWorld) -> None:
    world.cluster.brokers[4].silent = True


def _no_right(world: MoverWorld) -> None:
    world.cluster.forbidden.add("describe_topics")


@pytest.mark.parametrize(
    ("happens", "error", "told"),
    [
        (_another_cluster, OtherCluster, "made for another cluster"),
        (_an_older_state, PlanOutdated, r"orders-0 has replicas \[1, 3\]"),
        (_a_topic_that_is_gone, PlanOutdated, "orders-0 is there; found no such partition"),
        (_an_unknown_broker, PlanRefused, "takes none"),
        (_no_log_directories, PlanRefused, "takes none"),
        (_no_right, Forbidden, "may not describe_topics"),
    ],
)
def test_what_does_not_fit_the_cluster_is_refused_before_anybody_is_asked(
    plan: str, world: MoverWorld, happens: Callable[[MoverWorld], None], error: type[Exception], told: str
) -> None:
    with pytest.raises(Asked):
        _submit(plan)
    happens(world)
    with pytest.raises(error, match=told):
        _submit(plan)


def test_a_plan_that_was_edited_or_is_not_the_approved_one_is_refused_before_the_cluster_is_reached(
    plan: str, world: MoverWorld
) -> None:
    world.cluster.answers = False
    with pytest.raises(PlanChanged, match="not the plan that was approved"):
        _submit(plan, "--digest", "0" * 12)
    file = Path(plan)
    edited = file.read_bytes().replace(b'"replicas":[1,4]', b'"replicas":[1,2]')
    assert edited != file.read_bytes()
    file.write_bytes(edited)
    with pytest.raises(PlanChanged, match="not what its planner wrote"):
        _submit(plan)
