"""Looking a label up among a million: milliseconds, as an endpoint does it.

    python -m benchmarks.labels [--labels 1000000] [--ledger sqlite:///path | mysql://…] [--password-file …]
                             [--json]

Labels of finished loads are put into the ledger; then labels that are there, and some that never were, are
looked up one at a time, in an order that no cache likes.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import TransactionState
from rtolap.stored.metastore.schema import load_transaction
from rtolap.stored.metastore.transactions import find_latest

DB = "bench"
_AT_ONCE = 10_000
_LOOKUPS = 2_000


def fill(ledger: Ledger, count: int) -> None:
    def rows(start: int) -> list[dict[str, object]]:
        return [
            {
                "db": DB,
                "label": _label(number),
                "live": 1,
                "request_id": f"r{number}",
                "state": TransactionState.VISIBLE.value,
                "tables": '["hits"]',
                "two_phase": 0,
                "keep_until_acknowledged": 1,
                "acknowledged": 0,
                "abort_pending": 0,
                "began_at_ms": number,
                "deadline_ms": number,
                "committed_at_ms": number,
                "finished_at_ms": number,
                "reason": "",
            }
            for number in range(start, min(start + _AT_ONCE, count))
        ]

    for start in range(0, count, _AT_ONCE):

        def work(connection: Connection, values: list[dict[str, object]] = rows(start)) -> None:
            connection.execute(sa.insert(load_transaction), values)

        ledger.write("fill", type(None), work)


def _label(number: int) -> str:
    return f"loader_web_hits_{number * 2654435761 % (1 << 32):08x}_{number}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--labels", type=int, default=1_000_000)
    parser.add_argument("--ledger")
    parser.add_argument("--password-file", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        address = arguments.ledger or f"sqlite:///{folder}/ledger.db"
        with Ledger.open(address, password_file=arguments.password_file) as ledger:
            fill(ledger, arguments.labels)
            chosen = random.Random(1)
            wanted = [_label(chosen.randrange(arguments.labels)) for _ in range(_LOOKUPS)]
            wanted += [f"never_{number}" for number in range(_LOOKUPS // 10)]
            chosen.shuffle(wanted)
            spent_ms = []
            for label in wanted:
                began_s = time.perf_counter()
                record = ledger.read("look a label up", partial(find_latest, db=DB, label=label))
                spent_ms.append((time.perf_counter() - began_s) * 1000)
                assert (record is None) == label.startswith("never"), label
    median, late = statistics.median(spent_ms), statistics.quantiles(spent_ms, n=100)[-1]
    if arguments.json:
        print(json.dumps({"labels": arguments.labels, "median_ms": median, "p99_ms": late}))
        return
    print(f"{arguments.labels} labels: median {median:.2f} ms, 99 of 100 within {late:.2f} ms")


if __name__ == "__main__":
    main()
