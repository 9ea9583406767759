"""Many binary records read at once: each has a cursor, and a step moves all of them.

The records lie in one buffer, one behind the other. A step looks at the bytes below every cursor, as columns;
no step loops over records. A record that breaks the rules of its format fails: its cursor is put to its end,
where whatever is read is in the buffer and means nothing, and its first failure is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.events.formats.reader import Flags, Places

Words = NDArray[np.uint64]

_PADDING = bytes(32)  # behind the last record, for steps that look at whole words
_ONES = 0x0101010101010101
_HIGH = np.uint64(0x80 * _ONES)
_LOW = np.uint64(0x7F * _ONES)
_WORD = 8
_VARINT_BYTES_MAX = 10


def _u(value: int) -> np.uint64:
    return np.uint64(value)


class Records:
    """Records in a buffer, and which of them have failed.

    Args:
        records: bytes of each.
        skipped: bytes at the beginning of each that are no part of it.
    """

    def __init__(self, records: Sequence[bytes], skipped: int | Places = 0) -> None:
        self.text = b"".join((*records, _PADDING))
        self.bytes = np.frombuffer(self.text, np.uint8)
        self.words: Words = np.ndarray((len(self.text) - _WORD + 1,), "<u8", self.text, strides=(1,))
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        self.ends = np.cumsum(lengths)
        self.lengths = lengths
        self.starts = np.minimum(self.ends - lengths + skipped, self.ends)
        self.failures: dict[int, str] = {}
        self.failed: Flags = np.zeros(len(records), bool)

    def __len__(self) -> int:
        return len(self.ends)

    def cursor(self) -> Cursor:
        return Cursor(self, np.arange(len(self.ends)), self.starts.copy(), self.ends)

    @cached_property
    def last_bytes(self) -> Places:
        """Return where in the buffer the last byte of a variable-length number may be."""
        return np.flatnonzero(self.bytes < 0x80)

    def equal(self, begins: Places, lengths: Places, text: bytes) -> Flags:
        """Return which pieces of the buffer are this text."""
        found = np.asarray(lengths == len(text))
        same = np.flatnonzero(found)
        if len(same) and text:
            pieces = self.bytes[begins[same, None] + np.arange(len(text))]
            found[same] = (pieces == np.frombuffer(text, np.uint8)).all(axis=1)
        return found

    def binary(self, starts: Places, lengths: Places) -> pa.Array:
        """Return pieces of the buffer as binary values."""
        offsets = np.zeros(len(lengths) + 1, np.int32)  # as many bytes as the buffer has, at most
        np.cumsum(lengths, out=offsets[1:])
        index = np.arange(int(offsets[-1]))
        index += np.repeat(starts - offsets[:-1], lengths)
        pieces = self.bytes[index]
        return pa.Array.from_buffers(
            pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(pieces)]
        )


class Cursor:
    """Cursors of some of the records.

    Attributes:
        rows: the numbers of the records, ascending.
        at: next byte to read.
        ends: behind the last byte that may be read.
    """

    def __init__(self, records: Records, rows: Places, at: Places, ends: Places) -> None:
        self.records = records
        self.rows = rows
        self.at = at
        self.ends = ends

    def __len__(self) -> int:
        return len(self.rows)

    def subset(self, chosen: Flags | Places) -> Cursor:
        """Return cursors of some of these; `join` brings them back."""
        return Cursor(self.records, self.rows[chosen], self.at[chosen], self.ends[chosen])

    def join(self, chosen: Flags | Places, moved: Cursor) -> None:
        self.at[chosen] = moved.at

    def fail(self, which: Flags, why: str) -> None:
        """Fail the records of these cursors."""
        if which.any():
            rows = self.rows[which]
            self.records.failures |= dict.fromkeys(rows[~self.records.failed[rows]].tolist(), why)
            self.records.failed[rows] = True
            self.at[which] = self.ends[which]

    def failed(self) -> Flags:
        return self.records.failed[self.rows]

    def advance(self, lengths: Places | int) -> None:
        self.at += lengths
        self.fail(self.at > self.ends, "it ends too early")

    def varint(self) -> Words:
        """Read variable-length numbers of up to 64 bits, seven bits a byte, the lowest first."""
        words = self.records.words[self.at]
        more = words & _HIGH
        if not (more & _u(0x80)).any():
            self.advance(1)
            return words & _u(0x7F)
        stops = ~words & _HIGH
        below = (stops & (~stops + _u(1))) - _u(1)  # all bits below the last byte's highest
        lengths = (np.bitwise_count(below & _HIGH) + 1).astype(np.int64)
        packed = words & below & _LOW
        packed = (packed & _u(0x007F007F007F007F)) | ((packed & _u(0x7F007F007F007F00)) >> _u(1))
        packed = (packed & _u(0x00003FFF00003FFF)) | ((packed & _u(0x3FFF00003FFF0000)) >> _u(2))
        values: Words = (packed & _u(0x0FFFFFFF)) | ((packed & _u(0x0FFFFFFF00000000)) >> _u(4))
        long = np.flatnonzero(stops == 0)
        if len(long):
            values[long], lengths[long] = self._long(values[long], self.at[long] + _WORD)
            self.fail(lengths > _VARINT_BYTES_MAX, "a number of more than 64 bits")
            lengths = np.minimum(lengths, self.ends - self.at + 1)
        self.advance(lengths)
        return values

    def _long(self, low: Words, at: Places) -> tuple[Words, Places]:
        """Return the numbers of more than eight bytes whose rest is at `at`, and their lengths; 11 for those
        that do not end."""
        ninth, tenth = (self.records.bytes[at + ahead].astype(np.uint64) for ahead in (0, 1))
        ends_at_ninth = ninth < 0x80
        values = low | ((ninth & _u(0x7F)) << _u(56))
        values |= np.where(ends_at_ninth, _u(0), (tenth & _u(1)) << _u(63))
        lengths = np.where(ends_at_ninth, 9, np.where(tenth < 2, 10, _VARINT_BYTES_MAX + 1))
        return values, lengths.astype(np.int64)

    def zigzag(self) -> Places:
        """Read signed numbers whose lowest bit is the sign."""
        raw = self.varint()
        signed: Places = ((raw >> _u(1)) ^ (~(raw & _u(1)) + _u(1))).view(np.int64)
        return signed

    def word(self, size: int) -> Words:
        """Read numbers of 4 or 8 bytes, little-endian."""
        words = self.records.words[self.at]
        self.advance(size)
        return words if size == _WORD else words & _u(0xFFFFFFFF)

    def octets(self) -> NDArray[np.uint8]:
        found = self.records.bytes[self.at]
        self.advance(1)
        return found

    def blob(self, lengths: Places) -> Places:
        """Pass over pieces of these lengths, and return where they begin. Lengths of pieces that are not
        there become 0 in place."""
        wrong = (lengths < 0) | (lengths > self.ends - self.at)
        if wrong.any():
            self.fail(wrong, "it ends too early")
            lengths[wrong] = 0
        begins = self.at.copy()
        self.at += lengths
        return begins

    def skip_varints(self, counts: Places) -> None:
        """Pass over so many numbers of each record."""
        live = np.flatnonzero(counts > 0)
        if not len(live):
            return
        stops = self.records.last_bytes
        last = np.searchsorted(stops, self.at[live]) + np.minimum(counts[live], len(stops)) - 1
        beyond = last >= len(stops)
        self.at[live] = np.where(beyond, self.ends[live] + 1, stops[np.minimum(last, len(stops) - 1)] + 1)
        self.fail(self.at > self.ends, "it ends too early")
