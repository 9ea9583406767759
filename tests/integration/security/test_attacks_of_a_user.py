"""What one plain user or a neighbour does at full size takes nothing from others, and no memory beyond its
bound: services as processes, with their default settings.

The table of latencies and memory is printed behind the last attack; `python -m benchmarks.hostile` makes it
too. `make soak` draws others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hostile.attacked import Attacked, AttackedCluster, attacked_cluster, table_of
from tests.support.hostile.user_attacks import ATTACKS
from tests.support.seeds import so_many

pytestmark = pytest.mark.integration
SEED = int(os.environ.get("RTOLAP_HOSTILE_SEED", "1"))


@pytest.fixture(scope="module")
def reports() -> Iterator[list[Attacked]]:
    found: list[Attacked] = []
    yield found
    if found:
        print(f"\n{table_of(found)}")


@pytest.fixture(scope="module")
def cluster(module_folder: Path, zookeeper: str, kafka: str) -> Iterator[AttackedCluster]:
    with attacked_cluster(module_folder / "attacked", zookeeper, kafka) as made:
        yield made


@pytest.mark.seeded
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_takes_no_memory_and_no_answer_from_others(
    cluster: AttackedCluster, reports: list[Attacked], attack: str
) -> None:
    for seed in range(SEED, SEED + so_many(1)):
        report = cluster.attack(attack, seed)
        print(report)
        reports.append(report)
        report.check()


def test_services_say_nothing_that_they_did_not_expect(cluster: AttackedCluster) -> None:
    for name, log in cluster.world.logs().items():
        assert "Traceback" not in log, f"{name}: {log[log.index('Traceback') - 500 :][:3000]}"
