"""The outcome of a demonstration: one verdict out of its journal, for people and for programs."""

from __future__ import annotations

import msgspec

from rtolap.demo.journal import Entry, Journal, MomentShown
from rtolap.demo.moments import Moment
from rtolap.demo.queries import QUERIES
from rtolap.demo.refusals import Refusals


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """`is_shown`: every answer was equal, at every required moment, and every malformed record was kept.

    `asked_again`: why no answer came at first, and how often. `moments`: what was seen and answered at each
    one, in order. `answers`: the first of each query and moment, and every one that differs.
    """

    is_shown: bool
    asked: int
    equal: int
    asked_again: dict[str, int]
    missing_moments: tuple[Moment, ...]
    moments: tuple[MomentShown, ...]
    refusals: Refusals | None
    answers: tuple[Entry, ...]


def outcome(journal: Journal, required: frozenset[Moment]) -> Outcome:
    missing = tuple(journal.missing(query.name for query in QUERIES))
    refusals = journal.refusals
    is_kept = refusals is not None and refusals.all_kept
    return Outcome(
        is_shown=journal.all_equal and is_kept and not required.intersection(missing),
        asked=journal.asked,
        equal=journal.equal,
        asked_again=dict(journal.unanswered.most_common()),
        missing_moments=missing,
        moments=journal.by_moment(query.name for query in QUERIES),
        refusals=refusals,
        answers=tuple(journal.shown),
    )
