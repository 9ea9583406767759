"""A body's chunks, of whatever sizes they come in, as blocks to decode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from rtolap.base.errors import Refused

T = TypeVar("T")


def blocks(chunks: Iterator[bytes], size_bytes: int) -> Iterator[bytes]:
    """Never empty, `size_bytes` each but the last."""
    held: list[bytes] = []
    count = 0
    for chunk in chunks:
        at = 0
        while len(chunk) - at >= size_bytes - count:
            held.append(chunk[at : at + size_bytes - count])
            at += size_bytes - count
            yield b"".join(held)
            held, count = [], 0
        if at < len(chunk):
            held.append(chunk[at:] if at else chunk)
            count += len(chunk) - at
    if held:
        yield b"".join(held)


def whole_records(
    chunks: Iterator[bytes],
    take: Callable[[bytes, bool], tuple[int, T]],
    *,
    size_bytes: int,
    record_bytes_max: int,
) -> Iterator[T]:
    """`take(data, final)` → bytes consumed (all, when final), result; what it leaves comes again with more.

    A record that is not whole yet is looked at again only when the data has doubled. Raises Refused for a
    record that is longer than `record_bytes_max`.
    """
    rest, wanted = b"", 0
    for block in blocks(chunks, size_bytes):
        rest = rest + block if rest else block
        if len(rest) < wanted:
            continue
        consumed, result = take(rest, False)
        if consumed:
            yield result
        rest = rest[consumed:]
        wanted = 2 * len(rest)
        if len(rest) > record_bytes_max:
            raise Refused(
                "a record is too long",
                expected=f"at most {record_bytes_max} bytes",
                found=f"no end within {len(rest)} bytes",
            )
    if rest:
        yield take(rest, True)[1]
