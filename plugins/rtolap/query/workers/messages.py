"""The messages between the service and its workers.

A frame: 4 bytes length of the header, 8 bytes length of the body, 8 bytes nanoseconds that a worker has
worked since its last answer (all little endian), the header as msgpack, the body: an Arrow stream, or
nothing. A relation that is too large for a body comes as the descriptor of a sealed piece of memory beside
the frame.
"""

from __future__ import annotations

import array
import fcntl
import mmap
import os
import socket
import struct
from contextlib import ExitStack
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from rtolap.base.errors import Corrupted, QueryError
from rtolap.query.sql.statement import Explain
from rtolap.query.workers.plans import WorkerPlan

INLINE_BYTES_MAX = 64 << 10  # of a relation; larger ones are written to memory that the worker maps
VALUE_BYTES_MAX = 16 << 20  # of a folded constant
ROW_BYTES_MAX = 64 << 20  # of a result: what a MySQL client takes in one packet
BATCH_BYTES_MAX = 4 << 20  # of a result, unless one row is larger
_HEADER_BYTES_MAX = VALUE_BYTES_MAX + (1 << 20)
_BODY_BYTES_MAX = ROW_BYTES_MAX + (1 << 20)
_PREFIX = struct.Struct("<IQQ")
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class Begin(msgspec.Struct, tag=True, frozen=True):
    """The start of a statement's session. It has no response.

    Attributes:
        number: number of the session, which interrupts name.
        ids: ids of the statement, as the header `base.ids.HEADER` has them.
    """

    number: int
    ids: str = ""


class Register(msgspec.Struct, tag=True, frozen=True):
    """A relation, as the body or as shared memory. It has no response: an error is the next response.

    Attributes:
        size: bytes of the body, or of the memory behind the descriptor.
    """

    name: str
    size: int


class Learn(msgspec.Struct, tag=True, frozen=True):
    """The definitions of relations for the plans that follow, as the body.

    It has no response: an error is the next response.
    """


class ReadStatement(msgspec.Struct, tag="Read", frozen=True):
    """A request, answered by Understood or Failed."""

    text: str
    database: str | None


class Filter(msgspec.Struct, tag=True, frozen=True):
    """The condition of a SHOW. Answered by ValueFound, the engine's SQL, or Failed."""

    condition: str
    first: str


class MakePlan(msgspec.Struct, tag=True, frozen=True):
    """A request, answered by PlanMade or Failed."""

    text: str
    database: str | None
    given: dict[str, Any]
    zone: str | None
    values: dict[str, Any]


class ReadValue(msgspec.Struct, tag="Value", frozen=True):
    """A request, answered by ValueFound or Failed."""

    sql: str
    values: dict[str, Any]


class Run(msgspec.Struct, tag=True, frozen=True):
    """A request, answered by Ran or Failed."""

    sql: str
    values: dict[str, Any]


class Next(msgspec.Struct, tag=True, frozen=True):
    """A request, answered by ResultRows or Failed."""


class Drain(msgspec.Struct, tag=True, frozen=True):
    """A request for the rest of the result's rows, answered by Drained or Failed."""


class End(msgspec.Struct, tag=True, frozen=True):
    """The end of the session. It has no response."""


WorkerRequest = (
    Begin | Register | Learn | ReadStatement | Filter | MakePlan | ReadValue | Run | Next | Drain | End
)


class WorkerHello(msgspec.Struct, tag="Hello", frozen=True):
    """The first message of a worker that is ready. A descriptor of its process comes with it.

    Attributes:
        resident_bytes: resident memory at rest, as `memory_of` measures it.
        data_bytes: private memory at rest, as `memory_of` measures it.
    """

    pid: int
    resident_bytes: int
    data_bytes: int


class Understood(msgspec.Struct, tag=True, frozen=True):
    """See `query.sql.statement.SqlStatement`."""

    explain: Explain | None
    parameters: tuple[str, ...]
    session_names: tuple[str, ...]
    has_functions: bool


class PlanMade(msgspec.Struct, tag="Made", frozen=True):
    """The response to MakePlan.

    Attributes:
        varies: True if the plan may be used once only.
    """

    plan: WorkerPlan
    varies: bool


class ValueFound(msgspec.Struct, tag="Found", frozen=True):
    value: Any


class ResultRows(msgspec.Struct, tag="Rows", frozen=True):
    """The response to Next. The body is an Arrow stream of one batch, or empty after the last one.

    Attributes:
        is_last: True if no batch follows.
    """

    is_last: bool


class Drained(msgspec.Struct, tag=True, frozen=True):
    rows: int


class Failed(msgspec.Struct, tag=True, frozen=True):
    """The response to a request that raised an error.

    Attributes:
        error: the error, as `RtolapError.to_dict` returns it.
        is_doubtful: True if the worker has to be replaced.
    """

    error: dict[str, Any]
    is_doubtful: bool


class Ran(msgspec.Struct, tag=True, frozen=True):
    """The response to Run.

    Attributes:
        schema: the schema of the rows, as Arrow serialises it.
        first: the response to the first Next; the body is its body.
    """

    schema: bytes
    first: ResultRows | Failed


WorkerAnswer = WorkerHello | Understood | PlanMade | ValueFound | Ran | ResultRows | Drained | Failed

_requests = msgspec.msgpack.Decoder(WorkerRequest)
_answers = msgspec.msgpack.Decoder(WorkerAnswer)


class Frame(NamedTuple):
    """A message as it came.

    Attributes:
        worked_ns: as the worker says; of a request 0.
    """

    header: bytearray
    body: pa.Buffer
    descriptor: int | None
    worked_ns: int


class ReceivedAnswer(NamedTuple):
    """An answer with its body and its descriptor; `worked_ns`: as the worker says."""

    answer: WorkerAnswer
    body: pa.Buffer
    descriptor: int | None
    worked_ns: int


def send(
    to: socket.socket,
    message: WorkerRequest | WorkerAnswer,
    body: Any = b"",
    descriptor: int | None = None,
    worked_ns: int = 0,
) -> None:
    """Send a frame. Raises OSError when the other side is gone, QueryError for text that is not Unicode."""
    try:
        header = msgspec.msgpack.encode(message)
    except ValueError as error:
        raise QueryError("text that is not Unicode") from error
    length = len(memoryview(body).cast("B")) if body else 0
    head = _PREFIX.pack(len(header), length, worked_ns) + header
    if descriptor is None:
        to.sendall(head)
    else:
        sent = to.sendmsg(
            [head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]).tobytes())]
        )
        to.sendall(head[sent:])
    if length:
        to.sendall(body)


def receive_request(of: socket.socket) -> tuple[WorkerRequest, pa.Buffer, int | None] | None:
    """Receive a request with its body and its descriptor; None when the service is gone."""
    frame = _receive(of, None)
    if frame is None:
        return None
    return _requests.decode(frame.header), frame.body, frame.descriptor


def receive_answer(of: socket.socket) -> ReceivedAnswer | None:
    """Receive an answer; None when the worker is gone.

    Raises Corrupted for anything that no worker sends.
    """
    frame = _receive(of, (_HEADER_BYTES_MAX, _BODY_BYTES_MAX))
    if frame is None:
        return None
    try:
        return ReceivedAnswer(_answers.decode(frame.header), frame.body, frame.descriptor, frame.worked_ns)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Corrupted("a worker said what it may not", found=str(error)[:200]) from error


def _receive(of: socket.socket, bounds: tuple[int, int] | None) -> Frame | None:
    try:
        prefix, descriptors, _, _ = socket.recv_fds(of, _PREFIX.size, 1)
    except ConnectionError:
        return None
    descriptor = descriptors[0] if descriptors else None
    if len(prefix) < _PREFIX.size:
        rest = _exactly(of, _PREFIX.size - len(prefix)) if prefix else None
        if rest is None:
            return None
        prefix += bytes(rest)
    header_bytes, body_bytes, worked_ns = _PREFIX.unpack(prefix)
    if bounds is not None and (header_bytes > bounds[0] or body_bytes > bounds[1]):
        raise Corrupted("a worker said more than it may", found=f"{header_bytes} and {body_bytes} bytes")
    header = _exactly(of, header_bytes)
    body = None if header is None else _exactly(of, body_bytes)
    if header is None or body is None:
        return None
    return Frame(header, pa.py_buffer(body), descriptor, worked_ns)


def _exactly(of: socket.socket, size: int) -> bytearray | None:
    taken = bytearray(size)
    view, at = memoryview(taken), 0
    while at < size:
        try:
            count = of.recv_into(view[at:])
        except ConnectionError:
            return None
        if not count:
            return None
        at += count
    return taken


def table_bytes(table: pa.Table | pa.RecordBatch) -> pa.Buffer:
    """Return an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return sink.getvalue()


class RelationMemory:
    """Memory that a worker maps: an Arrow stream, which is written batch by batch and then sealed. Close it.

    Attributes:
        descriptor: of the memory, which is the closer's.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.descriptor = os.memfd_create("relation", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._closing = ExitStack()
        self._closing.callback(os.close, self.descriptor)
        try:
            self._streams = ExitStack()
            self._closing.push(self._streams)
            file = self._streams.enter_context(os.fdopen(self.descriptor, "wb", closefd=False))
            sink = self._streams.enter_context(pa.PythonFile(file, mode="w"))
            self._writer = self._streams.enter_context(pa.ipc.new_stream(sink, schema))
        except BaseException:
            self._closing.close()
            raise

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        self._writer.write(rows)

    def seal(self) -> int:
        """End the stream, and return its size in bytes."""
        self._streams.close()
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEALS)
        return os.fstat(self.descriptor).st_size

    def close(self) -> None:
        """Harmless when it is closed."""
        self._closing.close()


def table_memory(table: pa.Table) -> tuple[int, int]:
    """Return a descriptor of sealed memory, an Arrow stream, and its size. Close it."""
    memory = RelationMemory(table.schema)
    try:
        memory.write(table)
        return os.dup(memory.descriptor), memory.seal()
    finally:
        memory.close()


def mapped_table(descriptor: int, size: int) -> pa.Table:
    """Return the table in the shared memory where it lies, without a copy."""
    return pa.ipc.open_stream(pa.py_buffer(mmap.mmap(descriptor, size, prot=mmap.PROT_READ))).read_all()


def read_table(body: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(body).read_all()


def read_batch(body: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Read a record batch that a worker has sent. Raises Corrupted for anything else."""
    try:
        batch: pa.RecordBatch = pa.ipc.open_stream(body).read_next_batch()
        if batch.schema != schema:
            raise Corrupted("a worker's rows are not of its own schema")
        batch.validate(full=True)
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise Corrupted("a worker's rows cannot be read", found=str(error)[:200]) from error
    return batch


def read_schema(serialised: bytes) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(serialised))
    except (pa.ArrowException, OSError) as error:
        raise Corrupted("a worker's schema cannot be read", found=str(error)[:200]) from error
