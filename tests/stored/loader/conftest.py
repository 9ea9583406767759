from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.loader.stepped_loader import World
from tests.support.stored.ledgers import open_ledger
from tests.support.twins.clock import ManualClock


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    clock = ManualClock(1_000_000)
    with open_ledger(tmp_path / "ledger.db", clock=clock, sleep=lambda _: None) as ledger:
        yield World(ledger, clock)
