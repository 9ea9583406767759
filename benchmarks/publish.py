"""Time and metadata of a publication: looks without news, replacements, and a year in one snapshot.

python -m benchmarks.publish --days 365 --commits 150
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from rtolap.model.publication import PublicationSnapshots
from rtolap.publish.publisher import Publisher

from tests.support.publish.published import PublishedCube


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=365, help="segments that are published first")
    parser.add_argument("--commits", type=int, default=150, help="versions replaced, one a snapshot")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rtolap-publish-") as folder:
        figures = measure(Path(folder), arguments.days, arguments.commits)
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, figure in figures.items():
        print(f"{name:40} {figure:>12}")


def measure(folder: Path, days: int, commits: int) -> dict[str, float]:
    cube = PublishedCube(folder)
    publication = cube.declared(
        cuboid=("shop",), snapshots=PublicationSnapshots(expire_after_ms=0, count_max=100)
    )
    publisher = cube.publisher(publication)
    for number in range(days):
        cube.promote(number, 3)
    first_ms = _took_ms(publisher)
    idle_ms, replace_ms, metadata_bytes = [], [], 0
    for number in range(commits):
        cube.promote(number % days, 1)
        replace_ms.append(_took_ms(publisher))
        idle_ms.append(_took_ms(publisher))
        metadata_bytes = max(metadata_bytes, publisher.table.metadata_bytes)
    files = [path for path in (folder / "warehouse").rglob("*") if path.is_file()]
    cube.assert_published(publication)
    cube.close()
    return {
        "days_in_one_snapshot_ms": round(first_ms),
        "replace_p50_ms": round(statistics.median(replace_ms)),
        "replace_last_ms": round(replace_ms[-1]),
        "idle_p50_ms": round(statistics.median(idle_ms), 1),
        "metadata_file_bytes_max": metadata_bytes,
        "metadata_files": len(files),
        "metadata_files_bytes": sum(path.stat().st_size for path in files),
    }


def _took_ms(publisher: Publisher) -> float:
    started_s = time.perf_counter()
    publisher.look()
    return (time.perf_counter() - started_s) * 1000


if __name__ == "__main__":
    main()
