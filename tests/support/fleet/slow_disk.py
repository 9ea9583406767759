"""A disk of a real broker that answers late, by a library between the broker's process and its libc."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rtolap.base.files import write_atomic

from tests.support.waiting import patience_s

_SOURCE = Path(__file__).with_suffix(".c")


class SlowDisk:
    """`environment` is that of the broker's process, from its start."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        library = folder / "slow_disk.so"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"],
            check=True,
            capture_output=True,
            timeout=patience_s(60),
        )
        self._control = folder / "slow"
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "RTOLAP_SLOW_DISK": str(self._control),
        }

    @contextmanager
    def slow(self, disk: Path, wait_ms: int) -> Iterator[None]:
        """Let each read of a file below `disk` wait so long meanwhile."""
        write_atomic(self._control, f"{wait_ms} {disk}/".encode())
        try:
            yield
        finally:
            self._control.unlink()
