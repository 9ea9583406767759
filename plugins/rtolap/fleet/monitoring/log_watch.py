"""Reading the logs of brokers on from where they were left, and what rules find in them.

Logs are files on this host: of its own broker, or of others where a collector puts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from rtolap.base.errors import Corrupted, NotFound, RtolapError
from rtolap.base.files import write_atomic
from rtolap.fleet.monitoring.collect import MissingSource
from rtolap.fleet.monitoring.log_files import READ_BYTES_MAX, LogPosition, read_on
from rtolap.fleet.monitoring.log_findings import LogHit, find_hits


class LogWatch:
    """`positions`: a file that keeps where reading stopped, so that a line is told once over several
    processes; without it each begins with the end of every log. Not thread-safe.

    Raises Corrupted for a file of positions that is none.
    """

    def __init__(
        self,
        logs: Mapping[int, Sequence[Path]],
        positions: Path | None = None,
        bytes_max: int = READ_BYTES_MAX,
    ) -> None:
        self._logs = [(broker, path) for broker, paths in sorted(logs.items()) for path in paths]
        self._file = positions
        self._bytes_max = bytes_max
        self._positions = {} if positions is None else _load(positions)
        self.missing: tuple[MissingSource, ...] = ()

    def hits(self) -> Iterator[LogHit]:
        """Everything that was written since the last time, a piece at a time; `missing` afterwards says what
        could not be read, or was gone before it was."""
        missing: list[MissingSource] = []
        for broker, path in self._logs:
            more = True
            while more:
                before = self._positions.get(str(path), LogPosition())
                try:
                    piece = read_on(path, before, bytes_max=self._bytes_max)
                except NotFound as error:
                    missing.append(MissingSource(f"log of broker {broker}", str(error), broker))
                    break
                if piece.lost:
                    reason = f"{path}: a part was renamed away or cut off before it was read"
                    missing.append(MissingSource(f"log of broker {broker}", reason, broker))
                yield from find_hits(broker, piece.lines)
                self._positions[str(path)] = piece.position
                more = piece.more
        self.missing = tuple(missing)

    def keep(self) -> None:
        """Once what was found has been told. Raises RtolapError where it cannot be written."""
        if self._file is None:
            return
        try:
            write_atomic(self._file, msgspec.json.encode(self._positions))
        except OSError as error:
            raise RtolapError(f"{self._file} cannot be written", found=error.strerror) from error


def _load(path: Path) -> dict[str, LogPosition]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, LogPosition])
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError as error:
        raise Corrupted(f"{path} keeps no positions of logs", found=error, action="remove it") from error
