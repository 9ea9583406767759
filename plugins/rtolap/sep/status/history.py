"""A file of earlier status looks, a JSON document a line, and the lines of a picture of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import Corrupted, NotFound
from rtolap.base.files import read_named, write_named
from rtolap.sep.status.summary import PeerSummary


class ReplicationLook(msgspec.Struct, frozen=True):
    """The replication status at a time.

    Attributes:
        at_ms: milliseconds since 1970.
        peers: the summaries of that time.
    """

    at_ms: int
    cluster: str
    peers: tuple[PeerSummary, ...]


class PeerLag(msgspec.Struct, frozen=True):
    """Columns of equal length, in the order of `at_ms`; lags in milliseconds, None: not known."""

    peer: str
    at_ms: tuple[int, ...]
    worst_ms: tuple[int | None, ...]
    median_ms: tuple[float | None, ...]


def append_look(path: Path, look: ReplicationLook) -> None:
    """Append a look. Raises RtolapError where the file cannot be written."""
    write_named(path, msgspec.json.encode(look) + b"\n", append=True)


def read_looks(path: Path) -> list[ReplicationLook]:
    """Read the looks. A last line without its end was being written, and is left out. Raises NotFound,
    Corrupted; RtolapError where it cannot be read."""
    lines = read_named(path, "file", action="keep looks by --record").split(b"\n")[:-1]
    looks: list[ReplicationLook] = []
    for number, line in enumerate(lines, 1):
        try:
            looks.append(decode_json(line, ReplicationLook))
        except msgspec.DecodeError as error:
            raise Corrupted(f"{path}, line {number} is no look at replication", found=error) from error
    return looks


def lag_by_peer(looks: Iterable[ReplicationLook], only: Collection[str] = ()) -> list[PeerLag]:
    """Return lags by peer's name; a peer has just the looks that have seen it. Raises NotFound for one of
    `only` that none has seen."""
    rows: dict[str, list[tuple[int, PeerSummary]]] = {}
    for look in sorted(looks, key=lambda look: look.at_ms):
        for summary in look.peers:
            if not only or summary.peer in only:
                rows.setdefault(summary.peer, []).append((look.at_ms, summary))
    unknown = sorted(set(only) - set(rows))
    if unknown:
        raise NotFound(f"no look has seen a peer {unknown[0]}", found=", ".join(sorted(rows)) or "none")
    return [
        PeerLag(
            peer,
            tuple(at_ms for at_ms, _ in seen),
            tuple(None if row.lag_ms is None else row.lag_ms.worst for _, row in seen),
            tuple(None if row.lag_ms is None else row.lag_ms.median for _, row in seen),
        )
        for peer, seen in sorted(rows.items())
    ]
