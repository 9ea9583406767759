"""Seeded runs of a stored table as the listener; `python -m tests.support.sep.table_runs` replays a seed."""

from __future__ import annotations

from collections import Counter

import pytest
from rtolap.protocols.stream_load.messages import LoadAnswer, LoadState
from rtolap.sep.delivery.journal import Journal, LoadEnded
from rtolap.sep.listeners import stored_table
from rtolap.sep.listeners.stored_table import StoredTableListener

from tests.support.seeds import notices, so_many
from tests.support.sep import row_lives
from tests.support.sep.row_lives import visible
from tests.support.sep.table_runs import run_seed


@pytest.mark.seeded
def test_every_event_is_loaded_once_and_the_rows_are_those_of_hbase() -> None:
    happened: Counter[str] = Counter()
    for seed in range(so_many(40)):
        try:
            happened += run_seed(seed)
        except AssertionError as error:
            raise AssertionError(
                f"seed {seed}: python -m tests.support.sep.table_runs --seed {seed}"
            ) from error
    # the runs meet what they are about
    for what in ("unique", "duplicate", "take-over", "arrived later", "killed: load", "killed: answer"):
        assert happened[what] > 10, happened
    for what in ("killed: sent", "lost: load", "lost: answer", "lost: close"):
        assert happened[what] > 10, happened
    for what in (
        "killed: close",
        "killed after: close",
        "lost after: close",
        "killed later: load",
        "lost later: load",
        "half done: load",
        "aborted: load",
        "too few: nodes",
        "away: rows",
        "late",
    ):
        assert happened[what] > 5, happened
    assert happened["rows as in HBase"] > 100
    assert happened["rows that are gone"] > 20


LOADED = (LoadState.COMMITTED, LoadState.VISIBLE)


class TakesOpenLoadsForLost(StoredTableListener):
    def recover(self, journal: Journal) -> None:
        journal.open_loads.clear()
        super().recover(journal)


class AsksOnly(StoredTableListener):
    """What is not loaded by now is taken for lost, though its label is open."""

    def _close_label(self, journal: Journal, label: str) -> bool:
        is_taken = self._endpoint.state(self._database, label) in LOADED  # type: ignore[attr-defined]
        journal.write([LoadEnded(label, is_taken)])
        return is_taken


@pytest.mark.parametrize(("make_listener", "first_seed"), [(TakesOpenLoadsForLost, 1), (AsksOnly, 3)])
def test_the_runs_notice_a_listener_that_is_wrong(
    make_listener: type[StoredTableListener], first_seed: int
) -> None:
    assert notices(lambda seed: run_seed(seed, make_listener=make_listener), first_seed, "twice", seeds=200)


def test_the_runs_notice_refusals_of_the_cluster_that_blame_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoadAnswer, "refuses_rows", True)
    assert notices(run_seed, 10, "lost", seeds=60)


def test_the_runs_notice_labels_that_are_given_back_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_table, "CLOCKS_APART_MS", 0)
    assert notices(run_seed, 52, "twice", seeds=60)


def test_the_runs_notice_rows_that_are_read_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a read point is that does not have the edit yet that asks for the row."""
    monkeypatch.setattr(row_lives, "visible", lambda edits: visible(edits[:-1]))
    assert notices(run_seed, 1, "other rows", seeds=60)
