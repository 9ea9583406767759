"""The server's packets of the command phase: OK, EOF, errors and result sets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import pyarrow as pa

from rtolap.base.errors import RtolapError
from rtolap.query.catalogue import DATABASE
from rtolap.query.coalescing import Once
from rtolap.query.memory_budget import RESULT, Account
from rtolap.query.mysql import codes
from rtolap.query.mysql.packets import Frames, Packets, length_encoded
from rtolap.query.mysql.result_sets import definition
from rtolap.query.statement_outcome import result_pieces

_STATUS = codes.STATUS_AUTOCOMMIT.to_bytes(2, "little")
_CURSOR_OPEN = (codes.STATUS_AUTOCOMMIT | codes.STATUS_CURSOR_EXISTS).to_bytes(2, "little")
_CURSOR_AT_END = (codes.STATUS_AUTOCOMMIT | codes.STATUS_LAST_ROW_SENT).to_bytes(2, "little")
MESSAGE_BYTES_MAX = 2000
_COUNT_MAX = (1 << 16) - 1
EncodeRows = Callable[[pa.RecordBatch], Iterator[bytes]]  # rows as packets, as text or binary


class Answers:
    """Writes to the stream of one connection; flushing is the caller's."""

    def __init__(self, stream: Packets, capabilities: int, account: Account | None = None) -> None:
        """Create a writer of answers.

        Args:
            account: the memory of results while they are written; None where another account bounds it.
        """
        self._account = account
        self._stream = stream
        self._capabilities = capabilities
        self._deprecate_eof = bool(capabilities & codes.DEPRECATE_EOF)

    def text(self, data: bytes) -> None:
        self._stream.write(data)

    def ok(self, warnings: int = 0) -> None:
        self._stream.write(b"\0\0\0" + _STATUS + _count(warnings))

    def end(self, warnings: int = 0, status: bytes = _STATUS) -> None:
        """End a result set: OK in the place of EOF, where the client knows it."""
        if self._deprecate_eof:
            self._stream.write(b"\xfe\0\0" + status + _count(warnings))
        else:
            self.eof(warnings, status)

    def eof(self, warnings: int = 0, status: bytes = _STATUS) -> None:
        self._stream.write(b"\xfe" + _count(warnings) + status)

    def fetched(self) -> None:
        """Return the answer to COM_STMT_FETCH: the cursor has no more rows."""
        self.end(status=_CURSOR_AT_END)

    def error(self, error: RtolapError) -> None:
        self._stream.write(error_packet(error))

    def result(
        self,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        encode: EncodeRows,
        warnings: int = 0,
        *,
        cursor: bool = False,
        made: Once | None = None,
    ) -> None:
        """Write a result.

        Rows are sent at once even with a cursor, as the protocol allows. But Connector/J 8 takes an end that
        follows the columns for the end of a cursor that was just opened, and waits for rows. So a result
        without rows is a cursor, and COM_STMT_FETCH finds its end.

        Args:
            warnings: number of warnings that SHOW WARNINGS would list.
            made: the packets of the statements that share the rows; None where the rows are not shared.
            cursor: True if the client requested a cursor.
        """
        if made is not None:
            key = (encode, self._deprecate_eof, self._stream.sequence, warnings, cursor)
            self._stream.write_frames(
                *made.get(key, lambda: self._framed(schema, batches, encode, warnings, cursor=cursor))
            )
            deque(batches, maxlen=0)  # of those who have not made the frames
            return
        try:
            self._rows(schema, batches, encode, warnings, cursor=cursor)
        finally:
            if self._account is not None:
                self._account.reserve(RESULT, 0)

    def _rows(
        self,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        encode: EncodeRows,
        warnings: int,
        *,
        cursor: bool,
    ) -> None:
        pieces = chain.from_iterable(result_pieces(batch, self._account) for batch in batches)
        rows = chain.from_iterable(map(encode, pieces))
        first = next(rows, None) if cursor else None
        self._stream.write(length_encoded(len(schema)))
        self._definitions(schema)
        if cursor and first is None:
            self.end(warnings, _CURSOR_OPEN)
            return
        self._eof_unless_deprecated(warnings)
        write = self._stream.write
        if first is not None:
            write(first)
        for row in rows:
            write(row)
        self.end(warnings)

    def _framed(
        self,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        encode: EncodeRows,
        warnings: int,
        *,
        cursor: bool,
    ) -> tuple[bytes, int]:
        """Return the frames of the result, and the number of the one behind them."""
        frames = Frames(self._stream.sequence)
        Answers(frames, self._capabilities).result(schema, batches, encode, warnings, cursor=cursor)
        return bytes(frames.out), frames.sequence

    def prepared(self, identity: int, columns: pa.Schema, parameters: int) -> None:
        """Return the answer to COM_STMT_PREPARE."""
        head = b"\0" + identity.to_bytes(4, "little")
        head += len(columns).to_bytes(2, "little") + parameters.to_bytes(2, "little") + b"\0\0\0"
        self._stream.write(head)
        if parameters:
            for _ in range(parameters):
                self._stream.write(definition("?", pa.string()))
            self._eof_unless_deprecated()
        if len(columns):
            self._definitions(columns)
            self._eof_unless_deprecated()

    def fields(self, relation: str, names: Sequence[str]) -> None:
        """Return the answer to COM_FIELD_LIST."""
        for name in names:
            self._stream.write(definition(name, pa.string(), table=relation, database=DATABASE) + b"\xfb")
        self.eof()

    def _definitions(self, schema: pa.Schema) -> None:
        for column in schema:
            self._stream.write(definition(column.name, column.type))

    def _eof_unless_deprecated(self, warnings: int = 0) -> None:
        if not self._deprecate_eof:
            self.eof(warnings)


def _count(warnings: int) -> bytes:
    return min(warnings, _COUNT_MAX).to_bytes(2, "little")


def error_packet(error: RtolapError) -> bytes:
    number, state = codes.error_code(error)
    head = b"\xff" + number.to_bytes(2, "little") + b"#" + state.encode()
    return head + str(error).encode()[:MESSAGE_BYTES_MAX]
