from __future__ import annotations

import random
from pathlib import Path
from typing import NoReturn

import pytest
from rtolap.backup.cluster_copy import copy_cluster
from rtolap.backup.file_format import Backup
from rtolap.backup.findings import Finding
from rtolap.backup.restoring import RestorePlan, plan_restore, restore, take_backup
from rtolap.base.errors import Refused
from rtolap.metadata import paths
from rtolap.metadata.signed import SignedStore
from rtolap.metadata.store import Create, MetadataStore
from rtolap.object_store.store import ObjectStore, open_store

from tests.support.cubes.mortal_coordinator import Killed, MortalStore
from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

CLUSTER, TOKEN = "/rtolap", "the token of this cluster"
CLOCK = ManualClock(1_000)


def drawn_records(seed: int) -> dict[str, bytes]:
    """Return a tree of records, some of them parents of others, and more than one commit holds."""
    drawn = random.Random(seed)
    folders = ["", "/definitions/tables", "/replica_sets_lead", "/fleet/id-k/plans", "/requests"]
    found: dict[str, bytes] = {}
    for number in range(drawn.randrange(1, 500)):
        path = f"{drawn.choice(folders)}/n{number}"
        found[path] = drawn.randbytes(drawn.choice((1, 50, 20_000)))
        if drawn.random() < 0.3:
            folders.append(path)
    return found


@pytest.fixture
def files(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path.as_uri())


def opened(ensemble: MemoryEnsemble) -> MetadataStore:
    return SignedStore(MemoryStore(ensemble), TOKEN)


def planned(records: dict[str, bytes], files: ObjectStore) -> RestorePlan:
    ensemble = MemoryEnsemble()
    store = opened(ensemble)
    for path, data in sorted(records.items()):
        store.commit([Create(path, data)])
    header, copied = take_backup(store, CLOCK, cluster=CLUSTER, token=TOKEN, program="1")
    assert copied == records
    return plan_restore(Backup(header, copied), CLOCK, files, _no_logs)


def _no_logs(cluster: str) -> NoReturn:
    raise AssertionError("there is no cube")


@pytest.mark.parametrize("seed", range(12))
def test_a_restore_that_is_cut_short_anywhere_is_known_and_is_repeated(seed: int, files: ObjectStore) -> None:
    drawn, records = random.Random(seed), drawn_records(seed)
    plan, ensemble = planned(records, files), MemoryEnsemble()
    dying = MortalStore(ensemble)
    dying.die(drawn.randrange(0, 6), drawn.choice(("before", "after")))
    try:
        restore(plan, SignedStore(dying, TOKEN), CLOCK, files)
    except Killed:
        assert ensemble.nodes.keys() == {""} or paths.RESTORING in ensemble.nodes or _is_whole(ensemble)
    restore(plan, opened(ensemble), CLOCK, files, overwrite=True)
    assert copy_cluster(opened(ensemble)).records == records
    assert paths.RESTORING not in ensemble.nodes


def _is_whole(ensemble: MemoryEnsemble) -> bool:
    """Return True where it died once all was done."""
    return bool(copy_cluster(opened(ensemble)).records)


def test_a_cluster_that_is_not_empty_is_left_alone(files: ObjectStore) -> None:
    plan, ensemble = planned({"/a": b"1", "/b/c": b"2"}, files), MemoryEnsemble()
    opened(ensemble).commit([Create("/b/other", b"3")])
    with pytest.raises(Refused, match=r"the cluster is not empty.*/b/other.*--overwrite /rtolap"):
        restore(plan, opened(ensemble), CLOCK, files)
    assert copy_cluster(opened(ensemble)).records == {"/b/other": b"3"}
    restore(plan, opened(ensemble), CLOCK, files, overwrite=True)
    assert copy_cluster(opened(ensemble)).records == {"/a": b"1", "/b/c": b"2"}


def test_services_that_run_are_in_the_way(files: ObjectStore) -> None:
    plan, ensemble = planned({"/a": b"1"}, files), MemoryEnsemble()
    service = opened(ensemble)
    service.commit([Create("/receivers_live/r1", b"1", ephemeral=True)])
    for overwrite in (False, True):
        with pytest.raises(Refused, match=r"services of this cluster run.*/receivers_live/r1"):
            restore(plan, opened(ensemble), CLOCK, files, overwrite=overwrite)
    service.close()
    restore(plan, opened(ensemble), CLOCK, files, overwrite=True)


def test_what_is_lacking_is_restored_only_on_demand(files: ObjectStore) -> None:
    plan, ensemble = planned({"/a": b"1"}, files), MemoryEnsemble()
    plan = plan._replace(findings=(Finding("lacking", "cube c", "topic t is missing"),))
    with pytest.raises(Refused, match=r"1 things.*cube c: topic t is missing"):
        restore(plan, opened(ensemble), CLOCK, files)
    assert ensemble.nodes.keys() == {""}, "nothing was written"
    restore(plan, opened(ensemble), CLOCK, files, lacking=True)
