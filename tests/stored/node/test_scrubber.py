"""A node reads again what it has: damage is found while another replica is whole, and nothing else stops."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.base.errors import Corrupted, Unavailable
from rtolap.protocols.storage import messages as wire
from rtolap.stored.node.node import LocalNode
from rtolap.stored.node.process import node_metrics
from rtolap.stored.node.scrubber import Scrubber
from rtolap.stored.node.settings import StorageSettings

from tests.support.cubes.services import wait_for
from tests.support.hostile.damage import change_bit
from tests.support.hostile.lost_sectors import small_disk
from tests.support.stored.storage_nodes import InProcessNodes
from tests.support.stored.storage_rows import SCHEMA, read, rows, tablet

TABLETS = (tablet(0), tablet(1))
VERSIONS = 3


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[InProcessNodes]:
    found = InProcessNodes(tmp_path, ("a", "b"), StorageSettings(verify_every_s=0.01, verify_bytes_per_s=1e9))
    for node in found.nodes.values():
        node.create(wire.CreateTablets(TABLETS, SCHEMA))
        for version in range(1, VERSIONS + 1):
            stream = node.put(wire.PutHead(version, SCHEMA), rows().schema)
            for each in TABLETS:
                stream.write(each, rows(version))
            stream.finish(wire.PutEnd(tuple(wire.TabletRows(each, 1) for each in TABLETS)))
            node.publish(wire.Publish(version, tuple((each, version) for each in TABLETS)))
    yield found
    found.close()


def files_of(place: Path, pattern: str) -> list[Path]:
    return sorted(path for path in place.glob(pattern) if path.is_file() and path.stat().st_size)


@pytest.mark.parametrize("seed", range(6))
def test_damage_anywhere_in_a_tablet_is_found_without_anybody_who_reads_it(
    nodes: InProcessNodes, tmp_path: Path, seed: int
) -> None:
    rng, node = random.Random(seed), nodes.nodes["a"]
    node.scrubber.start()
    wait_for("all was read", lambda: node.scrubber.rounds > 0, 10)
    assert node.status().broken == {}
    file = rng.choice(files_of(tmp_path / "a" / "tablets" / "1.all.0", "g1/**/*"))
    change_bit(file, rng.randrange(file.stat().st_size), rng.randrange(8))
    wait_for("the damage is known", lambda: list(node.status().broken) == ["1.all.0"], 10)
    rounds = node.scrubber.rounds
    wait_for("the other tablet is verified on", lambda: node.scrubber.rounds > rounds + 1, 10)
    assert read(node, tablet(1), VERSIONS) == [(version, "x") for version in range(1, VERSIONS + 1)]
    missed = (wire.Missed(VERSIONS, VERSIONS),)
    assert node.catch_up(wire.CatchUp(tablet(0), SCHEMA, missed, ("b",))).version == VERSIONS
    assert read(node, tablet(0), VERSIONS) == read(nodes.nodes["b"], tablet(0), VERSIONS)
    assert node.status().broken == {}
    shown = node_metrics(node).render()[0].decode()
    (verified,) = re.findall(r"^rtolap_storage_verified_bytes_total (\S+)$", shown, re.MULTILINE)
    assert 0 < float(verified) <= node.scrubber.verified_bytes


@pytest.mark.parametrize("seed", range(6))
def test_a_file_that_a_disk_cannot_read_costs_its_tablet_alone(
    nodes: InProcessNodes, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    file = rng.choice(files_of(tmp_path / "a" / "tablets" / "1.all.0", "**/*"))
    with small_disk(tmp_path / "mounted") as disk:
        disk.lose(file, rng.choice((0.0, rng.random())))
        if file.name != "about.json":  # read when a node starts
            nodes.nodes["a"].scrubber.run_once()
            assert list(nodes.nodes["a"].status().broken) == ["1.all.0"]
        nodes.stop("a")
        nodes.start("a")
        node = nodes.nodes["a"]
        assert list(node.status().broken) == ["1.all.0"]
        assert read(node, tablet(1), VERSIONS) == read(nodes.nodes["b"], tablet(1), VERSIONS)
        with pytest.raises(Unavailable, match="cannot be opened here"):
            node.scan(wire.ScanRequest(tablet(0), SCHEMA, VERSIONS))
        missed = (wire.Missed(VERSIONS, VERSIONS),)
        assert node.catch_up(wire.CatchUp(tablet(0), SCHEMA, missed, ("b",))).version == VERSIONS
        assert read(node, tablet(0), VERSIONS) == read(nodes.nodes["b"], tablet(0), VERSIONS)


def test_a_tablet_that_is_dropped_or_copied_meanwhile_is_no_damaged_one(nodes: InProcessNodes) -> None:
    node = nodes.nodes["a"]
    replica = node._slots.get(tablet(0))
    verified = replica.verify()
    next(verified)
    node.drop(wire.DropTablets((tablet(0),)))
    with pytest.raises(Unavailable, match="no longer on this node"):
        list(verified)
    node.scrubber.run_once()
    assert node.status().broken == {}
    assert node.scrubber.rounds == 1


def test_it_reads_no_faster_than_it_may_and_stops_at_once(nodes: InProcessNodes, tmp_path: Path) -> None:
    class Paced(Scrubber):
        """It notes its pauses."""

        paused_s = 0.0

        def _pause(self, seconds: float) -> bool:
            self.paused_s += seconds
            return False

    node: LocalNode = nodes.nodes["a"]
    paced = Paced(node._slots, 3600.0, bytes_per_s=100.0)
    paced.run_once()
    assert paced.paused_s == pytest.approx(paced.verified_bytes / 100)
    assert paced.verified_bytes == sum(
        file.stat().st_size for file in files_of(tmp_path / "a" / "tablets", "*/g1/**/*")
    )
    scrubber = Scrubber(node._slots, 0.0, bytes_per_s=0.001)
    scrubber.start()
    wait_for("it reads", lambda: scrubber.verified_bytes > 0, 10)
    scrubber.stop()
    assert scrubber.rounds == 0


def test_a_copy_of_damaged_rows_replaces_nothing(nodes: InProcessNodes, tmp_path: Path) -> None:
    """What is here may be all that is whole, even where it is older."""
    source, here = nodes.nodes["b"], nodes.nodes["a"]
    for version in range(VERSIONS + 1, VERSIONS + 9):
        stream = source.put(wire.PutHead(version, SCHEMA), rows().schema)
        stream.write(tablet(0), rows(version))
        stream.finish(wire.PutEnd((wire.TabletRows(tablet(0), 1),)))
        source.publish(wire.Publish(version, ((tablet(0), version),)))
    replica = source._slots.get(tablet(0))
    while replica.open().compact():
        """Until it can be copied whole alone."""
    (file, *_) = sorted((tmp_path / "b" / "tablets" / "1.all.0").rglob("rowsets/c*/*.rows"))
    change_bit(file, file.stat().st_size // 2)
    here.catch_up(wire.CatchUp(tablet(0), SCHEMA, (wire.Missed(VERSIONS + 8, None),), ("b",)))
    assert read(here, tablet(0), VERSIONS) == [(version, "x") for version in range(1, VERSIONS + 1)]
    with pytest.raises(Corrupted, match=file.name):
        source.scan(wire.ScanRequest(tablet(0), SCHEMA, VERSIONS + 8))
    assert list(source.status().broken) == ["1.all.0"], "it serves no statement either"
