"""A body's chunks, of whatever sizes they come in, as blocks to decode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from rtolap.base.errors import TooLarge

T = TypeVar("T")


def blocks(chunks: Iterator[bytes], size_bytes: int) -> Iterator[list[bytes]]:
    """Yield blocks of `size_bytes` each, in pieces. The last one may be shorter; none is empty."""
    pieces: list[bytes] = []
    count = 0
    for chunk in chunks:
        at = 0
        while len(chunk) - at >= size_bytes - count:
            pieces.append(chunk[at : at + size_bytes - count])
            at += size_bytes - count
            yield pieces
            pieces, count = [], 0
        if at < len(chunk):
            pieces.append(chunk[at:] if at else chunk)
            count += len(chunk) - at
    if pieces:
        yield pieces


def whole_records(
    chunks: Iterator[bytes],
    take: Callable[[bytes, bool], tuple[int, T]],
    *,
    size_bytes: int,
    record_bytes_max: int,
) -> Iterator[T]:
    """Yield whole records. `take(data, final)` returns the consumed bytes (all, when final) and a result; the
    bytes that it leaves come again with more.

    A record that is not whole yet is looked at again only when the data has doubled. Raises TooLarge for a
    record that is longer than `record_bytes_max`.
    """
    parts: list[bytes] = []
    buffered = wanted = 0
    for block in blocks(chunks, size_bytes):
        parts += block
        buffered += sum(map(len, block))
        if buffered >= wanted:
            data = b"".join(parts)
            consumed, result = take(data, False)
            if consumed:
                yield result
            unfinished = data[consumed:]
            parts, buffered = [unfinished] if unfinished else [], len(unfinished)
            wanted = 2 * buffered
        if buffered > record_bytes_max:
            raise TooLarge(
                "a record is too long",
                expected=f"at most {record_bytes_max} bytes",
                found=f"no end within {buffered} bytes",
            )
    if parts:
        yield take(b"".join(parts), True)[1]


def is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
