"""The command phase of one connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pyarrow as pa

from rtolap.base.errors import RtolapError, Unauthorized, UnsupportedSql
from rtolap.base.ids import bound, new_id
from rtolap.query.cancel import Cancellation
from rtolap.query.memory_budget import PACKET, PARAMETERS, Account
from rtolap.query.mysql import codes
from rtolap.query.mysql.answers import MESSAGE_BYTES_MAX, Answers, EncodeRows
from rtolap.query.mysql.client_watch import ClientWatch
from rtolap.query.mysql.handshake import Verify, change_user
from rtolap.query.mysql.packets import PacketFields, PacketStream
from rtolap.query.mysql.prepared import PreparedStatement, PreparedStatements
from rtolap.query.mysql.result_sets import binary_rows, text_rows
from rtolap.query.mysql.statement_text import statement_text
from rtolap.query.sql.statement import SqlStatement
from rtolap.query.statement_outcome import StatementOutcome
from rtolap.query.statement_service import QueryService
from rtolap.query.statements.classify import (
    ClassifiedStatement,
    Kill,
    Query,
    classify,
    is_diagnostic,
    needs_admission,
    plain,
)
from rtolap.query.statements.executor import Executor
from rtolap.query.statements.shows import Show
from rtolap.query.statements.sql_session import SqlSession, completed, no_progress
from rtolap.query.workers.packing import value_size

PACKET_BYTES_MAX = 16 << 20
VALUE_COPIES = 2  # of a value: itself, and as it goes to a worker
PACKET_COPIES = 6  # of a packet: as it comes, as a payload, as a text of up to 4 bytes a character
COMMAND_BYTES_MAX = 64 << 10  # of one that holds a name
_LARGE = (codes.COM_QUERY, codes.COM_STMT_PREPARE, codes.COM_STMT_EXECUTE, codes.COM_STMT_SEND_LONG_DATA)


class MySqlConnection:
    """Runs in a thread of its own until the client leaves. `interrupt` may be called from any thread."""

    def __init__(
        self,
        stream: PacketStream,
        capabilities: int,
        session: SqlSession,
        service: QueryService,
        executor: Executor,
        verify: Verify,
        watch: ClientWatch,
        account: Account,
    ) -> None:
        """Create a connection that has logged in.

        Args:
            account: the memory of the connection; the caller closes it.
        """
        self.session = session
        self._stream = stream
        self._answers = Answers(stream, capabilities, account)
        self._service = service
        self._executor = executor
        self._verify = verify
        self._watch = watch
        self._account = account
        self._prepared = PreparedStatements(account)
        self._lock = threading.Lock()
        self._running: Cancellation | None = None

    def interrupt(self, reason: str) -> None:
        with self._lock:
            running = self._running
        if running is not None:
            running.cancel(reason)

    def run(self) -> None:
        """Serve the client. It returns when the client leaves, and raises ConnectionClosed when it
        vanishes."""
        while True:
            self._stream.sequence = 0
            try:
                payload = self._stream.read(PACKET_BYTES_MAX, self._reserve)
                if not payload or payload[0] == codes.COM_QUIT:
                    return
                with bound(statement=new_id()):
                    self._command(payload[0], payload)
            except Unauthorized as error:
                self._error(error)
                return
            except RtolapError as error:
                self._error(error)
            finally:
                payload = b""
                self._account.reserve(PACKET, 0)
            self._stream.flush()

    def _reserve(self, payload_bytes: int) -> None:
        """Reserve memory for a packet. Raises OverBudget where there is none."""
        self._account.reserve(PACKET, PACKET_COPIES * payload_bytes)

    def _command(self, command: int, payload: bytes) -> None:
        if len(payload) > COMMAND_BYTES_MAX and command not in _LARGE:
            raise codes.PacketTooLarge(
                f"packet too large: command {command}",
                expected=f"at most {COMMAND_BYTES_MAX} bytes",
                found=len(payload),
            )
        fields = PacketFields(payload, 1)
        match command:
            case codes.COM_QUERY:
                self._query(self._statement(payload))
            case codes.COM_PING:
                self._answers.ok()
            case codes.COM_RESET_CONNECTION:
                self._prepared.clear()
                self.session.reset()
                self._answers.ok()
            case codes.COM_SET_OPTION:
                self._answers.end()
            case codes.COM_INIT_DB:
                self.session.use(_text(payload))
                self._answers.ok()
            case codes.COM_STATISTICS:
                self._answers.text(b"rtolap")
            case codes.COM_FIELD_LIST:
                self._field_list(fields.null_terminated().decode("utf-8", "replace"))
            case codes.COM_CHANGE_USER:
                self._change_user(payload)
            case codes.COM_PROCESS_KILL:
                self._execute(Kill("connection", fields.integer(4)), text_rows)
            case codes.COM_STMT_PREPARE:
                self._prepare(self._plain(self._statement(payload)))
            case codes.COM_STMT_EXECUTE:
                self._execute_prepared(fields)
            case codes.COM_STMT_FETCH:
                self._prepared.fetched(fields)
                self._answers.fetched()
            case codes.COM_STMT_SEND_LONG_DATA:
                self._prepared.long_data(fields)
            case codes.COM_STMT_CLOSE:
                self._prepared.close(fields)
            case codes.COM_STMT_RESET:
                self._prepared.reset(fields)
                self._answers.ok()
            case _:
                raise UnsupportedSql(f"unsupported command {command}")

    def _change_user(self, payload: bytes) -> None:
        user, database = change_user(self._stream, payload, self._verify)
        self._prepared.clear()
        self.session.reset()
        self._account.belongs_to(user)
        self.session.user = user
        self.session.database = None
        if database:
            self.session.use(database)
        self._answers.ok()

    def _query(self, sql: str) -> None:
        text = self._plain(sql)
        self._forget_warnings(text)
        self._execute(self._classify(text), text_rows)

    def _statement(self, payload: bytes) -> str:
        bytes_max = int(self.session.variables["max_allowed_packet"])
        if len(payload) - 1 > bytes_max:
            raise codes.PacketTooLarge(
                "packet too large: the statement",
                expected=f"at most @@max_allowed_packet, {bytes_max} bytes",
                found=len(payload) - 1,
                action="bind large values as parameters of a prepared statement",
            )
        return statement_text(payload[1:])

    def _plain(self, sql: str) -> str:
        """Return a text that means the same in each session: it is the key under which statements are found
        again."""
        return plain(sql, ansi_quotes=self.session.has_ansi_quotes)

    def _forget_warnings(self, text: str) -> None:
        """Drop the warnings of the previous statement, unless this one reads them."""
        if not is_diagnostic(text):
            self.session.warnings = []

    def _classify(self, text: str) -> ClassifiedStatement:
        return classify(text, self.session.database)

    def _execute(self, request: ClassifiedStatement, encode: EncodeRows, *, cursor: bool = False) -> None:
        with self._ending() if needs_admission(request) else nullcontext() as cancellation:
            outcome = self._executor.execute(request, self.session, (), cancellation)
            self._answer(outcome, encode, cursor=cursor)

    def _answer(self, outcome: StatementOutcome, encode: EncodeRows, *, cursor: bool = False) -> None:
        try:
            if outcome.warnings:
                self.session.warnings = [
                    (warning.level, codes.WARNING_NUMBERS[warning.code], warning.message)
                    for warning in outcome.warnings
                ]
            count = len(outcome.warnings)
            if len(outcome.schema):
                self._answers.result(
                    outcome.schema, outcome.batches, encode, count, cursor=cursor, made=outcome.made
                )
            else:
                self._answers.ok(count)
        finally:
            outcome.close()

    @contextmanager
    def _ending(self) -> Iterator[Cancellation]:
        """Yield the cancellation of the statement that runs within: its time, a KILL, a client that goes
        away."""
        cancellation = self._service.cancellation(
            self.session.timeout_ms, self.session.user, self.session.engine, "mysql"
        )
        with self._lock:
            self._running = cancellation
        self.session.running = "query"
        self.session.progress = lambda: cancellation.progress
        try:
            with self._watch.watch(self._stream.sock, cancellation):
                yield cancellation
        finally:
            with self._lock:
                self._running = None
            self.session.running = None
            self.session.progress = no_progress

    def _prepare(self, text: str) -> None:
        self._prepared.check_room()
        request = self._classify(text)
        prepared = PreparedStatement(text, pa.schema([]), ())
        if isinstance(request, Query):
            with self._ending() as cancellation:
                columns, statement = self._service.describe(
                    *(request.text, cancellation), database=self.session.database, complete=self._complete
                )
            prepared = PreparedStatement(statement, columns, statement.parameters)
        elif isinstance(request, Show):
            with self._ending() as cancellation:
                shown = self._executor.execute(request, self.session, (), cancellation)
            prepared = PreparedStatement(text, shown.schema, ())
        identity = self._prepared.add_statement(prepared)
        self._answers.prepared(identity, prepared.columns, len(prepared.names))

    def _complete(self, statement: SqlStatement) -> SqlStatement:
        return completed(statement, self.session)

    def _execute_prepared(self, fields: PacketFields) -> None:
        prepared, values = self._prepared.bound(fields)
        with self._account.holding(PARAMETERS, VALUE_COPIES * sum(map(value_size, values))):
            self._run_prepared(prepared, values)

    def _run_prepared(self, prepared: PreparedStatement, values: list[object]) -> None:
        statement, cursor = prepared.statement, prepared.asks_for_cursor
        self._forget_warnings(statement if isinstance(statement, str) else "")
        if isinstance(statement, SqlStatement):
            with self._ending() as cancellation:
                outcome = self._service.execute(
                    *(statement, values, cancellation, self.session.positions), complete=self._complete
                )
                self._answer(outcome, binary_rows, cursor=cursor)
        else:
            self._execute(self._classify(statement), binary_rows, cursor=cursor)

    def _field_list(self, relation: str) -> None:
        """Answer COM_FIELD_LIST, by which the `mysql` command line completes names."""
        shown = self._executor.execute(Show("columns", name=relation.replace("`", "")), self.session)
        names = shown.table().column(0).to_pylist()
        self._answers.fields(relation, [str(name) for name in names])

    def _error(self, error: RtolapError) -> None:
        self.session.warnings = [("Error", codes.error_code(error)[0], str(error)[:MESSAGE_BYTES_MAX])]
        self._answers.error(error)
        self._stream.flush()


def _text(payload: bytes) -> str:
    """Return the text behind the command's byte."""
    return payload[1:].decode("utf-8", "replace")
