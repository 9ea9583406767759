"""The client's side of one connection, checked frame by frame before it goes on to the server.

Nothing goes on before the head of a call has the token. Frames that are not DATA go on whole, DATA as it
comes, once the length of its message is known and within bounds. Without sockets and without a clock of its
own: bytes in, bytes and refusals out.

A call that is refused ends for the client with a status of gRPC, and for the server, if it has seen it, as
cancelled; its further DATA is thrown away. What breaks HTTP/2 or is restless ends the connection.

Every frame counts as restless, whatever its flags, except the beginning of a call, DATA that can hold a
message's prefix, and frames that are due: the acknowledgement of a frame that the server has sent, the end
of a call, and the window updates that a client sends for what it was answered.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable

from hpack import Decoder, HPACKError

from rtolap.base.errors import SessionOffered, Unauthorized
from rtolap.base.mutual_proof import CALL, HELLO, ServerSessions
from rtolap.servers.flight_guard import frames
from rtolap.servers.flight_guard.frames import CallRefusal, CallRefused, MessageBounds
from rtolap.servers.limits import FlightLimits

_STREAMS_OF_ROWS = ("/DoPut", "/DoExchange")
_REFUSED_MAX = 1000
_UPDATES_PER_CALL = 4  # of its window and the connection's, before there is an answer
_UPDATES_PER_FRAME = 2  # of an answer: the call's window and the connection's
_LENGTHS = {frames.PRIORITY: 5, frames.RST_STREAM: 4, frames.PING: 8, frames.WINDOW_UPDATE: 4}


class BrokenConnection(Exception):
    """The connection has to end. `reason` counts it, `code` is HTTP/2's."""

    def __init__(self, reason: str, code: int, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.code = code


class Calls:
    """The calls of one connection. `authorized` from the first call that had the token, or of a session."""

    def __init__(
        self,
        token: str,
        limits: FlightLimits,
        now_s: Callable[[], float],
        sessions: ServerSessions | None = None,
    ) -> None:
        """Begin without a call.

        Args:
            sessions: those of clients that have proven that they know the token; None: all have to send it.
        """
        self.authorized = False
        self.last_stream = 0
        self.refusals: list[CallRefusal] = []
        self.thrown_away_bytes = 0  # the client's window has to grow by them again
        self._expected = f"Bearer {token}".encode()
        self._limits = limits
        self._sessions = sessions
        self._now_s = now_s
        self._decoder = Decoder(max_header_list_size=limits.head_bytes_max)
        self._calls: dict[int, MessageBounds] = {}
        self._refused: dict[int, None] = {}  # the last ones, for what their clients send on
        self._out: list[bytes | memoryview] = []
        self._partial = bytearray()  # of a frame, or of the preface, that has not come whole
        self._preface = True
        self._own_settings = True  # not acknowledged yet
        self._early_frames = 0
        self._early_bytes = 0
        self._block: bytearray | None = None  # a head that goes on in CONTINUATION, its frames as they came
        self._fragments: list[bytes] = []
        self._data_left = 0
        self._data_stream = 0
        self._data_thrown = False
        self._data_refused = False
        self._restless = float(limits.restless_frames_max)
        self._restless_at_s = now_s()
        self._due: Counter[int] = Counter()  # kind of frame → how many the client may send uncounted

    def feed(self, data: memoryview) -> list[bytes | memoryview]:
        """Return the bytes to send on to the server, in order; parts of `data` among them. Raises
        BrokenConnection.

        `refusals` and `thrown_away_bytes` are the caller's to clear.
        """
        self._out = []
        at, size = 0, len(data)
        while at < size:
            if self._data_left:
                at = self._take_data(data, at)
            elif self._preface:
                at = self._take_preface(data, at)
            else:
                at = self._take_frame(data, at)
        return self._out

    def answered(self, kind: int, flags: int) -> None:
        """Note that the server has sent a frame of this kind."""
        if kind in (frames.DATA, frames.HEADERS):
            self._owe(frames.WINDOW_UPDATE, _UPDATES_PER_FRAME)
        elif kind in _ACKNOWLEDGED and not flags & frames.ACK:
            self._owe(kind, 1)

    def answer_begun(self, stream: int) -> None:
        """Note that the server has sent the head of its answer."""
        call = self._calls.get(stream)
        if call is not None:
            call.answer_begun = True

    def answer_ended(self, stream: int) -> None:
        """Note that the server has ended this call."""
        self._calls.pop(stream, None)

    # -- frames -----------------------------------------------------------------------------------------

    def _take_preface(self, data: memoryview, at: int) -> int:
        step = min(len(frames.PREFACE) - len(self._partial), len(data) - at)
        self._partial += data[at : at + step]
        if not frames.PREFACE.startswith(self._partial):
            raise BrokenConnection("protocol", frames.PROTOCOL_ERROR, "not HTTP/2")
        if len(self._partial) == len(frames.PREFACE):
            self._out.append(bytes(self._partial))
            self._partial.clear()
            self._preface = False
        return at + step

    def _take_frame(self, data: memoryview, at: int) -> int:
        """Take as much of a frame as there is; of DATA only the header."""
        partial = self._partial
        if not partial and len(data) - at >= frames.HEADER_BYTES:
            size, kind, flags, stream = frames.parse_header(data, at)
            self._check_frame(size, kind, stream)
            if kind == frames.DATA:
                self._begin_data(size, flags, stream, data[at : at + frames.HEADER_BYTES])
                return at + frames.HEADER_BYTES
            end = at + frames.HEADER_BYTES + size
            if end <= len(data):
                self._take_control(kind, flags, stream, bytes(data[at:end]))
                return end
        if len(partial) < frames.HEADER_BYTES:
            step = min(frames.HEADER_BYTES - len(partial), len(data) - at)
            partial += data[at : at + step]
            at += step
            if len(partial) < frames.HEADER_BYTES:
                return at
        size, kind, flags, stream = frames.parse_header(partial)
        self._check_frame(size, kind, stream)
        if kind == frames.DATA:
            header = memoryview(bytes(partial))
            partial.clear()
            self._begin_data(size, flags, stream, header)
            return at
        step = min(frames.HEADER_BYTES + size - len(partial), len(data) - at)
        partial += data[at : at + step]
        if len(partial) == frames.HEADER_BYTES + size:
            whole = bytes(partial)
            partial.clear()
            self._take_control(kind, flags, stream, whole)
        return at + step

    def _check_frame(self, size: int, kind: int, stream: int) -> None:
        if self._block is not None and kind != frames.CONTINUATION:
            raise BrokenConnection("protocol", frames.PROTOCOL_ERROR, "a head was not ended")
        if kind != frames.DATA and size > frames.CONTROL_BYTES_MAX:
            raise BrokenConnection("protocol", frames.FRAME_SIZE_ERROR, "a frame is too long")
        if size != _LENGTHS.get(kind, size):
            raise BrokenConnection("protocol", frames.FRAME_SIZE_ERROR, "a frame has a wrong length")
        if (kind in _OF_CONNECTION and stream) or (kind in _OF_STREAM and not stream):
            raise BrokenConnection("protocol", frames.PROTOCOL_ERROR, "a frame is on a wrong stream")

    def _take_control(self, kind: int, flags: int, stream: int, whole: bytes) -> None:
        if not self.authorized:
            self._early_frames += 1
            self._early_bytes += len(whole)
            if (
                self._early_frames > self._limits.early_frames_max
                or self._early_bytes > self._limits.early_bytes_max
            ):
                raise BrokenConnection("long_head", frames.ENHANCE_YOUR_CALM, "too much before a call")
        if kind == frames.HEADERS:
            self._begin_head(flags, stream, whole)
        elif kind == frames.CONTINUATION:
            self._go_on_with_head(flags, stream, whole)
        elif kind == frames.SETTINGS and flags & frames.ACK and self._own_settings:
            self._own_settings = False  # of the guard's own, which the server knows nothing of
        elif kind == frames.PUSH_PROMISE:
            raise BrokenConnection("protocol", frames.PROTOCOL_ERROR, "clients promise nothing")
        else:
            if kind == frames.RST_STREAM:
                if stream > self.last_stream:
                    raise BrokenConnection("protocol", frames.PROTOCOL_ERROR, "a call that was never begun")
                self._calls.pop(stream, None)
            may_be_due = kind == frames.WINDOW_UPDATE or (kind in _ACKNOWLEDGED and flags & frames.ACK)
            self._count(kind if may_be_due else None)
            if stream not in self._refused:
                self._out.append(whole)
            elif kind == frames.RST_STREAM:
                self._refused.pop(stream, None)

    def _owe(self, kind: int, count: int) -> None:
        self._due[kind] = min(self._due[kind] + count, self._limits.restless_frames_max)

    def _count(self, due_kind: int | None) -> None:
        """Count a frame. `due_kind` is the kind as which it may be due; None means that it is never due."""
        if due_kind is not None and self._due[due_kind]:
            self._due[due_kind] -= 1
        else:
            self._count_restless()

    def _count_restless(self) -> None:
        now_s = self._now_s()
        grown = self._restless + (now_s - self._restless_at_s) * self._limits.restless_frames_per_s
        self._restless_at_s = now_s
        self._restless = min(grown, self._limits.restless_frames_max) - 1
        if self._restless < 0:
            raise BrokenConnection("restless", frames.ENHANCE_YOUR_CALM, "too many frames that bring nothing")

    # -- heads ------------------------------------------------------------------------------------------

    def _begin_head(self, flags: int, stream: int, whole: bytes) -> None:
        payload = whole[frames.HEADER_BYTES :]
        if flags & frames.PADDED:
            padding = payload[0] if payload else 0
            payload = payload[1 : len(payload) - padding] if padding < len(payload) else b""
        if flags & frames.PRIORITY_FLAG:
            payload = payload[5:]
        self._block = bytearray(whole)
        self._fragments = [payload]
        self._data_stream = stream
        if flags & frames.END_HEADERS:
            self._end_head()

    def _go_on_with_head(self, flags: int, stream: int, whole: bytes) -> None:
        if self._block is None or stream != self._data_stream:
            raise BrokenConnection("protocol", frames.PROTOCOL_ERROR, "a head goes on that was not begun")
        self._count_restless()
        self._block += whole
        self._fragments.append(whole[frames.HEADER_BYTES :])
        if len(self._block) > self._limits.head_bytes_max:
            raise BrokenConnection("long_head", frames.ENHANCE_YOUR_CALM, "the head of a call is too long")
        if flags & frames.END_HEADERS:
            self._end_head()

    def _end_head(self) -> None:
        assert self._block is not None
        stream, block, self._block = self._data_stream, bytes(self._block), None
        try:
            fields = self._decoder.decode(b"".join(self._fragments), raw=True)
        except HPACKError as error:
            code = frames.COMPRESSION_ERROR
            raise BrokenConnection("long_head", code, "the head of a call cannot be unpacked") from error
        self._fragments = []
        if stream <= self.last_stream:  # what follows the messages of a call
            self._count_restless()
            if stream in self._refused:
                raise BrokenConnection("protocol", frames.PROTOCOL_ERROR, "a refused call goes on")
            self._out.append(block)
            return
        if not stream & 1:
            raise BrokenConnection("protocol", frames.PROTOCOL_ERROR, "calls have odd numbers")
        self.last_stream = stream
        given = next((bytes(value) for name, value in fields if name == b"authorization"), b"")
        try:
            offer = self._admit(given)
        except Unauthorized as why:
            self._refuse(stream, CallRefused(frames.UNAUTHENTICATED, "unauthorized", why))
            if not self.authorized:
                raise BrokenConnection("unauthorized", frames.NO_ERROR, why.message) from why
            # The server's table of headers has to know of it all the same.
            self._out += [block, frames.reset(stream, frames.CANCEL)]
            return
        if offer is not None:
            self._refuse(stream, CallRefused(frames.UNAUTHENTICATED, "session_offered", offer))
            self._out += [block, frames.reset(stream, frames.CANCEL)]
            return
        self.authorized = True
        if len(self._calls) >= self._limits.calls_max:
            raise BrokenConnection("restless", frames.ENHANCE_YOUR_CALM, "too many calls at a time")
        path = next((bytes(value).decode("latin-1") for name, value in fields if name == b":path"), "")
        bytes_max = self._limits.message_bytes_max
        if self._limits.batch_bytes_max is not None and path.endswith(_STREAMS_OF_ROWS):
            bytes_max = self._limits.batch_bytes_max
        self._calls[stream] = MessageBounds(bytes_max)
        self._owe(frames.WINDOW_UPDATE, _UPDATES_PER_CALL)
        self._owe(frames.DATA, 1)  # which ends it
        self._out.append(block)

    def _admit(self, given: bytes) -> SessionOffered | None:
        """Return None where the call may go on. A hello is answered instead. Raises Unauthorized."""
        if self._sessions is not None and given.startswith(HELLO):
            return SessionOffered(self._sessions.offer(given))
        if self._sessions is not None and given.startswith(CALL):
            self._sessions.admit(given)
        elif not hmac.compare_digest(given, self._expected):
            raise Unauthorized("the token is missing or wrong")
        return None

    # -- messages ---------------------------------------------------------------------------------------

    def _begin_data(self, size: int, flags: int, stream: int, header: memoryview) -> None:
        if stream > self.last_stream:
            raise BrokenConnection("protocol", frames.PROTOCOL_ERROR, "a call that was never begun")
        if flags & frames.PADDED:
            raise BrokenConnection("protocol", frames.PROTOCOL_ERROR, "padded messages are not taken")
        if size < frames.MESSAGE_PREFIX_BYTES:
            self._count(frames.DATA if flags & frames.END_STREAM else None)
        self._data_left = size
        self._data_stream = stream
        self._data_thrown = stream in self._refused
        self._data_refused = False
        if not self._data_thrown:
            self._out.append(header)
        elif flags & frames.END_STREAM:
            self._refused.pop(stream, None)

    def _take_data(self, data: memoryview, at: int) -> int:
        """Take the data of a frame. A frame that has begun is taken to its end, also where its call is
        refused meanwhile."""
        step = min(self._data_left, len(data) - at)
        piece = data[at : at + step]
        self._data_left -= step
        if self._data_thrown:
            self.thrown_away_bytes += step
            return at + step
        messages = self._calls.get(self._data_stream)
        if messages is not None:
            try:
                messages.advance(piece)
            except CallRefused as refuse:
                self._refuse(self._data_stream, refuse)
                self._data_refused = True
        self._out.append(piece)
        if not self._data_left and self._data_refused:
            self._out.append(frames.reset(self._data_stream, frames.CANCEL))
        return at + step

    def _refuse(self, stream: int, refuse: CallRefused) -> None:
        call = self._calls.pop(stream, None)
        begun = call is not None and call.answer_begun
        self._refused[stream] = None
        if len(self._refused) > _REFUSED_MAX:
            del self._refused[next(iter(self._refused))]  # the server throws away what still comes for it
        self.refusals.append(CallRefusal(stream, refuse.status, refuse.reason, refuse.error, begun))
        self._count_restless()


_ACKNOWLEDGED = frozenset((frames.SETTINGS, frames.PING))
_OF_CONNECTION = frozenset((frames.SETTINGS, frames.PING, frames.GOAWAY))
_OF_STREAM = frozenset((frames.DATA, frames.HEADERS, frames.PRIORITY, frames.RST_STREAM, frames.CONTINUATION))
