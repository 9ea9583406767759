"""A record that is too large for one node: its head, and pieces that are written once.

    /cubes/<cube>/segments/<segment>           SplitSegment: the record without what is in pieces, their names
    /cubes/<cube>/closing/<segment>.<digest>   Piece: closing offsets and staged parts

While replica sets close a segment of many partitions, each adds its offsets and its part. What they add stays
in the head until that has grown to `HEAD_BYTES_MAX`; it then moves into a piece, whose name follows from its
bytes. Every change writes the head, under its version, in the same commit as the pieces that it makes or
drops: whoever has read another head, or another piece, commits nothing.

A head is no `SegmentRecord`: a service of a version without pieces refuses it, instead of taking some of the
closing offsets for all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from rtolap.metadata import codec
from rtolap.metadata.records import SegmentRecord
from rtolap.model.offsets import Offsets
from rtolap.model.segment import StagedPart

HEAD_BYTES_MAX = 100_000  # a commit has room for a few of them: `store.COMMIT_BYTES_MAX`
_DIGITS = 32


class Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of an open segment's record; see `records.SegmentRecord` for the fields."""

    target: Offsets = {}
    target_epochs: Offsets = {}
    parts: tuple[StagedPart, ...] = ()

    def is_part_of(self, record: SegmentRecord) -> bool:
        return (
            self.target.items() <= record.target.items()
            and self.target_epochs.items() <= record.target_epochs.items()
            and all(part in record.parts for part in self.parts)
        )


class SplitSegment(msgspec.Struct, frozen=True):
    """The head of a record with pieces.

    Attributes:
        record: None in a node that holds a whole SegmentRecord.
        pieces: their names, in the order in which they were written.
    """

    record: SegmentRecord | None = None
    pieces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Split:
    """A record as its nodes hold it.

    Attributes:
        head: data of the record's own node.
        pieces: all of them, by name.
        fresh: data of those that are new, by name.
        gone: names of those that are dropped.
    """

    head: bytes
    pieces: Mapping[str, Piece]
    fresh: Mapping[str, bytes]
    gone: tuple[str, ...]


def split(record: SegmentRecord, before: Mapping[str, Piece]) -> Split:
    """Divide the record. Pieces that it had `before` stay as long as it holds what they hold."""
    kept = {name: piece for name, piece in before.items() if piece.is_part_of(record)}
    gone = tuple(name for name in before if name not in kept)
    rest = _without(record, kept.values())
    head = _head(record, rest, kept)
    if len(head) <= HEAD_BYTES_MAX:
        return Split(head, kept, {}, gone)
    data = codec.encode(rest)
    name = f"{record.name}.{hashlib.sha256(data).hexdigest()[:_DIGITS]}"
    pieces = {**kept, name: rest}
    return Split(_head(record, Piece(), pieces), pieces, {name: data}, tuple(n for n in gone if n != name))


def join(head: SegmentRecord, pieces: Mapping[str, Piece]) -> SegmentRecord:
    """Return the whole record."""
    if not pieces:
        return head
    target: Offsets = {}
    target_epochs: Offsets = {}
    parts: tuple[StagedPart, ...] = ()
    for piece in (*pieces.values(), Piece(head.target, head.target_epochs, head.parts)):
        target.update(piece.target)
        target_epochs.update(piece.target_epochs)
        parts += piece.parts
    return msgspec.structs.replace(head, target=target, target_epochs=target_epochs, parts=parts)


def _without(record: SegmentRecord, pieces: Iterable[Piece]) -> Piece:
    target, target_epochs = dict(record.target), dict(record.target_epochs)
    parts = list(record.parts)
    for piece in pieces:
        for partition in piece.target:
            target.pop(partition, None)
        for partition in piece.target_epochs:
            target_epochs.pop(partition, None)
        parts = [part for part in parts if part not in piece.parts]
    return Piece(target, target_epochs, tuple(parts))


def _head(record: SegmentRecord, rest: Piece, pieces: Mapping[str, Piece]) -> bytes:
    head = msgspec.structs.replace(
        record, target=rest.target, target_epochs=rest.target_epochs, parts=rest.parts
    )
    return codec.encode(SplitSegment(head, tuple(pieces)) if pieces else head)
