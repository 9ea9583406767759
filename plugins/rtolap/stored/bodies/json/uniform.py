"""Blocks of JSON lines that all have the same members in the same order → their columns.

Such a block is cut by the commas before its keys alone, which are a third of its quotes. All lines have as
many of them, what is written there is compared byte by byte, and the block has no more quotes than its keys
and its quoted values need: then nothing else can be in it. A block where any of that fails is left to `flat`,
which looks at every quote.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rtolap.stored.bodies.batches import Longs, Mask
from rtolap.stored.bodies.json.members import Block, Member
from rtolap.stored.bodies.json.quotes import QUOTE, Lines

_COMMA, _SPACE = b", "


def uniform_columns(
    block: Block, lines: Lines, members: list[Member]
) -> tuple[dict[str, pa.Array], Mask] | None:
    """Return the wanted columns of all lines, and which lines are flat; None for a block that is not uniform.

    `members` are those of the first line. All lines have to be plain.
    """
    begins = _member_places(block, lines, members)
    if begins is None:
        return None
    known = [member.before + 1 if place else 1 for place, member in enumerate(members)]  # found by it
    written = [member.written[skipped:] for member, skipped in zip(members, known, strict=True)]
    if not block.are(written, begins + np.array(known).reshape(-1, 1)).all():
        return None
    starts = begins + np.array([len(member.written) for member in members]).reshape(-1, 1)
    ends = np.empty_like(begins)
    ends[:-1], ends[-1] = begins[1:], lines.ends - 1
    quoted = block.text.take(starts, mode="clip") == QUOTE
    if not (ends - starts > quoted).all():
        return None  # nothing stands there, or a quote alone
    closed = block.text.take(ends - 1, mode="clip") == QUOTE
    if not (closed >= quoted).all():
        return None
    if block.quotes != 2 * (begins.size + int(np.count_nonzero(quoted))):
        return None  # a value has quotes inside
    return block.columns([member.name for member in members], starts, ends, quoted)


def _member_places(block: Block, lines: Lines, members: list[Member]) -> Longs | None:
    """Return by key where each line's members begin: at its brace, and at the commas before other keys."""
    count, lead = len(lines.starts), members[-1].before
    if any(member.before != lead for member in members[1:]):
        return None
    begins = np.empty((len(members), count), np.int64)
    begins[0] = lines.starts
    if len(members) == 1:
        return begins
    text = block.text
    found = text[: len(text) - lead] == _COMMA
    if lead > 1:
        found &= text[1:-1] == _SPACE
    found &= block.is_quote[lead:]
    places = np.flatnonzero(found)
    if len(places) != count * (len(members) - 1):
        return None
    begins[1:] = places.reshape(count, -1).T
    inside = (begins[1] > lines.starts) & (begins[-1] < lines.ends)
    return begins if inside.all() else None
