"""Messages of an Arrow stream, each looked at before it is unpacked.

Arrow unpacks the buffers of a message all at once, as large as they say that they are. So the messages are
taken one by one, and a packed one goes on to the reader only if it may be so large.
"""

from __future__ import annotations

import io
import struct
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from rtolap.base.errors import Corrupted, TooLarge

_DICTIONARY, _BATCH = 2, 3  # kinds of messages
_OLD_PACKING = b"ARROW:experimental_compression"
_LENGTH = struct.Struct("<q")  # in front of each packed buffer; -1: it is not packed after all


class Chunks(io.RawIOBase):
    """The chunks, which read as a file. No message may be longer than `message_bytes_max`."""

    def __init__(self, chunks: Iterator[bytes], message_bytes_max: int) -> None:
        self._chunks, self._bytes_max = chunks, message_bytes_max
        self._buffered = bytearray()
        self.taken = 0
        self.failure: BaseException | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size > self._bytes_max:
            raise _too_long(self._bytes_max, size)
        while size < 0 or len(self._buffered) < size:
            try:
                chunk = next(self._chunks, b"")
            except BaseException as error:
                self.failure = error
                raise
            if not chunk:
                break
            self.taken += len(chunk)
            self._buffered += chunk
            if len(self._buffered) > self._bytes_max + len(chunk):
                raise _too_long(self._bytes_max, None)
        count = len(self._buffered) if size < 0 else size
        data = bytes(self._buffered[:count])
        del self._buffered[:count]
        return data


class Messages(io.RawIOBase):
    """The messages of `chunks` as a file. `expect` is called with the unpacked size of each before it is
    unpacked.
    """

    def __init__(self, chunks: Chunks, message_bytes_max: int, expect: Callable[[int], None]) -> None:
        self._chunks, self._bytes_max, self._expect = chunks, message_bytes_max, expect
        self._reader: pa.ipc.MessageReader | None = None
        self._buffered: deque[pa.Buffer] = deque()
        self._ended = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return bytes(self.read_buffer(size).to_pybytes())

    def read_buffer(self, size: int = -1) -> pa.Buffer:
        """Return the next `size` bytes as a buffer. Arrow calls it in place of `read`: nothing is copied
        then.
        """
        while not self._ended and (size < 0 or sum(len(part) for part in self._buffered) < size):
            self._take()
        parts: list[pa.Buffer] = []
        while self._buffered and size != 0:
            first = self._buffered.popleft()
            if 0 <= size < len(first):
                self._buffered.appendleft(first.slice(size))
                first = first.slice(0, size)
            parts.append(first)
            size -= len(first) if size > 0 else 0
        return parts[0] if len(parts) == 1 else pa.py_buffer(b"".join(parts))

    def _take(self) -> None:
        if self._reader is None:
            self._reader = pa.ipc.MessageReader.open_stream(pa.PythonFile(self._chunks, mode="r"))
        try:
            message = self._reader.read_next_message()
        except StopIteration:
            self._ended = True
            return
        size = unpacked_bytes(message.metadata, message.body)
        if size > self._bytes_max:
            raise _too_long(self._bytes_max, size)
        self._expect(size)
        self._buffered.append(pa.py_buffer(struct.pack("<iI", -1, message.metadata.size)))
        self._buffered.append(message.metadata)
        if message.body is not None and message.body.size:
            self._buffered.append(message.body)


def unpacked_bytes(metadata: pa.Buffer, body: pa.Buffer | None) -> int:
    """Return the unpacked size of a message's buffers, as they state it; 0 where it has none. Raises
    Corrupted.
    """
    head = metadata.to_pybytes()
    try:
        return _Flat(head).unpacked(memoryview(body) if body is not None else memoryview(b""))
    except (struct.error, ValueError) as error:
        raise Corrupted("the head of a message is damaged", found=str(error)) from error


class _Flat:
    """A flatbuffer, as far as it is needed; Arrow has verified it."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def unpacked(self, body: memoryview) -> int:
        message = self._number("<I", 0)
        kind, batch = self._field(message, 1), self._table(message, 2)
        number = self._data[kind] if kind is not None else 0
        if number == _DICTIONARY and batch is not None:
            batch = self._table(batch, 1)
        if batch is None or number not in (_DICTIONARY, _BATCH):
            return 0
        if self._field(batch, 3) is None and _OLD_PACKING not in self._data:
            return 0
        buffers = self._table(batch, 2)
        if buffers is None:
            return 0
        count = self._number("<I", buffers)
        places = np.frombuffer(self._data, "<i8", 2 * count, buffers + 4).reshape(count, 2)
        total = 0
        for start, length in places[places[:, 1] >= _LENGTH.size].tolist():
            (size,) = _LENGTH.unpack_from(body, start)
            total += length if size < 0 else size
        return total

    def _number(self, layout: str, at: int) -> int:
        return int(struct.unpack_from(layout, self._data, at)[0])

    def _field(self, table: int, index: int) -> int | None:
        """Return the position of a field; None for the default."""
        fields = table - self._number("<i", table)
        at = 4 + 2 * index
        if at >= self._number("<H", fields):
            return None
        place = self._number("<H", fields + at)
        return table + place if place else None

    def _table(self, table: int, index: int) -> int | None:
        """Return the position that the field points to: a table, or the length of a vector."""
        at = self._field(table, index)
        return None if at is None else at + self._number("<I", at)


def _too_long(bytes_max: int, found_bytes: int | None) -> TooLarge:
    return TooLarge("a record batch is too long", expected=f"at most {bytes_max} bytes", found=found_bytes)
