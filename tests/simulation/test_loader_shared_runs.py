"""Seeded lives of a job that several processes share, and whether they notice faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from rtolap.stored.loader.job import Portion
from rtolap.stored.metastore import load_shares, schema
from rtolap.stored.metastore.leases import Lease, Leases
from rtolap.stored.metastore.load_shares import LoadShares
from rtolap.stored.metastore.offsets import OffsetsRecord

from tests.support.loader.loader_runs import World
from tests.support.loader.loader_shared_runs import SharedRun, run_seed
from tests.support.seeds import notices, so_many

SEEDS = so_many(24)
_GROUPS = 2


@pytest.mark.seeded
@pytest.mark.parametrize("group", range(_GROUPS))
def test_each_record_has_its_effect_once_whoever_owns_its_share(group: int) -> None:
    """Replay a failure with `python -m tests.support.loader.loader_shared_runs --seed N`."""
    world, counts = World(), Counter[str]()
    for seed in range(group, SEEDS, _GROUPS):
        try:
            counts += SharedRun(world, seed).run()
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    wanted = ("crash", "killed", "stood still", "share lost", "share given up", "share not free", "left",
              "came late", "began undivided", "partitions added")  # fmt: skip
    assert all(counts[what] for what in wanted), f"runs in which little happens prove little: {counts}"


def an_owner_that_has_lost_its_share_writes_on(patch: pytest.MonkeyPatch) -> None:
    real = Leases.fence

    def fence(self: Leases, connection: sa.Connection, lease: Lease) -> int:
        if self._table is schema.load_share:
            return self._ledger.now_ms(connection)
        return real(self, connection, lease)

    patch.setattr(Leases, "fence", fence)


def a_share_is_free_for_everybody(patch: pytest.MonkeyPatch) -> None:
    """Two processes own a share at once, in one epoch."""
    real = Leases.acquire

    def acquire(self: Leases, name: str, owner: str, lease_ms: int) -> Lease:
        if self._table is not schema.load_share:
            return real(self, name, owner, lease_ms)
        return Lease(name, owner, 1, lease_ms)

    patch.setattr(Leases, "acquire", acquire)
    an_owner_that_has_lost_its_share_writes_on(patch)


def each_share_has_all_partitions_that_come(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Portion, "has_partition", lambda self, partition: True)


def a_job_is_divided_where_its_first_record_begins(patch: pytest.MonkeyPatch) -> None:
    """Not where the last one ends."""
    real = load_shares._first_record

    def first_record(last: OffsetsRecord, *arguments: Any) -> OffsetsRecord:
        share = real(last, *arguments)
        start = {partition: last.start_offsets[partition] for partition in share.end_offsets}
        return OffsetsRecord(**{**_fields(share), "start_offsets": start, "end_offsets": start})

    patch.setattr(load_shares, "_first_record", first_record)


def a_share_moves_to_a_record_of_its_own_label(patch: pytest.MonkeyPatch) -> None:
    """A new owner forgets what was recorded and not loaded, and reads it under other labels."""
    real = LoadShares.division

    def division(self: LoadShares, job_id: str) -> load_shares.Division:
        found = real(self, job_id)
        for share in found.shares:
            if share.owned is False and share.epoch:
                gone = sa.delete(schema.offsets_record).where(
                    schema.offsets_record.c.job_id == share.share_id,
                    schema.offsets_record.c.loaded == 0,
                )
                self._ledger.write("forget", type(None), lambda connection, gone=gone: _run(connection, gone))
        return found

    patch.setattr(LoadShares, "division", division)


def _run(connection: sa.Connection, statement: sa.Delete) -> None:
    connection.execute(statement)


def _fields(record: OffsetsRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


@pytest.mark.parametrize(
    ("fault", "first_seed"),
    [
        (a_share_is_free_for_everybody, 0),
        (each_share_has_all_partitions_that_come, 0),
        (a_job_is_divided_where_its_first_record_begins, 0),
        (a_share_moves_to_a_record_of_its_own_label, 0),
        (an_owner_that_has_lost_its_share_writes_on, 0),
    ],
)
def test_the_runs_notice(
    fault: Callable[[pytest.MonkeyPatch], None], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    assert notices(run_seed, first_seed, "differs from a recount")
