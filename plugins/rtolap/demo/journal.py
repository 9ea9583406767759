"""The journal of a demonstration: answers beside recounts, refusals, and one verdict out of them.

Every answer is compared, the first of each moment is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from rtolap.demo.moments import Moment
from rtolap.demo.recount import QUERIES, Rows
from rtolap.kafka.dead_letters import DeadLetter

Place = tuple[int, int]  # partition, offset


class Refusals(msgspec.Struct, frozen=True):
    """Records that were refused. `by_reason` counts each stored record once, however many receivers reported
    it."""

    sent: int
    by_reason: dict[str, int]
    lost: frozenset[Place]
    unexpected: frozenset[Place]

    @property
    def all_kept(self) -> bool:
        return not self.lost and not self.unexpected


def compare_refusals(malformed: Iterable[Place], letters: Iterable[DeadLetter]) -> Refusals:
    """Compare the malformed records of the replay with the dead-letter topic: it holds each of them and
    nothing else.

    `malformed`: where in the topic they stand. Pure.
    """
    sent = frozenset(malformed)
    reasons = {(letter.partition, letter.offset): letter.reason for letter in letters}
    by_reason: dict[str, int] = {}
    for reason in sorted(reasons.values()):
        by_reason[reason] = by_reason.get(reason, 0) + 1
    return Refusals(len(sent), by_reason, sent - reasons.keys(), frozenset(reasons.keys() - sent))


class Entry(msgspec.Struct, frozen=True):
    """An answer beside its recount. `events` is the size of the prefix that both hold; `equal` says too that
    no position went backwards."""

    query: str
    moment: Moment
    events: int
    answer: Rows
    recount: Rows
    equal: bool


class MomentShown(msgspec.Struct, frozen=True, kw_only=True):
    """The observations of a moment, and the answers given in it.

    Attributes:
        moment: of the life of segments.
        seen_times: how often the cube was found in it.
        queries: names of those that were answered within it.
        asked: how many answers there were.
        equal: how many of them were as the recount.
        events: the fewest and the most that an answer held; None without an answer.
    """

    moment: Moment
    seen_times: int
    queries: tuple[str, ...]
    asked: int
    equal: int
    events: tuple[int, int] | None


class DemoJournal:
    """`asked` and `equal` count every answer; `shown` holds one a query and moment, and every wrong one."""

    def __init__(self) -> None:
        self.asked = 0
        self.equal = 0
        self.unanswered: Counter[str] = Counter()  # why no answer came at first, and it was asked again
        self.shown: list[Entry] = []
        self.refusals: Refusals | None = None
        self._seen: set[tuple[str, Moment]] = set()
        self._positions: dict[int, int] = {}
        self._found: Counter[Moment] = Counter()
        self._asked_at: Counter[Moment] = Counter()
        self._equal_at: Counter[Moment] = Counter()
        self._events_at: dict[Moment, tuple[int, int]] = {}

    def observe(self, moments: Iterable[Moment]) -> None:
        """Note the moments in which the cube was found, whether or not a query runs now."""
        self._found.update(moments)

    def note(
        self,
        query: str,
        moments: Iterable[Moment],
        *,
        events: int,
        positions: dict[int, int],
        answer: Rows,
        recount: Rows,
    ) -> None:
        """Note an answer. Positions that go backwards make it wrong, whatever it says."""
        backwards = any(offset < self._positions.get(p, 0) for p, offset in positions.items())
        self._positions |= positions
        is_equal = answer == recount and not backwards
        self.asked += 1
        self.equal += is_equal
        for moment in sorted(moments, key=list(Moment).index):
            self._asked_at[moment] += 1
            self._equal_at[moment] += is_equal
            fewest, most = self._events_at.get(moment, (events, events))
            self._events_at[moment] = min(fewest, events), max(most, events)
            if (query, moment) not in self._seen or not is_equal:
                self._seen.add((query, moment))
                self.shown.append(Entry(query, moment, events, answer, recount, is_equal))

    def missing(self, queries: Iterable[str]) -> list[Moment]:
        """Return the moments at which some query was never answered."""
        names = list(queries)
        return [moment for moment in Moment if any((name, moment) not in self._seen for name in names)]

    def by_moment(self, queries: Iterable[str]) -> tuple[MomentShown, ...]:
        """Return what was shown of every moment, in the order of events' lives."""
        names = list(queries)
        return tuple(
            MomentShown(
                moment=moment,
                seen_times=self._found[moment],
                queries=tuple(name for name in names if (name, moment) in self._seen),
                asked=self._asked_at[moment],
                equal=self._equal_at[moment],
                events=self._events_at.get(moment),
            )
            for moment in Moment
        )

    def moments(self) -> set[Moment]:
        return {moment for _, moment in self._seen}

    @property
    def all_equal(self) -> bool:
        return 0 < self.asked == self.equal


class DemoOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict, for people and for programs.

    Attributes:
        is_shown: every answer was equal, at every required moment, and every malformed record was kept.
        asked: how many answers there were.
        equal: how many of them were as the recount.
        asked_again: why no answer came at first, and how often.
        missing_moments: required moments at which not every query was answered.
        moments: what was seen and answered at each moment, in order.
        refusals: what became of malformed records; None where they were not read.
        answers: the first of each query and moment, and every one that differs.
    """

    is_shown: bool
    asked: int
    equal: int
    asked_again: dict[str, int]
    missing_moments: tuple[Moment, ...]
    moments: tuple[MomentShown, ...]
    refusals: Refusals | None
    answers: tuple[Entry, ...]


def outcome(journal: DemoJournal, required: frozenset[Moment]) -> DemoOutcome:
    missing = tuple(journal.missing(query.name for query in QUERIES))
    refusals = journal.refusals
    all_stored = refusals is not None and refusals.all_kept
    return DemoOutcome(
        is_shown=journal.all_equal and all_stored and not required.intersection(missing),
        asked=journal.asked,
        equal=journal.equal,
        asked_again=dict(journal.unanswered.most_common()),
        missing_moments=missing,
        moments=journal.by_moment(query.name for query in QUERIES),
        refusals=refusals,
        answers=tuple(journal.shown),
    )
