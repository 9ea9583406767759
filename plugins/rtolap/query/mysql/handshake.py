"""Login uses caching_sha2_password on its fast path, and TLS first when there is a certificate."""

from __future__ import annotations

import os
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass

from rtolap.base.errors import Unauthorized
from rtolap.query.mysql import codes
from rtolap.query.mysql.packets import ConnectionClosed, PacketFields, PacketStream
from rtolap.query.statements.sql_session import SERVER_VERSION

PLUGIN = b"caching_sha2_password"
LOGIN_BYTES_MAX = 64 << 10
Verify = Callable[[str, bytes, bytes], None]  # name, scramble, nonce; raises Unauthorized


@dataclass(frozen=True)
class Login:
    user: str
    database: str | None
    capabilities: int


@dataclass(frozen=True)
class Tls:
    """The server's TLS offer.

    Attributes:
        required: True if a client without TLS is refused before its password is checked.
    """

    context: ssl.SSLContext
    required: bool = False


def log_in(stream: PacketStream, connection_id: int, verify: Verify, tls: Tls | None) -> Login:
    """Log a client in. Raises Unauthorized, TlsRequired or ConnectionClosed; the caller then closes the
    connection."""
    nonce = bytes(1 + byte % 126 for byte in os.urandom(20))  # no zero byte: it would end the field
    offered = codes.CAPABILITIES | (codes.SSL if tls else 0)
    stream.write(
        b"\x0a"
        + SERVER_VERSION.encode()
        + b"\0"
        + struct.pack("<I", connection_id)
        + nonce[:8]
        + b"\0"
        + struct.pack("<HBHH", offered & 0xFFFF, codes.UTF8MB4, codes.STATUS_AUTOCOMMIT, offered >> 16)
        + bytes((21,))
        + bytes(10)
        + nonce[8:]
        + b"\0"
        + PLUGIN
        + b"\0"
    )
    stream.flush()
    payload = stream.read(LOGIN_BYTES_MAX)
    capabilities = PacketFields(payload).integer(4)
    if tls is not None and capabilities & codes.SSL and len(payload) == 32:
        stream.start_tls(tls.context)
        payload = stream.read(LOGIN_BYTES_MAX)
    elif tls is not None and tls.required:
        raise codes.TlsRequired(
            "this server takes connections over TLS only",
            action="connect with TLS: `--ssl` of the mariadb command line, ssl={…} of PyMySQL",
        )
    fields = PacketFields(payload)
    capabilities = fields.integer(4) & (offered | codes.SSL)
    if not capabilities & codes.PROTOCOL_41:
        raise ConnectionClosed("a client older than MySQL 4.1")
    fields.read(4 + 1 + 23)
    user = fields.null_terminated().decode("utf-8", "replace")
    long = capabilities & codes.PLUGIN_AUTH_LENENC
    scramble = fields.string() if long else fields.read(fields.integer(1))
    database = None
    if capabilities & codes.CONNECT_WITH_DB:
        database = fields.null_terminated().decode("utf-8", "replace") or None
    plugin = fields.null_terminated() if capabilities & codes.PLUGIN_AUTH else b""
    if plugin != PLUGIN:
        scramble = _switch(stream, nonce)
    _check(verify, user, scramble, nonce)
    stream.write(b"\x01\x03")  # fast authentication succeeded; the OK follows
    return Login(user, database, capabilities)


def change_user(stream: PacketStream, payload: bytes, verify: Verify) -> tuple[str, str | None]:
    """Answer COM_CHANGE_USER: log in again, with a nonce of its own. Raises Unauthorized."""
    fields = PacketFields(payload, 1)
    user = fields.null_terminated().decode("utf-8", "replace")
    fields.read(fields.integer(1))
    database = fields.null_terminated().decode("utf-8", "replace") or None
    nonce = bytes(1 + byte % 126 for byte in os.urandom(20))
    _check(verify, user, _switch(stream, nonce), nonce)
    stream.write(b"\x01\x03")
    return user, database


def _switch(stream: PacketStream, nonce: bytes) -> bytes:
    """Ask a client that began with another plugin to use ours."""
    stream.write(b"\xfe" + PLUGIN + b"\0" + nonce + b"\0")
    stream.flush()
    return stream.read(LOGIN_BYTES_MAX)


def _check(verify: Verify, user: str, scramble: bytes, nonce: bytes) -> None:
    try:
        verify(user, scramble, nonce)
    except Unauthorized as error:
        raise Unauthorized(f"Access denied for user {user!r}: unknown user or wrong password") from error
