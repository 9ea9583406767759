"""Malformed records of the replay beside what the dead-letter topic keeps: each one, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rtolap.kafka.dead_letters import DeadLetter

Place = tuple[int, int]  # partition, offset


class Refusals(msgspec.Struct, frozen=True):
    """`by_reason` counts each kept record once, however many receivers reported it."""

    sent: int
    by_reason: dict[str, int]
    lost: frozenset[Place]
    unexpected: frozenset[Place]

    @property
    def all_kept(self) -> bool:
        return not self.lost and not self.unexpected


def compare(malformed: Iterable[Place], letters: Iterable[DeadLetter]) -> Refusals:
    """`malformed`: where in the topic the malformed records stand. Pure."""
    sent = frozenset(malformed)
    reasons = {(letter.partition, letter.offset): letter.reason for letter in letters}
    by_reason: dict[str, int] = {}
    for reason in sorted(reasons.values()):
        by_reason[reason] = by_reason.get(reason, 0) + 1
    return Refusals(len(sent), by_reason, sent - reasons.keys(), frozenset(reasons.keys() - sent))
