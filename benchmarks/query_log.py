"""What the query log costs a statement: microseconds of processor time, in its thread and beside it.

    python -m benchmarks.query_log [--statements 900] [--rounds 8] [--json]

Statements that have read a cube of a day are noted and written, again and again; the least times are shown.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from contextlib import closing
from pathlib import Path

from rtolap.base.clock import SystemClock
from rtolap.query.plan import ReadStats
from rtolap.query.query_log.entries import Asked, Ended, Entry
from rtolap.query.query_log.folder import LogFolder
from rtolap.query.query_log.log import QueryLog

TEXT = "SELECT carrier, COUNT(*), SUM(delay) FROM flights WHERE origin = 'JFK' GROUP BY carrier ORDER BY 2"
SEGMENTS = tuple(f"20260101{hour:02d}0000_20260101{hour + 1:02d}0000" for hour in range(24))
READ = ReadStats(
    "flights", dimensions=("carrier", "origin"), history_segments=SEGMENTS, cuboids={"carrier+origin": 24}
)


def measure(statements: int, rounds: int) -> dict[str, float]:
    notes_us, writes_us = [], []
    with tempfile.TemporaryDirectory(prefix="rtolap-query-log-") as folder:
        kept = LogFolder(Path(folder), SystemClock(), bytes_max=64 << 20, keep_ms=86_400_000)
        with closing(QueryLog(kept)) as log:
            for _ in range(rounds):
                began_s = time.process_time()
                for _ in range(statements):
                    log.note(
                        Entry(Asked(TEXT, "ann", "http", "rtolap"), 1, Ended(took_s=0.002, reads=[READ]))
                    )
                noted_s = time.process_time()
                log.write()
                notes_us.append((noted_s - began_s) / statements * 1e6)
                writes_us.append((time.process_time() - noted_s) / statements * 1e6)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    return {
        "note_us": min(notes_us),
        "write_us": min(writes_us),
        "bytes": size / statements / rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--statements", type=int, default=900)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.statements, arguments.rounds)
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        print(
            f"noted in {found['note_us']:.1f} us, written in {found['write_us']:.1f} us; "
            f"{found['bytes']:.0f} bytes a statement"
        )


if __name__ == "__main__":
    main()
