"""Notices to people beside failures and questions, in words: overdue windows, refused records. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rtolap.airflow.notify import Notice
from rtolap.airflow.words import iso, state_of
from rtolap.protocols.watermark.messages import Explanation

if TYPE_CHECKING:
    from rtolap.kafka.dead_letters import DeadLetter

SHOWN_MAX = 5


class LetterTopic(NamedTuple):
    """A topic of refused records.

    Attributes:
        what: whose records they are, in words.
        look: the command that lists them.
    """

    cluster: str
    topic: str
    what: str
    look: str


def overdue_notice(explanation: Explanation) -> Notice:
    end = iso(explanation.window_end_ms)
    return Notice(
        f"rtolap: a window of {explanation.application} is overdue",
        f"{state_of(explanation)}\n\nLook: rtolap watermark explain {explanation.application} {end}",
    )


def refused_notice(source: LetterTopic, letters: Sequence[DeadLetter], *, more: bool) -> Notice:
    """Return the notice of records that were refused. Their values, which may be anybody's, are not in it.

    A record that several processes have refused is one. `more`: there are further ones, which the next
    notice counts.
    """
    each = list({(letter.topic, letter.partition, letter.offset): letter for letter in letters}.values())
    count = f"{len(each)}{' and more' if more else ''} {'record' if len(each) == 1 else 'records'}"
    reasons = Counter(letter.reason or letter.detail for letter in each)
    lines = [f"{number} × {reason}" for reason, number in reasons.most_common(SHOWN_MAX)]
    lines += ["", *_places(each[:SHOWN_MAX]), "", f"Look: {source.look}"]
    return Notice(f"rtolap: {count} of {source.what} set apart", "\n".join(lines))


def _places(letters: Iterable[DeadLetter]) -> list[str]:
    lines = []
    for letter in letters:
        place = f" partition {letter.partition} offset {letter.offset}" if letter.partition >= 0 else ""
        lines.append(f"{letter.topic}{place}: {letter.detail or letter.reason}")
    return lines
