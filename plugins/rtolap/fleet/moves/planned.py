"""The moves of a plan, partition by partition, and the digest that identifies them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import Corrupted, DefinitionError
from rtolap.kafka.administration.values import Partition, Replica

MOVES_MAX = 200_000


class PlannedMove(msgspec.Struct, frozen=True, array_like=True):
    """The change of one partition.

    Attributes:
        before: Broker ids before the move, in the order of preference.
        after: Broker ids after the move, in the order of preference.
        former_dirs: Log directory of each replica before the move. Empty where it is not known.
        log_dirs: Log directory of each replica after the move. Empty where the broker chooses.
        size_bytes: Size of one copy.
        stage: The move begins when all moves of earlier stages have ended.
    """

    topic: str
    number: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    former_dirs: tuple[str, ...]
    log_dirs: tuple[str, ...]
    size_bytes: int
    stage: int = 0

    @property
    def partition(self) -> Partition:
        return Partition(self.topic, self.number)

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.after if broker not in self.before)

    def wanted_dirs(self) -> dict[Replica, str]:
        """Return the directories of replicas for which the plan names one."""
        named = zip(self.after, self.log_dirs, strict=True)
        return {Replica(self.partition, broker): path for broker, path in named if path}

    def coming(self) -> dict[int, str]:
        """Return broker → directory of each copy that is made, between brokers or between disks of one."""
        former = dict(zip(self.before, self.former_dirs, strict=True))
        return {
            broker: path
            for broker, path in zip(self.after, self.log_dirs, strict=True)
            if broker not in former or (path and path != former[broker])
        }


def encode_moves(moves: Sequence[PlannedMove]) -> bytes:
    return msgspec.json.encode(moves)


def decode_moves(data: bytes) -> tuple[PlannedMove, ...]:
    try:
        return decode_json(data, tuple[PlannedMove, ...])
    except msgspec.MsgspecError as error:
        raise Corrupted("the moves of a plan cannot be read", found=str(error)) from error


def digest_of_moves(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def check_moves(moves: Sequence[PlannedMove]) -> None:
    """Raise DefinitionError where moves cannot be carried out on any cluster."""
    if not moves or len(moves) > MOVES_MAX:
        raise DefinitionError(
            "a plan of no or too many moves", expected=f"1 to {MOVES_MAX}", found=len(moves)
        )
    earlier: dict[Partition, PlannedMove] = {}
    stage = 0
    for move in moves:
        if move.stage < stage:
            raise DefinitionError(
                f"the plan moves {move.partition} in no order", expected=f"stage {stage}", found=move.stage
            )
        stage = move.stage
        former = earlier.get(move.partition)
        if former is not None and (former.stage == stage or former.after != move.before):
            raise DefinitionError(f"the plan moves {move.partition} twice")
        earlier[move.partition] = move
        if not move.after or len(set(move.after)) != len(move.after) or min(move.after) < 0:
            raise DefinitionError(f"{move.partition} cannot be at these brokers", found=list(move.after))
        if len(move.after) < len(move.before):
            raise DefinitionError(
                f"the plan lowers the replication factor of {move.partition}",
                expected=f"{len(move.before)} replicas",
                found=list(move.after),
            )
        lengths = (len(move.former_dirs), len(move.log_dirs))
        if lengths != (len(move.before), len(move.after)) or not move.before or move.size_bytes < 0:
            raise DefinitionError(f"the plan contradicts itself about {move.partition}")
