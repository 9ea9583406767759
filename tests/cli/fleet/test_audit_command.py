"""`rtolap fleet audit` on recorded fleets: what it prints, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rtolap.cli.fleet import audit as audit_command
from rtolap.cli.fleet.commands import app
from rtolap.cli.output import errors
from rtolap.fleet.snapshot.file import save
from rtolap.kafka.administration.interface import ActiveProducer, GroupMember, ListedGroup
from rtolap.kafka.administration.values import OffsetSpec, Partition
from typer.testing import CliRunner, Result

from tests.support.fleet.hand_made import hand_made
from tests.support.twins.administered_cluster import MemoryCluster, MemoryGroup
from tests.support.twins.administration import MemoryAdministration

REGISTRY = """kind: kafka_fleet
name: f
topics: [{match: ["*"], business: shop}]
clusters:
  one: {businesses: [shop]}
  other: {businesses: [shop]}
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["audit", *arguments])


@pytest.fixture
def registry(tmp_path: Path) -> str:
    file = tmp_path / "clusters.yaml"
    file.write_text(REGISTRY)
    return str(file)


def _recorded(path: Path, replicas: list[int]) -> str:
    racks = {1: "a", 2: "a", 3: "b", 4: "c"}
    save(hand_made(racks, {"paid": [replicas]}, min_in_sync={"paid": 2}), path)
    return str(path)


def test_what_is_found_is_listed_and_ends_with_3(tmp_path: Path, registry: str) -> None:
    file = _recorded(tmp_path / "one.snapshot", [1, 2, 3])
    done = run("--registry", registry, "--cluster", "one", "--snapshot", file)
    assert done.exit_code == 3
    kinds = [line.split("\t")[:4] for line in done.stdout.splitlines()]
    assert kinds[1:] == [["critical", "one", "rack_loss", "paid"], ["warning", "one", "shared_rack", "paid"]]
    told = json.loads(
        run("--registry", registry, "--snapshot", f"one={file}", "--json", "--fail-on", "critical").stdout
    )
    assert [finding["kind"] for finding in told["findings"]] == ["rack_loss", "shared_rack"]
    assert told["unchecked"] == []


def test_a_cluster_is_known_by_its_name_in_the_registry_and_by_the_one_that_the_host_reaches_it_by(
    tmp_path: Path,
) -> None:
    registry = tmp_path / "clusters.yaml"
    registry.write_text(REGISTRY.replace("[shop]}\n  other", "[shop], kafka_cluster: logs}\n  other"))
    file = _recorded(tmp_path / "one.snapshot", [1, 3, 4])
    for name in ("one", "logs"):
        told = run("--registry", str(registry), "--cluster", name, "--snapshot", file, "--json")
        assert json.loads(told.stdout)["unchecked"] == []
        assert told.exit_code == 0
    assert run("--registry", str(registry), "--cluster", "none", "--snapshot", file).exit_code != 0


def test_a_sound_cluster_ends_with_0(tmp_path: Path, registry: str) -> None:
    file = _recorded(tmp_path / "one.snapshot", [1, 3, 4])
    done = run("--registry", registry, "--snapshot", f"one={file}")
    assert done.exit_code == 0
    assert "one: as declared" in done.stdout


def test_lesser_findings_may_pass(tmp_path: Path, registry: str) -> None:
    racks = {1: "a", 2: "b", 3: "c"}
    path = tmp_path / "one.snapshot"
    save(hand_made(racks, {"paid": [[1, 2, 3]]}, min_in_sync={"paid": 1}), path)
    arguments = ("--registry", registry, "--snapshot", f"one={path}")
    assert run(*arguments).exit_code == 3
    assert run(*arguments, "--fail-on", "critical").exit_code == 0


def test_a_snapshot_of_nobody_and_a_registry_without_a_fleet_are_told(
    tmp_path: Path, registry: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _recorded(tmp_path / "one.snapshot", [1, 3, 4])
    with pytest.raises(SystemExit), errors():
        app(["audit", "--registry", registry, "--snapshot", file], standalone_mode=False)
    assert "is not given" in capsys.readouterr().err
    (tmp_path / "none.yaml").write_text(
        "kind: table\nname: t\ntopic: t\ntime: {column: at}\ncolumns: [{name: at, type: bigint}]\n"
    )
    with pytest.raises(SystemExit), errors():
        app(["audit", "--registry", str(tmp_path / "none.yaml")], standalone_mode=False)
    assert "one fleet is to be declared" in capsys.readouterr().err


CLIENTS = """kind: kafka_fleet
name: f
topics: [{match: ["shop.*"], business: shop}, {match: ["late.*"], business: delivery}]
clusters:
  one: {businesses: [shop], kafka_cluster: default}
  other: {businesses: [delivery], kafka_cluster: far}
---
kind: table
name: %(table)s
topic: late.parcels
kafka_cluster: %(cluster)s
time: {column: at}
columns: [{name: at, type: bigint}]
---
kind: subscription
name: orders
source: {zookeeper: "z:2181"}
tables: {orders: []}
listener: {kind: kafka, topic: shop.orders, cluster: far}
"""


def test_tables_and_subscriptions_whose_topics_belong_elsewhere_are_found(tmp_path: Path) -> None:
    """They read, or write, in another cluster than the registry has their topics in."""
    file = _recorded(tmp_path / "one.snapshot", [1, 3, 4])
    registry = tmp_path / "declared.yaml"
    registry.write_text(CLIENTS % {"table": "parcels", "cluster": "default"})
    arguments = ("--registry", str(registry), "--snapshot", f"one={file}", "--json")
    told = json.loads(run(*arguments).stdout)
    found = [each for each in told["findings"] if each["kind"] == "client_in_wrong_cluster"]
    assert [(each["cluster"], each["subject"], each["expected"]) for each in found] == [
        ("one", "table parcels", "other"),
        ("other", "subscription orders", "one"),
    ]
    assert "reads late.parcels, a topic of delivery" in found[0]["message"]
    assert "writes shop.orders, a topic of shop" in found[1]["message"]
    assert found[1]["repair"] == "name Kafka cluster default in its definition"
    only_one = json.loads(run(*arguments, "--cluster", "one").stdout)["findings"]
    assert [each["subject"] for each in only_one if each["kind"] == "client_in_wrong_cluster"] == [
        "table parcels"
    ]
    registry.write_text(CLIENTS % {"table": "parcels", "cluster": "unknown"})
    told = json.loads(run(*arguments).stdout)
    assert "table parcels: Kafka cluster unknown, which the registry does not have" in told["unchecked"]


def test_who_uses_a_topic_in_the_wrong_cluster_is_listed_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = MemoryCluster()
    cluster.add_broker(1, "rack1")
    late = Partition("late.parcels", 0)
    cluster.add_partition(late, [1])
    cluster.partitions[late].offsets[OffsetSpec.LATEST] = 50
    reader = GroupMember("app-1", "10.0.0.3", (late,))
    cluster.groups["billing"] = MemoryGroup(
        ListedGroup("billing", "classic", "Stable", 1), (reader,), {late: 20}
    )
    cluster.producers[late] = (ActiveProducer(7, 1_700_000_000_000, transaction_start=3),)

    @contextmanager
    def opened(_: str) -> Iterator[MemoryAdministration]:
        yield MemoryAdministration(cluster)

    monkeypatch.setattr(audit_command, "open_administration", opened)
    registry = tmp_path / "declared.yaml"
    registry.write_text(CLIENTS % {"table": "parcels", "cluster": "default"})
    arguments = ("--registry", str(registry), "--cluster", "one")
    done = run(*arguments)
    assert done.exit_code == 3, done
    used = [line.split("\t")[2:] for line in done.stdout.splitlines() if line.startswith("one\tlate.parcels")]
    assert used == [
        ["table parcels reads", "declared", "", "", ""],
        ["group billing", "classic, Stable, 1 member", "0", "lag 30", "app-1 at 10.0.0.3"],
        ["1 producer", "1 transaction open", "0", "2023-11-14 22:13:20Z", ""],
    ]
    findings = json.loads(run(*arguments, "--json").stdout)["findings"]
    (users,) = [each["users"] for each in findings if each["kind"] == "wrong_cluster"]
    assert users["groups"][0]["lag_records"] == 30
    assert users["producers"] == [
        {"partition": 0, "producers": 1, "last_written_ms": 1_700_000_000_000, "open_transactions": 1}
    ]
    assert {each["users"] for each in findings if each["kind"] != "wrong_cluster"} == {None}
