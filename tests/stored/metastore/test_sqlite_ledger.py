"""The contract on SQLite: as a file with a clock of its own, and in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.upgrade import SHIPPED, Revisions

from tests.support.stored.ledger_contract import Databases, LedgerContract
from tests.support.stored.ledgers import open_ledger
from tests.support.twins.clock import ManualClock


class SqliteFiles(Databases):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock(1_700_000_000_000)

    def open(self, revisions: Revisions = SHIPPED) -> Ledger:
        return Ledger.open(f"sqlite:///{self.path}", clock=self.clock, revisions=revisions)

    def open_made(self) -> Ledger:
        return open_ledger(self.path, synced=True, clock=self.clock)

    def pass_ms(self, ledger: Ledger, duration_ms: int) -> None:
        self.clock.advance_ms(duration_ms)


class TestSqliteFile(LedgerContract):
    @pytest.fixture
    def databases(self, tmp_path: Path) -> Databases:
        return SqliteFiles(tmp_path / "ledger.db")
