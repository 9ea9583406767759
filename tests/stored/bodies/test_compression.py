"""Packed bodies."""

from __future__ import annotations

import bz2
import gzip
import random
import struct
import zlib
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from rtolap.base.errors import Corrupted, Refused
from rtolap.stored.bodies.compression import unpacked
from rtolap.stored.bodies.options import Compression
from rtolap.stored.bodies.settings import BodySettings

Pack = Callable[[bytes], bytes]
_SNAPPY_HEAD = b"\xff\x06\x00\x00sNaPpY"


def _arrow(codec: str) -> Pack:
    def pack(body: bytes) -> bytes:
        out = pa.BufferOutputStream()
        with pa.CompressedOutputStream(out, codec) as stream:
            stream.write(body)
        return bytes(out.getvalue())

    return pack


def snappy(body: bytes) -> bytes:
    """Framed; checksums are not looked at."""
    codec, packed = pa.Codec("snappy"), _SNAPPY_HEAD
    for start in range(0, len(body), 1 << 16):
        block = b"\0\0\0\0" + codec.compress(body[start : start + (1 << 16)], asbytes=True)
        packed += b"\0" + struct.pack("<I", len(block))[:3] + block
    return packed


PACKERS: dict[Compression, Pack] = {
    "gz": gzip.compress,
    "deflate": zlib.compress,
    "bz2": bz2.compress,
    "lz4": _arrow("lz4"),
    "zstd": _arrow("zstd"),
    "snappy": snappy,
}
every_compression = pytest.mark.parametrize(("compression", "pack"), PACKERS.items())
BODY = random.Random(1).randbytes(3000) * 200


def pieces(packed: bytes, size: int) -> Iterator[bytes]:
    return (packed[at : at + size] for at in range(0, len(packed), size))


@every_compression
@pytest.mark.parametrize("size", [7, 5000, 1 << 20])
def test_what_was_packed_comes_out(compression: Compression, pack: Pack, size: int) -> None:
    out = unpacked(pieces(pack(BODY[:60_000] if size == 7 else BODY), size), compression, BodySettings())
    assert b"".join(out) == (BODY[:60_000] if size == 7 else BODY)


@every_compression
def test_what_was_cut_short_fails(compression: Compression, pack: Pack) -> None:
    packed = pack(BODY)
    for end in (1, len(packed) // 2, len(packed) - 3):
        with pytest.raises(Corrupted, match=f"no {compression} data, or is cut short"):
            list(unpacked(pieces(packed[:end], 1000), compression, BodySettings()))


@every_compression
def test_what_was_never_packed_fails(compression: Compression, pack: Pack) -> None:
    with pytest.raises(Corrupted, match=f"no {compression} data"):
        list(unpacked(iter([b"1\ta\n" * 100]), compression, BodySettings()))


@every_compression
def test_an_empty_body_is_empty(compression: Compression, pack: Pack) -> None:
    assert list(unpacked(iter([]), compression, BodySettings())) == []


@pytest.mark.parametrize("compression", ["gz", "bz2", "zstd", "lz4"])
def test_a_bomb_fails_early_and_in_small_pieces(compression: Compression) -> None:
    bomb = PACKERS[compression](b"\0" * (8 << 20))
    settings = BodySettings(ratio_max=50, ratio_free_bytes=2 << 20)
    given: list[int] = []
    with pytest.raises(Refused, match="unpacks to too much"):
        given.extend(len(piece) for piece in unpacked(iter([bomb]), compression, settings))
    assert max(given) <= 1 << 20
    assert sum(given) <= max(2 << 20, 50 * len(bomb)) + (1 << 20)


@pytest.mark.parametrize("compression", ["gz", "bz2", "zstd", "lz4"])
def test_streams_may_follow_one_another(compression: Compression) -> None:
    pack = PACKERS[compression]
    out = unpacked(pieces(pack(b"one,") + pack(b"two"), 5), compression, BodySettings())
    assert b"".join(out) == b"one,two"


@every_compression
def test_errors_of_the_connection_stay_what_they_are(compression: Compression, pack: Pack) -> None:
    def chunks() -> Iterator[bytes]:
        yield pack(BODY)[:2000]
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError, match="gone"):
        list(unpacked(chunks(), compression, BodySettings()))
