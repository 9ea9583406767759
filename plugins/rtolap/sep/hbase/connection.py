"""The client's side of HBase's RPC: one call at a time over a connection that is opened again when it broke.

    connection = Connection("127.0.0.1", 16000, "MasterService")
    response = connection.call("GetClusterStatus", request, admin_pb2.GetClusterStatusResponse)

A call whose answer did not come may have been done: whoever changes something reads back. Exceptions of HBase
become errors of ours, told apart by the Java class that the response names.
"""

from __future__ import annotations

import io
import itertools
import socket
import struct
import threading
import time
from typing import TypeVar

from google.protobuf import proto
from google.protobuf.message import DecodeError, Message

from rtolap.base.addresses import host_port
from rtolap.base.errors import Corrupted, Forbidden, NotFound, Refused, RtolapError, TooLarge, Unavailable
from rtolap.sep.hbase.rpc_pb2 import (
    CellBlockMeta,
    ConnectionHeader,
    ExceptionResponse,
    RequestHeader,
    ResponseHeader,
    UserInformation,
)

KEY_VALUE_CODEC = "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags"
_PREAMBLE = b"HBas\x00\x50"  # version 0, authentication "simple"
_RESPONSE_BYTES_MAX = 256 << 20
_IMPLAUSIBLE_BYTES = 1 << 30  # the size of no answer: another protocol's first letters
_SIZE = struct.Struct(">i")
HIGH_PRIORITY = 200  # handlers that calls for rows do not fill
M = TypeVar("M", bound=Message)

# exceptions of HBase, by their Java classes without packages
_STARTING_OR_BUSY = frozenset(
    (
        "CallQueueTooBigException",
        "CallTimeoutException",
        "MasterNotRunningException",
        "MasterStoppedException",
        "NotServingRegionException",
        "PleaseHoldException",
        "RegionInRecoveryException",
        "RegionMovedException",
        "RegionOpeningException",
        "RegionServerAbortedException",
        "RegionServerStoppedException",
        "RegionTooBusyException",
        "ServerNotRunningYetException",
        "StandbyMasterException",
    )
)
_NOT_THERE_YET = "java.lang.NullPointerException"
_UNKNOWN = frozenset(
    (
        "NamespaceNotFoundException",
        "NoSuchColumnFamilyException",
        "ReplicationPeerNotFoundException",
        "TableNotFoundException",
        "UnknownRegionException",
    )
)


class Connection:
    """A connection to a server. Thread-safe.

    Args:
        service: MasterService, ClientService or AdminService.
        user: the caller's name, for HBase without Kerberos.
        codec: the encoding of cell blocks; None for no cells.
    """

    def __init__(
        self,
        host: str,
        port: int,
        service: str,
        *,
        user: str = "rtolap",
        codec: str | None = None,
        priority: int = HIGH_PRIORITY,
        timeout_s: float = 30.0,
    ) -> None:
        self.address = host_port(host, port)
        self._host_port = (host, port)
        self._service = service
        self._header = ConnectionHeader(
            user_info=UserInformation(effective_user=user),
            service_name=service,
            cell_block_codec_class=codec,
        )
        self._priority = priority
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._call_ids = itertools.count()
        self._lock = threading.Lock()

    def call(self, method: str, request: Message, kind: type[M], *, timeout_s: float | None = None) -> M:
        """Call as `call_with_cells` does, for methods without cells."""
        return self.call_with_cells(method, request, kind, timeout_s=timeout_s)[0]

    def call_with_cells(
        self,
        method: str,
        request: Message,
        kind: type[M],
        *,
        cells: bytes = b"",
        timeout_s: float | None = None,
    ) -> tuple[M, bytes]:
        """Return the response and its cell block.

        Raises what `remote_error` makes of a refusal; Unavailable where the server cannot be reached or
        did not answer within the time, after which nothing is known of the call; TooLarge for an answer of
        more than 256 MiB; Corrupted for one that is none.
        """
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        with self._lock:
            deadline_s = time.monotonic() + timeout_s
            try:
                return self._exchange(method, request, kind, cells, timeout_s, deadline_s)
            except (OSError, EOFError) as error:
                self._drop()
                reason = f"no answer within {timeout_s:g} s" if isinstance(error, TimeoutError) else error
                raise Unavailable(
                    f"{self._service} at {self.address} did not answer {method}", found=reason
                ) from error
            except Corrupted as error:
                self._drop()
                raise Corrupted(
                    f"{self._service} at {self.address} answered {method} with something else",
                    expected="a message of HBase's RPC",
                    found=error,
                ) from error

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _exchange(
        self,
        method: str,
        request: Message,
        kind: type[M],
        cells: bytes,
        timeout_s: float,
        deadline_s: float,
    ) -> tuple[M, bytes]:
        call_id = next(self._call_ids) & 0x7FFFFFFF
        header = RequestHeader(
            call_id=call_id,
            method_name=method,
            request_param=True,
            priority=self._priority,
            timeout=max(1, int(timeout_s * 1000)),
        )
        if cells:
            header.cell_block_meta.CopyFrom(CellBlockMeta(length=len(cells)))
        frame = io.BytesIO()
        proto.serialize_length_prefixed(header, frame)
        proto.serialize_length_prefixed(request, frame)
        frame.write(cells)
        connection = self._connected(deadline_s)
        connection.settimeout(_left_s(deadline_s))
        connection.sendall(_SIZE.pack(frame.tell()) + frame.getvalue())
        answer = io.BytesIO(self._receive(connection, deadline_s))
        response = _message(ResponseHeader, answer)
        if response.call_id != call_id:
            raise Corrupted("another call's answer", expected=f"call {call_id}", found=response.call_id)
        if response.HasField("exception"):
            raise remote_error(response.exception, f"{method} at {self.address}")
        result = _message(kind, answer)
        length = response.cell_block_meta.length if response.HasField("cell_block_meta") else 0
        return result, answer.read(length)

    def _connected(self, deadline_s: float) -> socket.socket:
        if self._socket is not None:
            if _is_open(self._socket):
                return self._socket
            self._drop()
        connection = socket.create_connection(self._host_port, timeout=_left_s(deadline_s))
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            header = self._header.SerializeToString()
            connection.sendall(_PREAMBLE + _SIZE.pack(len(header)) + header)
        except OSError:
            connection.close()
            raise
        self._socket = connection
        return connection

    def _receive(self, connection: socket.socket, deadline_s: float) -> bytes:
        (size,) = _SIZE.unpack(_exactly(connection, _SIZE.size, deadline_s))
        if _RESPONSE_BYTES_MAX < size < _IMPLAUSIBLE_BYTES:
            self._drop()
            raise TooLarge(
                "an answer", expected=f"at most {_RESPONSE_BYTES_MAX} bytes", found=f"{size} bytes"
            )
        if not 0 < size <= _RESPONSE_BYTES_MAX:
            raise Corrupted("the size of an answer", expected=f"1 to {_RESPONSE_BYTES_MAX}", found=size)
        return _exactly(connection, size, deadline_s)

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _message(kind: type[M], answer: io.BytesIO) -> M:
    """Return the next message, behind its length."""
    try:
        message = proto.parse_length_prefixed(kind, answer)
    except (DecodeError, ValueError) as error:
        raise Corrupted("no message", expected=kind.__name__, found=error) from error
    if message is None:
        raise Corrupted("no message", expected=kind.__name__, found="the end of the answer")
    return message


def _exactly(connection: socket.socket, size: int, deadline_s: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        connection.settimeout(_left_s(deadline_s))
        piece = connection.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise EOFError("the connection was closed")
        data += piece
    return bytes(data)


def _left_s(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _is_open(connection: socket.socket) -> bool:
    """Return False where the server has closed it since the last call: an idle one is closed after two
    minutes.
    """
    connection.settimeout(0)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False


def remote_error(exception: ExceptionResponse, what: str) -> RtolapError:
    """Return the error by which a server refused `what`: Unavailable where it will pass (the server starts,
    stops or is busy, the region is on its way), NotFound, Forbidden, otherwise Refused."""
    name = exception.exception_class_name.rpartition(".")[2].rpartition("$")[2]
    # the first line of the trace is the exception's text; NotFound of a peer has the peer's name alone
    text = exception.stack_trace.partition("\n")[0].strip() or exception.exception_class_name
    if name == "IOException" and _NOT_THERE_YET in exception.stack_trace:
        # a master that starts answers calls before all of its parts are there
        return Unavailable(f"{what}: not now", found=text, action="try again")
    return error_of(name, text, what)


def error_of(name: str, text: str, what: str) -> RtolapError:
    """Return the error of an exception. `name` is its class without the package."""
    if name in _STARTING_OR_BUSY:
        return Unavailable(f"{what}: not now", found=text, action="try again")
    if name in _UNKNOWN:
        return NotFound(f"{what}: HBase does not know it", found=text)
    if name == "AccessDeniedException":
        return Forbidden(f"{what} is not allowed", found=text, action="grant the user the right ADMIN")
    return Refused(f"{what} was refused by HBase", found=text)
