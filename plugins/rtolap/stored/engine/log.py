"""The tablet's log: one record after another, each durable before the next. FORMAT.md has the bytes."""

from __future__ import annotations

import logging
import struct
from pathlib import Path

import msgspec
import xxhash

from rtolap.base.errors import Corrupted, Unavailable
from rtolap.base.files import read_from_disk
from rtolap.stored.engine.disk import RESTORE, Disk, disk_error, write_file
from rtolap.stored.engine.state import Checkpoint, Record, TabletState, apply
from rtolap.stored.engine.steps import LOG_PREFIX, log_file

log = logging.getLogger(__name__)
_MAGIC = b"RTOLAPL1"
_FRAME = struct.Struct("<IQQ")
_LENGTH = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


class Log:
    """Open for appending. Not for several threads at once."""

    def __init__(
        self, disk: Disk, root: Path, generation: int, bytes_max: int, size_bytes: int, first_bytes: int
    ) -> None:
        self._disk, self._root, self._generation, self._bytes_max = disk, root, generation, bytes_max
        self._size_bytes, self._first_bytes = size_bytes, first_bytes
        self._broken: str | None = None

    def append(self, record: Record, attempted: str) -> None:
        """Append a record, which is durable on return. Raises Unavailable where it is not there, or, as the
        message says, where that is unknown."""
        self.check_running(attempted)
        path = log_file(self._root, self._generation)
        frame = _frame(record, self._size_bytes)
        try:
            self._disk.append(path, frame)
        except OSError as error:
            try:
                self._disk.truncate(path, self._size_bytes)
            except OSError as second:
                self._broken = f"its log took half a record ({second.strerror})"
                raise _stopped(attempted, self._broken) from error
            raise disk_error(error, attempted) from error
        self._size_bytes += len(frame)

    def verify(self) -> int:
        """Read the log again, and return its bytes. Raises Corrupted, also for one that is cut short."""
        path = log_file(self._root, self._generation)
        _, length, _ = _replay(path, _read(path))
        if length != self._size_bytes:
            raise _damaged(path, length, f"length ({self._size_bytes} bytes were written)")
        return length

    def stop(self, reason: str) -> None:
        """Stop appending: what is on the disk is to be inspected again."""
        self._broken = reason

    def check_running(self, attempted: str) -> None:
        """Raise Unavailable where it has stopped."""
        if self._broken is not None:
            raise _stopped(attempted, self._broken)

    @property
    def stopped(self) -> str | None:
        return self._broken

    @property
    def is_long(self) -> bool:
        return self._size_bytes > self._bytes_max and self._size_bytes > 2 * self._first_bytes

    def begin_again(self, state: TabletState) -> None:
        """Begin the log again (steps 15 and 16). Without room for it the present log goes on, and a later
        call tries again."""
        old, new = (log_file(self._root, self._generation + at) for at in (0, 1))
        try:
            size_bytes = _write_half(self._disk, new, state)
        except OSError as error:
            log.warning("%s cannot be shortened now: %s", old, error)
            return
        try:
            _put_in_place(self._disk, new)
        except OSError as error:
            self.stop(f"it is not known which log counts: {error.strerror}")
            return
        self._generation += 1
        self._size_bytes = self._first_bytes = size_bytes
        try:
            self._disk.remove(old)
        except OSError as error:
            log.warning("%s cannot be removed: %s", old, error)  # recovery does


def create(disk: Disk, root: Path, state: TabletState, bytes_max: int) -> Log:
    size_bytes = _write_half(disk, log_file(root, 1), state)
    _put_in_place(disk, log_file(root, 1))
    return Log(disk, root, 1, bytes_max, size_bytes, size_bytes)


def generations(root: Path) -> list[int]:
    """Return the numbers of existing logs, ascending; none if there is no tablet."""
    numbers = [path.name.removeprefix(LOG_PREFIX) for path in root.glob(f"{LOG_PREFIX}*")]
    return sorted(int(number) for number in numbers if number.isdigit())


def recover(disk: Disk, root: Path, bytes_max: int) -> tuple[Log, TabletState]:
    """Return the newest log, less what a crash left at its end; older ones are removed. Raises Corrupted."""
    *stale, newest = generations(root)
    path = log_file(root, newest)
    data = _read(path)
    state, length, first_bytes = _replay(path, data)
    if length < len(data):
        disk.truncate(path, length)
    for generation in stale:
        disk.remove(log_file(root, generation))
    for half in root.glob(f"{LOG_PREFIX}*.tmp"):
        disk.remove(half)
    return Log(disk, root, newest, bytes_max, length, first_bytes), state


def _read(path: Path) -> bytes:
    with read_from_disk(path, action=RESTORE):
        return path.read_bytes()


def _replay(path: Path, data: bytes) -> tuple[TabletState, int, int]:
    """Return the state, how many bytes of the log count, and how many the first record takes."""
    if data[: len(_MAGIC)] != _MAGIC:
        raise _damaged(path, 0, "magic")
    at, first_bytes = len(_MAGIC), 0
    state: TabletState | None = None
    while at < len(data):
        end = _frame_end(path, data, at)
        if end is None:
            break
        try:
            record = _decoder.decode(data[at + _FRAME.size : end])
        except msgspec.MsgspecError as error:
            raise _damaged(path, at, f"record ({error})") from error
        if state is None and not isinstance(record, Checkpoint):
            raise _damaged(path, at, "first record")
        state = record.state if isinstance(record, Checkpoint) else apply(_given(state), record)
        first_bytes = first_bytes or end
        at = end
    if state is None:
        raise _damaged(path, at, "first record")
    return state, at, first_bytes


def _frame_end(path: Path, data: bytes, at: int) -> int | None:
    """Return the end of the frame; None for the rest of an append that was interrupted."""
    if len(data) - at < _FRAME.size:
        return None
    length, length_xxh3, xxh3 = _FRAME.unpack_from(data, at)
    if length_xxh3 != xxhash.xxh3_64_intdigest(_LENGTH.pack(length), seed=at):
        if not any(
            data[at + _FRAME.size :]
        ):  # the file had grown, but of the frame its head at most is there
            return None
        raise _damaged(path, at, "length of a record")
    end: int = at + _FRAME.size + length
    if end > len(data):
        return None
    if xxh3 != xxhash.xxh3_64_intdigest(data[at + _FRAME.size : end]):
        if not any(data[end - 1 :]):  # the file had grown, but not all of its bytes were there
            return None
        raise _damaged(path, at, "checksum of a record")
    return end


def _given(state: TabletState | None) -> TabletState:
    assert state is not None, "the first record is the whole state"
    return state


def _frame(record: Record, at: int) -> bytes:
    body = _encoder.encode(record)
    length_xxh3 = xxhash.xxh3_64_intdigest(_LENGTH.pack(len(body)), seed=at)
    return _FRAME.pack(len(body), length_xxh3, xxhash.xxh3_64_intdigest(body)) + body


def _write_half(disk: Disk, path: Path, state: TabletState) -> int:
    data = _MAGIC + _frame(Checkpoint(state), len(_MAGIC))
    write_file(disk, _half(path), data)
    return len(data)


def _put_in_place(disk: Disk, path: Path) -> None:
    disk.rename(_half(path), path)
    disk.sync_folder(path.parent)


def _half(path: Path) -> Path:
    return path.with_name(path.name + ".tmp")


def _stopped(attempted: str, reason: str) -> Unavailable:
    return Unavailable(f"{attempted}: the tablet has stopped", found=reason, action="open it again")


def _damaged(path: Path, at: int, damage: str) -> Corrupted:
    return Corrupted(f"log {path}: wrong {damage} at byte {at}", action=RESTORE)
