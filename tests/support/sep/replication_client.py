"""A region server as a peer sees it: a blocking client that ships calls, or whatever bytes it is told to."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from types import TracebackType

from rtolap.sep.hbase.rpc_pb2 import (
    CellBlockMeta,
    ConnectionHeader,
    RequestHeader,
    ResponseHeader,
    UserInformation,
)

from tests.support.sep.wal_calls import Entry, encode_call

PREAMBLE = b"HBas\x00\x50"
CODEC = "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags"
TIMEOUT_S = 20.0


def delimited(message: bytes) -> bytes:
    length, encoded = len(message), bytearray()
    while length >= 128:
        encoded.append(length & 127 | 128)
        length >>= 7
    return bytes([*encoded, length]) + message


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def connection_header(codec: str = CODEC, compressor: str = "") -> bytes:
    header = ConnectionHeader(
        user_info=UserInformation(effective_user="hbase"),
        service_name="AdminService",
        cell_block_codec_class=codec,
    )
    if compressor:
        header.cell_block_compressor_class = compressor
    return framed(header.SerializeToString())


def request(
    call_id: int,
    method: str = "ReplicateWALEntry",
    parameter: bytes = b"",
    cell_block: bytes = b"",
    timeout_ms: int | None = 60_000,
) -> bytes:
    header = RequestHeader(call_id=call_id, method_name=method, request_param=True)
    if cell_block:
        header.cell_block_meta.CopyFrom(CellBlockMeta(length=len(cell_block)))
    if timeout_ms is not None:
        header.timeout = timeout_ms
    return framed(delimited(header.SerializeToString()) + delimited(parameter) + cell_block)


def replicate(call_id: int, entries: Sequence[Entry], timeout_ms: int | None = 60_000) -> bytes:
    parameter, block = encode_call(entries)
    return request(call_id, "ReplicateWALEntry", parameter, block, timeout_ms)


class RegionServer:
    """A connection; `greets` False sends nothing by itself. `timeout_s`: to send, and for each answer."""

    def __init__(
        self,
        port: int,
        *,
        address: str = "127.0.0.1",
        greets: bool = True,
        codec: str = CODEC,
        compressor: str = "",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.socket = socket.create_connection((address, port), timeout_s)
        if greets:
            self.send(PREAMBLE + connection_header(codec, compressor))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> tuple[ResponseHeader, bytes]:
        """Return the next answer's header and its result. ConnectionError: the consumer has closed."""
        body = self._exactly(int.from_bytes(self._exactly(4), "big"))
        length, start = self._varint(body, 0)
        header = ResponseHeader.FromString(body[start : start + length])
        rest = body[start + length :]
        if header.HasField("exception"):
            assert not rest
            return header, b""
        length, start = self._varint(rest, 0)
        assert len(rest) == start + length
        return header, rest[start:]

    def sasl_status(self) -> int:
        return int.from_bytes(self._exactly(4), "big")

    def sasl_text(self) -> str:
        return self._exactly(int.from_bytes(self._exactly(4), "big")).decode()

    def ship(self, call_id: int, entries: Sequence[Entry]) -> tuple[ResponseHeader, bytes]:
        self.send(replicate(call_id, entries))
        return self.answer()

    def is_closed(self) -> bool:
        """Wait until the consumer closes; False if it sends anything before."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _varint(self, data: bytes, place: int) -> tuple[int, int]:
        number, shift = 0, 0
        while True:
            byte = data[place]
            place += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number, place

    def _exactly(self, count: int) -> bytes:
        got = bytearray()
        while len(got) < count:
            received = self.socket.recv(count - len(got))
            if not received:
                raise ConnectionError("closed by the consumer")
            got += received
        return bytes(got)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RegionServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
