"""The bounds on messages of one call, found by their prefixes of five bytes, and the refusal of a call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rtolap.base.errors import Refused, RtolapError, TooLarge
from rtolap.base.flight_guard import frames


class Refusal(NamedTuple):
    """The refusal of a call; `status` is gRPC's, `reason` counts it, `begun`: the head of its answer is sent
    already.
    """

    stream: int
    status: int
    reason: str
    error: RtolapError
    begun: bool


class CallRefused(Exception):
    """`status` is gRPC's, `reason` counts it."""

    def __init__(self, status: int, reason: str, error: RtolapError) -> None:
        super().__init__(reason)
        self.status, self.reason, self.error = status, reason, error


@dataclass
class MessageBounds:
    """The positions of the messages of one call."""

    bytes_max: int
    answer_begun: bool = False
    left_bytes: int = 0
    prefix: bytearray = field(default_factory=bytearray)

    def advance(self, piece: memoryview) -> None:
        """Raises CallRefused at the beginning of a message that is too long."""
        at, size = 0, len(piece)
        while at < size:
            if self.left_bytes:
                step = min(self.left_bytes, size - at)
                self.left_bytes -= step
                at += step
                continue
            step = min(frames.MESSAGE_PREFIX_BYTES - len(self.prefix), size - at)
            self.prefix += piece[at : at + step]
            at += step
            if len(self.prefix) == frames.MESSAGE_PREFIX_BYTES:
                self._begin(self.prefix[0], int.from_bytes(self.prefix[1:], "big"))
                self.prefix.clear()

    def _begin(self, compressed: int, size: int) -> None:
        if compressed:
            raise CallRefused(
                frames.UNIMPLEMENTED,
                "compressed",
                Refused("a message is compressed", expected="messages as they are", action="send it so"),
            )
        if size > self.bytes_max:
            raise CallRefused(
                frames.RESOURCE_EXHAUSTED,
                "too_large",
                TooLarge("a message is too large", expected=f"at most {self.bytes_max} bytes", found=size),
            )
        self.left_bytes = size
