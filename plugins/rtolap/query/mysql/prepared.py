"""The prepared statements of one connection."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from rtolap.base.errors import QueryError
from rtolap.query.mysql import codes
from rtolap.query.mysql.packets import Fields
from rtolap.query.mysql.parameters import decode_parameters
from rtolap.query.sql.parser import Statement

STATEMENTS_MAX = 1000
LONG_DATA_BYTES_MAX = 16 << 20


@dataclass
class Prepared:
    """`statement`: parsed, or the text of a SHOW, SET or the like. `names`: of the parameters, in order.

    `asks_for_cursor`: its last execution did. `too_long`: more long data was sent than is kept.
    """

    statement: Statement | str
    columns: pa.Schema
    names: tuple[str, ...]
    types: list[tuple[int, int]] = field(default_factory=list)
    long_data: dict[int, bytes] = field(default_factory=dict)
    asks_for_cursor: bool = False
    too_long: bool = False

    def forget_long_data(self) -> None:
        self.long_data, self.too_long = {}, False


class PreparedStatements:
    """By the number that the client knows each by. Raises QueryError for unknown ones and for too many."""

    def __init__(self) -> None:
        self._held: dict[int, Prepared] = {}
        self._next = 1

    def check_room(self) -> None:
        if len(self._held) >= STATEMENTS_MAX:
            raise QueryError(
                "too many prepared statements", expected=f"at most {STATEMENTS_MAX} a connection"
            )

    def add_statement(self, prepared: Prepared) -> int:
        identity, self._next = self._next, self._next + 1
        self._held[identity] = prepared
        return identity

    def bound(self, fields: Fields) -> tuple[Prepared, list[object]]:
        """The statement and the values of a COM_STMT_EXECUTE."""
        prepared = self._find(fields.integer(4))
        prepared.asks_for_cursor = bool(fields.integer(1) & codes.CURSOR_TYPE_READ_ONLY)
        fields.read(4)  # the iteration count is always 1
        if prepared.too_long:
            prepared.forget_long_data()
            raise codes.PacketTooLarge(
                "packet too large: the parameters", expected=f"at most {LONG_DATA_BYTES_MAX} bytes in all"
            )
        values, prepared.types = decode_parameters(
            fields, len(prepared.names), prepared.types, prepared.long_data
        )
        prepared.forget_long_data()
        return prepared, list(values)

    def long_data(self, fields: Fields) -> None:
        """No answer is sent, so an error waits for the execution."""
        prepared = self._held.get(fields.integer(4))
        position, data = fields.integer(2), fields.rest()
        if prepared is not None:
            held = sum(map(len, prepared.long_data.values()))
            prepared.too_long |= held + len(data) > LONG_DATA_BYTES_MAX
            if not prepared.too_long:
                prepared.long_data[position] = prepared.long_data.get(position, b"") + data

    def fetched(self, fields: Fields) -> None:
        """A COM_STMT_FETCH: every cursor that was given has no rows."""
        identity = fields.integer(4)
        if not self._find(identity).asks_for_cursor:
            raise QueryError(f"prepared statement {identity} has no cursor", action="execute it with one")

    def reset(self, fields: Fields) -> None:
        self._find(fields.integer(4)).forget_long_data()

    def close(self, fields: Fields) -> None:
        self._held.pop(fields.integer(4), None)

    def clear(self) -> None:
        self._held.clear()

    def _find(self, identity: int) -> Prepared:
        try:
            return self._held[identity]
        except KeyError:
            raise QueryError(f"unknown prepared statement {identity}") from None
