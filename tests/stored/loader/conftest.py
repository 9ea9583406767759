from __future__ import annotations

from collections.abc import Iterator

import pytest
from rtolap.base.clock import ManualClock
from rtolap.stored.metastore.database import Ledger

from tests.support.loader.stepped_loader import World


@pytest.fixture
def world() -> Iterator[World]:
    clock = ManualClock(1_000_000)
    with Ledger.open("sqlite://", clock=clock, sleep=lambda _: None) as ledger:
        yield World(ledger, clock)
