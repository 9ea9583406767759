"""Seeded lives of the loader over the real front end, ledger and nodes, and whether they notice faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

import pytest
import sqlalchemy as sa
from rtolap.stored.frontend.transactions import preparation
from rtolap.stored.metastore import transactions as transaction_rows
from rtolap.stored.metastore.database import Connection
from rtolap.stored.metastore.records import BeginRequest, Replica, Transaction
from rtolap.stored.metastore.schema import load_transaction
from rtolap.stored.stream_load import writer as load_writer

from tests.support.loader.loader_stored_runs import run_seed
from tests.support.seeds import notices, so_many

SEEDS = so_many(4, 5)
_GROUPS = 1


@pytest.mark.seeded
@pytest.mark.parametrize("group", range(_GROUPS))
def test_each_record_is_read_back_once_from_every_replica_whatever_dies(group: int) -> None:
    """Replay a failure with `python -m tests.support.loader.loader_stored_runs --seed N`."""
    counts = Counter[str]()
    seeds = range(group, SEEDS, _GROUPS)
    for seed in seeds:
        try:
            counts += run_seed(seed)
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    wanted = ("crash", "came late", "taken over", "endpoint killed", "other master", "node away",
              "topic recreated")  # fmt: skip
    assert all(counts[what] >= max(1, len(seeds) // 10) for what in wanted), (
        f"runs in which little happens prove little: {counts}"
    )


def labels_are_taken_as_often_as_they_come(patch: pytest.MonkeyPatch) -> None:
    """Neither is a label looked up, nor does the ledger know that it is held."""
    real = transaction_rows.insert

    def insert(connection: Connection, wanted: BeginRequest, now_ms: int) -> Transaction:
        begun = real(connection, wanted, now_ms)
        held = sa.update(load_transaction).where(load_transaction.c.txn_id == begun.txn_id)
        connection.execute(held.values(live=None))
        return begun

    patch.setattr(transaction_rows, "insert", insert)


def nobody_counts_replicas(patch: pytest.MonkeyPatch) -> None:
    """A commit stands on nodes that have no rows of it."""

    def shortfall(replicas: Collection[Replica], holders: object) -> None:
        return None

    patch.setattr(load_writer, "shortfall", shortfall)
    patch.setattr(preparation, "shortfall", shortfall)


@pytest.mark.parametrize(
    ("fault", "first_seed", "said"),
    [
        (labels_are_taken_as_often_as_they_come, 1, "differs from a recount"),
        (nobody_counts_replicas, 147, "has broken tablets"),
    ],
)
def test_the_runs_notice(
    fault: Callable[[pytest.MonkeyPatch], None], first_seed: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    assert notices(run_seed, first_seed, said)
