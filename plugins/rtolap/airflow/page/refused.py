"""Records that a cube's table has refused, some at a time, the newest first, as its dead letters have them.

They are data: the route is for who may ask statements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from rtolap.base.decoding import copied, decode_json
from rtolap.base.errors import DefinitionError
from rtolap.base.undecodable import UNDECODABLE

if TYPE_CHECKING:
    from rtolap.kafka.dead_letters import OlderDeadLetters

RECORDS_MAX = 100  # read for one answer
TEXT_MAX = 300  # characters of what is wrong with a record
_BEFORE_CHARS_MAX = 20_000


class RefusedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record that was refused.

    Attributes:
        at_ms: when it was.
        value: its beginning; None for a record without a value.
    """

    at_ms: int
    partition: int
    offset: int
    reason: str
    detail: str
    value: str | None


class RefusedRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Refused records, the newest first.

    Attributes:
        topic: of dead letters.
        older: what the next question says, to be given older ones; empty where there are none.
    """

    now_ms: int
    topic: str
    records: tuple[RefusedRecord, ...] = ()
    older: str = ""


def offsets_before(text: str) -> dict[int, int]:
    """Return the offsets that an earlier answer has given as `older`. Raises DefinitionError."""
    if not text:
        return {}
    wanted = "`older` of an earlier answer"
    if len(text) > _BEFORE_CHARS_MAX:
        raise DefinitionError("these are no offsets", expected=wanted, found=f"{len(text)} characters")
    try:
        return decode_json(text, dict[int, int])
    except UNDECODABLE as error:
        raise DefinitionError("these are no offsets", expected=wanted, found=str(error)) from error


def refused_records(topic: str, source: str, found: OlderDeadLetters, *, now_ms: int) -> RefusedRecords:
    """Return each record once, though every receiver of its partition has reported it. source: its topic."""
    seen: dict[tuple[int, int], RefusedRecord] = {}
    for at_ms, letter in found.letters:
        if letter.topic == source:
            seen.setdefault(
                (letter.partition, letter.offset),
                copied(RefusedRecord, letter, at_ms=at_ms, detail=letter.detail[:TEXT_MAX]),
            )
    older = _text(found.before) if found.more else ""
    return RefusedRecords(now_ms=now_ms, topic=topic, records=tuple(seen.values()), older=older)


def _text(before: Mapping[int, int]) -> str:
    return msgspec.json.encode(dict(before)).decode()
