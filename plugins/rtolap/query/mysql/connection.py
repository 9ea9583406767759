"""The command phase of one connection."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa

from rtolap.base.errors import RtolapError, SqlSyntaxError, Unauthorized, UnsupportedSql
from rtolap.base.users import Users
from rtolap.query.cancel import Cancellation
from rtolap.query.mysql import codes, statements
from rtolap.query.mysql.answers import Answers, Encode
from rtolap.query.mysql.client_watch import ClientWatch
from rtolap.query.mysql.handshake import Verify, change_user
from rtolap.query.mysql.packets import Fields, PacketStream
from rtolap.query.mysql.prepared import Prepared, PreparedStatements
from rtolap.query.mysql.rows import binary_rows, text_rows
from rtolap.query.mysql.show import Shows
from rtolap.query.mysql.variables import Session, substitute
from rtolap.query.outcome import Outcome
from rtolap.query.service import QueryService
from rtolap.query.sql.parser import Statement
from rtolap.query.stored.ddl import parse_ddl

PACKET_BYTES_MAX = 16 << 20


class Peers(Protocol):
    """The operations of a connection on others of the same user."""

    def kill(self, connection_id: int, user: str, *, connection: bool) -> None: ...


class Connection:
    """Runs in a thread of its own until the client leaves. `interrupt` may be called from any thread."""

    def __init__(
        self,
        stream: PacketStream,
        capabilities: int,
        session: Session,
        service: QueryService,
        shows: Shows,
        users: Users,
        verify: Verify,
        peers: Peers,
    ) -> None:
        self.session = session
        self._stream = stream
        self._answers = Answers(stream, capabilities)
        self._service = service
        self._shows = shows
        self._users = users
        self._verify = verify
        self._peers = peers
        self._prepared = PreparedStatements()
        self._lock = threading.Lock()
        self._running: Cancellation | None = None

    def interrupt(self, reason: str) -> None:
        with self._lock:
            running = self._running
        if running is not None:
            running.cancel(reason)

    def run(self) -> None:
        """Returns when the client leaves; raises ConnectionClosed when it vanishes."""
        while True:
            self._stream.sequence = 0
            try:
                payload = self._stream.read(PACKET_BYTES_MAX)
                if not payload or payload[0] == codes.COM_QUIT:
                    return
                self._command(payload[0], payload)
            except Unauthorized as error:
                self._error(error)
                return
            except RtolapError as error:
                self._error(error)
            self._stream.flush()

    def _command(self, command: int, payload: bytes) -> None:
        fields = Fields(payload, 1)
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
                self._peers.kill(fields.integer(4), self.session.user, connection=True)
                self._answers.ok()
            case codes.COM_STMT_PREPARE:
                self._prepare(self._plain(self._statement(payload)))
            case codes.COM_STMT_EXECUTE:
                self._execute(fields)
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
        self.session.user, database = change_user(self._stream, payload, self._verify)
        self.session.reset()
        self.session.database = None
        if database:
            self.session.use(database)
        self._prepared.clear()
        self._answers.ok()

    def _query(self, sql: str) -> None:
        text = self._plain(sql)
        self._forget_warnings(text)
        if self._control(text):
            self._answers.ok()
        elif not self._show(text, text_rows) and not self._define(text):
            self._run(self._parse(text), (), text_rows)

    def _statement(self, payload: bytes) -> str:
        bytes_max = int(self.session.variables["max_allowed_packet"])
        if len(payload) - 1 > bytes_max:
            raise codes.PacketTooLarge(
                "packet too large: the statement",
                expected=f"at most @@max_allowed_packet, {bytes_max} bytes",
                found=len(payload) - 1,
                action="bind large values as parameters of a prepared statement",
            )
        return _text(payload)

    def _plain(self, sql: str) -> str:
        """Return a text that means the same in each session: it is the key under which statements are found
        again."""
        return statements.plain(sql, ansi_quotes=self.session.has_ansi_quotes)

    def _forget_warnings(self, text: str) -> None:
        """Keep those of the statement before for one that reads them."""
        if not statements.is_diagnostic(text):
            self.session.warnings = []

    def _control(self, text: str) -> bool:
        """Statements that answer nothing but OK."""
        if not text.strip(" ;\n\t"):
            if not text.strip():
                raise SqlSyntaxError("bad SQL: the statement is empty")
            return True
        if (assignments := statements.set_of(text)) is not None:
            self.session.set(assignments)
            return True
        if (database := statements.use_of(text)) is not None:
            self.session.use(database)
            return True
        if (kill := statements.kill_of(text)) is not None:
            self._peers.kill(kill.connection_id, self.session.user, connection=kill.what == "connection")
            return True
        return statements.is_transaction(text)

    def _show(self, text: str, encode: Encode, *, cursor: bool = False) -> bool:
        shown = self._shows.answer(text, self.session, self._ending)
        if shown is None:
            return False
        self._answers.result(shown.schema, shown.to_batches(), encode, cursor=cursor)
        return True

    def _define(self, text: str) -> bool:
        """CREATE, ALTER, DROP or TRUNCATE TABLE, by those who may."""
        definition = parse_ddl(text, self.session.database)
        if definition is None:
            return False
        self._users.require(self.session.user, "define")
        notes = self._service.definitions.apply(definition)
        self.session.warnings = [("Note", codes.ER_UNSUPPORTED, note) for note in notes]
        self._answers.ok(len(notes))
        return True

    def _parse(self, text: str) -> Statement:
        return substitute(self._service.prepare(text, self.session.database), self.session)

    def _run(
        self, statement: Statement, values: Iterable[object], encode: Encode, *, cursor: bool = False
    ) -> None:
        outcome: Outcome | None = None
        with self._ending() as cancellation:
            try:
                outcome = self._service.execute(statement, list(values), cancellation)
                if outcome.warnings:
                    self.session.warnings = [
                        (warning.level, codes.WARNING_NUMBERS[warning.code], warning.message)
                        for warning in outcome.warnings
                    ]
                self._answers.result(
                    outcome.schema, outcome.batches, encode, len(outcome.warnings), cursor=cursor
                )
            finally:
                if outcome is not None:
                    outcome.close()

    @contextmanager
    def _ending(self) -> Iterator[Cancellation]:
        """Yield the cancellation of the statement that runs within: its time, a KILL, a client that goes
        away."""
        cancellation = self._service.cancellation(self.session.timeout_ms, self.session.user)
        with self._lock:
            self._running = cancellation
        self.session.running = "query"
        watch = ClientWatch(self._stream.sock, cancellation)
        try:
            yield cancellation
        finally:
            watch.stop()
            with self._lock:
                self._running = None
            self.session.running = None

    def _prepare(self, text: str) -> None:
        self._prepared.check_room()
        if statements.is_query(text):
            statement = self._parse(text)
            with self._ending() as cancellation:
                prepared = Prepared(statement, *self._service.describe(statement, cancellation))
        else:
            shown = self._shows.answer(text, self.session, self._ending)
            prepared = Prepared(text, pa.schema([]) if shown is None else shown.schema, ())
        identity = self._prepared.add(prepared)
        self._answers.prepared(identity, prepared.columns, len(prepared.names))

    def _execute(self, fields: Fields) -> None:
        prepared, values = self._prepared.bound(fields)
        statement, cursor = prepared.statement, prepared.asks_for_cursor
        self._forget_warnings(statement if isinstance(statement, str) else "")
        if isinstance(statement, Statement):
            self._run(statement, values, binary_rows, cursor=cursor)
        elif not self._show(statement, binary_rows, cursor=cursor):
            if self._control(statement):
                self._answers.ok()
            elif not self._define(statement):
                self._run(self._parse(statement), (), binary_rows, cursor=cursor)

    def _field_list(self, relation: str) -> None:
        """COM_FIELD_LIST, which the `mysql` command line completes names with."""
        shown = self._shows.answer(f"show columns from `{relation.replace('`', '')}`", self.session)
        assert shown is not None, "the statement is a SHOW"
        self._answers.fields(relation, [str(name) for name in shown.column(0).to_pylist()])

    def _error(self, error: RtolapError) -> None:
        self.session.warnings = [("Error", codes.error_code(error)[0], str(error))]
        self._answers.error(error)
        self._stream.flush()


def _text(payload: bytes) -> str:
    """Return the text behind the command's byte."""
    return payload[1:].decode("utf-8", "replace")
