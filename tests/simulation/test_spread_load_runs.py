"""Seeded loads at every door over deaths and elections, and whether the runs notice planted faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from rtolap.base.errors import RtolapError
from rtolap.stored.metastore import transactions as transaction_rows
from rtolap.stored.metastore.database import Connection
from rtolap.stored.metastore.records import BeginRequest, Transaction
from rtolap.stored.metastore.schema import load_transaction
from rtolap.stored.stream_load.committing import Committing

from tests.support.seeds import notices, so_many
from tests.support.stored.spread_load_runs import run_seed

SEEDS = so_many(8)


@pytest.mark.seeded
def test_each_label_is_loaded_whole_and_once_or_not_at_all_at_whichever_door() -> None:
    """Replay a failure with `python -m tests.support.stored.spread_load_runs --seed N`."""
    counts = sum((run_seed(seed) for seed in range(SEEDS)), Counter[str]())
    wanted = ("Success", "Label Already Exists", "Fail", "held", "master killed", "follower killed",
              "node's process killed", "other master", "decision lost", "decision answer lost")  # fmt: skip
    assert all(counts[what] for what in wanted), f"runs in which little happens prove little: {counts}"


def labels_are_taken_as_often_as_they_come(patch: pytest.MonkeyPatch) -> None:
    """The ledger does not know that a label is held."""
    real = transaction_rows.insert

    def insert(connection: Connection, wanted: BeginRequest, now_ms: int) -> Transaction:
        begun = real(connection, wanted, now_ms)
        held = sa.update(load_transaction).where(load_transaction.c.txn_id == begun.txn_id)
        connection.execute(held.values(live=None))
        return begun

    patch.setattr(transaction_rows, "insert", insert)


def a_commit_without_an_answer_passes_for_done(patch: pytest.MonkeyPatch) -> None:
    def stands(self: Committing, transaction: Transaction, error: RtolapError) -> bool:
        return True

    patch.setattr(Committing, "_stands", stands)


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (labels_are_taken_as_often_as_they_come, ""),
        (a_commit_without_an_answer_passes_for_done, "was answered as loaded, and is not there"),
    ],
)
def test_the_runs_notice(
    plant: Callable[[pytest.MonkeyPatch], None], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert notices(run_seed, 0, said)
