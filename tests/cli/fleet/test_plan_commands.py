"""`rtolap fleet plan` on recorded fleets: what it prints, keeps and draws."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rtolap.base.errors import (
    DefinitionError,
    ImpossiblePlan,
    IncompleteSnapshot,
    NotFound,
    PlanChanged,
    PlanRefused,
    Refused,
)
from rtolap.cli.fleet.commands import app
from rtolap.fleet.snapshot.file import save
from typer.testing import CliRunner, Result

from tests.support.fleet.random_fleets import huge_fleet


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("fleet") / "fleet.snapshot"
    save(huge_fleet(brokers=12, racks=4, replicas=3_000, topics=40), path)
    return str(path)


def _run(*arguments: str) -> Result:
    done = CliRunner().invoke(app, ["plan", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def test_a_plan_is_printed_kept_drawn_and_shown_again(fleet: str, tmp_path: Path) -> None:
    out, picture = tmp_path / "plan.json", tmp_path / "plan.svg"
    printed = _run(
        "disks", "--snapshot", fleet, "--out", str(out), "--plot", str(picture), "--moves", "3"
    ).stdout
    for part in (
        "Disks are",
        "Afterwards",
        "between brokers",
        "moves\t",
        "digest\t",
        "topic\tpartition\tfrom",
    ):
        assert part in printed
    kafka = json.loads((tmp_path / "plan.kafka.json").read_text())
    assert kafka["version"] == 1
    assert set(kafka["partitions"][0]) == {"topic", "partition", "replicas", "log_dirs"}
    for part in ("before", "after", "3:/data/1", "deviation"):
        assert part in picture.read_text()
    shown = _run("show", str(out), "--snapshot", fleet, "--moves", "3").stdout
    assert shown.startswith(printed.split("✓")[0].rstrip())
    assert "may be carried out" in shown
    told = json.loads(_run("show", str(out), "--moves", "2", "--json").stdout)
    assert len(told["largest"]) == 2
    assert all(move["written_per_s"] != "not known" for move in told["largest"])
    assert told["written_bytes_per_s"] > told["written_unknown"] == 0
    assert "a second to the partitions that are copied" in printed
    assert told["digest"] in printed


@pytest.mark.parametrize(
    "arguments",
    [
        ("leaders",),
        ("rack",),
        ("drain", "3"),
        ("add", "3"),
        ("remove-disk", "3:/data/1"),
        ("factor", "4", "--topic", "topic-00001"),
    ],
)
def test_each_plan_is_told_as_json(fleet: str, arguments: tuple[str, ...]) -> None:
    told = json.loads(_run(*arguments, "--snapshot", fleet, "--json").stdout)
    assert told["kind"] == arguments[0]
    assert told["why"]
    assert told["utilisation_after"]["most"] <= 1


REGISTRY = """kind: kafka_fleet
name: f
topics: [{match: ["*"], business: shop}]
clusters:
  one:
    businesses: [shop]
    pools: {vip: {brokers: [0, 1, 2, 3, 4, 5]}}
    placement: [{match: ["topic-0000*"], pools: [vip]}]
  other: {businesses: [shop], cluster_id: somewhere}
"""


def test_with_the_name_of_a_cluster_plans_keep_to_its_placement_rules(fleet: str, tmp_path: Path) -> None:
    registry, out = tmp_path / "clusters.yaml", str(tmp_path / "plan.json")
    registry.write_text(REGISTRY)
    declared = ("--registry", str(registry), "--cluster-name", "one")
    for arguments in (("disks",), ("drain", "3"), ("add", "3"), ("remove-disk", "3:/data/1"), ("rack",)):
        printed = _run(*arguments, "--snapshot", fleet, *declared, "--out", out).stdout
        assert "only to where placement rules let their topics stand" in printed
        assert "may be carried out" in _run("show", out, "--snapshot", fleet, *declared).stdout
    assert "placement rules" not in _run("disks", "--snapshot", fleet, "--out", out).stdout
    with pytest.raises(PlanRefused, match="may not stand"):
        _run("show", out, "--snapshot", fleet, *declared)
    with pytest.raises(DefinitionError, match="declares no cluster huge"):
        _run("disks", "--snapshot", fleet, "--registry", str(registry))
    with pytest.raises(Refused, match="not of cluster other"):
        _run("disks", "--snapshot", fleet, "--registry", str(registry), "--cluster-name", "other")


def test_the_registry_of_this_host_holds_for_the_clusters_that_it_declares(
    fleet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RTOLAP_INCLUDE_DIR", str(tmp_path))
    declared = REGISTRY.replace("  one:\n", "  one:\n    cluster_id: huge\n")
    (tmp_path / "clusters.yaml").write_text(declared)
    out = str(tmp_path / "plan.json")
    assert "placement rules" in _run("disks", "--snapshot", fleet, "--out", out).stdout
    assert "may be carried out" in _run("show", out, "--snapshot", fleet).stdout
    (tmp_path / "clusters.yaml").write_text(REGISTRY)
    assert "placement rules" not in _run("disks", "--snapshot", fleet).stdout


def test_leaders_are_planned_by_load_where_rates_are_known(fleet: str, tmp_path: Path) -> None:
    told = json.loads(_run("leaders", "--by-load", "--snapshot", fleet, "--json").stdout)
    assert (told["kind"], told["moves"]) == ("leaders-by-load", 0)
    assert "bytes a second as leaders" in told["why"][0]
    known = huge_fleet(brokers=12, racks=4, replicas=3_000, topics=40)
    rates = np.full(len(known.partitions), np.nan)
    partitions = replace(known.partitions, bytes_in_per_s=rates, bytes_out_per_s=rates)
    save(replace(known, partitions=partitions), tmp_path / "without")
    with pytest.raises(IncompleteSnapshot, match="rates are not known"):
        _run("leaders", "--by-load", "--snapshot", str(tmp_path / "without"))
    shown = _run("disks", "--snapshot", str(tmp_path / "without")).stdout
    assert "0 B a second to the partitions that are copied; not known of" in shown


def test_two_plans_are_told_apart(fleet: str, tmp_path: Path) -> None:
    one, other = str(tmp_path / "one.json"), str(tmp_path / "other.json")
    _run("disks", "--snapshot", fleet, "--out", one)
    _run("disks", "--snapshot", fleet, "--out", other, "--tolerance", "0.1")
    printed = _run("diff", one, other).stdout
    assert "{'tolerance': '0.1'}" in printed
    told = json.loads(_run("diff", one, one, "--json").stdout)
    assert told["partitions"]["same"] == told["one"]["partitions"] > 0


def test_what_cannot_be_planned_and_what_was_edited_is_an_error(fleet: str, tmp_path: Path) -> None:
    with pytest.raises(ImpossiblePlan, match="racks"):
        _run("factor", "5", "--topic", "topic-00001", "--snapshot", fleet)
    for unknown in (("drain", "99"), ("add", "99"), ("remove-disk", "99:/d0")):
        with pytest.raises(NotFound, match="no such broker"):
            _run(*unknown, "--snapshot", fleet)
    with pytest.raises(DefinitionError, match="BROKER:PATH"):
        _run("remove-disk", "/data/1", "--snapshot", fleet)
    out = tmp_path / "plan.json"
    _run("drain", "3", "--snapshot", fleet, "--out", str(out))
    out.write_bytes(out.read_bytes().replace(b'"brokers":"3"', b'"brokers":"4"'))
    with pytest.raises(PlanChanged):
        _run("show", str(out))
