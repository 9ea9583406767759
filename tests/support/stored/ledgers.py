"""Ledgers of tests as copies of one whose schema was made once: Alembic takes longer than most tests."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

from rtolap.stored.metastore.database import Ledger


def open_ledger(path: Path, **options: Any) -> Ledger:
    """`options`: as `Ledger.open` has them. A ledger that is at the path is opened as it is."""
    if not path.exists():
        path.write_bytes(_ledger_without_rows())
    return Ledger.open(f"sqlite:///{path}", **options)


@functools.cache
def _ledger_without_rows() -> bytes:
    with tempfile.TemporaryDirectory(prefix="rtolap-ledger-") as folder:
        path = Path(folder) / "ledger.db"
        Ledger.open(f"sqlite:///{path}").close()
        return path.read_bytes()
