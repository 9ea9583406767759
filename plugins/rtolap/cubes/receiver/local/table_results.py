"""Results of statements over one immutable local table, kept for statements that come again.

Local tables never change, so what a statement made of one stays true for as long as the table is there. A
table that was merged out of others holds their events, so it starts with their results, and counts as read by
whoever has read them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain, count

import pyarrow as pa

Shape = bytes  # dimensions, partials and filter of a statement, encoded: see `result_cache`

_tokens = count(1)


class TableResults:
    """Results of tables, which are computed once. It is thread-safe: at worst two threads compute the same
    result twice.

    token     names the table's events in this process
    members   the tokens of the tables out of which the table was merged
    """

    __slots__ = ("_pieces", "members", "token")

    def __init__(self, members: Sequence[TableResults] = ()) -> None:
        self.token = next(_tokens)
        self.members = frozenset(member.token for member in members)
        self._pieces: dict[Shape, tuple[pa.Table, ...]] = {}
        for shape in set.intersection(*(set(member._pieces) for member in members)) if members else ():
            pieces = [member._pieces.get(shape) for member in members]
            if None not in pieces:
                self._pieces[shape] = tuple(chain.from_iterable(piece for piece in pieces if piece))

    def pieces(self, shape: Shape) -> tuple[pa.Table, ...] | None:
        """Return tables in local form whose merge is the result; None where it is not known."""
        return self._pieces.get(shape)

    def keep(self, shape: Shape, result: pa.Table) -> None:
        self._pieces[shape] = (result,)

    def keep_only(self, shapes: Collection[Shape]) -> None:
        for shape in list(self._pieces):
            if shape not in shapes:
                self._pieces.pop(shape, None)

    def forget(self, shape: Shape) -> None:
        self._pieces.pop(shape, None)

    def nbytes(self, shape: Shape) -> int:
        return sum(int(piece.nbytes) for piece in self._pieces.get(shape, ()))
