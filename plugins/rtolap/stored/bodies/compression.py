"""Packed bodies → their bytes, in bounded memory.

Whatever is packed, at most `_PIECE_BYTES` come out of a decompressor at once. A body that unpacks to absurdly
much ends the load, as does one that is cut short, is damaged, or is not packed as its header says.
"""

from __future__ import annotations

import bz2
import io
import zlib
from collections.abc import Callable, Iterator

import pyarrow as pa

from rtolap.base.errors import Corrupted, TooLarge
from rtolap.stored.bodies.options import Compression
from rtolap.stored.bodies.settings import BodySettings

_PIECE_BYTES = 1 << 20
_ANY_WRAPPER = 47  # gzip or zlib, recognised by the first bytes


def unpacked(
    chunks: Iterator[bytes], compression: Compression | None, settings: BodySettings
) -> Iterator[bytes]:
    """Yield unpacked pieces, none of them empty.

    Raises Corrupted naming the compression, TooLarge beyond the ratio, and what `chunks` raises.
    """
    if compression is None:
        yield from (chunk for chunk in chunks if chunk)
        return
    source = _Counted(chunks)
    given = 0
    try:
        for piece in _UNPACK[compression](source):
            given += len(piece)
            if given > settings.ratio_free_bytes and given > settings.ratio_max * source.taken:
                raise TooLarge(
                    "a body unpacks to too much",
                    expected=f"at most {settings.ratio_max} times its size",
                    found=f"{given} bytes of {source.taken}",
                )
            if piece:
                yield piece
    except (zlib.error, EOFError, pa.ArrowException, OSError, ValueError) as error:
        if source.failed:
            raise
        raise Corrupted(f"the body is no {compression} data, or is cut short", found=str(error)) from error


class _Counted(io.RawIOBase):
    """The chunks as a file. `failed`: it was the chunks that raised, not their contents."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, b""
        self.taken, self.failed = 0, False

    def next(self) -> bytes:
        """Return the next piece; empty at the end."""
        try:
            for chunk in self._chunks:
                if chunk:
                    self.taken += len(chunk)
                    return chunk
        except BaseException:
            self.failed = True
            raise
        return b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._rest or self.next()
        size = len(data) if size is None or size < 0 else size
        self._rest = data[size:]
        return data[:size]


def _streams(make: Callable[[], object]) -> Callable[[_Counted], Iterator[bytes]]:
    """Yield chunks by a decompressor of the standard library; a body may be several packed streams, one after
    another."""

    def unpack(source: _Counted) -> Iterator[bytes]:
        chunk = source.next()
        while chunk:
            stream = _Stream(make())
            while not stream.ended:
                if not chunk:
                    raise EOFError("it ends within a stream")
                yield from stream.feed(chunk)
                chunk = stream.unused if stream.ended else source.next()
            chunk = chunk.lstrip(b"\0") or source.next()  # gzip files may be padded

    return unpack


class _Stream:
    """The same look for zlib's and bz2's ways to bound what comes out."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    @property
    def ended(self) -> bool:
        return bool(self._inner.eof)  # type: ignore[attr-defined]

    @property
    def unused(self) -> bytes:
        return bytes(self._inner.unused_data)  # type: ignore[attr-defined]

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        while True:
            piece = self._inner.decompress(chunk, _PIECE_BYTES)  # type: ignore[attr-defined]
            yield piece
            if self.ended:
                return
            chunk = getattr(self._inner, "unconsumed_tail", b"")
            if not chunk and getattr(self._inner, "needs_input", len(piece) < _PIECE_BYTES):
                return


def _arrow(codec: str) -> Callable[[_Counted], Iterator[bytes]]:
    def unpack(source: _Counted) -> Iterator[bytes]:
        with pa.CompressedInputStream(pa.PythonFile(source, mode="r"), codec) as stream:
            while piece := stream.read(_PIECE_BYTES):
                yield piece

    return unpack


_SNAPPY_HEAD = b"\xff\x06\x00\x00sNaPpY"


def _snappy(source: _Counted) -> Iterator[bytes]:
    """Unpack the framing format. Its blocks unpack to at most 64 KiB each."""
    codec = pa.Codec("snappy")
    buffered = source.next()
    if not buffered:
        return

    def read_exactly(count: int) -> bytes:
        nonlocal buffered
        while len(buffered) < count:
            chunk = source.next()
            if not chunk:
                raise EOFError("it ends within a block")
            buffered += chunk
        data, buffered = buffered[:count], buffered[count:]
        return data

    if read_exactly(len(_SNAPPY_HEAD)) != _SNAPPY_HEAD:
        raise ValueError("it does not begin as framed snappy does")
    while True:
        if not buffered:
            buffered = source.next()
            if not buffered:
                return
        head = read_exactly(4)
        kind, size = head[0], int.from_bytes(head[1:4], "little")
        block = read_exactly(size)
        if kind == 0x00:
            body = block[4:]
            length = _length(body)
            yield codec.decompress(body, length, asbytes=True)
        elif kind == 0x01:
            yield block[4:]
        elif kind < 0x80 or (kind == 0xFF and head + block != _SNAPPY_HEAD):
            raise ValueError(f"a block of the unknown kind {kind}")


_SNAPPY_BLOCK_BYTES_MAX = 1 << 16


def _length(block: bytes) -> int:
    """Read the varint in front of the block."""
    length = shift = 0
    for byte in block[:5]:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if length > _SNAPPY_BLOCK_BYTES_MAX:
        raise ValueError(f"a block of {length} bytes")
    return length


_UNPACK: dict[Compression, Callable[[_Counted], Iterator[bytes]]] = {
    "gz": _streams(lambda: zlib.decompressobj(_ANY_WRAPPER)),
    "deflate": _streams(lambda: zlib.decompressobj(_ANY_WRAPPER)),
    "bz2": _streams(bz2.BZ2Decompressor),
    "lz4": _arrow("lz4"),
    "zstd": _arrow("zstd"),
    "snappy": _snappy,
}
