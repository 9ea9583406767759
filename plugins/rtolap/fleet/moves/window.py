"""Chooses the moves that begin next: a sliding window, so that a move that is stuck delays no other.

A broker takes part in a move if it receives data by it or leads its partition. It gets another move while
fewer than `moves_per_broker` of its moves are active. Under a throttle it gets one only while the rest of its
moves keeps it busy for less than `ahead_s`, or while copies fall behind the throttle. A stalled move does not
count. A broker whose writes take too long gets fewer moves (`produce_latency`). Moves of the broker with most
left to do come first, the biggest of them first, so that the longest ones do not come last. A stage of the
plan begins when no move of an earlier stage is pending or active. No move begins towards a broker that does
not serve, or to a disk without room for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rtolap.fleet.moves.look import BrokerDisk, Look
from rtolap.fleet.moves.planned import PlannedMove
from rtolap.fleet.moves.records import MoveRecord, PlanRecord
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.states import MoveState

_ORDERS_AT_ONCE = 200  # moves without data: the order of replicas


@dataclass(frozen=True)
class MoveLoads:
    """Bytes by move and broker, as pairs: move m has the rows first[m] up to first[m + 1]."""

    first: NDArray[np.int64]
    brokers: NDArray[np.int64]
    bytes_: NDArray[np.int64]

    @classmethod
    def of(cls, moves: Sequence[PlannedMove]) -> MoveLoads:
        counts, brokers, sizes = [], [], []
        for move in moves:
            loads = loads_of(move)
            counts.append(len(loads))
            brokers += list(loads)
            sizes += list(loads.values())
        return cls(
            np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            np.array(brokers, np.int64),
            np.array(sizes, np.int64),
        )

    def in_order(self, pending: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the pending moves, those of the broker with most left to do first, the biggest of them
        first.
        """
        if not len(pending) or not len(self.brokers):
            return pending
        counts = np.diff(self.first)
        is_pending = np.zeros(len(counts), np.bool_)
        is_pending[pending] = True
        of_pending = np.repeat(is_pending, counts)
        left = np.bincount(
            self.brokers[of_pending], self.bytes_[of_pending], minlength=int(self.brokers.max()) + 1
        )
        owners = np.repeat(np.arange(len(counts)), counts)
        busiest = np.zeros(len(counts))
        np.maximum.at(busiest, owners, left[self.brokers])
        order = np.lexsort((pending, -sizes[pending], -busiest[pending]))
        return pending[order]

    def by_broker(self, of_moves: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the bytes of each broker, where of_moves[m] is the share of move m that counts."""
        if not len(self.brokers):
            return np.zeros(0)
        weights = self.bytes_ * np.repeat(of_moves, np.diff(self.first))
        return np.bincount(self.brokers, weights).astype(np.float64)


@dataclass(frozen=True)
class PlanMoves:
    """The moves of a plan, with the columns that every step needs.

    Attributes:
        sizes: Size of one copy, by move.
        copies_bytes: Size of all copies that a move makes, by move.
        of_dirs: Numbers of the moves that name a broker's log directory.
    """

    moves: tuple[PlannedMove, ...]
    loads: MoveLoads
    sizes: NDArray[np.int64]
    copies_bytes: NDArray[np.int64]
    stages: NDArray[np.int64]
    of_dirs: dict[tuple[int, str], list[int]]

    @classmethod
    def of(cls, moves: Sequence[PlannedMove]) -> PlanMoves:
        of_dirs: dict[tuple[int, str], list[int]] = defaultdict(list)
        for number, move in enumerate(moves):
            for replica, path in move.wanted_dirs().items():
                of_dirs[replica.broker, path].append(number)
        return cls(
            tuple(moves),
            MoveLoads.of(moves),
            np.array([move.size_bytes for move in moves], np.int64),
            np.array([move.size_bytes * len(move.coming()) for move in moves], np.int64),
            np.array([move.stage for move in moves], np.int64),
            dict(of_dirs),
        )


def loads_of(move: PlannedMove) -> dict[int, int]:
    """Return, by broker, the bytes that it receives, and those that it sends as the present leader."""
    loads = dict.fromkeys(move.coming(), move.size_bytes)
    if move.adding:
        leader = move.before[0]
        loads[leader] = loads.get(leader, 0) + move.size_bytes * len(move.adding)
    return loads


def choose(
    record: PlanRecord, plan: PlanMoves, look: Look, now_ms: int, settings: MoverSettings
) -> list[int]:
    """Return numbers of pending moves that may begin now."""
    pending = np.flatnonzero(np.frombuffer(record.outcomes.encode(), np.uint8) == ord("."))
    if not len(pending):
        return []
    stage = min(plan.moves[number].stage for number in (int(pending[0]), *record.active))
    pending = pending[plan.stages[pending] == stage]
    if not len(pending):
        return []
    window = _Window(record, plan.moves, look, now_ms, settings)
    chosen: list[int] = []
    without_data = 0
    for number in plan.loads.in_order(pending, plan.sizes):
        move = plan.moves[int(number)]
        of_move = loads_of(move)
        if not of_move:
            without_data += 1
            if without_data > _ORDERS_AT_ONCE:
                continue
        if window.takes(move, of_move):
            chosen.append(int(number))
        if window.is_full:
            break
    return chosen


def lost(record: PlanRecord, plan: PlanMoves, look: Look) -> dict[int, str]:
    """Return pending moves to log directories that do not exist, with the reason in words."""
    found: dict[int, str] = {}
    for (broker, path), numbers in plan.of_dirs.items():
        reason = look.lost_dir(broker, path)
        if reason is not None:
            found.update((number, reason) for number in numbers if record.outcomes[number] == ".")
    return found


def going_moves(
    record: PlanRecord, moves: Sequence[PlannedMove], now_ms: int, settings: MoverSettings
) -> Counter[int]:
    """Return the moves under way by broker. Moves that stall or are being undone do not count."""
    going: Counter[int] = Counter()
    for number, move_record in record.active.items():
        if move_record.state is not MoveState.CANCELLING and not is_stalled(move_record, now_ms, settings):
            going.update(loads_of(moves[number]).keys())
    return going


class _Window:
    def __init__(
        self,
        record: PlanRecord,
        moves: Sequence[PlannedMove],
        look: Look,
        now_ms: int,
        settings: MoverSettings,
    ) -> None:
        self._rate = record.rate_bytes_per_s
        self._look = look
        self._settings = settings
        self._latency = record.produce_latency
        self._going = going_moves(record, moves, now_ms, settings)
        self._all: Counter[int] = Counter()
        self._left_bytes: Counter[int] = Counter()
        self._bytes_per_s: dict[int, float] = defaultdict(float)
        self._taken: Counter[tuple[int, str]] = Counter()
        for number, move_record in record.active.items():
            move = moves[number]
            stalls = is_stalled(move_record, now_ms, settings)
            left = max(0, move.size_bytes * len(move.coming()) - move_record.copied_bytes)
            for broker in loads_of(move):
                self._all[broker] += 1
                if not stalls and move_record.state is not MoveState.CANCELLING:
                    self._left_bytes[broker] += left
                    self._bytes_per_s[broker] += move_record.bytes_per_s
            self._reserve(move, left)

    @property
    def is_full(self) -> bool:
        return bool(self._look.alive) and not any(self._wants(broker) for broker in self._look.alive)

    def takes(self, move: PlannedMove, loads: dict[int, int]) -> bool:
        if not all(broker in self._look.alive for broker in move.after):
            return False
        if not all(self._wants(broker) for broker in loads):
            return False
        if not self._has_room(move):
            return False
        for broker, size_bytes in loads.items():
            self._going[broker] += 1
            self._all[broker] += 1
            self._left_bytes[broker] += size_bytes
        self._reserve(move, move.size_bytes)
        return True

    def _wants(self, broker: int) -> bool:
        if broker not in self._look.alive:
            # a former leader that is gone: another replica is read from
            return self._all[broker] < self._settings.moves_per_broker_max
        going, going_max = self._going[broker], self._settings.moves_per_broker
        if self._latency is not None:
            going_max = self._latency.moves_max(broker, going_max)
        if self._all[broker] >= self._settings.moves_per_broker_max or going >= going_max:
            return False
        if going == 0 or self._rate is None:
            return True
        behind = 0 < self._bytes_per_s[broker] < 0.8 * self._rate
        return behind or self._left_bytes[broker] < self._rate * self._settings.ahead_s

    def _has_room(self, move: PlannedMove) -> bool:
        return all(self._fits(broker, path, move.size_bytes) for broker, path in move.coming().items())

    def _fits(self, broker: int, path: str, size_bytes: int) -> bool:
        """Return True if the broker has room. Where no directory is named, any directory will do, as the
        broker chooses.
        """
        if broker not in self._look.reporting:
            return False
        disks = {
            known: disk
            for (of_broker, known), disk in self._look.disks.items()
            if of_broker == broker and path in ("", known) and not disk.offline
        }
        return any(self._room(broker, known, disk) >= size_bytes for known, disk in disks.items())

    def _room(self, broker: int, path: str, disk: BrokerDisk) -> float:
        if disk.usable_bytes is None or disk.total_bytes is None:
            return float("inf")
        free_bytes = disk.total_bytes * self._settings.room_share
        taken = self._taken[broker, path] + self._taken[broker, ""]
        return disk.usable_bytes - taken - free_bytes

    def _reserve(self, move: PlannedMove, size_bytes: int) -> None:
        for broker, path in move.coming().items():
            self._taken[broker, path] += size_bytes


def is_stalled(move_record: MoveRecord, now_ms: int, settings: MoverSettings) -> bool:
    return now_ms - move_record.progressed_ms > settings.stall_ms
