"""Backup and restore over real ZooKeeper: while others write, and back into closed and signed nodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rtolap.backup.cluster_copy import copy_cluster, live_sessions
from rtolap.backup.file_format import Backup
from rtolap.backup.restoring import plan_restore, restore, take_backup
from rtolap.base.clock import SystemClock
from rtolap.base.errors import CommitConflict, Refused
from rtolap.base.settings import Settings
from rtolap.metadata import paths
from rtolap.metadata.cluster_store import open_cluster_store
from rtolap.metadata.signed import SignedStore
from rtolap.metadata.store import Create, Delete
from rtolap.object_store.store import open_store

pytestmark = pytest.mark.integration

TOKEN = "the-secret-of-this-cluster"
PLACES = tuple(f"/requests/at-{number}" for number in range(6))


@pytest.fixture
def settings(tmp_path: Path, zookeeper: str, unique_name: str) -> Settings:
    (tmp_path / "token").write_text(TOKEN)
    return Settings(zookeeper=zookeeper, zookeeper_root=f"/{unique_name}", token_file=tmp_path / "token")


@pytest.fixture
def store(settings: Settings) -> Iterator[SignedStore]:
    with closing(open_cluster_store(settings)) as opened:
        yield opened


def test_a_record_that_moves_is_in_one_place_of_each_backup(store: SignedStore, settings: Settings) -> None:
    store.commit([Create(PLACES[0], b"here"), *(Create(f"/kept/{n}", b"x") for n in range(20))])
    over = threading.Event()

    def move() -> None:
        with closing(open_cluster_store(settings)) as other:
            at = 0
            while not over.wait(0.004):
                following = (at + 1) % len(PLACES)
                other.commit([Delete(PLACES[at]), Create(PLACES[following], b"here")])
                at = following

    moving = threading.Thread(target=move)
    moving.start()
    copies = []
    try:
        for _ in range(5):
            try:
                copies.append(copy_cluster(store, passes_max=30).records)
            except Refused:
                continue  # it never stood still for so long: no backup, and no wrong one
    finally:
        over.set()
        moving.join()
    copies.append(copy_cluster(store).records)
    for records in copies:
        assert len(records.keys() & set(PLACES)) == 1
        assert len(records) == 21


def test_records_come_back_closed_and_signed(store: SignedStore, settings: Settings, tmp_path: Path) -> None:
    store.commit([Create("/requests/one", b"1"), Create("/fleet/id-k/plans/p", b"2" * 500_000)])
    store.commit([Create("/fleet/id-k/plans/q", b"2" * 600_000), Create("/live/r1", b"3", ephemeral=True)])
    clock, files = SystemClock(), open_store((tmp_path / "store").as_uri())
    header, records = take_backup(store, clock, cluster="/c", token=TOKEN, program="1")
    assert set(records) == {"/requests/one", "/fleet/id-k/plans/p", "/fleet/id-k/plans/q"}
    plan = plan_restore(Backup(header, records), clock, files, lambda cluster: pytest.fail("no cube"))
    with pytest.raises(Refused, match="/live/r1"):
        restore(plan, store, clock, files, overwrite=True)
    store.commit([Delete("/live/r1"), Delete("/requests/one")])
    store.commit([Create(paths.RESTORING, b"an earlier one, cut short")])
    with pytest.raises(Refused, match="was cut short"):
        open_cluster_store(settings)
    with closing(open_cluster_store(settings, restores=True)) as restoring:
        restore(plan, restoring, clock, files, overwrite=True)
    with closing(open_cluster_store(settings)) as opened:
        assert copy_cluster(opened).records == records
        assert live_sessions(opened) == []
        with pytest.raises(CommitConflict):
            opened.commit([Create("/requests/one", b"")])
