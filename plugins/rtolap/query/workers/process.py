"""The worker process: one engine, one statement at a time. `fork_server` makes it.

Its memory is bounded by the operating system (RLIMIT_DATA: private memory, so relations, which are mapped, do
not count). An allocation beyond that fails within the engine, which mostly reports it as an error of the
statement; where it cannot, the process ends, and with it this statement alone.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from rtolap.base.errors import Corrupted, QueryError, RtolapError, Unavailable
from rtolap.base.ids import bound, received
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.engine import EmbeddedEngine
from rtolap.query.engine_session import BATCH_ROWS, EngineResult, EngineSession
from rtolap.query.spills import folder as spills
from rtolap.query.sql.statement import SqlStatement
from rtolap.query.workers import messages, packing
from rtolap.query.workers.plans import catalogue_of, plan_of

log = logging.getLogger(__name__)

OUT_OF_MEMORY = 77  # exit code, where not even an answer could be made
_OUT_OF_MEMORY_SCORE = 500  # of -1000 to 1000: before the service, where the whole machine has no memory left
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_RESIDENT, _SHARED, _DATA = 1, 2, 5
STATM_FIELDS = 7
PLAN_CHARACTERS_MAX = 4 << 20


_Answered = (
    messages.ReadStatement
    | messages.MakePlan
    | messages.Filter
    | messages.ReadValue
    | messages.Run
    | messages.Next
    | messages.Drain
)


class WorkerOptions(msgspec.Struct, frozen=True):
    """The options of all workers of a pool.

    Attributes:
        bound_bytes: limit of private memory beyond what a worker has at rest.
    """

    memory_limit_bytes: int
    threads: int
    bound_bytes: int
    spill_folder: str


def serve(data: socket.socket, control: socket.socket, options: WorkerOptions, database: str) -> None:
    """Serve until the service is gone. `database` holds the macros, as in `EmbeddedEngine`."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OUT_OF_MEMORY_SCORE))
    folder = Path(options.spill_folder) / f"{spills.WORKER}{os.getpid()}"
    engine = EmbeddedEngine(
        memory_limit_bytes=options.memory_limit_bytes,
        threads=options.threads,
        database=database,
        spill_folder=str(folder),
    )
    worker = _Worker(engine)
    threading.Thread(target=worker.hear, args=(control,), name="interrupts", daemon=True).start()
    pages = [int(number) for number in Path("/proc/self/statm").read_text().split()]
    resident_bytes, data_bytes = memory_of(pages)
    _, most_bytes = resource.getrlimit(resource.RLIMIT_DATA)
    bound_bytes = data_bytes + options.bound_bytes
    if most_bytes != resource.RLIM_INFINITY:
        bound_bytes = min(bound_bytes, most_bytes)
    resource.setrlimit(resource.RLIMIT_DATA, (bound_bytes, bound_bytes))
    process = os.pidfd_open(os.getpid())
    messages.send(data, messages.WorkerHello(os.getpid(), resident_bytes, data_bytes), descriptor=process)
    os.close(process)
    worked_ns = 0  # since the last answer
    while (request := messages.receive_request(data)) is not None:
        began_ns = time.perf_counter_ns()
        response = worker.answer(*request)
        worked_ns += time.perf_counter_ns() - began_ns
        if response is not None:
            messages.send(data, *response, worked_ns=worked_ns)
            worked_ns = 0
        del request, response  # what they hold is not needed between requests


class _Worker:
    def __init__(self, engine: EmbeddedEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._number = 0
        self._session: EngineSession | None = None
        self._rows: Iterator[tuple[pa.RecordBatch, bool]] = iter(())
        self._result: EngineResult | None = None
        self._failed: Exception | None = None  # since the last answer
        self._catalogue = QueryCatalogue()
        self._ids: dict[str, str] = {}  # of the statement whose session is open

    def hear(self, control: socket.socket) -> None:
        """Hear interrupts: 8 bytes each, the number of the session that they are for."""
        while len(number := control.recv(8, socket.MSG_WAITALL)) == 8:
            with self._lock:
                if self._session is not None and self._number == int.from_bytes(number, "little"):
                    self._session.interrupt()
        os._exit(0)  # the service is gone, whatever the engine does

    def answer(
        self, request: messages.WorkerRequest, body: pa.Buffer, descriptor: int | None
    ) -> tuple[messages.WorkerAnswer, Any] | None:
        """Answer a request under the ids of its statement, and return the answer with its body; None for
        requests without an answer."""
        if isinstance(request, messages.Begin):
            self._ids = received(request.ids)
        began_s = time.perf_counter()
        with bound(self._ids):
            response = self._responded(request, body, descriptor)
            if response is not None and log.isEnabledFor(logging.DEBUG):
                took_ms = (time.perf_counter() - began_s) * 1000
                log.debug("%s took %.1f ms", type(request).__name__, took_ms)
        if isinstance(request, messages.End):
            self._ids = {}
        return response

    def _responded(
        self, request: messages.WorkerRequest, body: pa.Buffer, descriptor: int | None
    ) -> tuple[messages.WorkerAnswer, Any] | None:
        if isinstance(request, messages.Begin | messages.End | messages.Register | messages.Learn):
            try:
                self._prepare(request, body, descriptor)
            except Exception as error:  # noqa: BLE001 - it is the next answer
                self._failed = error
            return None
        failed, self._failed = self._failed, None
        try:
            if failed is not None:
                raise failed
            return self._answered(request)
        except Exception as error:  # noqa: BLE001 - it is the answer
            return self._failure(error)

    def _prepare(
        self,
        request: messages.Begin | messages.End | messages.Register | messages.Learn,
        body: pa.Buffer,
        descriptor: int | None,
    ) -> None:
        if isinstance(request, messages.Learn):
            self._catalogue = catalogue_of(memoryview(body))
            return
        if isinstance(request, messages.Register):
            self._register(request, body, descriptor)
            return
        with self._lock:
            session, self._session = self._session, None
        self._rows, self._result, self._failed = iter(()), None, None
        if session is not None:
            session.close()
        if isinstance(request, messages.Begin):
            made = self._engine.session()
            with self._lock:
                self._number, self._session = request.number, made

    def _failure(self, error: Exception) -> tuple[messages.Failed, bytes]:
        self._rows, self._result = iter(()), None
        if isinstance(error, MemoryError):
            error = Unavailable("the query needs more memory than it may have", action="group by less")
        if isinstance(error, RtolapError):
            return messages.Failed(error.to_dict(), isinstance(error, Unavailable | Corrupted)), b""
        log.warning("the embedded engine failed", exc_info=error)
        message = f"{type(error).__name__}: {error}"[:1000]
        return messages.Failed(Corrupted("the embedded engine failed", found=message).to_dict(), True), b""

    def _answered(self, request: _Answered) -> tuple[messages.WorkerAnswer, Any]:
        session = self._session
        assert session is not None, "a statement begins its session first"
        if isinstance(request, messages.ReadStatement | messages.MakePlan | messages.Filter):
            return self._planned(request, session), b""
        if isinstance(request, messages.ReadValue):
            value = session.value(request.sql, _unpacked(request.values))
            if packing.value_size(value) > messages.VALUE_BYTES_MAX:
                raise QueryError(
                    "a constant is too large",
                    expected=f"at most {messages.VALUE_BYTES_MAX >> 20} MiB",
                    action="ask for less",
                )
            return messages.ValueFound(packing.packed(value)), b""
        if isinstance(request, messages.Run):
            self._rows = iter(())  # of the result before, whose memory is free now
            self._result = result = session.run(request.sql, _unpacked(request.values))
            self._rows = _pieces(result)
            first: messages.ResultRows | messages.Failed
            try:
                first, body = self._next()
            except Exception as error:  # noqa: BLE001 - the statement runs, its first rows failed
                first, body = self._failure(error)
            return messages.Ran(result.schema.serialize().to_pybytes(), first), body
        if isinstance(request, messages.Next):
            return self._next()
        assert self._result is not None, "a result is drained after it was asked for"
        rows = sum(piece.num_rows for piece, _ in self._rows)
        return messages.Drained(rows + self._result.drain()), b""

    def _planned(
        self, request: messages.ReadStatement | messages.MakePlan | messages.Filter, session: EngineSession
    ) -> messages.WorkerAnswer:
        if isinstance(request, messages.Filter):
            return messages.ValueFound(session.show_filter(request.condition, request.first))
        if isinstance(request, messages.ReadStatement):
            read = session.read_statement(request.text, request.database)
            return messages.Understood(read.explain, read.parameters, read.session_names, read.has_functions)
        statement = SqlStatement(
            *(request.text, request.database, None, ()),
            given=_unpacked(request.given),  # type: ignore[arg-type]
            zone=request.zone,
        )
        planned = session.plan(statement, _unpacked(request.values), self._catalogue)
        if len(planned.rewritten.sql) > PLAN_CHARACTERS_MAX:
            raise QueryError(
                "the statement is too long with its values",
                expected=f"at most {PLAN_CHARACTERS_MAX} characters, as the engine reads it",
                action="use each long user variable once",
            )
        return messages.PlanMade(plan_of(planned.rewritten), planned.varies)

    def _next(self) -> tuple[messages.ResultRows, Any]:
        piece = next(self._rows, None)
        if piece is None:
            return messages.ResultRows(True), b""
        batch, is_last = piece
        return messages.ResultRows(is_last), messages.table_bytes(batch)

    def _register(self, request: messages.Register, body: pa.Buffer, descriptor: int | None) -> None:
        try:
            if descriptor is None:
                table = messages.read_table(body)
            else:
                table = messages.mapped_table(descriptor, request.size)
            assert self._session is not None, "a statement begins its session first"
            self._session.register(request.name, table)
        finally:
            if descriptor is not None:
                os.close(descriptor)


def _unpacked(values: Mapping[str, Any]) -> dict[str, object]:
    return {name: packing.unpacked(value) for name, value in values.items()}


def _pieces(result: EngineResult) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yield batches, large ones in parts, each with whether it is known to be the last."""
    batch = result.next_batch()
    while batch is not None:
        is_short = batch.num_rows < BATCH_ROWS  # so the engine has most likely no more: looking costs nothing
        following = result.next_batch() if is_short else None
        parts = list(_parts(batch))
        for part in parts[:-1]:
            yield part, False
        yield parts[-1], is_short and following is None
        batch = following if is_short else result.next_batch()


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield halves of halves, until each fits or is one row."""
    if batch.nbytes <= messages.BATCH_BYTES_MAX or batch.num_rows <= 1:
        if batch.nbytes > messages.ROW_BYTES_MAX:
            raise QueryError(
                "a row of the result is too large",
                expected=f"at most {messages.ROW_BYTES_MAX >> 20} MiB",
                found=f"{batch.nbytes} bytes",
                action="ask for shorter texts",
            )
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _parts(batch.slice(0, middle))
    yield from _parts(batch.slice(middle))


def memory_of(pages: Sequence[int]) -> tuple[int, int]:
    """Return the resident and the reserved bytes of private memory, from /proc/PID/statm.

    RLIMIT_DATA bounds the reserved bytes.
    """
    return (pages[_RESIDENT] - pages[_SHARED]) * _PAGE_BYTES, pages[_DATA] * _PAGE_BYTES
