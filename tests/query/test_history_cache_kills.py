"""SIGKILL while copies are written: what the next process finds is whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rtolap.query.history_cache.folder import CacheFolder

from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
FILE_BYTES = 6 << 20  # two chunks
KILLS = 3
HOURS = 6
PROCESS = """
import sys
from pathlib import Path
from rtolap.base.hidden_pandas import hide_pandas
hide_pandas()
from rtolap.base.clock import SystemClock
from rtolap.query.history_cache.keeper import HistoryKeeper
from tests.support.query.cache_world import CacheWorld

world = CacheWorld(Path(sys.argv[1]), 7, bytes_max=1 << 30)  # equal seeds write equal files
for hour in range(%d):
    world.publish("a", hour, [[%d]])
world.kill()
keeper = HistoryKeeper(
    world.cache, world.store, world.snapshots, SystemClock(), bytes_max=1 << 30, bytes_per_s=12 << 20
)
while True:
    keeper.round()
"""


def test_a_killed_process_leaves_whole_copies_only(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    found = 0

    def one_more() -> bool:
        return len(list(root.rglob("*.parquet"))) > found

    for number in range(KILLS):
        with subprocess.Popen(
            [sys.executable, "-c", PROCESS % (HOURS, FILE_BYTES), str(tmp_path)], cwd=ROOT
        ) as process:
            try:
                until(lambda: list(root.rglob("*.parquet.rtolap-tmp")), "a copy is being written")
                if number % 2:  # later, with one more copy
                    until(one_more, "a copy is made")
            finally:
                process.kill()
        folder = CacheFolder(root)
        assert folder.lock(), "the lock has ended with the process"
        kept = [file for files in folder.scan(1 << 30, 1000).values() for file in files]
        assert all(folder.is_whole(file) for file in kept)
        left = {path for path in (root / "files").rglob("*") if path.is_file()}
        assert left == {folder.path(file) for file in kept}
        copies = [file for file in kept if file.path.endswith(".parquet")]
        assert len(copies) >= found, "what was whole is kept"
        found = len(copies)
        folder.unlock()
        if found == HOURS:
            break
    assert found > 0
    assert number >= 2, "some were killed in mid-copy"
