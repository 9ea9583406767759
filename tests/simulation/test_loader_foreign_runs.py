"""Seeded runs of the loader into stand-ins for Doris and StarRocks that forget labels, break off and die."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
from rtolap.protocols.stream_load.messages import SendOptions
from rtolap.protocols.stream_load.starrocks import StarRocksClient
from rtolap.stored.loader import settle
from rtolap.stored.loader.records.decode import Decoded
from rtolap.stored.loader.settle import Settler
from rtolap.stored.loader.states import Sent
from rtolap.stored.metastore.offsets import OffsetsRecord

from tests.support.loader.loader_foreign_runs import run_joining_seed, run_late_commit_seed, run_seed
from tests.support.seeds import notices, so_many

SEEDS, LATE_SEEDS = so_many(16, 26), so_many(8, 26)


@pytest.mark.seeded
def test_each_record_has_its_effect_once_in_doris_and_in_starrocks() -> None:
    """Replay a failure with `python -m tests.support.loader.loader_foreign_runs --seed N`."""
    counts = Counter[str]()
    for seed in range(SEEDS):
        try:
            counts += run_seed(seed)
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    wanted = ("runs of doris", "runs of starrocks", "crash", "fe cut before", "fe cut after", "taken over",
              "others' labels", "backend killed")  # fmt: skip
    assert all(counts[what] for what in wanted), f"runs in which little happens prove little: {counts}"


def each_unknown_label_is_believed(patch: pytest.MonkeyPatch) -> None:
    def believed(record: OffsetsRecord, *_: object) -> Sent:
        return Sent.LATELY if record.attempts else Sent.NEVER

    patch.setattr(settle, "sent_when", believed)


def rows_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    options = Settler._options

    def without(self: Settler, decoded: Decoded) -> SendOptions:
        return msgspec.structs.replace(options(self, decoded), rows=None)

    patch.setattr(Settler, "_options", without)


def a_transaction_that_nobody_has_counted_is_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StarRocksClient, "requests_may_join", False)


@pytest.mark.seeded
def test_rows_that_come_late_into_a_transaction_of_their_label_are_never_committed() -> None:
    counts = Counter[str]()
    for seed in range(LATE_SEEDS):
        counts += run_joining_seed(seed)
    wanted = ("late rows in a transaction", "prepared, and nobody knows", "crash")
    assert all(counts[what] for what in wanted), f"runs in which little happens prove little: {counts}"


@pytest.mark.seeded
def test_a_load_and_a_commit_of_an_earlier_attempt_that_both_come_late_commit_nothing_twice() -> None:
    counts = Counter[str]()
    for seed in range(LATE_SEEDS):
        counts += run_late_commit_seed(seed)
    wanted = ("late rows in a transaction", "commit of a dead process", "commit without an answer",
              "came late", "crash")  # fmt: skip
    assert all(counts[what] for what in wanted), f"runs in which little happens prove little: {counts}"


def a_label_is_used_again_while_its_commit_may_come(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Settler, "_waits_for_commits", lambda self, pending: False)


@pytest.mark.parametrize(
    ("fault", "run", "first_seed"),
    [
        (each_unknown_label_is_believed, run_seed, 3),
        (rows_are_not_counted, run_joining_seed, 1),
        (a_transaction_that_nobody_has_counted_is_committed, run_joining_seed, 1),
        (a_label_is_used_again_while_its_commit_may_come, run_late_commit_seed, 4),
    ],
)
def test_the_runs_notice(
    fault: Callable[[pytest.MonkeyPatch], None],
    run: Callable[[int], Counter[str]],
    first_seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault(monkeypatch)
    assert notices(run, first_seed, "differs from a recount")
