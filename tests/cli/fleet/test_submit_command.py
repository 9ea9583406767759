"""`rtolap fleet submit` refuses what the registry forbids before it asks anybody for anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError, PlanRefused
from rtolap.cli.fleet import moves
from rtolap.cli.fleet.commands import app
from rtolap.fleet.planning.drain import plan_drain
from rtolap.fleet.planning.plan_file import save_plan
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.kafka.administration.interface import FleetAdministration
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


class Asked(Exception):
    """The plan has passed all checks."""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Broker 3 is to be empty, whose replica goes to broker 4: the idlest of its rack."""
    world = MoverWorld(4)
    world.add("orders", 0, [1, 3])
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
