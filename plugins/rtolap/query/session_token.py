"""The answers that a session has received, and the token that carries them to another query service.

A service remembers the positions of its own answers; of another service's answers it knows what a session's
token says. A statement of a session is answered at or beyond them, or ends in a named error.

A token is base64url of a tag and a body: HMAC-SHA256, cut to 16 bytes, over the body, then the body, which is
MessagePack: a list of [cube, cube id, {partition: next offset}], the cube that was answered last at the end.
The key is made of the cluster's token, so every query service of the cluster takes it, and nobody else can
make one: positions that no answer has held would be waited for. A token holds no secret.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from rtolap.base.decoding import decode_msgpack
from rtolap.base.errors import QueryError
from rtolap.model.offsets import Offsets
from rtolap.protocols.query.messages import SESSION_TOKEN_SEPARATOR

TOKEN_BYTES_MAX = 24 << 10  # of one token as text: some 1 500 partitions; a request's head may have 64 KiB
TOKENS_BYTES_MAX = 48 << 10  # of several of one session, which its threads were given beside each other
_CREATIONS_MAX = 2  # of a cube: a statement over the one before may still be under way
_TAG_BYTES = 16
_KEY_LABEL = b"rtolap session token 1"
_NO_VOID: Mapping[int, int] = {}


class BadSessionToken(QueryError):
    """The error that a token was not made by a query service of this cluster, or with another cluster
    token.
    """

    code = "bad_session_token"


class CubePositions(msgspec.Struct, frozen=True, array_like=True):
    cube: str
    cube_id: str
    offsets: Offsets


class SessionPositions:
    """The largest positions that a session has been answered with, by cube and creation of the cube.

    Thread-safe. A cube that was dropped and recreated counts for itself.
    """

    def __init__(self, known: Iterable[CubePositions] = ()) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Offsets] = {}
        self.merge(known)

    def __iter__(self) -> Iterator[CubePositions]:
        """Yield the positions; the cube that was answered last comes at the end."""
        with self._lock:
            known = list(self._known.items())
        return iter([CubePositions(cube, cube_id, offsets) for (cube, cube_id), offsets in known])

    def identities(self, cube: str) -> set[str]:
        with self._lock:
            return {cube_id for name, cube_id in self._known if name == cube}

    def of(self, cube: str, cube_id: str) -> Offsets:
        with self._lock:
            return dict(self._known.get((cube, cube_id), {}))

    def merge(self, others: Iterable[CubePositions]) -> None:
        for other in others:
            self.advance(other.cube, other.cube_id, other.offsets)

    def advance(self, cube: str, cube_id: str, offsets: Offsets, void: Mapping[int, int] = _NO_VOID) -> None:
        """Keep the offsets that an answer of the cube holds, and of a cube the newest creations.

        Args:
            void: positions up to these offsets were reached in records that the topic's log has lost.
        """
        with self._lock:
            known = self._known.pop((cube, cube_id), {})
            for partition, offset in offsets.items():
                before = known.get(partition, 0)
                is_void = offset < before <= void.get(partition, 0)
                known[partition] = offset if is_void else max(offset, before)
            self._known[cube, cube_id] = known
            of_cube = [key for key in self._known if key[0] == cube]
            for key in of_cube[:-_CREATIONS_MAX]:
                del self._known[key]

    def forget_creations_beside(self, cube: str, cube_id: str) -> None:
        """Forget the answers about the cube's predecessors."""
        with self._lock:
            for key in [key for key in self._known if key[0] == cube and key[1] != cube_id]:
                del self._known[key]

    def keep(self, cubes: Collection[str]) -> None:
        """Forget all other cubes."""
        with self._lock:
            self._known = {key: offsets for key, offsets in self._known.items() if key[0] in cubes}


class SessionTokens:
    """Writes and reads the tokens of one cluster. Thread-safe."""

    def __init__(self, secret: str) -> None:
        """Create the tokens of a cluster.

        Args:
            secret: the cluster's token.
        """
        self._key = hmac.new(secret.encode(), _KEY_LABEL, hashlib.sha256).digest()

    def write(self, positions: Iterable[CubePositions]) -> str:
        """Return the token; empty where nothing was answered. The cubes that were answered longest ago are
        left out of one that would be too large."""
        cubes = list(positions)
        while cubes:
            body = msgspec.msgpack.encode(cubes)
            token = base64.urlsafe_b64encode(self._tag(body) + body).rstrip(b"=").decode()
            if len(token) <= TOKEN_BYTES_MAX:
                return token
            cubes = cubes[1:]
        return ""

    def read(self, text: str) -> list[CubePositions]:
        """Read a token, or several with SESSION_TOKEN_SEPARATOR between them. Raises BadSessionToken."""
        if len(text) > TOKENS_BYTES_MAX:
            raise _bad(f"at most {TOKENS_BYTES_MAX} bytes", f"{len(text)} bytes")
        found: list[CubePositions] = []
        for token in filter(None, (part.strip() for part in text.split(SESSION_TOKEN_SEPARATOR))):
            found += self._read_one(token)
        return found

    def _read_one(self, token: str) -> list[CubePositions]:
        try:
            data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise _bad("base64url", "other characters, or a part of it") from error
        tag, body = data[:_TAG_BYTES], data[_TAG_BYTES:]
        if not hmac.compare_digest(tag, self._tag(body)):
            raise _bad("a token that a query service of this cluster has answered with", "another signature")
        try:
            return decode_msgpack(body, list[CubePositions])
        except msgspec.DecodeError as error:
            raise _bad("a token of this version", str(error)) from error

    def _tag(self, body: bytes) -> bytes:
        return hmac.new(self._key, body, hashlib.sha256).digest()[:_TAG_BYTES]


def _bad(expected: str, found: str) -> BadSessionToken:
    return BadSessionToken(
        "the session token is not valid",
        expected=expected,
        found=found,
        action="leave it out: a new session begins",
    )
