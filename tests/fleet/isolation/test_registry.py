"""Which cluster of the registry a snapshot is of, and plans held against the registry as it is now."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError, PlanRefused, Refused
from rtolap.fleet.isolation.registry import (
    HostRegistry,
    check_submittable,
    cluster_of_snapshot,
    read_optional_registry,
    read_registry,
    registered_cluster,
)
from rtolap.fleet.planning.drain import plan_drain
from rtolap.fleet.planning.plan import Limits
from rtolap.fleet.snapshot.model import FleetSnapshot

from tests.support.fleet.hand_made import hand_made

RACKS = {1: "a", 2: "b", 3: "a", 4: "b"}
REGISTRY = """kind: kafka_fleet
name: f
topics: [{match: ["*"], business: shop}]
clusters:
  known: {businesses: [shop], cluster_id: here, kafka_cluster: mirror}
  reached: {businesses: [shop], kafka_cluster: default}
  own: {businesses: [shop]}
"""
VIP = """    pools: {vip: {brokers: [1, 2, %s]}}
    placement: [{match: [paid], pools: [vip]}]
"""


def _registry(folder: Path, text: str = REGISTRY) -> Path:
    (folder / "clusters.yaml").write_text(text)
    return folder


def _snapshot(cluster_id: str = "elsewhere") -> FleetSnapshot:
    return hand_made(RACKS, {"paid": [[1, 2]]}, used_bytes={3: 100}, cluster_id=cluster_id)


@pytest.mark.parametrize(
    ("cluster_id", "kafka_cluster", "name"),
    [
        ("here", None, "known"),
        ("here", "default", "known"),
        ("elsewhere", "default", "reached"),
        ("elsewhere", "own", "own"),
        ("elsewhere", "nobody", None),
        ("elsewhere", None, None),
    ],
)
def test_a_cluster_is_known_by_its_id_and_else_by_the_name_that_reaches_it(
    tmp_path: Path, cluster_id: str, kafka_cluster: str | None, name: str | None
) -> None:
    found = cluster_of_snapshot(read_registry(_registry(tmp_path)), _snapshot(cluster_id), kafka_cluster)
    assert (found.name if found else None) == name


def test_another_cluster_under_the_name_of_a_declared_one_is_refused(tmp_path: Path) -> None:
    snapshot = _snapshot()
    found = cluster_of_snapshot(read_registry(_registry(tmp_path)), snapshot, "mirror")
    with pytest.raises(Refused, match="not of cluster known"):
        check_submittable(plan_drain(snapshot, [2]), snapshot, found)


def test_a_registry_may_be_missing_and_not_be_unreadable(tmp_path: Path) -> None:
    assert read_optional_registry(tmp_path / "nowhere") is None
    (tmp_path / "lookup.yaml").write_text("kind: kafka_fleet\nname: f\nclusters: 3\n")
    with pytest.raises(DefinitionError, match="clusters"):
        read_optional_registry(tmp_path)
    (tmp_path / "lookup.yaml").unlink()
    (tmp_path / "other.yaml").write_text(REGISTRY.replace("name: f", "name: g"))
    with pytest.raises(DefinitionError, match="f, g"):
        read_optional_registry(_registry(tmp_path))


def test_what_else_the_files_declare_hinders_nobody(tmp_path: Path) -> None:
    assert read_optional_registry(tmp_path) is None
    (tmp_path / "loaders.yaml").write_text("[{name: hits, port: 7051}]\n")
    (tmp_path / "table.yaml").write_text("kind: table\nname: 7\n")
    assert read_optional_registry(tmp_path) is None
    _registry(tmp_path)
    for kafka_cluster, name in (("default", "reached"), ("nobody", None)):
        found = HostRegistry(tmp_path, kafka_cluster).cluster_of(_snapshot())
        assert (found.name if found else None) == name
    (tmp_path / "table.yaml").write_text("kind: [\n")
    with pytest.raises(DefinitionError, match="not YAML"):
        read_optional_registry(tmp_path)


def test_a_plan_is_held_against_the_rules_that_are_declared_when_it_is_submitted(tmp_path: Path) -> None:
    """It was made under rules that let the topic stand on broker 4, which now do not."""
    snapshot = _snapshot()
    text = REGISTRY.replace("  own: {businesses: [shop]}\n", "  own:\n    businesses: [shop]\n" + VIP)
    before = registered_cluster(read_registry(_registry(tmp_path, text % 4)), "own")
    plan = plan_drain(snapshot, [2], limits=Limits(allowed=before.allowed_brokers(snapshot)))
    assert 4 in plan.after.brokers
    check_submittable(plan, snapshot, before)
    check_submittable(plan, snapshot, None)
    now = registered_cluster(read_registry(_registry(tmp_path, text % 3)), "own")
    with pytest.raises(PlanRefused, match="paid-0 comes to a broker where its topic may not stand"):
        check_submittable(plan, snapshot, now)
