"""Reading the logs of brokers on from where they were left, a bounded piece at a time.

Logs are files on this host: of its own broker, or of others where a collector puts them. log4j renames
`server.log` when it is full or a day is over, and writes on under the old name in a new file. A position is
therefore a file, by device and inode, and an offset in it. When the name leads to another file, the rest of
the old one is read first, if it can still be found beside it. Only whole lines are given; one that is longer
than any of Kafka's is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import Corrupted, NotFound, RtolapError
from rtolap.base.files import write_atomic
from rtolap.fleet.monitoring.collect import MissingSource
from rtolap.fleet.monitoring.log_findings import LogHit, find_hits

READ_BYTES_MAX = 8 << 20
LINE_BYTES_MAX = 256 << 10


class LogPosition(msgspec.Struct, frozen=True):
    """The position of the next byte to read. `device` and `inode` are 0 before the first reading."""

    device: int = 0
    inode: int = 0
    offset: int = 0


@dataclass(frozen=True)
class LogPiece:
    """A piece of a log.

    Attributes:
        lines: Whole lines, as written.
        more: There is more to read at once.
        lost: A renamed file was gone before its end was read, or the log was cut short.
    """

    lines: bytes
    position: LogPosition
    more: bool = False
    lost: bool = False


def read_on(path: Path, position: LogPosition, *, bytes_max: int = READ_BYTES_MAX) -> LogPiece:
    """Return what was written since `position`, at most `bytes_max` of it. The first reading takes the last
    `bytes_max`. Raises NotFound where there is no such file, or none that may be read."""
    try:
        with path.open("rb") as file:
            now = os.fstat(file.fileno())
            here = (now.st_dev, now.st_ino)
            if not position.inode:
                start = max(0, now.st_size - bytes_max)
                if start:
                    file.seek(start - 1)  # a piece of a line is none, unless it is a whole one
                    start += len(file.readline(LINE_BYTES_MAX)) - 1
                return _piece(file, LogPosition(*here, start), bytes_max)
            if here == (position.device, position.inode):
                if now.st_size < position.offset:  # cut short, as by copytruncate
                    return _lost(_piece(file, LogPosition(*here, 0), bytes_max))
                return _piece(file, position, bytes_max)
            renamed = _renamed(path, position)
            if renamed is None:
                return _lost(_piece(file, LogPosition(*here, 0), bytes_max))
            with renamed:
                rest = _piece(renamed, position, bytes_max, finished=True)
            if rest.more:
                return rest
            return LogPiece(rest.lines, LogPosition(*here, 0), more=True)
    except OSError as error:
        raise NotFound(
            f"the log {path} cannot be read", found=error.strerror, action="name the file, and let it be read"
        ) from error


def _renamed(path: Path, position: LogPosition) -> BinaryIO | None:
    """Return the file that had the name, among those beside it whose names begin with it."""
    for sibling in path.parent.glob(f"{path.stem}*"):
        try:
            file = sibling.open("rb")
        except OSError:
            continue  # removed or renamed again since the folder was listed
        found = os.fstat(file.fileno())
        if (found.st_dev, found.st_ino) == (position.device, position.inode):
            return file
        file.close()
    return None


def _piece(file: BinaryIO, position: LogPosition, bytes_max: int, *, finished: bool = False) -> LogPiece:
    """Return the piece of a log. `finished` means that nothing more is written to it, so that its last line
    is whole.
    """
    file.seek(position.offset)
    data = file.read(bytes_max)
    at_end = len(data) < bytes_max
    end = data.rfind(b"\n") + 1
    if finished and at_end:
        end = len(data)
    elif not end and len(data) > min(LINE_BYTES_MAX, bytes_max - 1):
        end, data = len(data), b""  # no line at all in so much: it is skipped
    after = LogPosition(position.device, position.inode, position.offset + end)
    return LogPiece(data[:end], after, more=not at_end)


def _lost(piece: LogPiece) -> LogPiece:
    return LogPiece(piece.lines, piece.position, piece.more, lost=True)


class LogWatch:
    """Reads new lines of logs. Not thread-safe.

    `positions` is a file that stores where reading stopped, so that a line is reported once over several
    processes. Without it, each process begins with the end of every log. Raises Corrupted for an unreadable
    file of positions.
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
        """Yield everything that was written since the last time, a piece at a time; `missing` afterwards says
        what could not be read, or was gone before it was.
        """
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
        """Store the positions, once the findings have been reported.

        Raises RtolapError if they cannot be written.
        """
        if self._file is None:
            return
        try:
            write_atomic(self._file, msgspec.json.encode(self._positions))
        except OSError as error:
            raise RtolapError(f"{self._file} cannot be written", found=error.strerror) from error


def _load(path: Path) -> dict[str, LogPosition]:
    try:
        return decode_json(path.read_bytes(), dict[str, LogPosition])
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError as error:
        raise Corrupted(f"{path} keeps no positions of logs", found=error, action="remove it") from error
