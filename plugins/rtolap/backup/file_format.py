"""The bytes of a backup.

    header      JSON in one line: see `Header`
    signature   64 hexadecimal digits and a newline: over the header's line, with a key of the cluster's token
    records     the rest: a JSON list of [path, record in base64], compressed by zlib

The header holds the checksum of the rest, so the signature vouches for all of it. The format version is read
before anything else is believed. Records are as ZooKeeper has them, without their signatures, which belong to
a node's version: a restore signs them anew.
"""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path
from typing import NamedTuple

import msgspec

from rtolap.base.cluster_secret import BACKUP, derived_key, proves, tag
from rtolap.base.decoding import decode_json
from rtolap.base.errors import Corrupted, Refused, RtolapError
from rtolap.base.files import read_named, write_atomic
from rtolap.base.undecodable import UNDECODABLE, decode_own

FORMAT = "rtolap metadata backup"
FORMAT_VERSION = 1
_SIGNATURE_BYTES = 64
_MODE = 0o600
_ID_DIGITS = 16
_COPY_AGAIN = "take another backup, or another copy of this one"


class _Format(msgspec.Struct, frozen=True):
    format: str = ""
    format_version: int = 0


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first part of a backup: what it says about itself.

    Attributes:
        backup_id: new for each backup.
        cluster: root of the cluster's nodes in ZooKeeper, which is its name.
        cluster_key: follows from the cluster's token, and gives nothing of it away.
        made_ms: time at which reading ended.
        program: version of rtolap that made it.
        passes: how often the records were read until they stood still.
        records: number of records.
        sha256: checksum of the compressed records, in hex.
    """

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    backup_id: str
    cluster: str
    cluster_key: str
    made_ms: int
    program: str
    passes: int
    records: int
    sha256: str = ""


class Backup(NamedTuple):
    header: Header
    records: dict[str, bytes]


def cluster_key(token: str) -> str:
    """Return what tells clusters with different tokens apart."""
    return hashlib.sha256(derived_key(token, BACKUP)).hexdigest()[:_ID_DIGITS]


def encode(header: Header, records: dict[str, bytes], token: str) -> bytes:
    """Return the bytes of a backup. `header`: without its checksum."""
    body = zlib.compress(msgspec.json.encode(list(records.items())))
    line = msgspec.json.encode(msgspec.structs.replace(header, sha256=hashlib.sha256(body).hexdigest()))
    signature = tag(derived_key(token, BACKUP), line).hex().encode()
    return b"\n".join((line, signature, body))


def decode(data: bytes, where: str, *, cluster: str, token: str) -> Backup:
    """Return what is in a backup of this cluster.

    Raises Refused for a file of another format, format version or cluster, Corrupted for a damaged one.
    """
    line, _, rest = data.partition(b"\n")
    try:
        said = decode_json(line, _Format)
    except UNDECODABLE as error:
        raise _damaged(where, "its first line is no header", str(error)) from error
    if said.format != FORMAT:
        raise Refused(f"{where} is no backup of metadata", expected=FORMAT, found=said.format or "none")
    if said.format_version != FORMAT_VERSION:
        raise Refused(
            f"{where} has another format version",
            expected=FORMAT_VERSION,
            found=said.format_version,
            action="restore it with a version of rtolap that writes this format",
        )
    try:
        header = decode_json(line, Header)
    except UNDECODABLE as error:
        raise _damaged(where, "its header cannot be read", str(error)) from error
    _check_cluster(header, where, cluster, token)
    signature, body = rest[:_SIGNATURE_BYTES], rest[_SIGNATURE_BYTES + 1 :]
    if not proves(derived_key(token, BACKUP), _digits(signature), line):
        raise _damaged(where, "its header was altered", "another signature")
    found = hashlib.sha256(body).hexdigest()
    if found != header.sha256:
        raise _damaged(where, "its records were altered, or are cut off", f"sha256 {found}", header.sha256)
    try:
        text = zlib.decompress(body)
    except zlib.error as error:
        raise _damaged(where, "its records cannot be read", str(error)) from error
    records = decode_own(text, list[tuple[str, bytes]], f"the backup {where} holds no records")
    return Backup(header, dict(records))


def read_backup(path: Path, *, cluster: str, token: str) -> Backup:
    """Read a backup. Raises as `decode`, and NotFound."""
    return decode(read_named(path, "file"), str(path), cluster=cluster, token=token)


def write_backup(path: Path, data: bytes) -> None:
    """Write the file in one step; its owner alone may read it. Raises RtolapError."""
    try:
        write_atomic(path, data, mode=_MODE)
    except OSError as error:
        raise RtolapError(f"{path} cannot be written", found=error.strerror) from error


def _check_cluster(header: Header, where: str, cluster: str, token: str) -> None:
    expected = (cluster, cluster_key(token))
    if (header.cluster, header.cluster_key) != expected:
        raise Refused(
            f"{where} is a backup of another cluster",
            expected=f"cluster {cluster}, token {expected[1]}",
            found=f"cluster {header.cluster}, token {header.cluster_key}",
            action="restore it with the ZooKeeper root and the token of the cluster that it was made of",
        )


def _digits(signature: bytes) -> bytes:
    try:
        return bytes.fromhex(signature.decode("ascii"))
    except ValueError:
        return b""


def _damaged(where: str, what: str, found: str, expected: str | None = None) -> Corrupted:
    return Corrupted(
        f"the backup {where} is damaged: {what}",
        expected=None if expected is None else f"sha256 {expected}",
        found=found,
        action=_COPY_AGAIN,
    )
