"""A change of stored tables, made once however often it is sent.

Numbered by what a crash after each step leaves behind:

    1. one write of the ledger: the change, the tasks of each node for it (`pending_tablet_tasks`), and, where
       the request has an id, its response
    2. the tasks are sent to the nodes that answer  the rest stay pending, and the upkeep sends them
    3. the response

A repeat of the request begins at step 2: it gets the first response, by a successor too, whatever has been
loaded or made since. A refusal is an answer as well. It is noted after its write was rolled back; a crash
before that leaves a request that has done nothing and was never answered, so its repeat is the first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import CommitConflict, DefinitionError, NotFound, Refused, RtolapError, from_dict
from rtolap.protocols.stored_tables.messages import TableInfo
from rtolap.stored.frontend.catalogue.task_dispatcher import TaskDispatcher
from rtolap.stored.frontend.election import Mastership
from rtolap.stored.metastore import table_changes as rows
from rtolap.stored.metastore.database import Connection

log = logging.getLogger(__name__)

# What the present state or the request itself forbids. Anything else (no node, no ledger) is no answer.
_REFUSALS = (DefinitionError, NotFound, Refused)


class Made(msgspec.Struct, frozen=True):
    """The result of a change.

    Attributes:
        owing: the tables whose pending tasks must be sent.
        table: the table after the change; None where there is none.
        refused: the error, as `RtolapError.to_dict` returns it; None after a success.
    """

    owing: tuple[int, ...] = ()
    table: TableInfo | None = None
    refused: dict[str, Any] | None = None


class ChangeRequest(msgspec.Struct, frozen=True):
    """The identity of a change.

    Attributes:
        fingerprint: the checksum of the whole request.
    """

    request_id: str
    fingerprint: str

    @classmethod
    def of(cls, request_id: str | None, *arguments: object) -> ChangeRequest | None:
        """Return the identity of the request; None without an id.

        A repetition without an id is a change of its own.
        """
        if request_id is None:
            return None
        return cls(request_id, sha256(msgspec.json.encode(arguments)).hexdigest())


class TableChanges:
    """All calls are thread-safe, and raise NotLeader where somebody else is master."""

    def __init__(self, mastership: Mastership, dispatcher: TaskDispatcher) -> None:
        self._mastership = mastership
        self._dispatcher = dispatcher

    def make(
        self, purpose: str, request: ChangeRequest | None, work: Callable[[Connection, int], Made]
    ) -> TableInfo | None:
        """Return the table afterwards.

        `work` is called with the ledger's time in ms, after the fence; what it raises is what this raises,
        now and when the request comes again.
        """
        try:
            outcome = self._write(purpose, request, work)
        except _REFUSALS as error:
            if request is None:
                raise
            refused = Made(refused=error.to_dict())
            outcome = self._write(
                f"note the refusal of: {purpose}", request, lambda connection, now_ms: refused
            )
        for table_id in outcome.owing:
            self._send_tasks(table_id)
        if outcome.refused is not None:
            raise from_dict(outcome.refused)
        return outcome.table

    def _send_tasks(self, table_id: int) -> None:
        """Send the tasks. An error here must not reach the caller, because the change is already made: at the
        next master, a request without an id would be made a second time.
        """
        try:
            self._dispatcher.of_table(table_id)
        except RtolapError as error:
            log.warning("the tasks of table %d are sent later: %s", table_id, error)

    def _write(
        self, purpose: str, request: ChangeRequest | None, work: Callable[[Connection, int], Made]
    ) -> Made:
        def once(connection: Connection, now_ms: int) -> Made:
            if request is None:
                return work(connection, now_ms)
            answer = rows.find(connection, request.request_id, request.fingerprint)
            if answer is not None:
                return decode_json(answer, Made)
            outcome = work(connection, now_ms)
            encoded = msgspec.json.encode(outcome).decode()
            rows.note(connection, request.request_id, request.fingerprint, encoded, now_ms)
            return outcome

        try:
            return self._mastership.write(purpose, Made, once)
        except CommitConflict:  # somebody else was the first to make what this makes
            return self._mastership.write(purpose, Made, once)
