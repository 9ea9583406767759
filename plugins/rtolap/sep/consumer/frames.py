"""Frames of HBase's RPC, as a server reads and writes them; lengths are int32, messages delimited by varints.

    client   preamble "HBas" 00 50 | length, ConnectionHeader | requests
    request  length | RequestHeader | parameter | cell block
    answer   length | ResponseHeader | result

The server answers neither preamble nor ConnectionHeader. It answers requests in any order, by their call id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from rtolap.base.errors import Corrupted, Unauthorized
from rtolap.sep.hbase.rpc_pb2 import ConnectionHeader, ExceptionResponse, RequestHeader, ResponseHeader

PREAMBLE_BYTES: Final = 6
LENGTH_BYTES: Final = 4

_PREAMBLE: Final = b"HBas\x00\x50"  # version 0, authentication by name
_NAME_AND_VERSION: Final = b"HBas\x00"
_SECURITY_PREAMBLE: Final = b"Securi"
_SASL_ERROR: Final = b"\x00\x00\x00\x01"
_VARINT_BYTES_MAX: Final = 5
_HEADER_BYTES_MAX: Final = 64 << 10

NO_CALL: Final = 2**32 - 1  # -1: an answer to the connection, not to a call


@dataclass(slots=True)
class Request:
    """A request of a region server.

    Attributes:
        parameter: a view of the frame; empty where the request has no parameter.
        cell_block: a view of the frame; empty where the request has no cells.
    """

    call_id: int
    method: str
    timeout_ms: int  # 0: the client names none
    parameter: memoryview
    cell_block: memoryview

    def take_body(self) -> tuple[memoryview, memoryview]:
        """Return parameter and cell block and keep neither: the frame goes once the caller is done."""
        body = self.parameter, self.cell_block
        self.parameter = self.cell_block = memoryview(b"")
        return body


def check_preamble(preamble: bytes) -> None:
    """Raise Unauthorized where the client wants to log in by Kerberos or a token, and Corrupted where it
    speaks no HBase."""
    if preamble == _PREAMBLE:
        return
    if preamble == _SECURITY_PREAMBLE or preamble.startswith(_NAME_AND_VERSION):
        raise Unauthorized(
            "this peer does not speak Kerberos",
            expected="a source cluster with hbase.security.authentication=simple",
            found=f"the preamble {preamble.hex(' ')}",
            action="admit region servers by their addresses (allowed_addresses)",
        )
    raise Corrupted(
        "not a client of HBase", expected=f"the preamble {_PREAMBLE.hex(' ')}", found=preamble.hex(" ")
    )


def parse_connection_header(frame: bytes | bytearray) -> ConnectionHeader:
    """Parse a connection header. Raises Corrupted where the frame is none."""
    try:
        return ConnectionHeader.FromString(bytes(frame))
    except DecodeError as error:
        raise Corrupted(
            "the header of a connection cannot be read", expected="a ConnectionHeader", found=error
        ) from error


def parse_request(frame: bytearray) -> Request:
    """Parse a request, given without its length. Raises Corrupted where it is torn, or its parts are not as
    long as they say."""
    view = memoryview(frame)
    header, place = _delimited(view, 0, "header")
    if len(header) > _HEADER_BYTES_MAX:
        raise Corrupted(
            "the header of a request is too large",
            expected=f"at most {_HEADER_BYTES_MAX} bytes",
            found=len(header),
        )
    try:
        parsed = RequestHeader.FromString(bytes(header))
    except DecodeError as error:
        raise Corrupted(
            "the header of a request cannot be read", expected="a RequestHeader", found=error
        ) from error
    parameter = view[:0]
    if parsed.request_param:
        parameter, place = _delimited(view, place, "parameter")
    block_bytes = parsed.cell_block_meta.length
    if place + block_bytes != len(view):
        raise Corrupted(
            "a request is torn",
            expected=f"{place + block_bytes} bytes with its cell block",
            found=f"{len(view)} bytes",
        )
    return Request(parsed.call_id, parsed.method_name, parsed.timeout, parameter, view[place:])


def result_frame(call_id: int, result: bytes = b"") -> bytes:
    """Return the answer to a call that went well: its delimited result is there even if it is empty."""
    return _frame(ResponseHeader(call_id=call_id), _varint(len(result)) + result)


def exception_frame(call_id: int, class_name: str, message: str) -> bytes:
    """Return the answer to a call that failed; HBase logs the class and the message, and sends the call
    again.
    """
    exception = ExceptionResponse(
        exception_class_name=class_name, stack_trace=f"{class_name}: {message}", do_not_retry=False
    )
    return _frame(ResponseHeader(call_id=call_id, exception=exception), b"")


def login_refusal(preamble: bytes, class_name: str, message: str) -> bytes:
    """Return the answer to a client that wants to log in, as it expects it: a frame, or a failed step of
    SASL.
    """
    if preamble == _SECURITY_PREAMBLE:
        return exception_frame(NO_CALL, class_name, message)
    texts = (text.encode() for text in (class_name, message))
    return _SASL_ERROR + b"".join(len(text).to_bytes(LENGTH_BYTES, "big") + text for text in texts)


def _frame(header: ResponseHeader, rest: bytes) -> bytes:
    serialized = header.SerializeToString()
    body = _varint(len(serialized)) + serialized + rest
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(0x80 | number & 0x7F)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _delimited(view: memoryview, place: int, part: str) -> tuple[memoryview, int]:
    """Return the message that begins at `place` behind its length, and where it ends."""
    length = 0
    for shift in range(_VARINT_BYTES_MAX):
        if place >= len(view):
            break
        byte = view[place]
        place += 1
        length |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            if place + length <= len(view):
                return view[place : place + length], place + length
            break
    raise Corrupted(
        f"the {part} of a request is torn",
        expected=f"a length of at most the {max(len(view) - place, 0)} bytes that are left",
        found=length,
    )
