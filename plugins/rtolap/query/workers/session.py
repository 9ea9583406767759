"""A statement's session in a worker, as the service sees it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from rtolap.base.errors import Corrupted, RtolapError, TooLittleDisk, Unavailable, from_dict
from rtolap.base.ids import sent
from rtolap.base.spans import measured
from rtolap.query.cancel import Cancellation
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.engine_session import EngineSession
from rtolap.query.plan import Planned
from rtolap.query.relation_rows import RelationRows
from rtolap.query.spills.tables import SpilledTable
from rtolap.query.sql.statement import SqlStatement
from rtolap.query.workers import messages, packing
from rtolap.query.workers.messages import (
    Begin,
    Drain,
    Drained,
    End,
    Failed,
    Filter,
    Learn,
    MakePlan,
    Next,
    PlanMade,
    Ran,
    ReadStatement,
    ReadValue,
    Register,
    ResultRows,
    Run,
    Understood,
    ValueFound,
    WorkerAnswer,
    WorkerRequest,
)
from rtolap.query.workers.plans import CatalogueTexts, rewritten_of
from rtolap.query.workers.process import OUT_OF_MEMORY
from rtolap.query.workers.worker import Worker, WorkerGone

GIVE_UP_S = 0.5  # within which most operators of the engine notice an interrupt
SPANS_MAX = 64  # of a session: a long result is asked for in many pieces
A = TypeVar("A")
T = TypeVar("T")
ResultPiece = tuple[
    pa.RecordBatch | None, bool
]  # rows, and whether they are the last; None: there are no more

DEAF, LEFT, MEMORY, SUM, DISK, DOUBTFUL, DIED = "deaf", "left", "memory", "sum", "disk", "doubtful", "died"


class _RowsOfWorker(RelationRows):
    """Rows that are written into the worker's memory as they come; the first of them wait in this process, as
    most relations are small."""

    def __init__(self, session: WorkerSession, name: str, schema: pa.Schema) -> None:
        self._session, self._name, self._schema = session, name, schema
        self._first: list[pa.RecordBatch] = []
        self._memory: messages.RelationMemory | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._memory is not None:
            self._memory.write(batch)
            return
        self._first.append(batch)
        if sum(each.nbytes for each in self._first) > messages.INLINE_BYTES_MAX:
            self._memory = messages.RelationMemory(self._schema)
            for each in self._first:
                self._memory.write(each)
            self._first.clear()

    def finish(self) -> None:
        if self._memory is None:
            self._session.register(self._name, pa.Table.from_batches(self._first, self._schema))
            return
        try:
            self._session.register_memory(self._name, self._memory)
        finally:
            self._memory.close()

    def discard(self) -> None:
        self._first.clear()
        if self._memory is not None:
            self._memory.close()


@dataclass(eq=False)
class WorkerSession(EngineSession):
    """A statement's session in a worker. One thread at a time uses it; any thread may interrupt or close it.

    A worker that does not stop within GIVE_UP_S of an interrupt is killed. Its statement ends at once, and
    its memory is free.

    Attributes:
        give_back: takes the worker, and the reason for which it cannot be used again. It returns the exit
            status of the worker's process, if that is known.
    """

    worker: Worker
    number: int
    ending: Cancellation
    give_back: Callable[[Worker, str | None], int | None]
    bound_bytes: int
    catalogues: CatalogueTexts
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _interrupted_s: float | None = field(default=None, init=False)
    _doubt: str | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)
    _requests: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.worker.send(Begin(self.number, sent()))

    def register(self, name: str, table: pa.Table | SpilledTable) -> None:
        if isinstance(table, SpilledTable):
            file = table
            self._ask(lambda: self.worker.send(Register(name, file.size_bytes), descriptor=file.descriptor))
            return
        if table.nbytes <= messages.INLINE_BYTES_MAX:
            body = messages.table_bytes(table)
            self._ask(lambda: self.worker.send(Register(name, body.size), body))
            return
        descriptor, size = messages.table_memory(table)
        try:
            self._ask(lambda: self.worker.send(Register(name, size), descriptor=descriptor))
        finally:
            os.close(descriptor)

    def rows_of(self, name: str, schema: pa.Schema) -> RelationRows:
        return _RowsOfWorker(self, name, schema)

    def register_memory(self, name: str, memory: messages.RelationMemory) -> None:
        """Register what was written into memory that the worker maps."""
        size = memory.seal()
        self._ask(lambda: self.worker.send(Register(name, size), descriptor=memory.descriptor))

    def value(self, sql: str, parameters: Mapping[str, object]) -> object:
        answer, _ = self._answer(ReadValue(sql, packing.packed_values(parameters)), ValueFound)
        with self._doubting():
            return packing.unpacked(answer.value)

    def read_statement(self, text: str, database: str | None) -> SqlStatement:
        answer, _ = self._answer(ReadStatement(text, database), Understood)
        return SqlStatement(
            *(text, database, answer.explain, answer.parameters),
            *(answer.session_names, answer.has_functions),
        )

    def plan(
        self, statement: SqlStatement, values: Mapping[str, object], catalogue: QueryCatalogue
    ) -> Planned:
        number, definitions = self.catalogues.of(catalogue)
        if self.worker.catalogue != number:
            self._ask(lambda: self.worker.send(Learn(), definitions))
            self.worker.catalogue = number
        given = packing.packed_values(statement.given)
        packed = packing.packed_values(values)
        asked = MakePlan(statement.text, statement.database, given, statement.zone, packed)
        answer, _ = self._answer(asked, PlanMade)
        with self._doubting():
            return Planned(rewritten_of(answer.plan, catalogue, statement.parameters), answer.varies)

    def show_filter(self, condition: str, first: str) -> str:
        answer, _ = self._answer(Filter(condition, first), ValueFound)
        with self._doubting():
            if not isinstance(answer.value, str):
                raise _strange(answer)
            return answer.value

    def run(self, sql: str, parameters: Mapping[str, object]) -> WorkerResult:
        answer, body = self._answer(Run(sql, packing.packed_values(parameters)), Ran)
        with self._doubting():
            schema = messages.read_schema(answer.schema)
            try:
                first: ResultPiece | RtolapError = self._piece(self._checked(answer.first), body, schema)
            except RtolapError as error:  # of its rows, raised where they are read
                first = error
            return WorkerResult(self, schema, first)

    def next_piece(self, schema: pa.Schema) -> ResultPiece:
        answer, body = self._answer(Next(), ResultRows)
        return self._piece(answer, body, schema)

    def drain(self) -> int:
        """Return the number of rows after those that were sent."""
        return self._answer(Drain(), Drained)[0].rows

    def _piece(self, answer: ResultRows, body: pa.Buffer, schema: pa.Schema) -> ResultPiece:
        with self._doubting():
            return (messages.read_batch(body, schema), answer.is_last) if body.size else (None, True)

    def _answer(self, request: WorkerRequest, kind: type[A]) -> tuple[A, pa.Buffer]:
        """Return the answer, which is of this kind, with its body."""

        def ask() -> tuple[WorkerAnswer, pa.Buffer]:
            self.worker.send(request)
            return self.worker.receive()

        asked_ns = time.perf_counter_ns()
        try:
            answer, body = self._ask(ask)
        except RtolapError as error:
            self._note(request, time.perf_counter_ns() - asked_ns, type(error).__name__)
            raise
        refusal = type(from_dict(answer.error)).__name__ if isinstance(answer, Failed) else ""
        # A worker may say anything: it has worked no longer than it was waited for.
        self._note(request, min(self.worker.worked_ns, time.perf_counter_ns() - asked_ns), refusal)
        checked = self._checked(answer)
        with self._doubting():
            if not isinstance(checked, kind):
                raise _strange(checked)
            return checked, body

    def _note(self, request: WorkerRequest, took_ns: int, error: str) -> None:
        """Make a span of what the worker has done, below that of the statement."""
        self._requests += 1
        if self._requests <= SPANS_MAX:
            name = f"worker {type(request).__name__}"
            measured(name, took_ns, error=error, **{"process.pid": self.worker.pid or 0})

    def _checked(self, answer: A | Failed) -> A:
        if isinstance(answer, Failed):
            if answer.is_doubtful:
                self._doubt = MEMORY if answer.error.get("code") == Unavailable.code else DOUBTFUL
            raise from_dict(answer.error)
        return answer

    def _ask(self, call: Callable[[], T]) -> T:
        self.ending.check()
        with self._changed:
            if self._closed:
                raise Unavailable("the query was closed")
            self.worker.busy_since_s = time.monotonic()
        try:
            with self._doubting():
                return call()
        except WorkerGone as error:
            raise self._death() from error
        finally:
            with self._changed:
                self.worker.busy_since_s = None
                self._changed.notify_all()

    @contextmanager
    def _doubting(self) -> Iterator[None]:
        """Mark the worker to be ended when its answer is corrupted: no worker of ours answers so."""
        try:
            yield
        except Corrupted:
            self._doubt = self._doubt or DOUBTFUL
            raise

    def _death(self) -> RtolapError:
        """Return the error for the worker's statement. The worker is given back."""
        self._doubt = self.worker.killed or DIED
        status = self._return_worker()
        if self._doubt == SUM:
            return Unavailable(
                "the query needs more memory than it may have",
                expected=f"at most {self.bound_bytes >> 20} MiB for all queries together",
                found="it took the most of them",
                action="group by less, or ask again when fewer queries run",
            )
        if self._doubt == DISK:
            return TooLittleDisk(
                "the query needs more of the disk than it may have",
                expected="as much free as the service leaves to others",
                found="it had spilled the most",
                action="group or sort less, or ask again when fewer queries run",
            )
        if status in (-signal.SIGABRT, OUT_OF_MEMORY):  # so ends what cannot tell that an allocation failed
            return Unavailable(
                "the query needs more memory than it may have",
                expected=f"at most {self.bound_bytes >> 20} MiB",
                action="group by less",
            )
        cause = self._doubt if status is None else _exit_status(status)
        action = "ask again; if it ends again, ask for less"
        return Unavailable("the worker of the query ended", found=cause, action=action)

    def interrupt(self) -> None:
        with self._changed:
            if self.worker.busy_since_s is None or self._closed:
                return
            now_s = time.monotonic()
            if self._interrupted_s is None:
                self._interrupted_s = now_s
            is_deaf = now_s - max(self._interrupted_s, self.worker.busy_since_s) > GIVE_UP_S
        if is_deaf:
            self.worker.kill(DEAF)
        else:
            self.worker.interrupt(self.number)

    def close(self) -> None:
        """Close the session. Another thread that waits for an answer gets an error."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            if self.worker.busy_since_s is not None:
                self.worker.interrupt(self.number)
                if not self._changed.wait_for(lambda: self.worker.busy_since_s is None, GIVE_UP_S):
                    self.worker.kill(LEFT)
        self._return_worker()

    def _return_worker(self) -> int | None:
        with self._changed:
            give_back, self.give_back = self.give_back, _nothing
        if give_back is _nothing:
            return None
        if self._doubt is None and self.worker.killed is None:
            try:
                self.worker.send(End())
            except WorkerGone:
                self._doubt = DIED
        return give_back(self.worker, self._doubt or self.worker.killed)


class WorkerResult:
    """See `engine_session.EngineResult`."""

    def __init__(self, session: WorkerSession, schema: pa.Schema, first: ResultPiece | RtolapError) -> None:
        self.schema = schema
        self._session = session
        self._first: ResultPiece | RtolapError | None = first
        self._is_over = False

    def next_batch(self) -> pa.RecordBatch | None:
        if self._is_over:
            return None
        self._is_over = True  # also if it fails
        first, self._first = self._first, None
        if isinstance(first, RtolapError):
            raise first
        batch, self._is_over = first or self._session.next_piece(self.schema)
        return batch

    def drain(self) -> int:
        batch = self.next_batch()
        rows: int = 0 if batch is None else batch.num_rows
        if self._is_over:
            return rows
        self._is_over = True
        return rows + self._session.drain()


def _strange(answer: object) -> RtolapError:
    return Corrupted("a worker answered something else", found=type(answer).__name__)


def _nothing(worker: Worker, reason: str | None) -> int | None:
    return None


def _exit_status(status: int) -> str:
    if status >= 0:
        return f"exit code {status}"
    with suppress(ValueError):
        return f"signal {-status} ({signal.Signals(-status).name})"
    return f"signal {-status}"
