"""Seeded lives of a job that several processes share, and whether they notice faults."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from rtolap.protocols.stream_load.messages import LoadState
from rtolap.stored.loader.job import Portion
from rtolap.stored.loader.job_run import LoadJobRun
from rtolap.stored.loader.states import ACTIONS, Action, Sent
from rtolap.stored.metastore import load_shares, schema
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.leases import Lease, Leases
from rtolap.stored.metastore.offsets import Loaded, OffsetsRecord, OffsetsRecords

from tests.support.loader.interleaving import (
    BATCH_STEPS,
    CRASH_STEPS,
    OWNED_TWICE,
    TAKES,
    PointedSink,
    points_of,
)
from tests.support.loader.loader_shared_runs import SharedRun, run_seed, world
from tests.support.seeds import notices, so_many

SEEDS = so_many(8)
DOUBLED = "differs from a recount: twice in it"
MISSING = "differs from a recount: not in it"
_GROUPS = 1


@pytest.mark.seeded
@pytest.mark.parametrize("group", range(_GROUPS))
def test_each_record_has_its_effect_once_whoever_owns_its_share(group: int) -> None:
    """Replay a failure with `python -m tests.support.loader.loader_shared_runs --seed N`."""
    counts = Counter[str]()
    for seed in range(group, SEEDS, _GROUPS):
        try:
            counts += run_seed(seed)
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    often = ("crash", "joined", "share lost", "share lost with a batch under way", "came late",
             "share given up", "share not free")  # fmt: skip
    once = ("killed", "left", "late commit", "began undivided", "partitions added", "fenced at the end",
            "stopped by a successor's work")  # fmt: skip
    wanted = dict.fromkeys(often, SEEDS) | dict.fromkeys(once, 1)
    seldom = {"overtaken after commit label", "died before join", "died after join"}
    points = {f"overtaken {point}" for point in points_of(BATCH_STEPS)}
    points |= {f"died {point}" for point in points_of(CRASH_STEPS)}
    wanted |= dict.fromkeys(points - seldom, 1)
    rare = {what: (counts[what], times) for what, times in wanted.items() if counts[what] < times}
    assert not rare, f"runs in which little happens prove little: {rare} of {counts}"


class _Unfenced(Leases):
    """Leases whose fence lets everybody through."""

    def fence(self, connection: sa.Connection, lease: Lease) -> int:
        return self.ledger.now_ms(connection)


def writes_of_an_owner_before_are_accepted(patch: pytest.MonkeyPatch) -> None:
    real = OffsetsRecords.__init__

    def init(self: OffsetsRecords, ledger: Ledger, *, of_shares: bool = False) -> None:
        real(self, ledger, of_shares=of_shares)
        if of_shares:
            self._leases = _Unfenced(ledger, schema.load_share)

    patch.setattr(OffsetsRecords, "__init__", init)


def a_share_is_free_for_everybody(patch: pytest.MonkeyPatch) -> None:
    """Also while its owner's lease runs. The epoch rises, so that the owner before writes nothing more: what
    is loaded is right, and yet a share that moves has two owners who send."""
    patch.setattr(Leases, "is_free", lambda self, name, owner: True)
    real = Leases.acquire

    def acquire(self: Leases, name: str, owner: str, lease_ms: int) -> Lease:
        if self._table is not schema.load_share:
            return real(self, name, owner, lease_ms)

        def work(connection: sa.Connection) -> Lease:
            row, now_ms = self._row(connection, name), self.ledger.now_ms(connection)
            assert row is not None
            taken = Lease(name, owner, row.epoch + 1, now_ms + lease_ms)
            self._set(connection, taken)
            return taken

        return self.ledger.write(f"{TAKES}{name}", Lease, work)

    patch.setattr(Leases, "acquire", acquire)


def records_are_forgotten_on_a_move(patch: pytest.MonkeyPatch) -> None:
    """The new owner takes what was recorded for done, and goes on behind it."""
    real = LoadJobRun._still_there

    def still_there(self: LoadJobRun, records: tuple[OffsetsRecord, ...]) -> tuple[OffsetsRecord, ...]:
        lease = self.ownership.lease
        for record in records:
            if not record.loaded:
                self._records.mark_loaded(lease, record.sequence_id, Loaded(None, 0))
        return real(self, self._records.all(lease.name))

    patch.setattr(LoadJobRun, "_still_there", still_there)


def labels_do_not_name_the_share(patch: pytest.MonkeyPatch) -> None:
    """And a label that is known counts as loaded, else the loader stops at the first one."""
    for method in ("load", "state", "commit_label", "acknowledge"):
        patch.setattr(PointedSink, method, _without_share(getattr(PointedSink, method)))
    for state in (LoadState.VISIBLE, LoadState.COMMITTED):
        patch.setitem(ACTIONS, (Sent.NEVER, state), Action.LOADED)


def _without_share(real: Callable[..., Any]) -> Callable[..., Any]:
    def without(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [without(each) for each in value]
        return re.sub(r"_s\d+_", "_", value) if isinstance(value, str) else value

    def method(self: PointedSink, *arguments: Any, **named: Any) -> Any:
        return real(self, *map(without, arguments), **named)

    return method


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


def _fields(record: OffsetsRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


@pytest.mark.parametrize(
    ("fault", "said", "first_seed"),
    [
        (a_share_is_free_for_everybody, OWNED_TWICE, 0),
        (writes_of_an_owner_before_are_accepted, DOUBLED, 8),
        (records_are_forgotten_on_a_move, MISSING, 4),
        (labels_do_not_name_the_share, MISSING, 4),
        (each_share_has_all_partitions_that_come, DOUBLED, 1),
        (a_job_is_divided_where_its_first_record_begins, DOUBLED, 5),
    ],
)
def test_the_runs_notice(
    fault: Callable[[pytest.MonkeyPatch], None],
    said: str,
    first_seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault(monkeypatch)
    assert notices(lambda seed: SharedRun(world(), seed, goes_on=True).run(), first_seed, said)
