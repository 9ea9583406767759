"""The hosts of a source, to one node and back: names a line, compressed; who is leaving, as packed entries.

A hundred thousand names fit into one node.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import msgspec

from rtolap.base.errors import Corrupted, Refused
from rtolap.metadata.records import LeavingHost, SourceHosts

BYTES_MAX = 700_000  # a node holds 1 MB, and base64 adds a third
_LEAVING = msgspec.msgpack.Decoder(tuple[LeavingHost, ...])


@dataclass(frozen=True, slots=True)
class KeptHosts:
    """Everybody who counts, and of those who are leaving until when; `epoch` 0 while no list was kept."""

    epoch: int = 0
    names: tuple[str, ...] = ()
    leaving: tuple[LeavingHost, ...] = ()


def packed(hosts: KeptHosts, where: str) -> SourceHosts:
    """Raises Refused if they are too many for one node. Where only the leaving ones are, it says nothing of
    them: to a next leader they are listed, so it waits for longer."""
    names = zlib.compress("\n".join(hosts.names).encode(), 6)
    if len(names) > BYTES_MAX:
        raise Refused(
            f"the host list of {where} is too large",
            expected=f"at most {BYTES_MAX} bytes compressed",
            found=len(names),
            action="split the source",
        )
    leaving = zlib.compress(msgspec.msgpack.encode(hosts.leaving), 6) if hosts.leaving else b""
    return SourceHosts(hosts.epoch, names, leaving if len(names) + len(leaving) <= BYTES_MAX else b"")


def unpacked(record: SourceHosts | None, where: str) -> KeptHosts:
    if record is None:
        return KeptHosts()
    try:
        text = zlib.decompress(record.names).decode()
        leaving = _LEAVING.decode(zlib.decompress(record.leaving)) if record.leaving else ()
    except (zlib.error, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise Corrupted(
            f"the kept host list of {where} cannot be read",
            found=str(error),
            action="restore the node from a backup, or remove it and let the hosts register again",
        ) from error
    names = tuple(text.split("\n")) if text else ()
    if any(host.host >= len(names) for host in leaving):
        raise Corrupted(f"the kept host list of {where} names fewer hosts than are leaving")
    return KeptHosts(record.epoch, names, leaving)
