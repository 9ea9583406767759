"""Reading a log that grows and is renamed, a bounded piece at a time.

log4j renames `server.log` when it is full or a day is over, and writes on under the old name in a new file.
A position is therefore a file, by device and inode, and an offset in it. When the name leads to another file,
the rest of the old one is read first, if it can still be found beside it. Only whole lines are given; one
that is longer than any of Kafka's is skipped.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from rtolap.base.errors import NotFound

READ_BYTES_MAX = 8 << 20
LINE_BYTES_MAX = 256 << 10


class LogPosition(msgspec.Struct, frozen=True):
    """The place of the next byte to read. device, inode: 0 before the first reading."""

    device: int = 0
    inode: int = 0
    offset: int = 0


@dataclass(frozen=True)
class LogPiece:
    """lines: whole ones, as they were written. more: there is more to read at once. lost: a renamed file was
    gone before its end was read, or the log was cut short."""

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
    """The file that had the name, among those beside it whose names begin with it."""
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
    """`finished`: nobody writes to it any more, so its last line is whole."""
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
