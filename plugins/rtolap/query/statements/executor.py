"""The executor of statements: each has an outcome with rows, or with nothing but warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from rtolap.base.errors import QueryError, UnknownConnection, UnsupportedSql
from rtolap.base.users import Users
from rtolap.protocols.query.messages import QueryWarning
from rtolap.query.cancel import Cancellation
from rtolap.query.sql.statement import Parameters, UserValue
from rtolap.query.statement_outcome import StatementOutcome
from rtolap.query.statement_service import QueryService
from rtolap.query.statements import text_prepared
from rtolap.query.statements.assignments import VariableValue, user_value
from rtolap.query.statements.classify import (
    ClassifiedStatement,
    Define,
    Kill,
    Nothing,
    Query,
    SetVariables,
    TransactionWord,
    UseDatabase,
    classify,
    needs_admission,
    plain,
)
from rtolap.query.statements.show_answers import Shows
from rtolap.query.statements.shows import Show
from rtolap.query.statements.sql_session import SqlSession, completed
from rtolap.query.statements.text_prepared import DeallocateStatement, ExecuteStatement, PrepareStatement
from rtolap.query.stored.ddl import parse_ddl


class OpenConnections(Protocol):
    """The connections that stay open. Statements may list and end them.

    What its methods do here is what they do where no client stays connected.
    """

    def sessions(self) -> Sequence[SqlSession]:
        return ()

    def facts(self) -> Mapping[str, VariableValue]:
        """Return the variables of the server, which no session changes."""
        return {}

    def kill(self, connection_id: int, user: str, *, connection: bool) -> None:
        """Interrupt a query, or end a connection, of the same user. Raises QueryError if there is none."""
        raise UnknownConnection(
            f"unknown connection {connection_id}", action="SHOW PROCESSLIST lists your own"
        )


class NoOpenConnections(OpenConnections):
    """The connections of a service to which no client stays connected."""


class Executor:
    """Executes statements of all kinds. Thread-safe."""

    def __init__(self, service: QueryService, users: Users, connections: OpenConnections) -> None:
        self._service = service
        self._users = users
        self._connections = connections
        self._shows = Shows(service, connections.sessions)

    def execute(
        self,
        request: ClassifiedStatement,
        session: SqlSession,
        parameters: Parameters = (),
        cancellation: Cancellation | None = None,
    ) -> StatementOutcome:
        """Execute the statement.

        Args:
            cancellation: the cancellation of a statement that `needs_admission`. It is closed with the
                outcome, or by an error.

        Raises Forbidden, QueryError and the error for which a cube or a stored table cannot answer.
        """
        if isinstance(request, Query):
            return self._service.execute(
                *(request.text, parameters, cancellation, session.positions),
                database=session.database,
                complete=lambda statement: completed(statement, session),
            )
        if parameters:
            raise QueryError("wrong number of parameters", expected="none, but for a query")
        match request:
            case Show():
                shown = self._shows.answer(request, session, cancellation)
                return StatementOutcome(shown.schema, iter(shown.to_batches()))
            case ExecuteStatement():
                return self._execute_prepared(request, session, cancellation)
            case Define():
                return self._define(request, session)
            case SetVariables(assignments=assignments):
                _require_persistent(
                    session, "SET", "give what it is for with the request: timeout_ms, database, engine"
                )
                self._set(assignments, session, cancellation)
            case UseDatabase(name=name):
                _require_persistent(session, "USE", "give `database` with the request")
                session.use(name)
            case Kill():
                of_connection = request.what == "connection"
                self._connections.kill(request.connection_id, session.user, connection=of_connection)
            case PrepareStatement():
                _require_persistent(session, "PREPARE", "send the statement with its parameters")
                try:
                    self._prepare(request, session, cancellation)
                finally:
                    if cancellation is not None:
                        cancellation.close()
            case DeallocateStatement(name=name):
                _require_persistent(session, "DEALLOCATE", "send the statement with its parameters")
                session.forget_prepared(name)
            case Nothing() | TransactionWord():
                pass
        return _done()

    def _set(self, assignments: str, session: SqlSession, cancellation: Cancellation | None) -> None:
        ending = cancellation or self._service.cancellation(session.timeout_ms, session.user, session.engine)

        def evaluate(expression: str, users: Mapping[str, UserValue]) -> UserValue:
            part = ending.part()
            outcome = self._service.execute(
                *(f"select ({expression})", (), part),
                database=session.database,
                complete=lambda statement: completed(statement, session, users),
            )
            try:
                return user_value(outcome)
            finally:
                outcome.close()

        try:
            session.set(assignments, evaluate)
        finally:
            ending.close()

    def _prepare(
        self, request: PrepareStatement, session: SqlSession, cancellation: Cancellation | None
    ) -> None:
        text = request.text if request.variable is None else str(session.users.get(request.variable))
        text = plain(text, ansi_quotes=session.has_ansi_quotes)
        prepared = classify(text, session.database)
        if isinstance(prepared, PrepareStatement | ExecuteStatement | DeallocateStatement):
            raise UnsupportedSql("unsupported PREPARE of PREPARE, EXECUTE or DEALLOCATE")
        if isinstance(prepared, Query):
            self._service.check(prepared.text, session.database, cancellation)  # PREPARE reports its errors
        session.keep_prepared(request.name, text)

    def _execute_prepared(
        self, request: ExecuteStatement, session: SqlSession, cancellation: Cancellation | None
    ) -> StatementOutcome:
        _require_persistent(session, "EXECUTE", "send the statement with its parameters")
        prepared = classify(text_prepared.find(session.prepared, request.name), session.database)
        values = [session.users.get(name) for name in request.variables]
        if not needs_admission(prepared) and cancellation is not None:
            cancellation.close()
            cancellation = None
        return self.execute(prepared, session, values, cancellation)

    def _define(self, request: Define, session: SqlSession) -> StatementOutcome:
        if not session.has_token:
            self._users.require(session.user, "define")
        definition = parse_ddl(request.text, request.database)
        assert definition is not None, "it was classified as one"
        notes = self._service.definitions.apply(definition)
        return _done(tuple(QueryWarning("without_effect", "Note", note) for note in notes))


def _require_persistent(session: SqlSession, word: str, action: str) -> None:
    if not session.is_persistent:
        raise UnsupportedSql(f"unsupported {word}: no statement follows in this session", action=action)


def _done(warnings: tuple[QueryWarning, ...] = ()) -> StatementOutcome:
    return StatementOutcome(pa.schema([]), iter(()), warnings=warnings)
