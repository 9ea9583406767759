"""The command phase of one connection."""

from __future__ import annotations

import logging
import re
import select
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from rtolap.base.errors import QueryError, RtolapError, Unauthorized
from rtolap.query.cancel import Cancellation
from rtolap.query.catalogue import DATABASE
from rtolap.query.mysql import codes
from rtolap.query.mysql.columns import definition
from rtolap.query.mysql.handshake import change_user
from rtolap.query.mysql.packets import ConnectionClosed, Fields, PacketStream, length_encoded
from rtolap.query.mysql.parameters import decode_parameters
from rtolap.query.mysql.rows import binary_rows, text_rows
from rtolap.query.mysql.show import Shows
from rtolap.query.mysql.variables import Session, substitute
from rtolap.query.outcome import Outcome
from rtolap.query.parser import Statement
from rtolap.query.service import QueryService
from rtolap.query.users import Users

log = logging.getLogger(__name__)

PACKET_BYTES_MAX = 16 << 20
STATEMENTS_MAX = 1000  # prepared ones a connection may hold
LONG_DATA_BYTES_MAX = 16 << 20
GONE_POLL_MS = 200  # how often a running query looks whether its client is still there
_POLLRDHUP = getattr(select, "POLLRDHUP", 0x2000)
_COMMENT = re.compile(r"\A(?:\s+|/\*(?!!).*?\*/|--[ \t][^\n]*\n?|#[^\n]*\n?)+", re.DOTALL)
_CONDITIONAL = re.compile(r"/\*!\d*\s?(.*?)\*/", re.DOTALL)
_WORDS = re.compile(
    r"(?:begin|commit|rollback|start\s+transaction|savepoint|release|lock|unlock|flush)\b", re.I
)
_QUERY = re.compile(r"(?:(?:explain|desc|describe)\s+(?:analyze\s+)?)?(?:select\b|with\b|\()", re.I)
_KILL = re.compile(r"kill\s+(?:(query|connection)\s+)?(\d+)\s*;?\s*\Z", re.I)
_USE = re.compile(r"use\s+(\S+?)\s*;?\s*\Z", re.I)
_SET = re.compile(r"set\b(.*)", re.I | re.DOTALL)


class Peers(Protocol):
    """What a connection may do to others of the same user."""

    def kill(self, connection_id: int, user: str, *, connection: bool) -> None: ...


@dataclass
class Prepared:
    statement: Statement | str
    columns: pa.Schema
    names: tuple[str, ...]
    types: list[tuple[int, int]] = field(default_factory=list)
    long_data: dict[int, bytes] = field(default_factory=dict)


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
        peers: Peers,
    ) -> None:
        self.session = session
        self._stream = stream
        self._deprecate_eof = bool(capabilities & codes.DEPRECATE_EOF)
        self._service = service
        self._shows = shows
        self._users = users
        self._peers = peers
        self._prepared: dict[int, Prepared] = {}
        self._next_statement = 1
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
            payload = self._stream.read(PACKET_BYTES_MAX)
            if not payload or payload[0] == codes.COM_QUIT:
                return
            try:
                self._command(payload[0], payload)
            except Unauthorized as error:
                self._error(error)
                return
            except RtolapError as error:
                self._error(error)
            self._stream.flush()

    def _command(self, command: int, payload: bytes) -> None:
        match command:
            case codes.COM_QUERY:
                self._query(payload[1:].decode("utf-8", "replace"))
            case codes.COM_PING | codes.COM_RESET_CONNECTION | codes.COM_SET_OPTION:
                if command == codes.COM_RESET_CONNECTION:
                    self._prepared.clear()
                    self.session.reset()
                self._ok(eof=command == codes.COM_SET_OPTION)
            case codes.COM_INIT_DB:
                self.session.use(payload[1:].decode("utf-8", "replace"))
                self._ok()
            case codes.COM_STATISTICS:
                self._stream.write(b"rtolap")
            case codes.COM_FIELD_LIST:
                self._field_list(payload)
            case codes.COM_CHANGE_USER:
                self.session.user, database = change_user(self._stream, payload, self._users)
                self.session.database = None
                if database:
                    self.session.use(database)
                self._prepared.clear()
                self._ok()
            case codes.COM_PROCESS_KILL:
                self._peers.kill(Fields(payload, 1).integer(4), self.session.user, connection=True)
                self._ok()
            case codes.COM_STMT_PREPARE:
                self._prepare(payload[1:].decode("utf-8", "replace"))
            case codes.COM_STMT_EXECUTE:
                self._execute(payload)
            case codes.COM_STMT_SEND_LONG_DATA:
                self._long_data(payload)
            case codes.COM_STMT_CLOSE:
                self._prepared.pop(Fields(payload, 1).integer(4), None)
            case codes.COM_STMT_RESET:
                self._find(Fields(payload, 1).integer(4)).long_data.clear()
                self._ok()
            case _:
                raise QueryError(f"unsupported command {command}")

    def _query(self, sql: str) -> None:
        text = _plain(sql)
        if self._control(text):
            self._ok()
            return
        shown = self._shows.answer(text, self.session)
        if shown is not None:
            self._result(shown.schema, shown.to_batches(), text_rows)
            return
        self._run(self._parse(text), (), text_rows)

    def _control(self, text: str) -> bool:
        """Statements that answer nothing but OK."""
        if not text.strip(" ;\n\t"):
            if not text.strip():
                raise QueryError("bad SQL: the statement is empty")
            return True
        if match := _SET.match(text):
            self.session.set(match[1])
            return True
        if match := _USE.match(text):
            self.session.use(match[1])
            return True
        if match := _KILL.match(text):
            connection = (match[1] or "connection").lower() == "connection"
            self._peers.kill(int(match[2]), self.session.user, connection=connection)
            return True
        return _WORDS.match(text) is not None  # nothing is written, so every transaction is an empty one

    def _parse(self, text: str) -> Statement:
        return substitute(self._service.prepare(text), self.session)

    def _run(
        self,
        statement: Statement,
        values: Iterable[object],
        encode: Callable[[pa.RecordBatch], Iterator[bytes]],
    ) -> None:
        cancellation = self._service.cancellation(self.session.timeout_ms)
        with self._lock:
            self._running = cancellation
        self.session.running = "query"
        watch = _Watch(self._stream, cancellation)
        outcome: Outcome | None = None
        try:
            outcome = self._service.execute(statement, list(values), cancellation)
            self._result(outcome.schema, outcome.batches, encode)
        finally:
            watch.stop()
            with self._lock:
                self._running = None
            self.session.running = None
            if outcome is not None:
                outcome.close()

    def _prepare(self, sql: str) -> None:
        if len(self._prepared) >= STATEMENTS_MAX:
            raise QueryError(
                "too many prepared statements", expected=f"at most {STATEMENTS_MAX} a connection"
            )
        text = _plain(sql)
        statement: Statement | str
        if re.match(
            r"(?:select|with|\(|(?:explain|desc|describe)\s+(?:analyze\s+)?(?:select|with|\())", text, re.I
        ):
            statement = self._parse(text)
            columns, names = self._service.describe(statement)
        else:
            shown = self._shows.answer(text, self.session)
            statement, names = text, ()
            columns = pa.schema([]) if shown is None else shown.schema
        identity, self._next_statement = self._next_statement, self._next_statement + 1
        self._prepared[identity] = Prepared(statement, columns, names)
        head = b"\0" + identity.to_bytes(4, "little")
        head += len(columns).to_bytes(2, "little") + len(names).to_bytes(2, "little") + b"\0\0\0"
        self._stream.write(head)
        if names:
            for _ in names:
                self._stream.write(definition("?", pa.string()))
            self._eof_unless_deprecated()
        if len(columns):
            for column in columns:
                self._stream.write(definition(column.name, column.type))
            self._eof_unless_deprecated()

    def _execute(self, payload: bytes) -> None:
        fields = Fields(payload, 1)
        prepared = self._find(fields.integer(4))
        fields.take(1 + 4)  # cursors are not offered; the iteration count is always 1
        values, prepared.types = decode_parameters(
            fields, len(prepared.names), prepared.types, prepared.long_data
        )
        prepared.long_data = {}
        if isinstance(prepared.statement, Statement):
            self._run(prepared.statement, values, binary_rows)
            return
        shown = self._shows.answer(prepared.statement, self.session)
        if shown is not None:
            self._result(shown.schema, shown.to_batches(), binary_rows)
        elif self._control(prepared.statement):
            self._ok()
        else:
            self._run(self._parse(prepared.statement), (), binary_rows)

    def _long_data(self, payload: bytes) -> None:
        """No answer is sent, so an error waits for the execution."""
        fields = Fields(payload, 1)
        prepared = self._prepared.get(fields.integer(4))
        position, data = fields.integer(2), fields.rest()
        if prepared is not None:
            grown = prepared.long_data.get(position, b"") + data
            prepared.long_data[position] = grown[:LONG_DATA_BYTES_MAX]

    def _find(self, identity: int) -> Prepared:
        try:
            return self._prepared[identity]
        except KeyError:
            raise QueryError(f"unknown prepared statement {identity}") from None

    def _field_list(self, payload: bytes) -> None:
        """COM_FIELD_LIST, which the `mysql` command line completes names with."""
        name = Fields(payload, 1).null_terminated().decode("utf-8", "replace")
        shown = self._shows.answer(f"show columns from `{name.replace('`', '')}`", self.session)
        assert shown is not None, "the statement is a SHOW"
        for column in map(str, shown.column(0).to_pylist()):
            self._stream.write(definition(column, pa.string(), table=name, database=DATABASE) + b"\xfb")
        self._eof()

    def _result(
        self,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        encode: Callable[[pa.RecordBatch], Iterator[bytes]],
    ) -> None:
        self._stream.write(length_encoded(len(schema)))
        for column in schema:
            self._stream.write(definition(column.name, column.type))
        self._eof_unless_deprecated()
        write = self._stream.write
        for batch in batches:
            for row in encode(batch):
                write(row)
        self._ok(eof=True)

    def _ok(self, *, eof: bool = False) -> None:
        if eof and not self._deprecate_eof:
            self._eof()
            return
        self._stream.write(
            (b"\xfe" if eof else b"\0") + b"\0\0" + codes.STATUS_AUTOCOMMIT.to_bytes(2, "little") + b"\0\0"
        )

    def _eof_unless_deprecated(self) -> None:
        if not self._deprecate_eof:
            self._eof()

    def _eof(self) -> None:
        self._stream.write(b"\xfe\0\0" + codes.STATUS_AUTOCOMMIT.to_bytes(2, "little"))

    def _error(self, error: RtolapError) -> None:
        number, state = codes.error_code(error)
        self.session.warnings = [("Error", number, str(error))]
        self._stream.write(error_packet(number, state, str(error)))
        self._stream.flush()


class _Watch:
    """Interrupts a query whose client has closed its side of the socket."""

    def __init__(self, stream: PacketStream, cancellation: Cancellation) -> None:
        self._over = threading.Event()
        self._poll = select.poll()
        self._poll.register(stream.sock.fileno(), _POLLRDHUP)
        self._cancellation = cancellation
        self._thread = threading.Thread(target=self._run, name="client-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            if self._poll.poll(GONE_POLL_MS) and not self._over.is_set():
                self._cancellation.cancel("the client went away")
                return


def error_packet(number: int, state: str, message: str) -> bytes:
    return b"\xff" + number.to_bytes(2, "little") + b"#" + state.encode() + message.encode()[:2000]


def _plain(sql: str) -> str:
    """Without leading comments; `/*! … */` is for MySQL, so its content counts."""
    return _COMMENT.sub("", _CONDITIONAL.sub(r"\1", sql)) if "/*!" in sql else _COMMENT.sub("", sql)


__all__ = ["Connection", "ConnectionClosed", "Peers", "error_packet"]
